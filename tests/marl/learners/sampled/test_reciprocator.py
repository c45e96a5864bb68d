"""The Reciprocator against loops in float64 NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import make_learner
from marl.core.learn import learn
from marl.core.learner import Trajectory
from marl.learners.sampled.ppo import PPOExtras, PPOMemory
from marl.learners.sampled.reciprocator import Influence, ReciprocatorState, reciprocator
from tests.marl.sampled_steps import CART_POLE

STEPS, ENVS, STATES, CO_PLAYERS = 9, 4, 9, 2
SETTINGS = {
    "reciprocity": 3.0,
    "balance_decay": 0.7,
    "payback": 0.4,
    "influence_discount": 0.8,
    "influence_memory": 2.0,
    "epochs": 2,
}
PPO = "ppo(learning_rate=0.005, epochs=2, minibatches=1, discount=0.96, clip=0.1, entropy_coefficient=0.02)"


@pytest.fixture(scope="module")
def steps():
    """Steps of several episodes in the prisoner's dilemma of three, with random rewards: (trajectory, states)."""
    rng = np.random.default_rng(0)
    done = rng.random((STEPS, ENVS)) < 0.3
    states, actions = rng.integers(STATES, size=(STEPS, ENVS)), rng.integers(2, size=(1 + CO_PLAYERS, STEPS, ENVS))
    rewards = rng.normal(size=(1 + CO_PLAYERS, STEPS, ENVS)).astype(np.float32)
    obs = np.eye(STATES, dtype=np.float32)[states]
    extras = PPOExtras(*(jnp.float32(rng.normal(size=(STEPS, ENVS))) for _ in range(2)), None, ())
    memory = PPOMemory(None, ())
    return Trajectory(
        obs, actions[0], rewards[0], done, extras, tuple(actions[1:]), done, obs, memory, memory, tuple(rewards[1:])
    ), states


def returns(rewards, done):
    found = np.zeros((STEPS, ENVS))
    for t, env in itertools.product(reversed(range(STEPS)), range(ENVS)):
        later = 0.0 if t == STEPS - 1 or done[t, env] else found[t + 1, env]
        found[t, env] = rewards[t, env] + 0.8 * later
    return found


def means(old, states, columns, wanted):
    """Means of the entries of each cell, together with two visits of the old value."""
    found = np.array(old, np.float64)
    for cell in itertools.product(range(STATES), *map(range, found.shape[1:])):
        here = (states == cell[0]) & np.all([x == i for x, i in zip(columns, cell[1:], strict=True)], 0)
        found[cell] = (2 * old[cell] + wanted[here].sum()) / (2 + here.sum())
    return found


@pytest.mark.system
def test_an_update_is_ppo_s_with_rewards_for_reciprocation(steps):
    t, states = steps
    game = make("three_player_ipd")
    learner = reciprocator(game, **SETTINGS)
    rng = np.random.default_rng(1)
    tables_of = [
        [rng.normal(size=(STATES, 2, 2)) for _ in range(2)]
        + [np.full((STATES, 2), 0.5), rng.dirichlet([1, 1], size=STATES)]
        for _ in range(CO_PLAYERS)
    ]
    state = learner.init(jax.random.key(0))
    state = ReciprocatorState(state.learner, tuple(Influence(*map(jnp.float32, old)) for old in tables_of))
    found, metrics = jax.jit(learner.update)(jax.random.key(1), state, t)

    mine, rewards = t.action, np.array(t.reward, np.float64)
    for old, influence, theirs, others_reward in zip(
        tables_of, found.influence, t.others, t.others_reward, strict=True
    ):
        own, other = returns(t.reward, t.done), returns(others_reward, t.done)
        tables = [means(old[i], states, (mine, theirs), wanted) for i, wanted in enumerate((own, other))]
        for policy, actions in ((old[2], mine), (old[3], theirs)):
            each = [means(policy[:, a], states, (), np.float64(actions == a)) for a in range(2)]
            tables.append(np.stack(each, -1))
        for ours, expected in zip(influence, tables, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)

        # For each observation and own action: the value of the other's action less its mean over the policy.
        own_alone = np.einsum("sab,sb->sa", tables[0], tables[3])
        other_alone = np.einsum("sab,sa->sb", tables[1], tables[2])
        to_me = tables[0][states, mine, theirs] - own_alone[states, mine]
        to_other = tables[1][states, mine, theirs] - other_alone[states, theirs]
        for env in range(ENVS):
            balance = 0.0
            for i in range(STEPS):
                rewards[i, env] += 3.0 * balance * to_other[i, env]
                balance = 0.0 if t.done[i, env] else 0.7 * balance + to_me[i, env] - 0.4 * to_other[i, env]
    assert float(metrics["intrinsic_reward"]) == pytest.approx((rewards - t.reward).mean(), rel=1e-3)
    assert abs(rewards - t.reward).max() > 1

    plain = make_learner(PPO, game)
    expected, _ = jax.jit(plain.update)(jax.random.key(1), state.learner, t._replace(reward=jnp.float32(rewards)))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5), found.learner.params, expected.params
    )


@pytest.mark.system
def test_influence_in_the_prisoners_dilemma_by_hand():
    """Rewards of single steps and a full memory: 2 (1 - p) for cooperating, -2 p for defecting."""
    game = make("ipd", episode_length=50)
    learners = [reciprocator(game, 0, influence_memory=1e-6, reciprocity=0.0), make_learner("random", game, 1)]

    @jax.jit
    def run(key):
        return learn(key, game, learners, num_updates=1, steps_per_update=50, num_envs=64, keep_trajectories=True)

    history = run(jax.random.key(0))
    t = jax.tree.map(lambda x: np.asarray(x[0]), history.trajectories[0])
    (influence,) = jax.tree.map(np.asarray, history.states[0].influence)
    states = t.obs.argmax(-1)
    for s in range(5):
        here = states == s
        cooperates = 1 - t.others[0][here].mean()
        to_me = influence.own[s, 0] - influence.own[s, 0] @ influence.other_policy[s]
        np.testing.assert_allclose(to_me, [2 * (1 - cooperates), -2 * cooperates], atol=1e-3)
        own = 1 - t.action[here].mean()
        to_other = influence.other[s, :, 1] - influence.own_policy[s] @ influence.other[s, :, 1]
        np.testing.assert_allclose(to_other, [2 * (1 - own), -2 * own], atol=1e-3)
    np.testing.assert_array_equal(t.others_reward[0], np.asarray(history.trajectories[1].reward[0]))


def test_bad_input_is_one_clear_line(steps):
    for settings, message in (
        ({"balance_decay": 1.5}, r"balance_decay: got 1\.5; a number in \[0, 1\] is needed"),
        ({"influence_memory": 0.0}, r"influence_memory: got 0\.0; a number above 0 is needed"),
        ({"payback": -1.0}, r"payback: got -1\.0; a number of at least 0 is needed"),
    ):
        with pytest.raises(ValueError, match=message):
            reciprocator(make("ipd"), **settings)
    with pytest.raises(ValueError, match="reciprocator: got a game of 1 players; one of two or more is needed"):
        reciprocator(CART_POLE)
    learner = reciprocator(make("three_player_ipd"))
    with pytest.raises(ValueError, match="others_reward: got none"):
        learner.update(jax.random.key(0), learner.init(jax.random.key(0)), steps[0]._replace(others_reward=()))
