"""Playing a game, to look at it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from games.core import checks
from games.core.arguments import check_arguments
from games.core.fingerprint import compiled_once
from games.core.game import Actions, Game, Infos, Observations
from games.core.modes import in_any_mode
from games.core.spaces import Discrete


@struct.dataclass
class Rollout:
    """Steps of one game, with auto-reset; leading axis `[T]`.

    Attributes:
      game: the game that was played
      first: the state at the beginning, without the axis
      observations: before each action
      actions: of each agent, `[T, ...]`
      rewards: of each agent, `[T]`
      dones: of each agent and of all, `[T]`
      infos: what the game counts, `[T, agents]` each
      states: after each step, before a reset
    """

    game: Game
    first: Any
    observations: Observations
    actions: Actions
    rewards: dict[str, jax.Array]
    dones: dict[str, jax.Array]
    infos: Infos
    states: Any


@check_arguments
def rollout(
    key: jax.Array, game: Game, num_steps: int, act: Callable[[jax.Array, Observations], Actions] | None = None
) -> Rollout:
    """Plays `num_steps` steps, as one pure function; `jax.jit` and `jax.vmap` it over keys.

    Called as it is, it is compiled once for the same game, number of steps and function `act`.

    Args:
      key: of everything that is drawn.
      game: what is played.
      num_steps: T.
      act: `(key, observations) -> actions`, dicts by agent; None plays uniformly among the actions that are possible.

    Example:
      >>> import games, jax, jax.numpy as jnp
      >>> def act(key, observations):
      ...     return {"agent_0": jnp.int32(0), "agent_1": jnp.int32(1)}  # one cooperates, the other defects
      >>> played = games.rollout(jax.random.key(0), games.make("ipd"), 3, act)
      >>> played.rewards["agent_0"].tolist()
      [-3.0, -3.0, -3.0]
    """
    checks.size("num_steps", num_steps, 1)
    play = compiled_once(partial(_play, game, num_steps, act), key, game)
    return Rollout(game, *play(key))


def _play(
    game: Game, num_steps: int, act: Callable[[jax.Array, Observations], Actions] | None, key: jax.Array
) -> tuple[Any, ...]:
    """Fields of `Rollout` after the game."""

    def step(carry: Any, key: jax.Array) -> Any:
        observations, state = carry
        act_key, step_key, reset_key = jax.random.split(key, 3)
        actions = act(act_key, observations) if act else random_actions(act_key, game, state)
        after, new_state, rewards, dones, infos = game.step_env(step_key, state, actions)
        kept = observations, actions, rewards, dones, infos, new_state
        return game.auto_reset(reset_key, after, new_state, dones), kept

    reset_key, run_key = jax.random.split(key)
    observations, state = game.reset(reset_key)
    _, kept = jax.lax.scan(step, (observations, state), jax.random.split(run_key, num_steps))
    return state, *kept


@in_any_mode
@check_arguments
def random_actions(key: jax.Array, game: Game, state: Any) -> Actions:
    """Uniform actions of all agents, of those that are possible in a state.

    Args:
      key: of the draw.
      game: what is played.
      state: of the game, as of `game.reset` or `game.step`.

    Returns:
      The actions by agent.

    Raises:
      TypeError: for what is no game.
    """
    available, actions = game.get_avail_actions(state), {}
    for agent, agent_key in zip(game.agents, jax.random.split(key, game.num_agents), strict=True):
        space = game.action_space(agent)
        if isinstance(space, Discrete):
            actions[agent] = jax.random.categorical(agent_key, jnp.where(available[agent], 0.0, -jnp.inf))
        else:
            actions[agent] = space.sample(agent_key)
    return actions
