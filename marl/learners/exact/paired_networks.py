"""Two networks of the same layers, one for each player, as stacked arrays: of COLA and of MeVa."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp


def init_pair(key: jax.Array, sizes: Sequence[int]) -> dict[str, jax.Array]:
    """`kernel_i` `[2, inputs, outputs]`, normal with a variance of 1 / inputs, and `bias_i` `[2, outputs]`, zeros.

    Args:
      key: of the kernels.
      sizes: units of the inputs and of each layer.
    """
    networks = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        key, kernel_key = jax.random.split(key)
        networks[f"kernel_{i}"] = jax.random.normal(kernel_key, (2, inputs, outputs)) / inputs**0.5
        networks[f"bias_{i}"] = jnp.zeros((2, outputs))
    return networks


def shapes_of_pair(sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The shapes of `init_pair`.

    Args:
      sizes: as of `init_pair`.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes |= {f"kernel_{i}": (2, inputs, outputs), f"bias_{i}": (2, outputs)}
    return shapes
