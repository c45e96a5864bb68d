"""Evaluation: whole fresh episodes with the learner's best actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make, rollout
from marl import Learner
from marl.core.evaluate import evaluate, evaluate_team
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


class Counter:
    """A function of a key and observations that plays 1, and counts how often it is traced."""

    def __init__(self):
        self.traces = 0

    def __call__(self, key, observations):
        self.traces += 1
        return {"agent_0": jnp.int32(1)}


def test_further_calls_trace_nothing_and_a_trace_of_the_caller_includes_the_game():
    counter = Counter()

    def act(key, policy, memory, obs):
        return jnp.repeat(counter(key, obs)["agent_0"], len(obs)), memory, ()

    counted = BLIND._replace(act=act)
    calls = [
        lambda key: evaluate(key, LONG, counted, (), num_episodes=3, num_steps=9),
        lambda key: evaluate_team(key, LONG, [counted], [()], num_episodes=3, num_steps=8).returns,
        lambda key: rollout(key, LONG, 9, counter).rewards["agent_0"],
    ]
    for call in calls:
        counter.traces = 0
        first, after_one = call(jax.random.key(0)), counter.traces
        again = call(jax.random.key(0))
        call(jax.random.key(1))
        assert counter.traces == after_one > 0
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(jax.jit(call)(jax.random.key(0)), first)
        assert counter.traces > after_one


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


def test_steps_after_the_end_of_an_episode_reach_no_metric():
    """Beyond its two steps the game's rewards are no numbers."""

    class Ending(type(make("ipd", episode_length=2))):
        def step_env(self, key, state, actions):
            observations, state, rewards, dones, infos = super().step_env(key, state, actions)
            return observations, state, {k: jnp.log(3.0 - state.time) for k in rewards}, dones, infos

    game = Ending(**vars(make("ipd", episode_length=2)))
    team = [BLIND, BLIND]
    found = evaluate_team(jax.random.key(0), game, team, [(), ()], num_episodes=2, num_steps=5)
    np.testing.assert_allclose(found.returns, np.log(2), rtol=1e-6)  # log 2 + log 1
    np.testing.assert_allclose(found.social.efficiency, np.log(2), rtol=1e-6)  # of both, in a step
    np.testing.assert_allclose(found.social.equality, 1.0)


def test_other_games_and_parts_of_batches_are_refused():
    with pytest.raises(ValueError, match="game: got one of 2 players; a game of one is needed"):
        returns(make("ipd", episode_length=2), BLIND, (), num_episodes=2, num_steps=2)
    with pytest.raises(ValueError, match="num_episodes: got 5; a multiple of num_envs, 2, is needed"):
        returns(SHORT, BLIND, (), num_episodes=5, num_steps=2, num_envs=2)
    with pytest.raises(ValueError, match="num_envs: got 0"):
        returns(SHORT, BLIND, (), num_episodes=5, num_steps=2, num_envs=0)
    with pytest.raises(ValueError, match="states: got 0; 1, one for each learner, are needed"):
        evaluate_team(jax.random.key(0), SHORT, [BLIND], [], num_episodes=2, num_steps=2)
