"""The base of the commons: players eat apples, which grow by themselves, and may zap one another away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import shown
from games.core import checks
from games.core.game import Actions, Game, Infos, Observations, Scalar, Step, static
from games.core.spaces import Box, Discrete
from games.toolbox import boards, grid

GRASS, APPLE, WATER, WASTE = "#DDEFD0", "#D62728", "#A9D3EE", "#8A6A3B"
APPLE_LABELS = 1 << 20  # of the random words that decide where apples grow


@struct.dataclass
class CommonsState:
    """Sets of cells are boards of bits, see `games.toolbox.boards`."""

    positions: jax.Array  # `[n, 2]`, row and column; without meaning while the player is away
    directions: jax.Array  # `[n]`, up, right, down, left
    away: jax.Array  # `[n]`, steps until a player that was zapped returns
    apples: jax.Array  # `[words]`
    fired: jax.Array  # `[n]`, the action from `BEAM` on that was taken in the last step, else 0; for pictures
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Commons(Game):
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
    view_size: int = static(7)
    beam_length: int = static(3)
    beam_radius: int = static(1)
    zap_steps: Scalar = 25
    zap_cost: Scalar = 0.0
    zap_penalty: Scalar = 0.0
    episode_length: Scalar = 1000

    letters = ".A#P"

    def __post_init__(self) -> None:
        if isinstance(self.layout, list):
            object.__setattr__(self, "layout", tuple(self.layout))
        grid.check_layout(self.layout, self.letters)
        if not self.grid.count("P"):
            raise ValueError(f"layout: got {shown(self.layout)}; a cell P, where players begin, is needed")
        checks.size("num_agents", self.num_agents, 1, self.grid.count("P"))
        grid.check_view(self.view_size)
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        checks.size("beam_radius", self.beam_radius, 0, grid.LARGEST_VIEW)
        checks.whole("zap_steps", self.zap_steps, 0)
        checks.number("zap_cost", self.zap_cost)
        checks.number("zap_penalty", self.zap_penalty)
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def grid(self) -> grid.Grid:
        return grid.Grid(self.layout)

    def _board(self, letters: str) -> jax.Array:
        return jnp.asarray(self.grid.board(letters))

    def _start(self, key: jax.Array) -> dict[str, jax.Array]:
        """The fields of a first state, without apples."""
        n = self.num_agents
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        zeros = jnp.zeros(n, jnp.int32)
        positions, directions = self.grid.drop(
            jnp.zeros((n, 2), jnp.int32), zeros, jnp.ones(n, bool), self._board("P"), seed, 0
        )
        apples = jnp.zeros(self.grid.words, jnp.uint32)
        return {
            "positions": positions,
            "directions": directions,
            "away": zeros,
            "apples": apples,
            "fired": zeros,
            "time": jnp.zeros((), jnp.int32),
        }

    def _grow(self, state: Any, seed: Sequence[jax.Array], acts: jax.Array) -> tuple[Any, jax.Array, Infos]:
        """(state, board of the cells on which an apple grows if there is room, further infos) after all have acted."""
        raise NotImplementedError(f"{type(self).__name__} does not define _grow")

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        n, world = self.num_agents, self.grid
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        present = state.away == 0
        acts = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        acts = jnp.where(present, acts, grid.STAY)
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

    def get_obs(self, state: Any) -> Observations:
        present, things = state.away == 0, self._things(state)
        seen = self.grid.view(state.positions, state.directions, self.view_size, things, present)
        seen = jnp.where(present[:, None], seen, 0)
        return self._by_agent(grid.planes(seen, self.view_size, len(things) + 5))

    def observation_space(self, agent: str) -> Box:
        state = jax.eval_shape(self.reset, jax.eval_shape(lambda: jax.random.key(0)))
        return Box(0.0, 1.0, state[0][agent].shape, image=True)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(8)

    def render(self, state: Any) -> np.ndarray:
        world, canvas = self.grid, self.grid.canvas()
        world.draw_cells(canvas, world.board("A"), GRASS)
        self._draw(canvas, state)
        fired = np.asarray(state.fired)
        for action, color in ((grid.BEAM, grid.BEAMS), (grid.BEAM + 1, grid.CLEANING)):
            world.draw_beams(canvas, state, fired == action, self.beam_length, self.beam_radius, color)
        self._draw_things(canvas, state)
        world.draw_players(canvas, state, np.asarray(state.away) == 0)
        return canvas.image()

    def _draw(self, canvas: Any, state: Any) -> None:
        """Draws what lies below the beams."""

    def _draw_things(self, canvas: Any, state: Any) -> None:
        """Draws what lies above the beams."""
        self.grid.draw_cells(canvas, state.apples, APPLE, 0.5)
