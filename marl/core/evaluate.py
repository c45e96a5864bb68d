"""Evaluation of a learner: whole episodes, without exploration and without learning."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp

from games import Game
from games.core.arguments import check_arguments, check_game
from marl.core.learner import Learner, Memory, Parameters
from marl.core.learner_checks import check_key, check_number, check_state


@check_arguments
def evaluate(
    key: jax.Array,
    game: Game,
    learner: Learner,
    state: Any,
    *,
    num_episodes: int,
    num_steps: int,
    num_envs: int | None = None,
) -> jax.Array:
    """Returns of fresh episodes of a single-player game, `[num_episodes]`.

    Args:
      key: of everything that is drawn.
      game: of one player.
      learner: acts by its `act_greedy`, or by `act` where it has none.
      state: of the learner; it stays as it is.
      num_episodes: played at once.
      num_steps: an episode that is not over by then counts as far as it went.
      num_envs: of `num_episodes`, how many share a step: a divisor of them; all if None.

    Raises:
      ValueError: for a game of several players, or if `num_envs` does not divide the number of episodes.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("CartPole-v1", max_steps_in_episode=8)  # no pole falls sooner
      >>> learner = marl.make_learner("random", game)
      >>> state = learner.init(jax.random.key(0))
      >>> marl.evaluate(jax.random.key(1), game, learner, state, num_episodes=2, num_steps=8).tolist()
      [8.0, 8.0]
    """
    check_key(key)
    for name, number in (("num_episodes", num_episodes), ("num_steps", num_steps), ("num_envs", num_envs or 1)):
        check_number(name, number)
    check_game(game)
    check_state(learner, state)
    num_envs = num_envs or num_episodes
    if game.num_agents != 1 or num_episodes % num_envs:
        raise ValueError(
            f"evaluation: got {game.num_agents} players and {num_episodes} episodes in {num_envs} environments; "
            "one player and a multiple of the environments are needed"
        )
    policy = learner.policy(state)

    def step(carry: Any, keys: Any) -> tuple[Any, None]:
        observations, game_state, memory, returns, going = carry
        act_key, step_keys = keys
        action, memory = act_best(learner, act_key, policy, memory, observations["agent_0"])
        observations, game_state, rewards, dones, _ = jax.vmap(game.step_env)(
            step_keys, game_state, {"agent_0": action}
        )
        chex.assert_shape(rewards["agent_0"], (num_envs,))
        returns = returns + jnp.where(going, rewards["agent_0"], 0.0)
        return (observations, game_state, memory, returns, going & ~dones["__all__"]), None

    def play(key: jax.Array) -> jax.Array:
        reset_key, act_key, step_key = jax.random.split(key, 3)
        observations, game_state = jax.vmap(game.reset)(jax.random.split(reset_key, num_envs))
        keys = jax.random.split(act_key, num_steps), jax.random.split(step_key, (num_steps, num_envs))
        memory = learner.init_memory(policy, num_envs)
        carry = observations, game_state, memory, jnp.zeros(num_envs), jnp.ones(num_envs, bool)
        return jax.lax.scan(step, carry, keys)[0][3]

    return jax.vmap(play)(jax.random.split(key, num_episodes // num_envs)).reshape(-1)


def act_best(
    learner: Learner, key: jax.Array, policy: Parameters, memory: Memory, obs: jax.Array
) -> tuple[jax.Array, Memory]:
    """(action, memory) by the learner's `act_greedy`, or by its `act` where it has none."""
    if learner.act_greedy:
        return learner.act_greedy(policy, memory, obs)
    return learner.act(key, policy, memory, obs)[:2]
