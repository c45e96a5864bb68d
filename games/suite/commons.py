"""The base of the commons: players eat apples, which grow by themselves, and may zap one another away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Infos, Scalar, Step, static
from games.suite.gridworld import Gridworld, GridworldState
from games.toolbox import boards, grid

GRASS, APPLE, WATER, WASTE = "#DDEFD0", "#D62728", "#A9D3EE", "#8A6A3B"
APPLE_LABELS = 1 << 20  # of the random words that decide where apples grow


@struct.dataclass
class CommonsState(GridworldState):
    """The state of the commons."""

    away: jax.Array  # `[n]`, steps until a player that was zapped returns
    apples: jax.Array  # `[words]`


@struct.dataclass(eq=False)
class Commons(Gridworld):
    """Base of `Harvest` and `Cleanup`, which define `_grow`.

    Attributes:
      layout: one string for each row: `A` where apples grow, `P` where players start and return, `#` a wall.
      num_agents: the number of players; at most as many as there are places `P`.
      view_size: width of the square view; odd.
      beam_length: cells that a beam reaches ahead.
      beam_radius: cells that it covers on either side of the middle.
      zap_steps: for which a player that was zapped is away; 0 removes no player.
      zap_cost: for firing.
      zap_penalty: for a player that is hit, for each beam.
      episode_length: steps until the time limit.
    """

    layout: tuple[str, ...] = static(("A.P",))
    num_agents: int = static(4)
    beam_length: int = static(3)
    beam_radius: int = static(1)
    zap_steps: Scalar = 25
    zap_cost: Scalar = 0.0
    zap_penalty: Scalar = 0.0

    letters = ".A#P"
    actions = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        checks.size("beam_radius", self.beam_radius, 0, grid.LARGEST_VIEW)
        checks.whole("zap_steps", self.zap_steps, 0)
        checks.number("zap_cost", self.zap_cost)
        checks.number("zap_penalty", self.zap_penalty)

    def _start(self, key: jax.Array) -> dict[str, jax.Array]:
        """The fields of a first state, without apples."""
        apples = jnp.zeros(self.grid.words, jnp.uint32)
        return super()._start(key) | {"away": jnp.zeros(self.num_agents, jnp.int32), "apples": apples}

    def _grow(self, state: Any, seed: Sequence[jax.Array], acts: jax.Array) -> tuple[Any, jax.Array, Infos]:
        """(state, board of the cells on which an apple grows if there is room, further infos) after all have acted."""
        raise NotImplementedError(f"{type(self).__name__} does not define _grow")

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        n, world = self.num_agents, self.grid
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        present = state.away == 0
        acts = jnp.where(present, self._acts(actions), grid.STAY)
        positions, directions = world.move(state.positions, state.directions, acts, present, present, seed)
        here = jnp.where(present[:, None], boards.single(world.cell(positions), world.words), 0)
        ate = ((here & state.apples) != 0).any(1)

        zaps = acts == grid.BEAM
        hits = world.hits(positions, directions, self.beam_length, self.beam_radius) & zaps[:, None] & present[None]
        times_hit = hits.sum(0, dtype=jnp.int32)
        rewards = ate - self.zap_cost * zaps.astype(jnp.float32) - self.zap_penalty * times_hit
        away = jnp.where(times_hit > 0, self.zap_steps, jnp.maximum(state.away - 1, 0)).astype(jnp.int32)

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
        positions, directions = world.drop(
            positions, directions, ~present & (away == 0), self._board("P") & ~taken, seed, n
        )
        state = state.replace(
            positions=positions, directions=directions, apples=state.apples | (grown & self._board("A") & ~taken)
        )
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = (
            ending
            | infos
            | {
                "apples": ate.astype(jnp.float32),
                "zaps": zaps.astype(jnp.float32),
                "zapped": (times_hit > 0).astype(jnp.float32),
                "away": (away > 0).astype(jnp.float32),
            }
        )
        return self.get_obs(state), state, self._by_agent(rewards.astype(jnp.float32)), dones, infos

    def _things(self, state: Any) -> list[jax.Array]:
        """Boards that players see, each a channel."""
        return [state.apples]

    def _present(self, state: Any) -> jax.Array:
        return state.away == 0

    def _draw(self, canvas: Any, state: Any) -> None:
        """Draws what lies below the beams."""
        self.grid.draw_cells(canvas, self.grid.board("A"), GRASS)

    def _draw_beams(self, canvas: Any, state: Any, fired: np.ndarray) -> None:
        for action, color in ((grid.BEAM, grid.BEAMS), (grid.BEAM + 1, grid.CLEANING)):
            self.grid.draw_beams(canvas, state, fired == action, self.beam_length, self.beam_radius, color)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        """Draws what lies above the beams."""
        self.grid.draw_cells(canvas, state.apples, APPLE, 0.5)
