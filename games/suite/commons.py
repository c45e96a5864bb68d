"""The base of the commons: players eat apples, which grow by themselves, and may zap one another away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from games.core.game import Actions, Infos, Step, static
from games.suite.gridworld import Zapping, ZappingState
from games.toolbox import boards, grid

GRASS, APPLE, WATER, WASTE = "#DDEFD0", "#D62728", "#A9D3EE", "#8A6A3B"
APPLE_LABELS = 1 << 20  # of the random words that decide where apples grow


@struct.dataclass
class CommonsState(ZappingState):
    """The state of the commons."""

    apples: jax.Array  # `[words]`


@struct.dataclass(eq=False)
class Commons(Zapping):
    """Base of `Harvest` and `Cleanup`, which define `_grow`.

    Attributes:
      layout: one string for each row: `A` where apples grow, `P` where players start and return, `#` a wall.
      num_agents, view_size, episode_length: as in `games.suite.gridworld.Gridworld`.
      beam_length, beam_radius, zap_steps, zap_cost, zap_penalty: as in `games.suite.gridworld.Zapping`.
    """

    layout: tuple[str, ...] = static(("A.P",))
    num_agents: int = static(4)

    letters = ".A#P"

    def _start(self, key: jax.Array) -> dict[str, jax.Array]:
        """The fields of a first state, without apples."""
        return super()._start(key) | {"apples": jnp.zeros(self.grid.words, jnp.uint32)}

    def _grow(self, state: Any, seed: Sequence[jax.Array], acts: jax.Array) -> tuple[Any, jax.Array, Infos]:
        """(state, board of the cells on which an apple grows if there is room, further infos) after all have acted."""
        raise NotImplementedError(f"{type(self).__name__} does not define _grow")

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts, present, positions, directions = self._move(state, actions, seed)
        here = jnp.where(present[:, None], boards.single(self.grid.cell(positions), self.grid.words), 0)
        ate = ((here & state.apples) != 0).any(1)
        away, fines, zap_infos = self._zap(state, positions, directions, acts, present)
        rewards = ate - fines

        taken = boards.union(here)
        state = state.replace(
            positions=positions,
            directions=directions,
            away=away,
            apples=state.apples & ~taken,
            fired=jnp.where(acts >= grid.BEAM, acts, 0),
            time=state.time + 1,
        )
        state, grown, infos = self._grow(state, seed, acts)
        state = self._return(state, present, taken, seed)
        state = state.replace(apples=state.apples | (grown & self._board("A") & ~taken))
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = ending | infos | {"apples": ate.astype(jnp.float32)} | zap_infos
        return self.get_obs(state), state, self._by_agent(rewards.astype(jnp.float32)), dones, infos

    def _things(self, state: Any) -> list[jax.Array]:
        """Boards that players see, each a channel."""
        return [state.apples]

    def _draw(self, canvas: Any, state: Any) -> None:
        """Draws what lies below the beams."""
        self.grid.draw_cells(canvas, self.grid.board("A"), GRASS)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        """Draws what lies above the beams."""
        self.grid.draw_cells(canvas, state.apples, APPLE, 0.5)
