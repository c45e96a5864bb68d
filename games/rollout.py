"""Playing a game, to look at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games import checks
from games.drawing import save_gif
from games.game import Actions, Game, Infos, Observations
from games.spaces import Discrete


@struct.dataclass
class Rollout:
    """Steps of one game, with auto-reset; leading axis `[T]`."""

    game: Game
    first: Any  # the state at the beginning, without the axis
    observations: Observations  # before each action
    actions: Actions
    rewards: dict[str, jax.Array]
    dones: dict[str, jax.Array]
    infos: Infos
    states: Any  # after each step, before a reset


def rollout(
    key: jax.Array, game: Game, num_steps: int, act: Callable[[jax.Array, Observations], Actions] | None = None
) -> Rollout:
    """Plays `num_steps` steps, as one pure function; `jax.jit` and `jax.vmap` it over keys.

    Args:
      key: of everything that is drawn.
      game: what is played.
      num_steps: T.
      act: `(key, observations) -> actions`, dicts by agent; None plays uniformly among the actions that are possible.
    """

    checks.size("num_steps", num_steps, 1)

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
    return Rollout(game, state, *kept)


def random_actions(key: jax.Array, game: Game, state: Any) -> Actions:
    """Uniform actions of all agents, of those that are possible now."""
    available, actions = game.get_avail_actions(state), {}
    for agent, agent_key in zip(game.agents, jax.random.split(key, game.num_agents), strict=True):
        space = game.action_space(agent)
        if isinstance(space, Discrete):
            actions[agent] = jax.random.categorical(agent_key, jnp.where(available[agent], 0.0, -jnp.inf))
        else:
            actions[agent] = space.sample(agent_key)
    return actions


def animate(played: Rollout, path: str | Path, *, frames_per_second: float = 4.0) -> None:
    """Writes a rollout as a GIF that repeats for ever.

    Raises:
      NotImplementedError: if the game has no pictures.
      ValueError: if it is a batch of rollouts, or the speed is not above 0.
      OSError: if the file cannot be written.
    """
    checks.number("frames_per_second", frames_per_second, 0, brackets="(]")
    save_gif(pictures(played), path, frames_per_second=frames_per_second)


def pictures(played: Rollout) -> list[np.ndarray]:
    """The frames of a rollout, RGB, T + 1 of them."""
    if played.dones["__all__"].ndim != 1:
        raise ValueError(f"rollout: got a batch of shape {played.dones['__all__'].shape}; one game, [steps], is needed")
    states = jax.tree.map(lambda x, xs: np.concatenate([np.asarray(x)[None], xs]), played.first, played.states)
    return played.game.frames(states)
