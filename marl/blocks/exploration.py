"""Random actions beside the greedy one."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from games.core import random_bits
from games.core.game import Scalar


def epsilon_greedy(key: jax.Array, values: jax.Array, epsilon: Scalar) -> jax.Array:
    """The best action `[...]` by values `[..., actions]`, or with probability `epsilon` an evenly drawn one.

    Args:
      key: of the draws.
      values: of each action.
      epsilon: a number, or `[...]`.
    """
    greedy = jnp.argmax(values, -1)
    drawn, rest = random_bits.draw_integer(
        random_bits.array(key, math.prod(greedy.shape)).reshape(greedy.shape), values.shape[-1]
    )
    return jnp.where(random_bits.uniform(rest) < epsilon, drawn, greedy)
