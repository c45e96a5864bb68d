"""Victims with a defence: ensembles, dropout, noise and decay of the inputs."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from attacks.defences import (
    DEFENCES,
    disturbed,
    ensemble,
    input_decay,
    masking,
    message_dropout,
    power_regularization,
    seeing,
    weights_of,
)
from attacks.messages import make_message
from attacks.victim_training import TrainingSchedule
from games.wrappers.cheap_talk import CheapTalk
from marl import make_learner
from marl.blocks.networks import feed_forward
from marl.core.learn import learn
from marl.core.learner import Learner
from marl.learners.sampled.dice import reinforce
from meta.runs.array_files import named_leaves
from tests.nightly import grid

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


def train_one(name, parameters):
    """(final return, curve, parameters) of a victim with this defence."""
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)

    def training(key):
        found = DEFENCES[name](key, talk, make_victim, SCHEDULE)
        return found.final_return, found.curve, getattr(found.state, "own", found.state).params

    return jax.jit(training)(KEY)


@pytest.fixture(scope="module")
def undefended(parameters):
    return train_one("none", parameters)


@pytest.mark.system
@pytest.mark.parametrize("name", grid((name for name in DEFENCES if name != "none"), "noise", "ensemble"))
def test_every_defence_changes_the_training_run(name, parameters, undefended):
    returned, curve, params = train_one(name, parameters)
    assert 8 <= returned <= 20  # no pole falls earlier
    assert not np.allclose(params["Dense_0"]["kernel"], undefended[2]["Dense_0"]["kernel"], atol=1e-6)
    assert curve.shape == (1 if name == "ensemble" else 2,)
    assert np.isfinite(curve).any()


@pytest.mark.system
def test_an_ensemble_has_the_steps_of_one_victim_unless_more_are_given(parameters):
    talk, schedule = CheapTalk(GAME, parameters, MESSAGE.speak, 2), SCHEDULE._replace(num_updates=10)
    for experience, updates in ((1.0, 2), (2.5, 5), (5.0, 10)):
        defend = ensemble(5, experience)
        training = jax.eval_shape(
            lambda key, defend=defend: defend(key, talk, make_victim, schedule), jax.random.key(0)
        )
        assert training.curve.shape == (updates,)
        assert {x.shape[0] for x in jax.tree.leaves(training.state)} == {5}


def test_dropout_removes_messages_only(parameters):
    schedule = TrainingSchedule(num_updates=1, steps_per_update=64, num_envs=32, num_episodes=32, num_steps=20)
    shape = (schedule.steps_per_update, schedule.num_envs, 6)

    def recorder(game):
        def act(key, policy, memory, obs):
            return jax.random.bernoulli(key, 0.5, (len(obs),)).astype(int), memory, ()

        act_greedy = lambda policy, memory, obs: (jnp.zeros(len(obs), int), memory)  # noqa: E731
        return Learner(
            init=lambda key: jnp.zeros(shape), act=act, update=lambda key, state, t: (t.obs, {}), act_greedy=act_greedy
        )

    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    training = jax.jit(lambda key: message_dropout(0.25)(key, talk, recorder, schedule))(KEY)
    seen = np.asarray(training.state.own)
    said = jax.vmap(jax.vmap(lambda obs: MESSAGE.speak(parameters, obs)))(seen[..., :4])
    heard = (seen[..., 4:] != 0).all(-1)
    assert (seen[..., :4] != 0).all()
    assert (seen[~heard, 4:] == 0).all()
    np.testing.assert_allclose(seen[heard, 4:], np.asarray(said)[heard], atol=1e-5)
    error = (0.25 * 0.75 / heard.size) ** 0.5
    assert heard.mean() == pytest.approx(0.75, abs=4 * error)


class Linear(NamedTuple):
    """A policy with logits that are linear in what it sees, and all that it has seen."""

    params: Any
    seen: Any


def linear_victim(game):
    """It learns nothing by itself."""
    return Learner(
        init=lambda key: Linear(jax.random.normal(key, (6, 2)), jnp.zeros((16, 2, 6))),
        act=lambda key, state, memory, obs: (jax.random.bernoulli(key, 0.5, (len(obs),)).astype(int), memory, ()),
        update=lambda key, state, t: (state._replace(seen=t.obs), {}),
        act_greedy=lambda state, memory, obs: (jnp.zeros(len(obs), int), memory),
        outputs=lambda state, memory, obs: obs @ state.params,
    )


def mean_divergence(weights, obs, size=2):
    """Between the policies under a message and in silence, in float64."""

    def log_softmax(x):
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    silent = np.where(np.arange(obs.shape[-1]) < obs.shape[-1] - size, obs, 0)
    p, q = log_softmax(obs @ weights), log_softmax(silent @ weights)
    return (np.exp(p) * (p - q)).sum(-1).mean()


def test_power_descends_the_divergence_from_the_policy_in_silence(parameters):
    talk, schedule = CheapTalk(GAME, parameters, MESSAGE.speak, 2), SCHEDULE._replace(num_updates=1)
    train = jax.jit(lambda key, rate: power_regularization(rate, 2)(key, talk, linear_victim, schedule).state)
    before, after = (jax.tree.map(lambda x: np.asarray(x, np.float64), train(KEY, rate)) for rate in (0.0, 0.4))
    np.testing.assert_array_equal(before.seen, after.seen)
    weights = before.params.copy()
    for _ in range(2):
        steps = 1e-6 * np.eye(12).reshape(12, 6, 2)
        slopes = [mean_divergence(weights + h, after.seen) - mean_divergence(weights - h, after.seen) for h in steps]
        weights -= 0.4 * np.reshape(slopes, (6, 2)) / 2e-6
    np.testing.assert_allclose(after.params, weights, atol=1e-5)
    assert mean_divergence(after.params, after.seen) < 0.9 * mean_divergence(before.params, after.seen)


def test_power_changes_nothing_in_silence_and_needs_a_policy_with_probabilities(parameters):
    silent = CheapTalk(GAME, jax.tree.map(jnp.zeros_like, parameters), MESSAGE.speak, 2)
    victim = lambda game: make_victim(game)._replace(outputs=None)  # noqa: E731
    names = ("none", "power")
    run = jax.jit(lambda key: [DEFENCES[name](key, silent, make_victim, SCHEDULE).state.params for name in names])
    jax.tree.map(np.testing.assert_array_equal, *run(KEY))
    with pytest.raises(ValueError, match="got a victim without a stochastic policy or with memory; one such as ppo"):
        DEFENCES["power"](KEY, silent, victim, SCHEDULE)


@pytest.mark.system
def test_an_ensemble_acts_by_the_majority_of_its_members(parameters):
    """Some members balance a pole for twenty steps, the others push to one side until it falls."""

    def born(game):
        def act(key, knows, memory, obs):
            return act_greedy(knows, memory, obs)[0], memory, ()

        def act_greedy(knows, memory, obs):
            return jnp.where(knows, 3 * obs[:, 2] + obs[:, 3] > 0, False).astype(int), memory

        init = lambda key: jax.random.bernoulli(key)  # noqa: E731
        return Learner(init=init, act=act, update=lambda key, state, t: (state, {}), act_greedy=act_greedy)

    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    defend = jax.jit(jax.vmap(lambda key: ensemble()(key, talk, born, SCHEDULE)))
    found = defend(jax.random.split(KEY, 12))
    most = np.asarray(found.state).sum(1) > 2
    assert 0 < most.sum() < 12
    np.testing.assert_array_equal(np.asarray(found.final_return) == 20, most)


def test_an_observation_is_disturbed_once(parameters):
    """The next observation of a step is the observation of the following step, also across updates."""
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)

    def act(key, parameters, memory, obs):
        return jnp.zeros(len(obs), jnp.int32), memory, obs

    def update(key, state, trajectory):
        observed = {
            "seen": trajectory.extras,
            "obs": trajectory.obs,
            "next": trajectory.next_obs,
            "done": trajectory.done,
        }
        return state, observed

    plain = Learner(
        init=lambda key: (), act=act, update=update, act_greedy=lambda *arguments: act(None, *arguments)[:2]
    )
    noisy = disturbed(plain, lambda key, obs: obs + jax.random.normal(key, obs.shape))

    @jax.jit
    def run(key):
        return [
            learn(key, talk, [one], num_updates=3, steps_per_update=4, num_envs=2).metrics[0] for one in (noisy, plain)
        ]

    (found, bare) = ({name: np.asarray(x).reshape(12, 2, -1) for name, x in one.items()} for one in run(KEY))
    np.testing.assert_array_equal(found["seen"], found["obs"])
    noise = found["obs"] - bare["obs"]
    goes_on = ~found["done"][:-1, :, 0].astype(bool)
    assert 0 < (~goes_on).sum() < 6  # a pole that is pushed to one side falls
    np.testing.assert_allclose(found["next"][:-1][goes_on], found["obs"][1:][goes_on], atol=1e-5)
    assert np.unique(noise.round(4)).size > 0.99 * noise.size  # all others are disturbed independently
    assert abs(noise.mean()) < 5 / noise.size**0.5
    first = run(jax.random.key(9))[0]["obs"][0, 0] - run(jax.random.key(9))[1]["obs"][0, 0]
    assert np.abs(first - noise[0]).max() > 0.1  # another training run


@pytest.mark.system
@pytest.mark.parametrize("shared", [True, False])
def test_input_decay_shrinks_only_kernels_that_read_the_input(parameters, shared):
    """Layers have the width of the input, so that shapes do not tell which kernels read it."""
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    make = partial(make_victim, hidden=(6, 6), shared=shared, learning_rate=0.0)

    @jax.jit
    def both(key):
        training = input_decay(0.1)(key, talk, make, SCHEDULE)
        return make(talk).init(jax.random.split(jax.random.split(key)[0], 3)[2]).params, training.state.params

    before, after = both(KEY)
    shrunk = {"Dense_0"} if shared else {"Dense_0", "Dense_2"}
    assert before["Dense_0"]["kernel"].shape == before["Dense_1"]["kernel"].shape == (6, 6)
    for name, layer in before.items():
        factor = 0.9**2 if name in shrunk else 1.0
        expected = {part: factor * x if part == "kernel" else x for part, x in layer.items()}
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), after[name], expected)


@pytest.mark.system
def test_input_decay_shrinks_the_input_kernels_of_critics_too():
    talk = CheapTalk(games.make("pendulum", episode_length=8), jnp.zeros(2), lambda parameters, obs: parameters, 2)
    spec = "td3(hidden=[4], learning_rate=0.0, buffer_size=64, batch_size=4)"

    @jax.jit
    def both(key):
        training = input_decay(0.1)(key, talk, lambda game: make_learner(spec, game), SCHEDULE)
        before = make_learner(spec, talk).init(jax.random.split(jax.random.split(key)[0], 3)[2])
        return weights_of(before), weights_of(training.state)

    before, after = jax.tree.map(np.asarray, both(KEY))
    factors = jax.tree.map(lambda x, y: np.unique((y / np.where(x == 0, np.nan, x)).round(4)), before, after)
    found = [float(x[0]) for x in jax.tree.leaves(factors) if np.isfinite(x[0])]
    assert sorted(found) == pytest.approx([0.9**2] * 3 + [1.0] * 3, abs=1e-3)  # an actor and two critics


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ensemble(members=0), "members: got 0; a whole number of at least 1"),
        (lambda: ensemble(experience=0.0), "experience: got 0.0; a number"),
        (lambda: masking(threshold=-0.1), "threshold: got -0.1; a number"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_input_decay_needs_kernels_whose_shape_tells_their_input(parameters):
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    spec = "ppo(hidden=[64, 64], sparsity='static(density=0.05, constant_fan_in=True)')"
    with pytest.raises(ValueError, match="victim: got kernels with a constant fan-in; input_decay needs dense ones"):
        input_decay(0.1)(KEY, talk, lambda game: make_learner(spec, game), SCHEDULE)


def test_input_decay_refuses_a_victim_of_which_it_finds_no_input(parameters):
    """A network that is made for one observation, whatever the game."""
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    fixed = make_victim(talk)
    with pytest.raises(ValueError, match="victim: got no weights whose shape depends on the observation; input_decay"):
        input_decay(0.1)(KEY, talk, lambda game: fixed, SCHEDULE)


@pytest.mark.system
def test_power_leaves_a_sparse_victim_sparse(parameters):
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    spec = "ppo(hidden=[8], minibatches=1, epochs=1, sparsity='static(density=0.4)')"

    def weights_after(defence):
        train = jax.jit(lambda: defence(KEY, talk, lambda game: make_learner(spec, game), SCHEDULE).state.params)
        return {name: x for name, x in named_leaves(train()).items() if x.ndim > 1}

    bare, defended = weights_after(DEFENCES["none"]), weights_after(power_regularization())
    for name, weights in defended.items():
        np.testing.assert_array_equal(weights == 0, bare[name] == 0)
    assert any((weights != bare[name]).any() for name, weights in defended.items())


@pytest.mark.system
def test_weights_of_hidden_inputs_are_never_changed(parameters):
    """The transform replaces inputs by zeros, so that their weights have no gradient."""
    talk = CheapTalk(GAME, parameters, MESSAGE.speak, 2)
    hide = seeing(make_victim(talk), lambda obs: obs.at[:, -2:].set(0.0))
    run = jax.jit(lambda key: learn(key, talk, [hide], num_updates=2, steps_per_update=16, num_envs=2).states[0])
    init_key = jax.random.split(jax.random.key(5), 3)[2]  # the key of the only learner
    before = hide.init(init_key).params["Dense_0"]["kernel"]
    after = run(jax.random.key(5)).params["Dense_0"]["kernel"]
    np.testing.assert_allclose(after[-2:], before[-2:], atol=1e-7)
    assert float(jnp.abs(after[:-2] - before[:-2]).min()) > 0
