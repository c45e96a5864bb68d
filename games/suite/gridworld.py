"""The base of gridworlds with several players: a layout, steps and turns, and a turned view of what lies around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import shown
from games.core import checks
from games.core.game import Actions, Game, Infos, Observations, Scalar, static
from games.core.spaces import Box, Discrete
from games.toolbox import grid


@struct.dataclass
class GridworldState:
    """Sets of cells are boards of bits, see `games.toolbox.boards`."""

    positions: jax.Array  # `[n, 2]`, row and column; without meaning while the player is away
    directions: jax.Array  # `[n]`, up, right, down, left
    fired: jax.Array  # `[n]`, the action from `BEAM` on that was taken in the last step, else 0; for pictures
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Gridworld(Game):
    """Base of the gridworlds.

    Attributes:
      layout: one string for each row: `P` where players start, `#` a wall.
      num_agents: the number of players; at most as many as there are places `P`.
      view_size: width of the square view; odd.
      episode_length: steps until the time limit.
    """

    layout: tuple[str, ...] = static(("P.P",))
    num_agents: int = static(2)
    view_size: int = static(7)
    episode_length: Scalar = 1000

    costly_reset = True  # players are put onto the grid one after another
    letters = ".#P"  # of a layout
    actions = 7  # their number: those of `Grid.move`, and the game's own behind them

    def __post_init__(self) -> None:
        if isinstance(self.layout, list):
            object.__setattr__(self, "layout", tuple(self.layout))
        grid.check_layout(self.layout, self.letters)
        if not self.grid.count("P"):
            raise ValueError(f"layout: got {shown(self.layout)}; a cell P, where players begin, is needed")
        checks.size("num_agents", self.num_agents, 1, self.grid.count("P"))
        grid.check_view(self.view_size)
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def grid(self) -> grid.Grid:
        return grid.Grid(self.layout)

    def _board(self, letters: str) -> jax.Array:
        return jnp.asarray(self.grid.board(letters))

    def _start(self, key: jax.Array) -> dict[str, jax.Array]:
        """The fields of a first state: players on different places `P`, in random directions."""
        n = self.num_agents
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        zeros, everyone = jnp.zeros(n, jnp.int32), jnp.ones(n, bool)
        positions, directions = self.grid.drop(jnp.zeros((n, 2), jnp.int32), zeros, everyone, self._board("P"), seed, 0)
        return {"positions": positions, "directions": directions, "fired": zeros, "time": jnp.zeros((), jnp.int32)}

    def _acts(self, actions: Actions) -> jax.Array:
        """The actions of all players, `[n]`."""
        return jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])

    def _present(self, state: Any) -> jax.Array:
        """True for players that are on the grid, `[n]`."""
        return jnp.ones(self.num_agents, bool)

    def _things(self, state: Any) -> list[jax.Array]:
        """Boards that players see, each a channel: `[words]`, or `[words, n, 1]` where each sees another one."""
        return []

    def _marked(self, state: Any) -> jax.Array | None:
        """Players that others see marked, `[n]`, in a channel behind all others; None for no such channel."""
        return None

    def _held(self, state: Any) -> jax.Array | None:
        """Numbers `[n, k]` that each player sees of itself, the same in all cells, in the last channels."""
        return None

    def get_obs(self, state: Any) -> Observations:
        present, things = self._present(state), self._things(state)
        marked, held = self._marked(state), self._held(state)
        seen = self.grid.view(state.positions, state.directions, self.view_size, things, present, marked)
        seen = jnp.where(present[:, None], seen, 0)
        seen = grid.planes(seen, self.view_size, len(things) + (5 if marked is None else 6))
        if held is not None:
            shape = (*seen.shape[:3], held.shape[-1])
            seen = jnp.concatenate([seen, jnp.broadcast_to(held[:, None, None], shape)], -1)
        return self._by_agent(seen)

    def observation_space(self, agent: str) -> Box:
        state = jax.eval_shape(self.reset, jax.eval_shape(lambda: jax.random.key(0)))
        return Box(0.0, 1.0, state[0][agent].shape, image=True)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(self.actions)

    def render(self, state: Any) -> np.ndarray:
        canvas = self.grid.canvas()
        self._draw(canvas, state)
        self._draw_beams(canvas, state, np.asarray(state.fired))
        self._draw_things(canvas, state)
        self.grid.draw_players(canvas, state, np.asarray(self._present(state)))
        return canvas.image()

    def _draw(self, canvas: Any, state: Any) -> None:
        """Draws what lies below the beams."""

    def _draw_beams(self, canvas: Any, state: Any, fired: np.ndarray) -> None:
        """Draws the beams that were fired in the last step."""

    def _draw_things(self, canvas: Any, state: Any) -> None:
        """Draws what lies above the beams."""


@struct.dataclass
class ZappingState(GridworldState):
    """The state of a gridworld whose players may be away."""

    away: jax.Array  # `[n]`, steps until a player that was zapped returns


@struct.dataclass(eq=False)
class Zapping(Gridworld):
    """Base of the gridworlds whose players may zap one another away for a while.

    Attributes:
      layout, num_agents, view_size, episode_length: as in `Gridworld`.
      beam_length: cells that a beam reaches ahead.
      beam_radius: cells that it covers on either side of the middle.
      zap_steps: for which a player that was zapped is away; 0 removes no player.
      zap_cost: for firing.
      zap_penalty: for a player that is hit, for each beam.
    """

    beam_length: int = static(3)
    beam_radius: int = static(1)
    zap_steps: Scalar = 25
    zap_cost: Scalar = 0.0
    zap_penalty: Scalar = 0.0

    actions = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        checks.size("beam_radius", self.beam_radius, 0, grid.LARGEST_VIEW)
        checks.whole("zap_steps", self.zap_steps, 0)
        checks.number("zap_cost", self.zap_cost)
        checks.number("zap_penalty", self.zap_penalty)

    def _start(self, key: jax.Array) -> dict[str, jax.Array]:
        return super()._start(key) | {"away": jnp.zeros(self.num_agents, jnp.int32)}

    def _move(
        self, state: Any, actions: Actions, seed: Sequence[jax.Array], active: Any = True
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """(actions, players on the grid, positions, directions) after all steps and turns.

        The action of players that are away or not `active` is to stay.
        """
        present = state.away == 0
        active &= present
        acts = jnp.where(active, self._acts(actions), grid.STAY)
        positions, directions = self.grid.move(state.positions, state.directions, acts, present, active, seed)
        return acts, present, positions, directions

    def _zap(
        self, state: Any, positions: jax.Array, directions: jax.Array, acts: jax.Array, present: jax.Array
    ) -> tuple[jax.Array, jax.Array, Infos]:
        """(steps until each player returns, what each pays for beams, infos) after all that want to have zapped."""
        zaps = acts == grid.BEAM
        hits = self.grid.hits(positions, directions, self.beam_length, self.beam_radius)
        times_hit = (hits & zaps[:, None] & present[None]).sum(0, dtype=jnp.int32)
        fines = self.zap_cost * zaps.astype(jnp.float32) + self.zap_penalty * times_hit
        away = jnp.where(times_hit > 0, self.zap_steps, jnp.maximum(state.away - 1, 0)).astype(jnp.int32)
        infos = {"zaps": zaps, "zapped": times_hit > 0, "away": away > 0}
        return away, fines, {name: count.astype(jnp.float32) for name, count in infos.items()}

    def _return(self, state: Any, present: jax.Array, taken: jax.Array, seed: Sequence[jax.Array]) -> Any:
        """The state after the players whose time away has ended are back, on places `P` that are not `taken`."""
        back = ~present & (state.away == 0)
        free = self._board("P") & ~taken
        positions, directions = self.grid.drop(state.positions, state.directions, back, free, seed, self.num_agents)
        return state.replace(positions=positions, directions=directions)

    def _present(self, state: Any) -> jax.Array:
        return state.away == 0

    def _draw_beams(self, canvas: Any, state: Any, fired: np.ndarray) -> None:
        for action, color in ((grid.BEAM, grid.BEAMS), (grid.BEAM + 1, grid.CLEANING)):
            self.grid.draw_beams(canvas, state, fired == action, self.beam_length, self.beam_radius, color)
