"""Evaluation: whole fresh episodes with the learner's best actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import Learner
from marl.core.evaluate import evaluate
from marl.core.learner import keep_state

SHORT = make("CartPole-v1", max_steps_in_episode=5)  # no pole falls within five steps
LONG = make("CartPole-v1", max_steps_in_episode=40)


def push_right(key, policy, memory, obs):
    return jnp.ones(len(obs), jnp.int32), memory, ()


def balance(policy, memory, obs):
    """A policy that balances for hundreds of steps; with a memory above 0 it pushes to the right."""
    return jnp.where(memory > 0, 1, obs[:, 2] + obs[:, 3] > 0).astype(jnp.int32), memory


BLIND = Learner(init=lambda key: (), act=push_right, update=keep_state)
BALANCED = BLIND._replace(init_memory=lambda policy, num_envs: jnp.full(num_envs, policy), act_greedy=balance)


def returns(game, learner, state, **settings):
    return evaluate(jax.random.key(0), game, learner, state, **settings)


@pytest.mark.parametrize(("num_steps", "expected"), [(3, 3.0), (5, 5.0), (12, 5.0)])
def test_an_episode_counts_once_and_as_far_as_it_goes(num_steps, expected):
    np.testing.assert_array_equal(returns(SHORT, BLIND, (), num_episodes=3, num_steps=num_steps), expected)


@pytest.mark.usefixtures("promoted")
def test_evaluation_uses_the_greedy_policy():
    standing = returns(LONG, BALANCED, 0.0, num_episodes=8, num_steps=60, num_envs=4)
    falling = returns(LONG, BLIND, (), num_episodes=8, num_steps=60)
    assert standing.shape == falling.shape == (8,)
    np.testing.assert_array_equal(standing, 40)
    assert falling.max() <= 11
    assert len(set(falling.tolist())) > 1  # the episodes begin in different states


@pytest.mark.usefixtures("promoted")
def test_an_episode_begins_with_the_memory_that_the_policy_gives():
    settings = {"num_episodes": 4, "num_steps": 40, "num_envs": 4}
    np.testing.assert_array_equal(returns(LONG, BALANCED, 0.0, **settings), 40)
    assert returns(LONG, BALANCED, 1.0, **settings).max() <= 11


def test_other_games_and_parts_of_batches_are_refused():
    with pytest.raises(ValueError, match="evaluation: got 2 players"):
        returns(make("ipd", episode_length=2), BLIND, (), num_episodes=2, num_steps=2)
    with pytest.raises(ValueError, match="5 episodes in 2 environments"):
        returns(SHORT, BLIND, (), num_episodes=5, num_steps=2, num_envs=2)
