"""The attack at test time: the puppet's game is the game with the victim's actions, and the victim stays as it is."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from attacks import messages
from attacks.control import (
    ROWS,
    SHAPERS,
    Puppet,
    compare,
    control_trial,
    first_parameters,
    goal_reward,
    oracle,
    speaker,
    steer,
    still_reward,
    train_puppet,
)
from attacks.victim_training import TrainingSchedule
from games.core.game import Game
from games.core.spaces import Box
from games.wrappers.goals import GOALS, GoalConditioned, Goals, GoalState
from marl.blocks.networks import feed_forward, recurrent
from marl.core.learn import learn
from marl.core.learner import Learner, keep_state
from marl.learners.sampled.dice import reinforce
from marl.learners.sampled.ppo import ppo
from meta import Evolution, evolve
from tests.nightly import nightly

KEY = jax.random.key(0)
GAME = games.make("CartPole-v1", max_steps_in_episode=8)
SHAPER = messages.linear((4,))
CONTROLLER = messages.linear((5,), scale=math.pi)
SCHEDULE = TrainingSchedule(num_updates=2, steps_per_update=8, num_envs=2, num_episodes=4, num_steps=8)
PARAMETERS = first_parameters(SHAPER, CONTROLLER)(jax.random.key(1))


def make_victim(game):
    network = feed_forward(game.observation_space("agent_0").shape, 2, hidden=(4,), shared=True)
    return ppo(game, network=network, epochs=1, minibatches=1, normalize_observations=True)


def make_simple_victim(game):
    """The fastest victim to compile; in one environment it has no baseline and learns from every return."""
    network = feed_forward(game.observation_space("agent_0").shape, 2, hidden=(12,), shared=True)
    return reinforce(game, network=network, learning_rate=0.3)


def make_controller(game):
    network = feed_forward(game.observation_space("agent_0").shape, 2, num_scales=2, hidden=(4,), shared=True)
    return ppo(game, network=network, epochs=2, minibatches=1, learning_rate=0.05, discount=0.9)


@pytest.fixture(scope="module")
def trained():
    """A victim after its training run, and the training run."""
    return jax.jit(lambda key: train_puppet(key, GAME, SHAPER, PARAMETERS["shaper"], make_victim, SCHEDULE))(KEY)


def leaning():
    """A victim without learning: it pushes to the right if the last entry of the message is above 0."""

    def act(key, parameters, memory, obs):
        return (obs[:, -1] > 0).astype(jnp.int32), memory, ()

    return Learner(init=lambda key: (), act=act, update=keep_state)


@pytest.mark.system
def test_a_step_of_the_puppet_is_the_game_s_step_with_the_victim_s_action(trained):
    puppet, _ = trained
    game = GoalConditioned(GAME)

    @jax.jit
    def both(key, state, message):
        heard = jnp.concatenate([GAME.get_obs(state.bare)["agent_0"], message])[None]
        memory = puppet.victim.init_memory(puppet.victim_policy, 1)
        action = puppet.victim.act_greedy(puppet.victim_policy, memory, heard)[0][0]
        expected = game.step_env(key, state, {"agent_0": action})
        return puppet.step_env(key, state, {"agent_0": message}), expected, action

    _, state = jax.jit(puppet.reset)(KEY)
    np.testing.assert_array_equal(puppet.get_obs(state)["agent_0"], game.get_obs(state)["agent_0"])
    chosen = set()
    for i in range(8):
        message = jax.random.uniform(jax.random.key(i), (2,), minval=-3.0, maxval=3.0)
        got, expected, action = both(jax.random.key(i), state, message)
        jax.tree.map(np.testing.assert_array_equal, got, expected)
        chosen.add(int(action))
        state = got[1]
    assert chosen == {0, 1}  # so the message makes a difference


def test_messages_are_clipped_to_the_scale():
    puppet = Puppet(GAME, (), leaning(), scale=1.0)
    space = puppet.action_space("agent_0")
    assert (float(space.low), float(space.high), space.shape) == (-1.0, 1.0, (2,))
    assert puppet.observation_space("agent_0").shape == (5,)

    def act(key, parameters, memory, obs):
        return (obs[:, -1] > 1.5).astype(jnp.int32), memory, ()

    deaf = Puppet(GAME, (), leaning()._replace(act=act), scale=1.0)
    state = puppet.reset(KEY)[1]
    _, after, *_ = deaf.step_env(KEY, state, {"agent_0": jnp.array([0.0, 9.0])})
    _, left, *_ = GoalConditioned(GAME).step_env(KEY, state, {"agent_0": 0})
    jax.tree.map(np.testing.assert_array_equal, after, left)


@pytest.mark.system
def test_a_controller_learns_through_a_puppet(trained):
    """Beside one with the same keys that keeps its first parameters."""
    puppet, _ = trained

    def taught(controller):
        return learn(KEY, puppet, [controller], num_updates=2, steps_per_update=8, num_envs=2).states[0].params

    controller = make_controller(puppet)
    kept = controller._replace(update=lambda key, state, trajectory: (state, {}))
    learned, first = (jax.jit(lambda one=one: taught(one))() for one in (controller, kept))
    assert all((x != y).any() for x, y in zip(*map(jax.tree.leaves, (learned, first)), strict=True))


def test_the_goal_reward_by_hand():
    """A cart pushed to the right: the mean over the requested steps, and no reward after the fall."""
    puppet = Puppet(games.make("CartPole-v1"), (), leaning())
    right = speaker(messages.Message(lambda key: (), lambda nothing, obs: jnp.array([0.0, 1.0])))
    reward = jax.jit(lambda key: goal_reward(key, puppet, right, (), num_episodes=16, num_steps=50))(KEY)
    # The same episodes, one by one: the keys are those of `evaluate`.
    game = GoalConditioned(puppet.game)
    reset_key, _, _ = jax.random.split(jax.random.split(KEY, 1)[0], 3)
    step = jax.jit(lambda state: game.step_env(KEY, state, {"agent_0": 1}))
    total = 0.0
    for key in jax.random.split(reset_key, 16):
        state, done = game.reset(key)[1], False
        while not done:
            _, state, rewards, dones, _ = step(state)
            total, done = total + float(rewards["agent_0"]), bool(dones["__all__"])
        assert state.bare.time < 15  # it fell
    assert reward == pytest.approx(total / (16 * 50), rel=1e-5)


class Point(Game):
    """A point on a line goes where it is pushed, by at most a half; the time is the state's second entry."""

    num_agents = 1

    def reset(self, key):
        return self.get_obs(jnp.zeros(2)), jnp.zeros(2)

    def step_env(self, key, state, actions):
        state = state + jnp.array([0.5 * jnp.clip(actions["agent_0"][0], -1, 1), 1])
        return self.get_obs(state), state, {"agent_0": jnp.zeros(())}, *self._ending(jnp.array(False), state[1] >= 4)

    def get_obs(self, state):
        return {"agent_0": state[:1]}

    def observation_space(self, agent):
        return Box(-np.inf, np.inf, (1,))


