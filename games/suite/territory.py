"""Territory: players paint walls, which pay while they stay painted, and may destroy walls and one another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Observations, Scalar, Step, static
from games.suite.gridworld import Gridworld, GridworldState
from games.toolbox import boards, grid
from games.toolbox.drawing import PLAYERS

ZAP, PAINT = grid.BEAM, grid.BEAM + 1
TIES = 1 << 20  # of the random words that decide which of several players paints a wall
BARE, CRACK, BRUSH = "#9A9AA2", "#40404A", "#E8D8F0"
YARD = (
    "....WWW........WW......",
    ".P..........P......P...",
    "......WW.......W...WW..",
    ".WW.........W..W.......",
    "...P...WWW..W......P..W",
    "......................W",
    "..W....W...P...WWW....W",
    "..W..P.W...............",
    "..W........WW.....W....",
    "......WW......P...W..P.",
    ".P.............WW......",
    "...WWW...P...........W.",
    "........WW....P..WW..W.",
)


@struct.dataclass
class TerritoryState(GridworldState):
    """The walls, their paint, and the hits that players have taken."""

    walls: jax.Array  # `[words]`, walls that stand
    cracked: jax.Array  # `[words]`, those of them that one more zap destroys
    painted: jax.Array  # `[n, words]`, walls in each player's colour
    age: jax.Array  # `[digits, words]`, steps since a wall got its colour, in binary, the lowest digit first
    hits: jax.Array  # `[n]`, zaps that each player has taken


@struct.dataclass(eq=False)
class Territory(Gridworld):
    """Players paint walls in their colours, are paid for walls whose paint is dry, and may destroy walls and others.

    The wall ahead of a player gets its colour by touch in every step; painting colours the first wall within
    `beam_length` cells straight ahead. Paint dries in `dry_steps` steps, from which on the wall pays its owner `reward`
    in every step, until another player paints it over. A random one of several players gets a wall that they paint at
    once.

    A zap hits the first wall, and all players before it. A wall that is hit loses its paint and cracks; a hit in a
    later step destroys it for ever, and one may walk where it stood. A player is removed for ever by `player_hits`
    hits; its walls keep its colour and go on to pay it. Peace pays all; a war destroys what pays.

    All act at once: players move, then touch and paint, then zap, and then the dry walls pay. A random one gets a cell
    that several want. Seats are alike: exchanging two players and their colours in the state and the actions exchanges
    their observations and rewards, except for such draws between them.

    Actions: stay, forward, back, step left, step right, turn left, turn right, zap, paint; in all but the turns one
    looks the same way as before. The observation `[view_size, view_size, 11]` is a window of the grid, turned with its
    player, which stands in the middle of the last row but one and looks up. Its channels: walls to paint; those that
    are cracked; those in one's own colour; in others' colours; those whose paint is dry; walls around; other players
    that look the same way, to the right, towards one, to the left; the same in all cells, the share of `player_hits`
    that one has taken. It is all zero once one is removed.

    Infos: `walls` in a player's colour, those of them that are `dry`, walls that it has `destroyed`, `zaps` fired,
    whether it was `zapped`, and whether it is `away`.

    Attributes:
      reward: for each dry wall in a step.
      dry_steps: from painting to the first reward.
      player_hits: zaps that remove a player.
      beam_length: cells that both beams reach ahead.
      layout: one string for each row: `W` a wall to paint, `P` where players start, `#` a wall of another kind.
      num_agents, view_size, episode_length: as in `games.suite.gridworld.Gridworld`.

    Source: territory of Melting Pot 2.0 (Agapiou et al., 2022), arXiv:2211.13746; the numbers of SocialJax (Guo et
    al., 2025), arXiv:2503.14576. The map is our own.
    """

    layout: tuple[str, ...] = static(YARD)
    num_agents: int = static(9)
    dry_steps: int = static(25)
    beam_length: int = static(2)
    reward: Scalar = 0.01
    player_hits: Scalar = 2

    letters = ".WP#"
    actions = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid.count("W"):
            raise ValueError(f"layout: got {self.layout!r}; walls to paint, letters W, are needed")
        checks.size("dry_steps", self.dry_steps, 1, 1 << 20)
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        checks.number("reward", self.reward)
        checks.whole("player_hits", self.player_hits, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, TerritoryState]:
        n, words = self.num_agents, self.grid.words
        state = TerritoryState(
            **self._start(key),
            walls=self._board("W"),
            cracked=jnp.zeros(words, jnp.uint32),
            painted=jnp.zeros((n, words), jnp.uint32),
            age=jnp.zeros((self.dry_steps.bit_length(), words), jnp.uint32),
            hits=jnp.zeros(n, jnp.int32),
        )
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        world, present = self.grid, self._present(state)
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts = jnp.where(present, self._acts(actions), grid.STAY)
        positions, directions = world.move(state.positions, state.directions, acts, present, present, seed, state.walls)
        # Each player reaches one wall at most. The cells are compared as numbers, which takes less than boards.
        reaches, first = world.first(positions, directions, self.beam_length, 0, state.walls)
        reaches, wall, zaps = reaches[:, 0] & present, first[:, 0], acts == ZAP
        touches = wall == world.beam(positions, directions, 1, 0)[0][:, 0, 0]
        paints = boards.one_each(wall, reaches & (touches | (acts == PAINT)), seed, TIES)
        own = world.marked(wall, paints)
        painted = (state.painted & ~boards.union(own)) | own
        fresh = boards.union(own & ~state.painted)

        hit = boards.union(world.marked(wall, reaches & zaps))
        destroyed, cracked = hit & state.cracked, hit & ~state.cracked
        destroys = reaches & zaps & (boards.at(state.cracked, wall) > 0)
        painted &= ~hit
        standing = state.walls & ~destroyed
        shots = world.hits(positions, directions, self.beam_length, 0, state.walls) & zaps[:, None] & present[None]
        times_hit = shots.sum(0, dtype=jnp.int32)

        age = self._aged(state.age, boards.union(painted), fresh | hit)
        pays = painted & self._dry(age)
        counts = boards.count(pays)
        state = state.replace(
            positions=positions,
            directions=directions,
            fired=jnp.where(acts >= ZAP, acts, 0),
            time=state.time + 1,
            walls=standing,
            cracked=(state.cracked | cracked) & standing,
            painted=painted,
            age=age,
            hits=state.hits + times_hit,
        )
        rewards = self.reward * counts.astype(jnp.float32)
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = {
            "walls": boards.count(painted),
            "dry": counts,
            "destroyed": destroys,
            "zaps": zaps,
            "zapped": times_hit > 0,
            "away": ~self._present(state),
        }
        infos = ending | {name: count.astype(jnp.float32) for name, count in infos.items()}
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def _aged(self, age: jax.Array, painted: jax.Array, fresh: jax.Array) -> jax.Array:
        """The age of the paint one step later: 0 where it is fresh or missing, and no more than `dry_steps`."""
        carry, digits = painted & ~fresh & ~self._dry(age), []
        for digit in age:
            digits.append((digit ^ carry) & painted & ~fresh)
            carry &= digit
        return jnp.stack(digits)

    def _dry(self, age: jax.Array) -> jax.Array:
        """The board of the walls whose paint is as old as `dry_steps`."""
        dry = ~jnp.zeros_like(age[0])
        for i, digit in enumerate(age):
            dry &= digit if self.dry_steps >> i & 1 else ~digit
        return dry

    def _present(self, state: Any) -> jax.Array:
        return state.hits < self.player_hits

    def _things(self, state: TerritoryState) -> list[jax.Array]:
        every = boards.union(state.painted)
        others = (every[None] & ~state.painted).T[..., None]
        return [state.walls, state.cracked, state.painted.T[..., None], others, every & self._dry(state.age)]

    def _held(self, state: TerritoryState) -> jax.Array:
        share = (state.hits / self.player_hits).astype(jnp.float32)
        return jnp.where(self._present(state), share, 0.0)[:, None]

    def _draw(self, canvas: Any, state: Any) -> None:
        self.grid.draw_cells(canvas, state.walls, BARE)

    def _draw_beams(self, canvas: Any, state: Any, fired: np.ndarray) -> None:
        for action, color in ((ZAP, grid.BEAMS), (PAINT, BRUSH)):
            self.grid.draw_beams(canvas, state, fired == action, self.beam_length, 0, color)
        self.grid.draw_cells(canvas, state.walls, BARE)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        dry = self._dry(state.age)
        for i, board in enumerate(state.painted):
            color = PLAYERS[i % len(PLAYERS)]
            self.grid.draw_cells(canvas, board & ~dry, color, 0.5)
            self.grid.draw_cells(canvas, board & dry, color, 0.85)
        self.grid.draw_cells(canvas, state.cracked, CRACK, 0.25)
