"""Boards: sets of the cells of a grid as bits, which a step reads and writes without gather or scatter.

A board is uint32 `[..., words]`. Cells are numbered row by row, and cell c is bit c % 32 of word c // 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from games.core.random_bits import draw_integer


def constant(cells: Any) -> np.ndarray:
    """A constant board from booleans `[cells]`."""
    flat = np.ravel(np.asarray(cells, bool))
    padded = np.pad(flat, (0, -len(flat) % 32)).reshape(-1, 32)
    return (padded << np.arange(32)).sum(1).astype(np.uint32)


def cells(board: Any, num_cells: int) -> np.ndarray:
    """The booleans `[cells]` of a board, on the host."""
    words = np.asarray(board, np.uint32)
    return (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).ravel()[:num_cells]


def single(cell: jax.Array, words: int) -> jax.Array:
    """Boards `[..., words]` with one cell each, from cells `[...]`."""
    bit = jnp.uint32(1) << (cell & 31).astype(jnp.uint32)
    here = jnp.expand_dims(jnp.arange(words), range(cell.ndim)) == (cell >> 5)[..., None]
    return jnp.where(here, bit[..., None], jnp.uint32(0))


def at(board: jax.Array, cell: jax.Array) -> jax.Array:
    """1 for cells `[...]` of the grid that are on a board `[words]`, else 0: uint32."""
    word = jnp.asarray(board[0])
    for i in range(1, len(board)):
        word = jnp.where(cell >> 5 == i, board[i], word)
    return word >> (cell & 31).astype(jnp.uint32) & 1


def union(boards: jax.Array, axis: int | tuple[int, ...] = 0) -> jax.Array:
    """The cells that are on any of the boards along an axis."""
    return jnp.bitwise_or.reduce(boards, axis=axis)  # type: ignore[arg-type]


def count(board: jax.Array) -> jax.Array:
    """The number of cells on each board: int32 `[...]` from `[..., words]`."""
    return jax.lax.population_count(board).astype(jnp.int32).sum(-1)


def nth(board: jax.Array, n: jax.Array) -> jax.Array:
    """The cell that has n others of the board below it; n is less than the number of cells on the board."""
    word, cell = jnp.asarray(board[0]), jnp.zeros_like(n)
    below = jax.lax.population_count(word).astype(jnp.int32)
    for i in range(1, len(board)):
        later = n >= below
        n_later, size = n - below, jax.lax.population_count(board[i]).astype(jnp.int32)
        n, word, cell = jnp.where(later, n_later, n), jnp.where(later, board[i], word), jnp.where(later, 32 * i, cell)
        below = jnp.where(later, size, below)
    for half in (16, 8, 4, 2, 1):
        below = jax.lax.population_count(word & jnp.uint32(2**half - 1)).astype(jnp.int32)
        upper = n >= below
        n, cell = jnp.where(upper, n - below, n), jnp.where(upper, cell + half, cell)
        word = jnp.where(upper, word >> half, word)
    return cell


def spread(seed: Sequence[jax.Array], labels: jax.Array) -> jax.Array:
    """A random word for every label, different for different labels: uint32 of their shape.

    Twice the finalizer of MurmurHash3, each a bijection of words: a tenth of the work of one more random draw.

    Args:
      seed: two random words.
      labels: integers, constant.
    """
    x = seed[0] + labels.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    for word in (seed[1], jnp.uint32(0)):
        x = (x ^ x >> 16) * jnp.uint32(0x85EBCA6B)
        x = (x ^ x >> 13) * jnp.uint32(0xC2B2AE35)
        x = x ^ x >> 16 ^ word
    return x


def one_each(cells: jax.Array, wants: jax.Array, seed: Sequence[jax.Array], first_label: int) -> jax.Array:
    """A random one of those that want the same cell: bool `[n]`, from the cells `[n]` and bool `[n]`, `wants`."""
    priority = spread(seed, first_label + jnp.arange(len(cells)))
    rivals = (cells[:, None] == cells[None]) & wants[None] & (priority[None] < priority[:, None])
    return wants & ~rivals.any(1)


def neighbours(board: jax.Array, columns: int, num_cells: int, radius: int) -> list[jax.Array]:
    """Boards of the cells that have at least 1, 2 and 3 cells of `board` within a Euclidean distance, itself apart."""
    rows, place = num_cells // columns, np.arange(num_cells)
    reach = range(-radius, radius + 1)
    at_least = [jnp.zeros_like(board)] * 3
    for down, right in [(i, j) for i in reach for j in reach if 0 < i * i + j * j <= radius**2]:
        row, column = place // columns + down, place % columns + right
        inside = constant((row >= 0) & (row < rows) & (column >= 0) & (column < columns))
        there = _shift(board, down * columns + right) & inside
        one, two, three = at_least
        at_least = [one | there, two | one & there, three | two & there]
    return at_least


def _shift(board: jax.Array, by: int) -> jax.Array:
    """The board whose cell c is cell c + by."""
    words, bits = divmod(by, 32)
    length = len(board)
    padded = jnp.pad(board, (max(-words, 0), max(words + 1, 0)))
    start = max(words, 0)
    low, high = padded[start : start + length], padded[start + 1 : start + 1 + length]
    return low >> bits | high << (32 - bits) if bits else low


def bernoulli(seed: Sequence[jax.Array], first_label: int, words: int, *probabilities: Any) -> list[jax.Array]:
    """A board of cells that are each on it with a probability, independently, for every probability.

    Every cell draws one uniform number, to 20 bits, and is on all the boards whose probability is greater.
    """
    digits = spread(seed, first_label + jnp.arange(20 * words).reshape(20, words))
    boards = []
    for probability in probabilities:
        limit = jnp.round(jnp.asarray(probability, jnp.float32) * 2**20).astype(jnp.uint32)
        below = jnp.zeros(words, jnp.uint32)
        for i in range(
            20
        ):  # from the last binary digit: below the limit by this digit, or equal and below by later ones
            below = jnp.where(limit >> i & 1 > 0, below | digits[i], below & digits[i])
        boards.append(jnp.where(limit >> 20 > 0, jnp.uint32(0xFFFFFFFF), below))
    return boards


def distinct(seed: Sequence[jax.Array], first_label: int, number: int, n: int) -> list[jax.Array]:
    """So many different integers in 0 ... n - 1, every ordered choice as likely: the start of a shuffle."""
    words = spread(seed, first_label + jnp.arange(number))
    moved: list[tuple[jax.Array, jax.Array]] = []  # what the shuffle has put where, in order

    def look(place: Any) -> jax.Array:
        value = jnp.asarray(place, jnp.int32)
        for where, content in moved:
            value = jnp.where(where == place, content, value)
        return value

    drawn = []
    for i in range(number):
        place = i + draw_integer(words[i], n - i)[0]
        drawn.append(look(place))
        moved.append((place, look(i)))
    return drawn