@nightly
def test_an_oracle_learns_to_push_to_the_goal(monkeypatch):
    goals = Goals(
        lambda game, key: jax.random.uniform(key, (1,), minval=-2, maxval=2), lambda game, state: state[:1], None
    )
    monkeypatch.setitem(GOALS, "Point", goals)
    # The victim's action is the last entry of the message.
    puppet = Puppet(Point(), (), leaning()._replace(act_greedy=lambda policy, memory, obs: (obs[:, -1:], memory)))

    @jax.jit
    def both(key):
        controller, state = oracle(key, puppet, num_updates=15, steps_per_update=8, num_envs=32)
        score = partial(goal_reward, jax.random.key(5), puppet, num_episodes=256, num_steps=4)
        return score(controller, state), score(controller, controller.init(key))

    taught, untaught = both(KEY)
    # A point that stays at 0 gets the mean of exp(-goal^2), 0.44; one that goes straight to the goal gets 0.883.
    assert untaught == pytest.approx(math.sqrt(math.pi) / 4 * math.erf(2), abs=0.06)
    assert 0.75 < taught < 0.92


@nightly
def test_the_trial_runs_under_evolution():
    schedule = SCHEDULE._replace(num_envs=12, num_episodes=12)  # arrays of up to 10 entries become scalars: slower
    trial = control_trial(GAME, SHAPER, CONTROLLER, make_simple_victim, schedule)
    evolution = Evolution(generations=2, population_size=4)
    found = evolve(trial, first_parameters(SHAPER, CONTROLLER), KEY, evolution, num_trials=2)
    assert jax.tree.map(jnp.shape, found.parameters) == jax.tree.map(jnp.shape, PARAMETERS)
    assert found.metrics["fitness"].shape == (2,)
    assert ((found.metrics["fitness"] > 0) & (found.metrics["fitness"] < 1)).all()
    assert (found.metrics["victim_return"] >= 1).all()
    assert not found.metrics["non_finite"].any()


