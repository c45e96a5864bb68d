"""Products and convolutions whose sums have a fixed order, so that their bits do not depend on the number of threads.

XLA leaves larger products and convolutions on CPUs to Eigen, which divides a long contraction among the threads of the
process and into blocks whose size depends on their number and on the caches. Sums of at most `BLOCK` terms it computes
in one piece, and products of at most `SMALL` multiplications in one thread. So a larger one becomes a loop over such
pieces, which are cut from the operands where they lie: rows with their whole sums, or parts of the sums, added in turn.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from meta.xla.interpreter import INSIDE, as_it_is, evaluate, inner_jaxprs

BLOCK = 64  # terms of a sum that Eigen takes in one piece, whatever the number of threads
FEW = 16  # products as which a convolution is computed, at most
SMALL = 2**18  # multiplications of a product for which Eigen uses one thread
LEAST_ROWS = 8  # of a piece with whole sums


def in_fixed_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with every large product and convolution taken apart, inside of loops and branches too.

    Args:
      function: of pytrees of arrays, traced once; batched and differentiated already, as the result is not meant to be.
    """

    def ordered(*args: Any) -> Any:
        jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        results = _evaluate(jaxpr.jaxpr, jaxpr.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return ordered


def _apply(equation: Any, values: list[Any]) -> Sequence[Any]:
    name = equation.primitive.name
    if _is_large(equation):
        return [_BLOCKS[name](equation, *values)]
    if any(map(has_large, inner_jaxprs(equation))):
        if name in INSIDE:
            return INSIDE[name](equation.params, values, _evaluate)
        warnings.warn(f"{name}: large products inside have no fixed order; bits depend on the cores", stacklevel=2)
    return as_it_is(equation, values)


_evaluate = partial(evaluate, rule=_apply)


def has_large(jaxpr: Any) -> bool:
    """True if a program has a large product or convolution, also within its loops and branches."""
    return any(_is_large(equation) or any(map(has_large, inner_jaxprs(equation))) for equation in jaxpr.eqns)


def _is_large(equation: Any) -> bool:
    name, params = equation.primitive.name, equation.params
    if name not in _BLOCKS:
        return False
    left, right = (variable.aval for variable in equation.invars)
    if name == "dot_general":
        (contracted, _), (batched, _) = params["dimension_numbers"]
        terms = math.prod(left.shape[axis] for axis in contracted)
        copies = math.prod(left.shape[axis] for axis in batched)
        work = left.size * right.size // max(terms * copies**2, 1)  # multiplications of one product
        return jnp.issubdtype(left.dtype, jnp.floating) and terms > BLOCK and work > SMALL
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return False  # those of batched kernels: XLA's own loops compute them
    work = equation.outvars[0].aval.size * math.prod(
        right.shape[axis] for axis in params["dimension_numbers"].rhs_spec[1:]
    )
    return jnp.issubdtype(left.dtype, jnp.floating) and work > SMALL


def _in_blocks(equation: Any, left: jax.Array, right: jax.Array) -> jax.Array:
    """A product in pieces: rows of `left` with whole sums, for one thread, or parts of sums with few terms each."""
    params, out = equation.params, equation.outvars[0].aval
    settings = {name: params[name] for name in ("precision", "preferred_element_type")}
    sums, batched = params["dimension_numbers"]
    (left, left_sum), (right, right_sum) = map(_in_three, (left, right), sums, batched)
    copies, rows, columns = left.shape[0], left.shape[3 - left_sum], right.shape[3 - right_sum]
    terms, numbers = left.shape[left_sum], (((left_sum,), (right_sum,)), ((0,), (0,)))
    few, start = SMALL // (terms * columns), jnp.zeros((copies, rows, columns), out.dtype)

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.dot_general(x, y, numbers, **settings)

    if left_sum == 2 and terms >= 2 * BLOCK and few >= LEAST_ROWS:
        pieces = -(-rows // few)
        size = -(-rows // pieces)

        def fill(i: jax.Array, total: jax.Array) -> jax.Array:
            first = jnp.minimum(i * size, rows - size)  # the last piece has some rows again
            found = product(jax.lax.dynamic_slice_in_dim(left, first, size, 1), right)
            return jax.lax.dynamic_update_slice_in_dim(total, found, first, 1)

        return jax.lax.fori_loop(0, pieces, fill, start).reshape(out.shape)

    def part(first: jax.Array | int, size: int) -> jax.Array:
        x = jax.lax.dynamic_slice_in_dim(left, first, size, left_sum)
        return product(x, jax.lax.dynamic_slice_in_dim(right, first, size, right_sum))

    size = max(BLOCK, SMALL // (rows * columns))  # fewer than all terms, because the product is large
    whole, rest = divmod(terms, size)
    total = jax.lax.fori_loop(0, whole, lambda i, total: total + part(i * size, size), start)
    return (total + part(whole * size, rest) if rest else total).reshape(out.shape)


def _in_three(array: jax.Array, summed: Sequence[int], batched: Sequence[int]) -> tuple[jax.Array, int]:
    """(`[batch, free, sum]`, 2), or (`[batch, sum, free]`, 1) where the axes of the sum are before the free ones."""
    free = [axis for axis in range(array.ndim) if axis not in (*summed, *batched)]
    comes_first = bool(free) and max(summed) < min(free)
    parts = (batched, summed, free) if comes_first else (batched, free, summed)
    sizes = [math.prod(array.shape[axis] for axis in axes) for axes in parts]
    return jnp.transpose(array, list(itertools.chain(*parts))).reshape(sizes), 1 if comes_first else 2


def _as_product(equation: Any, left: jax.Array, right: jax.Array) -> jax.Array:
    """A convolution as the product of patches `[N, *size, terms]` and kernels `[terms, O]`, in a fixed order."""
    params, out = equation.params, equation.outvars[0].aval
    layout, strides, dilation = params["dimension_numbers"], params["window_strides"], params["rhs_dilation"]
    (batch, channel, *sides), (output, feature, *places) = layout.lhs_spec, layout.rhs_spec
    images, kernels = jnp.transpose(left, (batch, *sides, channel)), jnp.transpose(right, (*places, feature, output))
    edges = [(*ends, spread - 1) for ends, spread in zip(params["padding"], params["lhs_dilation"], strict=True)]
    images = jax.lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
    size = [out.shape[axis] for axis in layout.out_spec[2:]]

    def shifted(offset: Sequence[int]) -> jax.Array:
        """The input of every output at one place of the kernel."""
        first = [step * spread for step, spread in zip(offset, dilation, strict=True)]
        last = [start + (n - 1) * stride + 1 for start, n, stride in zip(first, size, strides, strict=True)]
        ends = (images.shape[0], *last, images.shape[-1])
        return jax.lax.slice(images, (0, *first, 0), ends, (1, *strides, 1))

    # Whole places of the kernel fill a block, if these are few: such patches need not be arranged in blocks again.
    offsets = list(itertools.product(*map(range, kernels.shape[:-2])))
    kernels, together = kernels.reshape(len(offsets), *kernels.shape[-2:]), max(1, BLOCK // kernels.shape[-2])
    if together * FEW < len(offsets) or kernels.shape[1] > BLOCK:
        together = len(offsets)
    numbers = ((images.ndim - 1,), (0,)), ((), ())
    settings = {name: params[name] for name in ("precision", "preferred_element_type")}
    product = in_fixed_order(lambda x, y: jax.lax.dot_general(x, y, numbers, **settings))
    found: Any = 0.0
    for first in range(0, len(offsets), together):
        patches = jnp.concatenate([shifted(offset) for offset in offsets[first : first + together]], -1)
        found += product(patches, kernels[first : first + together].reshape(-1, kernels.shape[-1]))
    return jnp.transpose(jnp.moveaxis(found, -1, 1), sorted(range(found.ndim), key=layout.out_spec.__getitem__))


_BLOCKS = {"dot_general": _in_blocks, "conv_general_dilated": _as_product}
