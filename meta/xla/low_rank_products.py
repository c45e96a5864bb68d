"""Products with matrices that are the sum of a shared one and of one of low rank, without ever adding the two.

In a batch of such matrices only the small factors are batched, because `x @ (W + L R^T)` is `x @ W + (x @ L) @ R^T`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from meta.xla.interpreter import INSIDE, as_it_is, evaluate

Value = Any  # an array or a `LowRankSum`


class LowRankSum:
    """The matrix W + L R^T, or a kernel of convolutions whose last axis is the output, as its three parts.

    Attributes:
      weight: W, `[..., n]`; rows are all axes but the last.
      left: L, `[m, rank]`, with m rows in all.
      right: R, `[n, rank]`.
      otherwise: called with the name of a primitive that needs the sum itself.
    """

    def __init__(self, weight: jax.Array, left: jax.Array, right: jax.Array, otherwise: Callable[[str], Any]):
        self.weight, self.left, self.right, self.otherwise = weight, left, right, otherwise

    def whole(self, primitive: str) -> jax.Array:
        """The sum as one array."""
        self.otherwise(primitive)
        return self.weight + (self.left @ self.right.T).reshape(self.weight.shape).astype(self.weight.dtype)

    def like(self, weight: jax.Array, left: jax.Array, right: jax.Array) -> LowRankSum:
        """Another sum for the same uses."""
        return LowRankSum(weight, left, right, self.otherwise)


class Noise(NamedTuple):
    """The factors of what is added to a matrix."""

    left: jax.Array  # `[m, rank]`
    right: jax.Array  # `[n, rank]`


def call_with_noise(
    function: Callable[..., Any],
    arrays: Sequence[jax.Array],
    noise: Sequence[Noise | None],
    *arguments: Any,
    otherwise: Callable[[int, str], Any] = lambda number, primitive: None,
) -> Any:
    """`function(arrays + noise, *arguments)`, whose products with noisy matrices are those of a `LowRankSum`.

    A matrix that the function transposes, converts, joins with others along the last axis, multiplies or takes for the
    kernel of a convolution, also within loops and branches, is never added to its noise. For any other use it is, so
    that the result is always that of the sum.

    Args:
      function: `(list of arrays, *arguments) -> pytree of arrays`, traced once.
      arrays: each without its noise.
      noise: of each of them; None for none.
      *arguments: pytrees of arrays.
      otherwise: called with the number of an array, and with the primitive that needs it with its noise.
    """
    arrays, shapes = list(arrays), [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(shapes, *arguments)
    values: list[Value] = [
        LowRankSum(x, *own, partial(otherwise, i)) if own else x
        for i, (x, own) in enumerate(zip(arrays, noise, strict=True))
    ]
    results = _evaluate(jaxpr.jaxpr, jaxpr.consts, [*values, *jax.tree.leaves(arguments)])
    return jax.tree.unflatten(jax.tree.structure(shape), [_whole(x, "return") for x in results])


def _whole(value: Value, primitive: str) -> jax.Array:
    return value.whole(primitive) if isinstance(value, LowRankSum) else value


def _apply(equation: Any, values: list[Value]) -> Sequence[Value]:
    if not any(isinstance(value, LowRankSum) for value in values):
        return as_it_is(equation, values)
    name = equation.primitive.name
    if name in _RULES:
        result = _RULES[name](equation, values)
        if result is not None:
            return [result]
    if name in INSIDE:
        return INSIDE[name](equation.params, values, _evaluate, partial(_whole, primitive=name))
    return as_it_is(equation, [_whole(value, name) for value in values])


_evaluate = partial(evaluate, rule=_apply)


def _product(equation: Any, values: list[Value]) -> jax.Array | None:
    settings = {name: equation.params[name] for name in ("precision", "preferred_element_type")}
    sums, batched = equation.params["dimension_numbers"]
    side = 0 if isinstance(values[0], LowRankSum) else 1
    matrix, other = values[side], values[1 - side]
    if isinstance(other, LowRankSum) or matrix.weight.ndim != 2 or batched[0] or len(sums[0]) != 1:
        return None
    summed, kept = (matrix.left, matrix.right) if sums[side] == (0,) else (matrix.right, matrix.left)
    shared = as_it_is(equation, [matrix.weight, other] if side == 0 else [other, matrix.weight])[0]
    # The rank comes last of x L, and first of L^T x, and so the axes of the result come out in their order.
    if side == 0:
        small = jax.lax.dot_general(summed, other, (((0,), sums[1]), ((), ())), **settings)
        return shared + jax.lax.dot_general(kept, small, (((1,), (0,)), ((), ())), **settings)
    small = jax.lax.dot_general(other, summed, ((sums[0], (0,)), ((), ())), **settings)
    return shared + jax.lax.dot_general(small, kept, (((small.ndim - 1,), (1,)), ((), ())), **settings)


def _convolution(equation: Any, values: list[Value]) -> jax.Array | None:
    """A convolution with `rank` filters, and a product with R at every place."""
    images, kernel = values
    layout = equation.params["dimension_numbers"]
    groups = equation.params["feature_group_count"] * equation.params["batch_group_count"]
    if isinstance(images, LowRankSum) or groups != 1 or layout.rhs_spec[0] != kernel.weight.ndim - 1:
        return None
    filters = kernel.left.reshape(*kernel.weight.shape[:-1], -1)
    shared, small = (as_it_is(equation, [images, x])[0] for x in (kernel.weight, filters))
    channel = layout.out_spec[1]
    return shared + jnp.moveaxis(jnp.tensordot(small, kernel.right, ((channel,), (1,))), -1, channel)


def _transposed(equation: Any, values: list[Value]) -> LowRankSum | None:
    (value,) = values
    if value.weight.ndim != 2 or tuple(equation.params["permutation"]) != (1, 0):
        return None
    return value.like(value.weight.T, value.right, value.left)


def _converted(equation: Any, values: list[Value]) -> LowRankSum | None:
    (value,), dtype = values, equation.params["new_dtype"]
    if not jnp.issubdtype(dtype, jnp.floating):
        return None
    return value.like(*(x.astype(dtype) for x in (value.weight, value.left, value.right)))


def _joined(equation: Any, values: list[Value]) -> LowRankSum | None:
    """Matrices side by side, as of the gates of a unit: the ranks add up."""
    if not all(isinstance(value, LowRankSum) and value.weight.ndim == 2 for value in values):
        return None
    if equation.params["dimension"] != 1:
        return None
    right = jax.scipy.linalg.block_diag(*(value.right for value in values))
    weight, left = (jnp.concatenate([getattr(x, name) for x in values], 1) for name in ("weight", "left"))

    def otherwise(primitive: str) -> None:
        for value in values:
            value.otherwise(primitive)

    return LowRankSum(weight, left, right, otherwise)


_RULES: dict[str, Callable[[Any, list[Value]], Value | None]] = {
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "transpose": _transposed,
    "convert_element_type": _converted,
    "concatenate": _joined,
    "copy": lambda equation, values: values[0],
}


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """(rows, columns) of an array of two axes or more, all but the last being rows."""
    return math.prod(shape[:-1]), shape[-1]