@nightly
def test_the_comparison_has_a_row_for_each_baseline_and_they_are_paired():
    def run(key, parameters):
        alone = SCHEDULE._replace(num_envs=1)
        return compare(key, GAME, SHAPER, CONTROLLER, parameters, make_simple_victim, alone, num_updates=1)

    # The evolved functions here are the random functions of the second victim.
    random_key = jax.random.split(jax.random.split(KEY, 4)[1], 4)[0]
    parameters = first_parameters(SHAPER, CONTROLLER)(random_key)
    quiet = {"shaper": jax.tree.map(jnp.zeros_like, parameters["shaper"]), "controller": parameters["controller"]}
    drawn = jax.tree.map(lambda x: jnp.stack([x] * 3), parameters)  # all three that it can draw
    all_parameters = {
        "evolved": parameters,
        "silent_shaper": jax.tree.map(lambda x: x[None], quiet),
        "random_shaper": drawn,
        "best_random_shaper": jax.tree.map(lambda x: x[None], quiet),
    }
    rewards, returns = jax.jit(jax.vmap(run, (0, None)))(jax.random.split(KEY, 4), all_parameters)
    assert (rewards.keys(), returns.keys()) == ({*ROWS}, {*SHAPERS})
    for values in (*rewards.values(), *returns.values()):
        assert values.shape == (4,)
        assert np.isfinite(values).all()
    for evolved, random in (
        (rewards["evolved"], rewards["random"]),
        (rewards["oracle"], rewards["random_shaper_oracle"]),
        (returns["evolved"], returns["random"]),
        (rewards["silent_shaper"], rewards["silent"]),
        (rewards["controller_other_shaper"], rewards["evolved"]),
    ):
        assert evolved[1] == random[1]
    np.testing.assert_array_equal(rewards["random_shaper"], rewards["evolved"])
    for name in ("controller_alone", "best_random_shaper"):  # the same controller, and the same silence
        np.testing.assert_array_equal(rewards[name], rewards["silent_shaper"])
    assert (rewards["controller_other_shaper"] != rewards["evolved"]).any()
    assert (rewards["evolved"] != rewards["random"]).any()


def test_a_cart_that_stays_in_the_middle_is_worth_an_integral():
    """Its goal reward is the mean of exp(-g^2) over the goals g, uniform on the track of 2.4 to both sides."""
    found = jax.jit(lambda key: still_reward(key, GoalConditioned(GAME), num_episodes=20_000))(KEY)
    assert float(found) == pytest.approx(math.sqrt(math.pi) * math.erf(2.4) / 4.8, abs=0.01)


def test_steering_goes_from_goal_to_goal_and_can_be_animated(tmp_path):
    from PIL import Image

    puppet = Puppet(GAME, (), leaning())
    towards = speaker(messages.Message(lambda key: (), lambda nothing, obs: jnp.repeat(obs[4] - obs[0], 2)))
    goals = jnp.array([[2.0], [-2.0]])
    played = jax.jit(lambda key: steer(key, puppet, towards, (), goals, steps_per_goal=12))(KEY)
    np.testing.assert_array_equal(played.states.goal[:, 0], [2.0] * 12 + [-2.0] * 12)
    np.testing.assert_array_equal(played.observations["agent_0"][:, 4], played.states.goal[:, 0])
    assert played.states.bare.time.max() > 8  # beyond the time limit of the game
    ends = np.flatnonzero(played.dones["__all__"])
    assert len(ends)  # a pole that is pushed to one side falls
    np.testing.assert_array_equal(played.states.bare.time[ends[:-1] + 1], 1)
    np.testing.assert_array_equal(np.sign(played.actions["agent_0"][:, 0]), [1] * 12 + [-1] * 12)
    games.animate(jax.tree.map(lambda x: x, played), tmp_path / "steered.gif", frames_per_second=25)
    with Image.open(tmp_path / "steered.gif") as gif:
        assert gif.n_frames > 10


def test_victims_and_games_that_cannot_be_steered_are_refused():
    def forgetful(game):
        return ppo(game, network=recurrent((6,), 2, hidden=(), memory=2), minibatches=1)

    for make, game, error in (
        (forgetful, GAME, r"^victim: got a learner with memory; .* is needed$"),
        (
            make_victim,
            games.make("Acrobot-v1"),
            r"^game: got Acrobot-v1, which has no goals; one of CartPole-v1, .* need",
        ),
    ):
        shaper = messages.linear(game.observation_space("agent_0").shape)
        trial = control_trial(game, shaper, CONTROLLER, make, SCHEDULE)
        parameters = first_parameters(shaper, CONTROLLER)(KEY)
        with pytest.raises(ValueError, match=error):
            trial(parameters, KEY)
        with pytest.raises(ValueError, match=error):
            compare(KEY, game, shaper, CONTROLLER, {"evolved": parameters}, make, SCHEDULE)
    with pytest.raises(ValueError, match="message_size: got 0"):
        train_puppet(KEY, GAME, SHAPER, PARAMETERS["shaper"], make_victim, SCHEDULE, size=0)


def test_a_puppet_is_a_game_with_its_goal_in_the_picture():
    puppet = Puppet(GAME, (), leaning())
    state = puppet.reset(KEY)[1]
    np.testing.assert_array_equal(puppet.render(state), GoalConditioned(GAME).render(state))
    assert isinstance(state, GoalState)
    assert puppet.get_avail_actions(state)["agent_0"].shape == (2,)
    assert puppet.name == "CartPole-v1 through a puppet"
