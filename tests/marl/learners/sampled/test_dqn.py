"""Deep Q-learning: its targets, its buffer and its exploration against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from games import make
from marl import Trajectory, learn
from marl.blocks.networks import recurrent
from marl.core.evaluate import evaluate
from marl.learners.sampled.dqn import DQNMemory, dqn
from tests.marl.sampled_steps import CART_POLE, linear

ONE = {"buffer_size": 1, "batch_size": 2, "learning_starts": 1}
UNCLIPPED = {"discount": 0.9, "max_gradient_norm": 1e9}


def q_values(params, obs):
    """Action values of a linear network in float64: the value plus the outputs less their mean."""
    found = np.asarray(obs, np.float64) @ np.asarray(params, np.float64)
    return found[-1] + found[:-1] - found[:-1].mean()


def transition(seed, done=False, truncated=False):
    """A trajectory of one step in one environment."""
    obs, next_obs = (jax.random.normal(jax.random.key(seed + i), (1, 1, 4)) for i in (0, 100))
    done, truncated = (jnp.full((1, 1), x) for x in (done, truncated))
    reward = jnp.full((1, 1), 1.5)
    memory = DQNMemory(None, None)
    return Trajectory(obs, jnp.ones((1, 1), jnp.int32), reward, done, (), (), truncated, next_obs, memory, memory)


@pytest.fixture(scope="module")
def update():
    """One update of a state whose target is another network, `(trajectory, double) -> before, after, metrics`."""

    def run(trajectory, double):
        replay = ONE | {"gradient_steps": 1}
        learner = dqn(CART_POLE, network=linear(), replay=replay, tau=0.25, double=double, **UNCLIPPED)
        state = learner.init(jax.random.key(0))._replace(target=linear().init(jax.random.key(9)))
        return state, *learner.update(jax.random.key(1), state, trajectory)

    return jax.jit(run, static_argnums=1)


@pytest.mark.parametrize("double", [True, False])
def test_targets_are_those_of_the_papers(update, double):
    choices = set()
    for seed in range(6):
        for done, truncated in ((False, False), (True, False), (True, True)):
            t = transition(seed, done, truncated)
            before, after, metrics = update(t, double)
            value = q_values(before.params, t.obs[0, 0])[1]
            own, target = (q_values(params, t.next_obs[0, 0]) for params in (before.params, before.target))
            choices.add(own.argmax() == target.argmax())
            best = target[own.argmax()] if double else target.max()
            y = 1.5 if done and not truncated else 1.5 + 0.9 * best
            assert float(metrics["value"]) == pytest.approx(value, rel=1e-4, abs=1e-5)
            assert float(metrics["value_loss"]) == pytest.approx(0.5 * (value - y) ** 2, rel=1e-3, abs=1e-5)
            moved = q_values(after.params, t.obs[0, 0])[1]
            assert (moved - value) * (y - value) > 0
            np.testing.assert_allclose(after.target, 0.75 * before.target + 0.25 * after.params, rtol=1e-4, atol=1e-6)
    assert choices == {True, False}  # both rules were distinguished


def test_many_steps_towards_a_fixed_target_converge_to_it():
    schedule = optax.linear_schedule(0.1, 0.0, 300)
    replay = ONE | {"gradient_steps": 300}
    learner = dqn(
        CART_POLE, network=linear(), learning_rate=schedule, replay=replay, tau=1e-9, double=False, **UNCLIPPED
    )
    t = transition(0)
    state = learner.init(jax.random.key(0))
    after, _ = jax.jit(learner.update)(jax.random.key(1), state, t)
    y = 1.5 + 0.9 * q_values(state.target, t.next_obs[0, 0]).max()
    assert q_values(after.params, t.obs[0, 0])[1] == pytest.approx(y, abs=1e-3)


@pytest.fixture(scope="module")
def waiting():
    """Three updates of 2 x 2 steps with a buffer of two of them, and no learning yet; two runs under vmap."""
    settings = {"num_updates": 3, "steps_per_update": 2, "num_envs": 2, "keep_trajectories": True}
    replay = {"buffer_size": 8, "learning_starts": 13}
    learner = dqn(CART_POLE, network=linear(), replay=replay, normalize_observations=True)
    return jax.jit(jax.vmap(lambda key: learn(key, CART_POLE, [learner], **settings)))(
        jax.random.split(jax.random.key(0))
    )


@pytest.mark.system
def test_the_newest_steps_take_the_place_of_the_oldest(waiting):
    buffer, steps = waiting.states[0].buffer, waiting.trajectories[0]
    np.testing.assert_array_equal(waiting.states[0].steps, [12, 12])
    for name in ("obs", "action", "reward", "next_obs"):
        played = np.asarray(getattr(steps, name))  # [runs, updates, T, N, ...]
        expected = played[:, [2, 1]].reshape(2, 8, *played.shape[4:])
        np.testing.assert_array_equal(getattr(buffer, name), expected)  # observations as they were, not normalised
    np.testing.assert_allclose(buffer.factor, 0.99)  # no episode has ended


def test_nothing_is_learned_before_there_is_enough(waiting):
    state = waiting.states[0]
    np.testing.assert_array_equal(state.params, state.target)
    assert (waiting.metrics[0]["value_loss"] == 0).all()
    seen = np.asarray(waiting.trajectories[0].obs, np.float64).reshape(2, 12, 4)
    np.testing.assert_allclose(state.statistics.mean, seen.mean(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.statistics.variance, seen.var(1), rtol=1e-3)


def test_learning_goes_on_where_32_bits_end():
    learner = dqn(CART_POLE, network=linear(), replay=ONE | {"gradient_steps": 1}, **UNCLIPPED)
    state = learner.init(jax.random.key(0))._replace(steps=jnp.int32(2**31 - 2))
    for seed in range(3):
        before = state
        state, _ = learner.update(jax.random.key(seed), state, transition(seed))
        assert float(learner.policy(state).epsilon) == pytest.approx(0.05)
        assert not np.array_equal(state.params, before.params)


def test_a_share_epsilon_of_the_actions_is_random():
    network = linear(num_outputs=3, num_inputs=6)
    number = 20_000
    game = make("Acrobot-v1")
    exploration = {"epsilon_start": 0.8, "epsilon_end": 0.2, "epsilon_steps": 1000}
    learner = dqn(game, network=network, replay={"buffer_size": 1}, exploration=exploration)
    obs = jax.random.normal(jax.random.key(0), (number, 6))

    @jax.jit
    def share(steps):
        state = learner.init(jax.random.key(1))._replace(steps=steps)
        policy = learner.policy(state)
        memory = learner.init_memory(policy, number)
        action, _, _ = learner.act(jax.random.key(2), policy, memory, obs)
        return action, learner.act_greedy(policy, memory, obs)[0], state.params

    for steps, epsilon in ((0, 0.8), (500, 0.5), (1000, 0.2), (5000, 0.2)):
        action, greedy, params = share(steps)
        np.testing.assert_array_equal(greedy[:100], [q_values(params, x).argmax() for x in obs[:100]])
        # A third of the random actions are the greedy one.
        expected = [1 - 2 * epsilon / 3, epsilon / 3, epsilon / 3]
        counts = np.bincount((np.asarray(action) - greedy) % 3, minlength=3)
        # Pearson's statistic, with two degrees of freedom: above 13.8 in one of a thousand such tests.
        assert ((counts - number * np.array(expected)) ** 2 / (number * np.array(expected))).sum() < 13.8


def test_games_and_networks_that_it_cannot_learn_are_refused():
    with pytest.raises(ValueError, match=r"action space: got Box.*; Discrete is needed"):
        dqn(make("Pendulum-v1"))
    with pytest.raises(ValueError, match="network: got one with memory"):
        dqn(CART_POLE, network=recurrent((4,), 2))
    with pytest.raises(ValueError, match="buffer_size: got 10; a multiple of the 4 transitions between two updates"):
        learn(
            jax.random.key(0), CART_POLE, [dqn(CART_POLE, network=linear(), replay={"buffer_size": 10})],
            num_updates=1, steps_per_update=2, num_envs=2,
        )  # fmt: skip


@pytest.mark.slow
def test_it_solves_cart_pole_within_its_budget():
    updates = 300_000 // (8 * 8)
    learner = dqn(CART_POLE, learning_rate=optax.linear_schedule(1e-3, 0.0, updates * 8))

    def run(key):
        history = learn(key, CART_POLE, [learner], num_updates=updates, steps_per_update=8, num_envs=8)
        return evaluate(key, CART_POLE, learner, history.states[0], num_episodes=32, num_steps=500).mean()

    returns = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 16))
    assert (returns >= 475).sum() >= 15, sorted(returns.tolist())
