"""Barriers that keep XLA's CPU backend from computing the same again in every kernel that reads it.

It fuses cheap elementwise operations, such as the hundred that make a random word, into all that depends on them. Two
things stop it: a branch, whose border no fusion crosses, and members of a batch that have each their own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from meta import prng_data
from meta.xla.backend import platform


def computed_once(values: Any, always: jax.Array) -> Any:
    """The values, which XLA computes no second time: a barrier that holds on the CPU too, where it expands its own.

    On other devices, where a branch waits for the host, XLA's own barrier stands there.

    Args:
      values: a pytree of arrays.
      always: a condition that is true, which XLA cannot infer; not batched, for then a branch is none.
    """
    if platform() != "cpu":
        return jax.lax.optimization_barrier(values)

    def nothing(values: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, values)

    return jax.lax.cond(always, lambda values: values, nothing, values)


def drawn_apart(keys: jax.Array, member: jax.Array) -> jax.Array:
    """The same keys, and yet of each member of a batch its own.

    What a whole batch draws from one key is no array of the batch's size, and on the CPU it would be drawn again for
    every number of every member that depends on it: for each pixel of an observation, where the coin lies.

    Args:
      keys: `[...]`, shared by the batch.
      member: `[...]`, finite numbers of each member, which XLA cannot infer.
    """
    if platform() != "cpu":
        return keys
    nothing = (0.0 * member).astype(jnp.uint32)
    return prng_data.typed(prng_data.data_of(keys) + nothing[..., None], prng_data.kind_of(keys))
