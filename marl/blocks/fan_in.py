"""Sparse kernels with the same number of weights for every unit, and products that read those weights alone.

Masks leave the products dense. Here the work is in proportion to the weights that are there, in acting and in both
products of the gradient.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, TypeGuard

import chex
import jax
import jax.numpy as jnp


@partial(jax.tree_util.register_dataclass, data_fields=["values", "index"], meta_fields=["num_inputs"])
@dataclasses.dataclass(frozen=True)
class FanIn:
    """A kernel in which each unit has k weights.

    Attributes:
      values: the weights, `[units, k]`.
      index: the input of each weight, `[units, k]`, different ones for a unit. Whole numbers as floats, because
        parameters are differentiated; the gradient is 0.
      num_inputs: of the layer.
    """

    values: jax.Array
    index: jax.Array
    num_inputs: int


def is_fan_in(x: Any) -> TypeGuard[FanIn]:
    """True for a `FanIn`, a leaf of trees of parameters."""
    return isinstance(x, FanIn)


def has_fan_in(params: Any) -> bool:
    """True for parameters with a `FanIn`."""
    return any(map(is_fan_in, jax.tree.leaves(params, is_leaf=is_fan_in)))


def largest(kernel: jax.Array, k: int) -> FanIn:
    """The k largest weights of each unit of a kernel `[inputs, units]`."""
    index = jax.lax.top_k(jnp.abs(kernel.T), k)[1]
    return FanIn(jnp.take_along_axis(kernel.T, index, 1), index.astype(jnp.float32), len(kernel))


def dense(kernel: FanIn) -> jax.Array:
    """The kernel `[inputs, units]`, with 0 where there is no weight."""
    units = jnp.arange(len(kernel.values))[:, None]
    return jnp.zeros((kernel.num_inputs, len(units))).at[_inputs(kernel.index), units].set(kernel.values)


def regrow(key: jax.Array, kernel: FanIn, share: jax.Array) -> jax.Array:
    """Another index: of each unit the smallest weights are dropped, and as many grow at random among other inputs.

    Args:
      key: of what grows.
      kernel: with at most half of the inputs for each unit.
      share: of the weights that are dropped, in [0, 1]; rounded up or down at random for each unit, so that it holds on
        average, but every unit keeps a weight.
    """
    units, k = kernel.values.shape
    chance_key, grow_key = jax.random.split(key)
    dropped = jnp.minimum(jnp.floor(share * k + jax.random.uniform(chance_key, (units, 1))), k - 1)
    rank = jnp.argsort(jnp.argsort(jnp.abs(kernel.values), 1), 1)
    score = jax.random.uniform(grow_key, (units, kernel.num_inputs))
    score = score.at[jnp.arange(units)[:, None], _inputs(kernel.index)].set(2.0)  # existing inputs sort last
    grown = jnp.argsort(score, 1)[:, :k].astype(jnp.float32)
    return jnp.where(rank < dropped, grown, kernel.index)


def product(kernel: FanIn, x: jax.Array) -> jax.Array:
    """The transposed kernel times columns: `[inputs, N] -> [units, N]`. It has a gradient, but no forward mode."""
    chex.assert_rank(x, 2)
    dtype = jnp.result_type(kernel.values, x)
    return _product(kernel.values.astype(dtype), _inputs(kernel.index), jnp.asarray(x, dtype))


def _inputs(index: jax.Array) -> jax.Array:
    return jnp.round(index).astype(jnp.int32)  # target networks average indices; rounding undoes the error


@jax.custom_vjp
def _product(values: jax.Array, index: jax.Array, x: jax.Array) -> jax.Array:
    def add(total: jax.Array, weight: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        value, row = weight
        return total + value[:, None] * x[row], None

    zeros = jnp.zeros((len(values), x.shape[1]), x.dtype)
    return jax.lax.scan(add, zeros, (values.T, index.T))[0]


def _forward(values: jax.Array, index: jax.Array, x: jax.Array) -> Any:
    return _product(values, index, x), (values, index, x)


def _backward(saved: tuple[jax.Array, jax.Array, jax.Array], slope: jax.Array) -> Any:
    values, index, x = saved

    def unit(total: jax.Array, one: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        value, rows, above = one
        return total.at[rows].add(value[:, None] * above), x[rows] @ above

    of_x, of_values = jax.lax.scan(unit, jnp.zeros_like(x), (values, index, slope))
    return of_values, None, of_x


_product.defvjp(_forward, _backward)
