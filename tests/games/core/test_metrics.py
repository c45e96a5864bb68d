"""Social metrics of rollouts, with numbers by hand and from an independent implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games import Rollout, social_metrics

metrics = jax.jit(social_metrics)


def played(rewards, done=None, **infos):
    """A rollout with rewards `[..., T, n]` and nothing else."""
    rewards = jnp.asarray(rewards, jnp.float32)
    ends = jnp.zeros(rewards.shape[:-1], bool) if done is None else jnp.asarray(done, bool)
    by_agent = {f"agent_{i}": rewards[..., i] for i in range(rewards.shape[-1])}
    infos = {name: jnp.asarray(x, jnp.float32) for name, x in infos.items()}
    return Rollout(games.make("ipd"), (), {}, {}, by_agent, {"__all__": ends}, infos, ())


@pytest.mark.parametrize(
    ("returns", "equality"),
    [
        ([1, 0, 0], 1 / 3),  # the Gini coefficient of one that has all is (n - 1) / n
        ([1, 1, 1], 1),
        ([0, 0, 0], 1),  # all get alike
        ([1, 3], 0.75),
        ([-1, 0, 0], 1 / 3),
        ([1, -1], 0.5),  # 4 / (2 x 2 x 2)
        ([5], 1),
    ],
)
def test_equality_is_one_minus_the_gini_coefficient(returns, equality):
    assert float(metrics(played([returns])).equality) == pytest.approx(equality)


def test_booleans_are_counted():
    rollout = played([[1, 0], [0, 1]], away=[[1, 0], [0, 0]])
    as_booleans = rollout.replace(infos={"away": rollout.infos["away"] > 0})
    assert float(metrics(as_booleans).peace) == float(metrics(rollout).peace) == 1.5  # of two players


def test_the_metrics_by_hand():
    rewards = [[1, 0, 0], [0, 0, 0], [1, 2, 0], [0, 2, 0]]
    away = [[0, 0, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    found = metrics(played(rewards, [0, 0, 0, 1], away=away, apples=rewards))
    assert float(found.efficiency) == 6 / 4
    assert float(found.equality) == pytest.approx(1 - 2 * (2 + 2 + 4) / (2 * 3 * 6))  # returns 2, 4, 0
    assert float(found.sustainability) == (2 + 3.5) / 2  # steps 1 and 3, and 3 and 4; the third has no reward
    assert float(found.peace) == 3 - 3 / 4
    np.testing.assert_array_equal(found.counts["apples"], [2, 4, 0])
    nothing = metrics(played(np.zeros((3, 2))))
    assert (float(nothing.efficiency), float(nothing.sustainability), nothing.peace) == (0, 0, None)


def test_whole_episodes_count_alike_and_the_rest_does_not_count():
    rewards = np.array([[1.0, 0], [0, 0], [2, 2], [9, 0]])
    found = metrics(played(rewards, [0, 1, 1, 0], apples=rewards))
    assert float(found.efficiency) == (1 / 2 + 4) / 2
    assert float(found.equality) == (0.5 + 1) / 2
    assert float(found.sustainability) == 1  # in both of them, the first step
    np.testing.assert_array_equal(found.counts["apples"], [1.5, 1])
    unfinished = metrics(played(rewards))
    assert float(unfinished.efficiency) == 14 / 4


@pytest.mark.system
def test_leading_axes_are_those_of_vmap():
    game = games.make("harvest", episode_length=4)
    keys = jax.random.split(jax.random.key(0), 6)
    many = jax.jit(jax.vmap(lambda key: games.rollout(key, game, 9)))(keys)
    found = metrics(many)
    assert found.counts["apples"].shape == (6, 4)
    for i in range(6):
        alone = metrics(jax.tree.map(lambda x, i=i: x[i], many))
        jax.tree.map(lambda x, xs, i=i: np.testing.assert_allclose(x, xs[i], rtol=1e-6), alone, found)
    # From the definitions, in float64: two whole episodes of four steps.
    rewards = np.stack([np.asarray(many.rewards[agent], float) for agent in game.agents], -1)[:, :8]
    episodes, away = rewards.reshape(6, 2, 4, 4), np.asarray(many.infos["away"], float)[:, :8].reshape(6, 2, 4, 4)
    np.testing.assert_allclose(found.efficiency, episodes.sum((2, 3)).mean(1) / 4, rtol=1e-6)
    np.testing.assert_allclose(found.peace, (4 - away.sum(3).mean(2)).mean(1), rtol=1e-6)
    np.testing.assert_allclose(found.counts["apples"], episodes.sum(2).mean(1), rtol=1e-6)


def test_a_wrapped_game_is_measured_by_its_own_rewards():
    bare = games.make("public_goods", episode_length=5)
    play = jax.jit(lambda game: games.rollout(jax.random.key(0), game, 5))
    one, other = (metrics(play(game)) for game in (bare, games.InequityAversion(bare)))
    jax.tree.map(np.testing.assert_array_equal, one, other)
