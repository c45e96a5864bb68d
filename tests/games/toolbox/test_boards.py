"""Boards of bits against sets of cells in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from games.toolbox import boards

CELLS = 70  # three words, the last of them not full
sets = st.sets(st.integers(0, CELLS - 1), min_size=1)
nth = jax.jit(jax.vmap(boards.nth, (None, 0)))
at = jax.jit(boards.at)
union_of_cells = jax.jit(lambda cells, words: boards.union(boards.single(cells, words)), static_argnums=1)


def board(lie):
    mask = np.zeros(CELLS, bool)
    mask[list(lie)] = True
    return jnp.asarray(boards.constant(mask))


@settings(max_examples=40, deadline=None)
@given(sets)
def test_a_board_is_a_set(lie):
    made = board(lie)
    assert set(np.flatnonzero(boards.cells(made, CELLS)).tolist()) == lie
    assert int(boards.count(made)) == len(lie)
    np.testing.assert_array_equal(at(made, jnp.arange(CELLS)), [cell in lie for cell in range(CELLS)])
    np.testing.assert_array_equal(nth(made, jnp.arange(CELLS))[: len(lie)], sorted(lie))
    as_many = np.resize(sorted(lie), CELLS)  # some of them again: one program for all
    np.testing.assert_array_equal(union_of_cells(as_many, len(made)), made)


def test_a_shuffle_begins_with_every_choice_alike():
    draw = jax.jit(jax.vmap(lambda key: jnp.stack(boards.distinct(jax.random.bits(key, (2,), "uint32"), 3, 3, 5))))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 60_000)))
    assert (np.diff(np.sort(drawn, 1), axis=1) > 0).all()
    counts = np.bincount(drawn @ [25, 5, 1], minlength=125)
    counts = counts[counts > 0]
    assert len(counts) == 60
    assert ((counts - 1000) ** 2 / 1000).sum() < 59 + 5 * (2 * 59) ** 0.5
