"""What a game is: an n-player simultaneous-move Markov game, in the functional API of JaxMARL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from games.spaces import Space

Observations = dict[str, jax.Array]
Actions = dict[str, jax.Array]
State = Any  # a pytree of arrays, by custom a flax.struct dataclass


class Game:
    """An n-player game of pure functions. A subclass writes `reset`, `step_env` and the spaces.

    The methods are unbatched: `jax.vmap` plays many games at once. Code written for JaxMARL's `MultiAgentEnv` plays
    these games, and the other way round.

    Attributes:
      agents: the players' names, the keys of every dict.
    """

    agents: Sequence[str]

    @property
    def num_agents(self) -> int:
        return len(self.agents)

    def reset(self, key: jax.Array) -> tuple[Observations, State]:
        """A first observation of every agent, and the state."""
        raise NotImplementedError(f"{type(self).__name__} does not define reset")

    def step_env(
        self, key: jax.Array, state: State, actions: Actions
    ) -> tuple[Observations, State, dict[str, jax.Array], dict[str, jax.Array], dict[str, Any]]:
        """One step without auto-reset: (observations, state, rewards, dones, infos); `dones["__all__"]` ends it."""
        raise NotImplementedError(f"{type(self).__name__} does not define step_env")

    def step(
        self, key: jax.Array, state: State, actions: Actions, reset_state: State | None = None
    ) -> tuple[Observations, State, dict[str, jax.Array], dict[str, jax.Array], dict[str, Any]]:
        """One step; when the game ends, observation and state are those of a new one (of `reset_state`, if given)."""
        key, reset_key = jax.random.split(key)
        observations, state_after, rewards, dones, infos = self.step_env(key, state, actions)
        if reset_state is None:
            new_observations, new_state = self.reset(reset_key)
        else:
            new_observations, new_state = self.get_obs(reset_state), reset_state

        def select(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(dones["__all__"], new, old)

        state = jax.tree.map(select, new_state, state_after)
        return jax.tree.map(select, new_observations, observations), state, rewards, dones, infos

    def get_obs(self, state: State) -> Observations:
        """What every agent sees of a state."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_obs")

    def observation_space(self, agent: str) -> Space:
        raise NotImplementedError(f"{type(self).__name__} does not define observation_space")

    def action_space(self, agent: str) -> Space:
        raise NotImplementedError(f"{type(self).__name__} does not define action_space")
