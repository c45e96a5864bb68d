"""The base of gridworlds: players with a place and a direction, their steps, beams and views.

Directions are up, right, down, left (0 to 3). Positions are (row, column).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from games.core import checks
from games.core.random_bits import draw_integer
from games.toolbox import boards
from games.toolbox.drawing import PAPER, PLAYERS, WALL, Canvas

# In the order of Melting Pot. Whatever comes after is the game's own.
STAY, FORWARD, BACK, STEP_LEFT, STEP_RIGHT, TURN_LEFT, TURN_RIGHT, BEAM = range(8)
BEAMS, CLEANING = "#FFF2A8", "#B8F0F5"  # colours of beams


@dataclasses.dataclass(frozen=True)
class Grid:
    """A rectangle of cells within walls, and perhaps with walls in it.

    Attributes:
      layout: one string for each row; `#` is a wall.
    """

    layout: tuple[str, ...]

    @property
    def rows(self) -> int:
        return len(self.layout)

    @property
    def columns(self) -> int:
        return len(self.layout[0])

    @property
    def num_cells(self) -> int:
        return self.rows * self.columns

    @property
    def words(self) -> int:
        """Length of a board."""
        return -(-self.num_cells // 32)

    def board(self, letters: str) -> np.ndarray:
        """The board of the cells with one of the letters in the layout."""
        return boards.constant([[letter in letters for letter in row] for row in self.layout])

    def count(self, letters: str) -> int:
        """The number of cells with one of the letters."""
        return sum(letter in letters for row in self.layout for letter in row)

    def cell(self, positions: jax.Array) -> jax.Array:
        """Cells `[...]` of positions `[..., 2]`."""
        return positions[..., 0] * self.columns + positions[..., 1]

    def position(self, cell: jax.Array) -> jax.Array:
        """Positions `[..., 2]` of cells `[...]`."""
        return jnp.stack([cell // self.columns, cell % self.columns], -1)

    def is_open(self, row: jax.Array, column: jax.Array) -> jax.Array:
        """True where there is no wall."""
        inside = (row >= 0) & (row < self.rows) & (column >= 0) & (column < self.columns)
        if self.count("#"):
            inside &= boards.at(jnp.asarray(self.board("#")), row * self.columns + column) == 0
        return inside

    def move(
        self,
        positions: jax.Array,
        directions: jax.Array,
        actions: jax.Array,
        present: jax.Array,
        active: jax.Array,
        seed: Sequence[jax.Array],
        blocked: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Positions `[n, 2]` and directions `[n]` after all players have stepped or turned at once.

        No player enters a wall, nor a cell on which another stood before the step, even if that one leaves. If several
        want the same free cell, one of them gets it, all with the same probability; the others stay.

        Args:
          positions: int32 `[n, 2]`.
          directions: int32 `[n]`.
          actions: `[n]`; those from `BEAM` on do not move.
          present: bool `[n]`, players on the grid.
          active: bool `[n]`, players that are present and may act.
          seed: two random words, of which this takes the labels 0 to n - 1.
          blocked: board of cells that no player enters, besides the walls.
        """
        turn = (actions == TURN_RIGHT).astype(jnp.int32) - (actions == TURN_LEFT)
        heading = jnp.where(actions == BACK, 2, jnp.where(actions == STEP_LEFT, 3, actions == STEP_RIGHT))
        down, right = _vector((directions + heading) % 4)
        rows, columns = positions[:, 0] + down, positions[:, 1] + right
        here, there = self.cell(positions), rows * self.columns + columns
        taken = ((there[:, None] == here[None]) & present[None]).any(1)
        if blocked is not None:
            taken |= boards.at(blocked, there) > 0
        wants = active & (actions >= FORWARD) & (actions <= STEP_RIGHT) & self.is_open(rows, columns) & ~taken
        priority = boards.spread(seed, jnp.arange(len(here)))
        beaten = (there[:, None] == there[None]) & wants[None] & (priority[:, None] < priority[None])
        goes = wants & ~beaten.any(1)
        positions = jnp.where(goes[:, None], jnp.stack([rows, columns], -1), positions)
        return positions, jnp.where(active, (directions + turn) % 4, directions)

    def drop(
        self,
        positions: jax.Array,
        directions: jax.Array,
        who: jax.Array,
        free: jax.Array,
        seed: Sequence[jax.Array],
        first_label: int,
    ) -> tuple[jax.Array, jax.Array]:
        """Positions and directions after some players were put on different, random cells of the board `free`."""
        n = len(who)
        words = boards.spread(seed, first_label + jnp.arange(n))
        new_cells, new_directions = [], []
        for i in range(n):
            chosen, word = draw_integer(words[i], boards.count(free))
            cell = boards.nth(free, chosen)
            free = jnp.where(who[i], free & ~boards.single(cell, self.words), free)
            new_cells.append(cell)
            new_directions.append(draw_integer(word, 4)[0])
        new_positions = self.position(jnp.stack(new_cells))
        return (
            jnp.where(who[:, None], new_positions, positions),
            jnp.where(who, jnp.stack(new_directions), directions),
        )

    def beam(
        self,
        positions: jax.Array,
        directions: jax.Array,
        length: int,
        radius: int,
        stops: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Cells that the beam of each player covers, `[n, length, 2 radius + 1]`, and whether it gets there.

        The beam starts on the cell ahead and is `2 radius + 1` cells wide. A wall stops that lane of it. A cell of the
        board `stops` is the last one that its lane gets to.
        """
        ahead, aside = np.arange(1, length + 1)[:, None], np.arange(-radius, radius + 1)[None]
        rows, columns = _turned(positions, directions, ahead, aside)
        cells = rows * self.columns + columns
        reach = [self.is_open(rows[:, 0], columns[:, 0])]
        for i in range(1, length):
            passes = reach[-1] if stops is None else reach[-1] & (boards.at(stops, cells[:, i - 1]) == 0)
            reach.append(passes & self.is_open(rows[:, i], columns[:, i]))
        return cells, jnp.stack(reach, 1)

    def first(
        self, positions: jax.Array, directions: jax.Array, length: int, radius: int, board: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """True for the lanes of beams `[n, width]` that get to a cell of the board, and the first such cell of each."""
        cells, reach = self.beam(positions, directions, length, radius, board)
        found = reach & (boards.at(board, cells) > 0)
        return found.any(1), jnp.where(found, cells, 0).sum(1)

    def marked(self, cells: jax.Array, some: jax.Array) -> jax.Array:
        """Boards `[..., words]` of those cells `[...]` that are among `some`, one each; the others are empty."""
        return jnp.where(some[..., None], boards.single(cells, self.words), 0)

    def hits(
        self,
        positions: jax.Array,
        directions: jax.Array,
        length: int,
        radius: int,
        stops: jax.Array | None = None,
    ) -> jax.Array:
        """True where the beam of player i gets to the cell of player j: bool `[n, n]`."""
        cells, reach = self.beam(positions, directions, length, radius, stops)
        n = len(positions)
        found = (cells[:, None] == self.cell(positions)[None, :, None, None]) & reach[:, None]
        return found.reshape(n, n, -1).any(-1)

    def view(
        self,
        positions: jax.Array,
        directions: jax.Array,
        size: int,
        things: Sequence[Any],
        present: jax.Array,
        marked: jax.Array | None = None,
    ) -> jax.Array:
        """Views of all players, as bits of words `[n, size * size]`.

        The view is a square that is turned with its player, which looks up and stands in the middle of the last row but
        one. The bits are, from the lowest: each of the boards `things`; a wall; another player that looks the same
        way, to the right, towards the viewer, to the left; another player that is `marked`. A thing is a board
        `[words]`, or `[words, n, 1]`, another one for each viewer.
        """
        n = len(positions)
        ahead, aside = size - 2 - np.arange(size)[:, None], np.arange(size)[None] - size // 2
        rows, columns = (x.reshape(n, -1) for x in _turned(positions, directions, ahead, aside))
        cells, is_open, own = rows * self.columns + columns, self.is_open(rows, columns), self.cell(positions)
        seen = jnp.zeros(cells.shape, jnp.uint32)
        for i, thing in enumerate(things):
            seen |= boards.at(thing, cells) << i
        for j in range(n):
            bits = jnp.uint32(2 << len(things)) << ((directions[j] - directions) % 4).astype(jnp.uint32)
            if marked is not None:
                bits |= jnp.where(marked[j], jnp.uint32(32 << len(things)), jnp.uint32(0))
            bits = jnp.where(present[j] & (jnp.arange(n) != j), bits, jnp.uint32(0))
            seen |= jnp.where(cells == own[j], bits[:, None], jnp.uint32(0))
        return jnp.where(is_open, seen, jnp.uint32(1 << len(things)))

    def canvas(self, below: int = 0) -> Canvas:
        """A canvas with a wall around the grid, which begins at row 1 and column 1, and empty rows below it."""
        canvas = Canvas(self.rows + 2 + below, self.columns + 2)
        for row in range(self.rows + 2 + below):
            for column in range(self.columns + 2):
                if row > self.rows + 1:
                    canvas.square(row, column, PAPER)
                elif not (0 < row <= self.rows and 0 < column <= self.columns):
                    canvas.square(row, column, WALL)
        self.draw_cells(canvas, self.board("#"), WALL)
        return canvas

    def draw_cells(self, canvas: Canvas, board: Any, color: str, disc: float = 0.0) -> None:
        """Colours the cells of a board, or draws discs of a size on them."""
        for cell in np.flatnonzero(boards.cells(board, self.num_cells)):
            row, column = cell // self.columns + 1, cell % self.columns + 1
            if disc:
                canvas.disc(row, column, color, disc)
            else:
                canvas.square(row, column, color, 0.96)

    def draw_beams(self, canvas: Canvas, state: Any, fired: Any, length: int, radius: int, color: str = BEAMS) -> None:
        """Shades the cells of the beams that were `fired`."""
        cells, reach = (np.asarray(x) for x in self.beam(state.positions, state.directions, length, radius))
        covered = np.zeros(self.num_cells, bool)
        covered[cells[np.asarray(fired)][reach[np.asarray(fired)]]] = True
        self.draw_cells(canvas, boards.constant(covered), color)

    def draw_players(self, canvas: Canvas, state: Any, present: Any) -> None:
        """Draws the players that are present, in their colours."""
        for i in np.flatnonzero(np.asarray(present)):
            row, column = np.asarray(state.positions)[i] + 1
            canvas.triangle(row, column, PLAYERS[i % len(PLAYERS)], int(state.directions[i]), 0.8)


def check_layout(layout: Any, letters: str) -> None:
    """Raises ValueError unless a layout is a tuple of equally long rows of these letters."""
    rows = layout if isinstance(layout, tuple) and all(isinstance(row, str) for row in layout) else ()
    if not rows or len({len(row) for row in rows}) != 1 or not rows[0] or set("".join(rows)) - set(letters):
        raise ValueError(f"layout: got {layout!r}; a tuple of equally long rows of the letters {letters!r} is needed")


LARGEST_VIEW = 127  # and longest beam


def check_view(size: Any) -> None:
    """Raises ValueError unless a square view of this size has a middle column and a row behind the player."""
    checks.size("view_size", size, 3, LARGEST_VIEW)
    if size % 2 == 0:
        raise ValueError(f"view_size: got {size}; an odd number is needed")


def planes(seen: jax.Array, size: int, channels: int) -> jax.Array:
    """Float planes `[n, size, size, channels]` of the bits of views `[n, size * size]`."""
    bits = seen[..., None] >> jnp.arange(channels, dtype=jnp.uint32) & 1
    return bits.astype(jnp.float32).reshape(len(seen), size, size, channels)


def _vector(direction: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One step in a direction, (down, right)."""
    return (direction == 2).astype(jnp.int32) - (direction == 0), (direction == 1).astype(jnp.int32) - (direction == 3)


def _turned(
    positions: jax.Array, directions: jax.Array, ahead: np.ndarray, aside: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Rows and columns `[n, *shape]` of what lies so many cells ahead and to the right of each player."""
    down, right = (x[:, None, None] for x in _vector(directions))
    rows = positions[:, 0, None, None] + ahead * down + aside * right
    columns = positions[:, 1, None, None] + ahead * right - aside * down
    return rows, columns
