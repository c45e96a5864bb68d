"""Walks on a grid: distances against a search in Python, and steps by hand."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.toolbox import boards, walking
from games.toolbox.grid import BACK, BEAM, FORWARD, STAY, STEP_LEFT, STEP_RIGHT, TURN_LEFT, TURN_RIGHT, Grid

UP, RIGHT, DOWN, LEFT = range(4)
ROOM = Grid(("...", ".#.", "..."))
walk = jax.jit(lambda *given: walking.walk(given[0], ROOM, *given[1:]))


def test_distances_are_those_of_a_search_from_every_cell():
    layout = ("..#...", ".##.#.", "....#.", "###...")
    found, columns = walking.paths(Grid(layout)).distances, 6
    for start in range(24):
        steps, queue = {}, deque([(start, 0)])
        while queue:
            cell, step = queue.popleft()
            row, column = divmod(cell, columns)
            if cell in steps or (layout[row][column] == "#" and cell != start):
                continue
            steps[cell] = step
            if layout[row][column] == "#":
                continue
            for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                if 0 <= row + down < 4 and 0 <= column + right < columns:
                    queue.append((cell + down * columns + right, step + 1))
        expected = [steps.get(cell, walking.UNREACHABLE) for cell in range(24)]
        np.testing.assert_array_equal(found[start], expected)


def cells(*some):
    return jnp.zeros(9, bool).at[jnp.array(some, int)].set(True)


@pytest.mark.parametrize(
    ("cell", "direction", "targets", "blocked", "actions"),
    [
        (6, UP, [0], [], {FORWARD}),
        (6, RIGHT, [0], [], {STEP_LEFT}),
        (6, DOWN, [0], [], {BACK}),
        (6, LEFT, [0], [], {STEP_RIGHT}),
        (3, UP, [5], [], {FORWARD, BACK}),  # around the wall on either side
        (3, UP, [5], [0], {BACK}),
        (0, UP, [2, 6], [], {STEP_RIGHT, BACK}),
        (0, UP, [1, 6], [], {STEP_RIGHT}),  # the nearest
        (0, UP, [1], [1], {BACK}),  # a step aside
        (0, UP, [1], [1, 3], {STAY}),
        (0, UP, [], [], {STAY}),
    ],
)
def test_a_step_leads_nearer_by_a_way_that_is_free(cell, direction, targets, blocked, actions):
    given = jnp.int32(cell), jnp.int32(direction), cells(*targets), cells(*blocked)
    found = {int(walk(jax.random.key(i), *given)) for i in range(16)}
    assert found == actions


def test_a_beam_is_used_or_turned_to_or_left_alone():
    def aimed(*directions, looks=UP):
        sees = jnp.zeros(4, bool).at[jnp.array(directions, int)].set(True)
        return int(walking.aim(BEAM, sees, jnp.int32(looks), jnp.int32(STAY)))

    assert aimed(UP) == aimed(UP, LEFT) == aimed(LEFT, looks=LEFT) == BEAM
    assert aimed(RIGHT) == aimed(DOWN) == aimed(UP, looks=LEFT) == TURN_RIGHT
    assert aimed(LEFT) == aimed(UP, looks=RIGHT) == TURN_LEFT
    assert aimed() == STAY


def test_the_cells_of_a_board():
    board = jnp.asarray(boards.constant(np.arange(40) % 3 == 0))
    np.testing.assert_array_equal(walking.cells_of(board, 40), np.arange(40) % 3 == 0)
