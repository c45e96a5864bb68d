"""Spaces of actions and observations, in JAX.

Written here because gymnasium's sample on the host, and gymnax's cost seconds of import.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 to n - 1."""

    n: int
    dtype: Any = jnp.int32

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniform draw, `[]`."""
        return jax.random.randint(key, (), 0, self.n, self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """Whether `x` is one of the integers."""
        return jnp.all((jnp.asarray(x) >= 0) & (jnp.asarray(x) < self.n) & (jnp.asarray(x) == jnp.floor(x)))

    def to_gymnasium(self) -> Any:
        """The same space for gymnasium and PettingZoo."""
        from gymnasium import spaces

        return spaces.Discrete(self.n)


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape with every entry in [low, high]; either bound may be infinite."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any = jnp.float32

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniform draw between finite bounds, a normal draw where both are infinite, else the bound +- Exp(1)."""
        if np.isfinite(self.low) and np.isfinite(self.high):
            return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)
        if np.isfinite(self.low):
            return self.low + jax.random.exponential(key, self.shape, self.dtype)
        if np.isfinite(self.high):
            return self.high - jax.random.exponential(key, self.shape, self.dtype)
        return jax.random.normal(key, self.shape, self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """Whether `x` has the shape and every entry is within the bounds."""
        if jnp.shape(x) != self.shape:
            return jnp.asarray(False)
        return jnp.all((jnp.asarray(x) >= self.low) & (jnp.asarray(x) <= self.high))

    def to_gymnasium(self) -> Any:
        """The same space for gymnasium and PettingZoo."""
        from gymnasium import spaces

        return spaces.Box(self.low, self.high, self.shape, np.dtype(self.dtype))


Space = Discrete | Box
