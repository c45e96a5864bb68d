"""Trainings of victims, the comparison of groups of them, and other victims."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from hypothesis import given
from hypothesis import strategies as st

import configs
import games
from attacks.defences import (
    DEFENCES,
    important_inputs,
    weights_of,
    with_weights,
)
from attacks.experiments.attack import resolve, with_training
from attacks.experiments.config import AttackConfig
from attacks.experiments.evaluation import (
    VictimTrainings,
    compare,
    controlled,
    magnitude,
    make_trainings,
    over_training,
    silence,
)
from attacks.experiments.transfer import other_victims
from attacks.messages import make_message
from attacks.random_play import observations_of_play
from attacks.victim_training import TrainingSchedule, final_return, train_in, train_time_trial, train_victim
from games import Game
from games.wrappers.cheap_talk import CheapTalk
from marl import make_learner
from marl.blocks.networks import feed_forward
from marl.learners.registry import SAMPLED, settings
from marl.learners.sampled.dice import reinforce
from tests.nightly import nightly

GAME = games.make("CartPole-v1", max_steps_in_episode=20)
MESSAGE = make_message("mlp(hidden=[4])", (4,), 2)
KEY = jax.random.key(0)
SCHEDULE = TrainingSchedule(num_updates=2, steps_per_update=16, num_envs=2, num_episodes=2, num_steps=20)


def make_victim(game, hidden=(4,), shared=True, learning_rate=0.1):
    """The learner with the network that compiles fastest."""
    network = feed_forward(game.observation_space("agent_0").shape, 2, hidden=hidden, shared=shared)
    return reinforce(game, network=network, learning_rate=learning_rate)


@pytest.fixture(scope="module")
def parameters():
    return MESSAGE.init(jax.random.key(1))


@pytest.fixture(scope="module")
def run():
    return make_trainings(GAME, MESSAGE, make_victim, SCHEDULE, size=2, num_trials=3)


@pytest.mark.system
def test_the_same_victims_train_under_every_message(run, parameters):
    key = jax.random.key(0)
    silent, again, spoken = run(key, silence(parameters)), run(key, silence(parameters)), run(key, parameters)
    np.testing.assert_array_equal(silent.final_returns, again.final_returns)
    assert silent.final_returns.shape == (3,)
    assert silent.curves.shape == (3, 2)
    assert np.abs(silent.final_returns - spoken.final_returns).max() > 0


@pytest.fixture(scope="module")
def alone(parameters):
    return jax.jit(lambda key: train_victim(key, GAME, MESSAGE, parameters, make_victim, SCHEDULE))


@pytest.mark.system
def test_a_group_has_the_results_of_single_training_runs(run, parameters, alone):
    found = run(jax.random.key(0), parameters)
    keys = jax.random.split(jax.random.key(0), 4 if len(jax.local_devices()) > 1 else 3)
    training = alone(keys[0])
    np.testing.assert_allclose(found.final_returns[0], training.final_return, rtol=1e-5)
    np.testing.assert_allclose(found.curves[0], training.curve, rtol=1e-5)
    np.testing.assert_allclose(found.explored_returns[0], training.explored_return, rtol=1e-5)
    np.testing.assert_allclose(found.last_updates[0], training.last_update, rtol=1e-5)
    # Every step pays 1: the rewards of an update are its 16 steps in two environments, over a whole number of ends.
    ended = 32 / float(training.last_update)
    assert ended == pytest.approx(round(ended))
    assert 1 <= round(ended) <= 4  # no pole falls within 8 steps


def test_an_evolved_message_is_compared_with_silence_and_random_messages_of_its_amplitude(parameters):
    spoken, speakers = controlled(MESSAGE, parameters, observations_of_play(GAME), 32)
    seen = jnp.asarray(observations_of_play(GAME))
    volume = magnitude(MESSAGE, parameters, seen)
    assert volume > 0
    assert magnitude(spoken, spoken.init(jax.random.key(9)), seen) == pytest.approx(float(volume), rel=1e-4)
    assert magnitude(spoken, speakers["evolved"], seen) == pytest.approx(float(volume), rel=1e-6)
    assert magnitude(spoken, speakers["silent"], seen) == 0
    assert speakers["random"] is None  # each victim draws its own


@pytest.mark.system
def test_adversaries_and_allies_have_opposite_fitness(parameters, alone, monkeypatch):
    key = jax.random.key(3)
    training = alone(key)

    def trial(**settings):
        return train_time_trial(GAME, MESSAGE, make_victim, SCHEDULE, **settings)

    assert jax.jit(trial())(parameters, key).fitness == pytest.approx(-float(training.final_return), rel=1e-5)
    # Fitness of this training run under other settings; the program is compiled once.
    monkeypatch.setattr("attacks.victim_training.train_victim", lambda key, *arguments, **settings: alone(key))
    assert trial()(parameters, key).fitness == -trial(help=True)(parameters, key).fitness != 0
    np.testing.assert_allclose(
        trial(fitness="training")(parameters, key).fitness, -np.nanmean(training.curve), rtol=1e-5
    )
    np.testing.assert_allclose(trial(fitness="second_half")(parameters, key).fitness, -training.curve[1], rtol=1e-5)
    np.testing.assert_allclose(trial(fitness="last_update")(parameters, key).fitness, -training.last_update, rtol=1e-5)


@nightly
def test_a_message_with_a_memory_may_turn_after_the_training_run():
    """A message that counts the 32 steps of the training run changes in the evaluation after them."""
    turning, linear = make_message("turn(steps=32)", (4,), 2), make_message("linear", (4,), 2)
    parameters = turning.init(jax.random.key(2))
    calm = partial(make_victim, learning_rate=0.01)  # it still depends on the messages
    keys = jax.random.split(KEY, 8)
    run = jax.jit(
        jax.vmap(lambda key, parameters: train_victim(key, GAME, turning, parameters, calm, SCHEDULE), (0, None))
    )

    def train_one(turn, then):
        return run(keys, {"first": parameters["first"], "then": parameters[then], "turn": jnp.float32(turn)})

    @jax.jit
    def plain(parameters):
        return jax.vmap(lambda key: train_victim(key, GAME, linear, parameters, calm, SCHEDULE))(keys)

    never, always, at_once = train_one(100.0, "first"), train_one(100.0, "then"), train_one(-100.0, "then")
    first, then = plain(parameters["first"]), plain(parameters["then"])
    for field in ("curve", "final_return", "muted_return", "explored_return", "last_update"):
        np.testing.assert_allclose(getattr(never, field), getattr(first, field), rtol=1e-5)
        np.testing.assert_allclose(getattr(at_once, field), getattr(then, field), rtol=1e-5)
    np.testing.assert_array_equal(never.curve, always.curve)
    # The 32 steps and the first observations of later episodes, which count too.
    heard = np.asarray(never.talk.memory)
    assert ((heard >= 33) & (heard <= 33 + 32 // 9)).all()  # no pole falls within 8 steps

    # A victim that learned under the first message hears another one in the evaluation.
    def afterwards(key, state):
        after = CheapTalk(GAME, parameters["then"], linear.speak, 2)
        return final_return(jax.random.split(key)[1], after, calm(after), state, SCHEDULE)

    expected = jax.jit(jax.vmap(afterwards))(keys, always.state)
    np.testing.assert_allclose(always.final_return, expected, rtol=1e-5)
    assert (always.final_return != never.final_return).any()


def test_a_random_turning_message_has_the_amplitude_of_a_whole_training_run():
    """The evolved message is silent in the first half of the training run."""
    turning = make_message("turn(steps=128)", (4,), 2)
    parameters = turning.init(jax.random.key(2))
    parameters = parameters | {"first": silence(parameters["first"]), "turn": jnp.zeros(())}
    play = observations_of_play(GAME)
    spoken, _ = controlled(turning, parameters, play, 128)
    seen = jnp.asarray(np.resize(play, (128, 4)))
    volume = float(magnitude(turning, parameters, seen))
    assert volume > 0
    assert float(magnitude(spoken, spoken.init(jax.random.key(9)), seen)) == pytest.approx(volume, rel=1e-4)


@nightly
def test_fitness_may_be_measured_on_victims_with_a_defence(parameters):
    trial = train_time_trial(GAME, MESSAGE, make_victim, SCHEDULE, fitness="training", defence=DEFENCES["dropout"])
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    defended = jax.jit(lambda: DEFENCES["dropout"](KEY, talk, make_victim, SCHEDULE))()
    assert jax.jit(trial)(parameters, KEY).fitness == pytest.approx(-float(np.nanmean(defended.curve)), rel=1e-5)


def test_weights_include_those_of_critics():
    state = make_learner("sac(hidden=[4])", games.make("pendulum")).init(KEY)
    changed = with_weights(state, jax.tree.map(lambda x: x + 1, weights_of(state)))
    jax.tree.map(np.testing.assert_array_equal, with_weights(changed, weights_of(state)), state)
    assert (jax.tree.leaves(changed.networks.critics)[0] != jax.tree.leaves(state.networks.critics)[0]).all()


def test_a_training_run_without_ended_episodes_has_no_mean():
    curves = np.array([[np.nan, np.nan], [1.0, 3.0]])
    found = over_training(VictimTrainings(*np.zeros((4, 2)), curves))
    np.testing.assert_array_equal(found, [np.nan, 2.0])


def test_the_muted_return_has_zeros_in_place_of_messages(parameters, alone):
    key = jax.random.key(5)
    training = alone(key)
    silent = CheapTalk(GAME, silence(parameters), MESSAGE.speak, 2)
    expected = final_return(jax.random.split(key)[1], silent, make_victim(silent), training.state, SCHEDULE)
    np.testing.assert_allclose(training.muted_return, expected, rtol=1e-5)


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 3), min_size=2, max_size=9))
def test_differences_are_paired(triples):
    returns = np.array(triples).T
    curves = np.stack([returns[0], np.full(len(triples), np.nan)], 1)
    unended = (len(triples) - 1) // 2  # at least half have an ended episode in the last update
    last = np.append(np.full(unended, np.inf), np.tile([1.0, 3.0], len(triples))[: len(triples) - unended])
    groups = {
        name: VictimTrainings(x, 2 * x, 3 * x, last if name == "silent" else last + 1, curves)
        for name, x in zip(("evolved", "silent", "random"), returns, strict=True)
    }
    found = compare(groups)
    own = last[unended:]
    assert found["last_update"]["num_trials"] == len(own)
    assert found["last_update"]["silent"]["mean"] == pytest.approx(own.mean())
    assert found["last_update"]["silent"]["standard_error"] == pytest.approx(own.std(ddof=1) / len(own) ** 0.5)
    assert found["last_update"]["random"]["difference_from_silent"]["mean"] == 1
    assert found["explored_return"]["random"]["mean"] == pytest.approx(2 * returns[2].mean(), abs=1e-9)
    difference = returns[0] - returns[1]
    assert found["evolved"]["difference_from_silent"]["mean"] == pytest.approx(difference.mean(), abs=1e-9)
    error = np.sqrt(((difference - difference.mean()) ** 2).sum() / (len(difference) - 1) / len(difference))
    assert found["evolved"]["difference_from_silent"]["standard_error"] == pytest.approx(error, abs=1e-9)
    assert found["training_return"]["evolved"]["difference_from_silent"]["mean"] == 0  # the curves are the same
    beyond = found["evolved"]["difference_from_random"]["mean"]
    assert beyond == pytest.approx((returns[0] - returns[2]).mean(), abs=1e-9)
    assert "difference_from_random" not in found["silent"] | found["random"]
    np.testing.assert_allclose(over_training(groups["silent"]), returns[0])  # updates without an end do not count
    # One more victim without an ended episode leaves fewer than half.
    worse = {name: x._replace(last_updates=np.where(x.last_updates == own[0], np.inf, x.last_updates))
             for name, x in groups.items()}  # fmt: skip
    few = compare(worse)["last_update"]
    assert few["num_trials"] == len(own) // 2
    assert few["silent"] == {"mean": None, "standard_error": None}


def settings_of(spec):
    name, given = SAMPLED.read("victim", spec)
    found = settings(name, GAME) | given
    return {setting: tuple(x) if isinstance(x, list) else x for setting, x in found.items()}


@pytest.mark.parametrize("preset", ["cartpole", "pendulum", "reacher", "breakout"])
def test_other_victims_agree_with_their_names(preset):
    config = configs.load(AttackConfig, "act", preset)
    attack = resolve(dataclasses.replace(config, message="linear"))
    victims = other_victims(attack)
    assert victims["as evolved on"] == config.victim
    own = settings_of(config.victim)
    for name, victim in victims.items():
        if victim.startswith("ppo") and name != "as evolved on":
            other = settings_of(victim)
            assert sum(own[setting] != other[setting] for setting in own) == 1, name
    wide, slow = (settings_of(victims[x]) for x in ("twice as wide", "a third of the learning rate"))
    assert wide["hidden"] == tuple(2 * units for units in own["hidden"])
    assert slow["learning_rate"] == pytest.approx(own["learning_rate"] / 3)
    assert ("DQN" in victims) == (preset in ("cartpole", "breakout"))
    # All have training runs of one length, up to one update.
    for victim in victims.values():
        schedule = with_training(attack, victim=victim).schedule
        piece = schedule.num_envs * schedule.steps_per_update
        assert 0 <= config.steps_of_a_training - schedule.num_updates * piece < piece
        assert schedule.num_episodes % schedule.num_envs == 0


def test_other_victims_of_named_networks_and_without_hidden_layers():
    config = dataclasses.replace(configs.load(AttackConfig, "act", "cartpole"), message="linear")

    def others(inside, **changes):
        victim = f"ppo({inside})"
        found = other_victims(resolve(dataclasses.replace(config, victim=victim, **changes)))
        return {name: SAMPLED.read("victim", spec)[1] for name, spec in found.items() if spec.startswith("ppo")}

    assert "twice as wide" not in others("hidden=[]")
    assert "one layer more" not in others("hidden=[]")
    for inside, wide in (("network='recurrent'", [128]), ("network='feed_forward(hidden=[32, 16])'", [64, 32])):
        found = others(inside)
        assert found["twice as wide"]["hidden"] == wide
        assert found["one layer more"]["hidden"] == [x // 2 for x in [*wide, wide[-1]]]
    assert "hidden" not in found["twice as wide"]["network"]
    assert "minibatches" not in others("minibatches=1", num_envs=1, steps_per_update=23)  # which nothing divides
    # With a memory, minibatches consist of whole environments.
    assert others("network='recurrent', minibatches=1", num_envs=2)["minibatches"]["minibatches"] == 2
    assert others("minibatches=1", num_envs=2)["minibatches"]["minibatches"] == 4


@pytest.mark.system
def test_inputs_that_a_victim_needs_are_important_and_an_empty_message_is_not():
    """Important inputs are the same for positive and for negative rewards."""
    spec = "ppo(hidden=[8], epochs=8, minibatches=1, shared=True, learning_rate=0.02, entropy_coefficient=0.0)"
    schedule = TrainingSchedule(num_updates=40, steps_per_update=8, num_envs=8, num_episodes=8, num_steps=8)

    @jax.jit
    def found(key, sign):
        talk = CheapTalk(Echo(sign), jnp.zeros(1), lambda parameters, obs: parameters, 1)
        victim = make_learner(spec, talk, num_updates=40)
        training = train_in(key, talk, victim, schedule)
        return training.final_return, important_inputs(key, talk, victim, training, schedule, 0.05)

    for sign, least in ((1.0, 7.0), (-1.0, -1.0)):  # of 8 answers
        final, important = found(jax.random.key(0), sign)
        assert final > least
        assert important.tolist() == [True, False]


@struct.dataclass(eq=False)
class Echo(Game):
    """Repeat the observed bit for eight steps: 1 for a right answer, or -1 for a wrong one."""

    num_agents = 1
    sign: float = 1.0

    def reset(self, key):
        state = jax.random.bernoulli(key).astype(jnp.int32), jnp.zeros((), jnp.int32)
        return self.get_obs(state), state

    def get_obs(self, state):
        return {"agent_0": 2.0 * state[0][None] - 1.0}

    def step_env(self, key, state, actions):
        right = (actions["agent_0"] == state[0]).astype(jnp.float32)
        state = jax.random.bernoulli(key).astype(jnp.int32), state[1] + 1
        dones, infos = self._ending(state[1] >= 8, jnp.zeros((), bool))
        return self.get_obs(state), state, {"agent_0": jnp.where(self.sign > 0, right, right - 1)}, dones, infos

    def observation_space(self, agent):
        return games.Box(-1.0, 1.0, (1,))

    def action_space(self, agent):
        return games.Discrete(2)
