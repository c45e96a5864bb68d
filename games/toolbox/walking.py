"""Walks on a grid: the action that leads a player one step nearer to what it wants, and the turn of its beam."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games.toolbox import boards
from games.toolbox.grid import BACK, FORWARD, STAY, STEP_LEFT, STEP_RIGHT, TURN_LEFT, TURN_RIGHT, Grid

UNREACHABLE = 1 << 14
_AHEAD = np.array([FORWARD, STEP_RIGHT, BACK, STEP_LEFT])  # steps up, right, down and left of a player that looks up


class Paths(NamedTuple):
    """Distances on a grid, as constants.

    Attributes:
      neighbours: `[cells, 4]`, the cell above, to the right, below and to the left; `cells` where there is none.
      distances: `[cells + 1, cells]`, steps from cell to cell around walls, or `UNREACHABLE`.
    """

    neighbours: np.ndarray
    distances: np.ndarray


@functools.cache
def paths(grid: Grid) -> Paths:
    """The distances on a grid, by breadth-first search from every cell at once."""
    n = grid.num_cells
    is_open = ~boards.cells(grid.board("#"), n)
    rows, columns = np.divmod(np.arange(n), grid.columns)
    neighbours = np.full((n, 4), n)
    for i, (down, right) in enumerate([(-1, 0), (0, 1), (1, 0), (0, -1)]):
        row, column = rows + down, columns + right
        there = np.clip(row, 0, grid.rows - 1) * grid.columns + np.clip(column, 0, grid.columns - 1)
        inside = (row >= 0) & (row < grid.rows) & (column >= 0) & (column < grid.columns)
        neighbours[:, i] = np.where(inside & is_open & is_open[there], there, n)
    distances = np.full((n + 1, n), UNREACHABLE, np.int32)
    reached = np.eye(n + 1, n, dtype=bool)
    for steps in range(n):
        new = reached & (distances == UNREACHABLE)
        if not new.any():
            break
        distances[new] = steps
        reached = np.zeros_like(reached)
        for i in range(4):  # a neighbour's reach is one's own a step later
            reached[:n] |= new[neighbours[:, i]]
    return Paths(neighbours, distances)


def cells_of(board: jax.Array, num_cells: int) -> jax.Array:
    """The booleans `[cells]` of a board."""
    return (board[:, None] >> jnp.arange(32, dtype=jnp.uint32) & 1).astype(bool).reshape(-1)[:num_cells]


def walk(
    key: jax.Array, grid: Grid, cell: jax.Array, direction: jax.Array, targets: jax.Array, blocked: jax.Array
) -> jax.Array:
    """The action `[]` that leads a player nearer to the nearest of its targets, over no blocked cell.

    Between steps that lead equally near it draws. It stays where no target can be reached, and steps aside where every
    way nearer is blocked.

    Args:
      key: of the draw.
      grid: the grid.
      cell: of the player, `[]`.
      direction: of the player, `[]`.
      targets: bool `[cells]`.
      blocked: bool `[cells]`, such as those of other players.
    """
    neighbours, distances = map(jnp.asarray, paths(grid))
    around = neighbours[cell]
    to_target = jnp.where(targets, distances[around], UNREACHABLE).min(1)
    open_to = (around < grid.num_cells) & ~blocked[jnp.minimum(around, grid.num_cells - 1)]
    costs = jnp.where(open_to & (to_target < UNREACHABLE), to_target + jax.random.uniform(key, (4,)), jnp.inf)
    best = jnp.argmin(costs)
    return jnp.where(jnp.isfinite(costs[best]), jnp.asarray(_AHEAD)[(best - direction) % 4], STAY)


def aim(beam: int, sees: jax.Array, direction: jax.Array, otherwise: jax.Array) -> jax.Array:
    """The action `[]` of a player with a beam: use it, turn to where it can be used, or do something else.

    Args:
      beam: the action that uses it.
      sees: bool `[4]`, the directions in which it can be used.
      direction: of the player, `[]`.
      otherwise: the action, `[]`, where it can be used in none.
    """
    ahead, right, _, left = (sees[(direction + turn) % 4] for turn in range(4))
    turn = jnp.where(right | ~left, TURN_RIGHT, TURN_LEFT)
    return jnp.where(ahead, beam, jnp.where(sees.any(), turn, otherwise))
