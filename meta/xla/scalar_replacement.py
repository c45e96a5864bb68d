"""Scalar replacement of small arrays: the same function, with every small array taken apart into scalars.

Why: `vmap` puts its axis in front, so that a batch of small vectors `[5]` becomes `[B, 5]`, and XLA on the CPU reads
and writes single entries of it with a stride, branches in every concatenation, and computes again what it fuses into
one. Taken apart first, the same batch is five contiguous arrays `[B]`, all arithmetic is elementwise, and stacking
and indexing cost nothing. The exact repeated games run three to five times as fast (docs/results/speed.md).

It interprets jaxprs, whose primitives and parameters may change with any version of JAX. Where a layout is unknown,
it warns and runs the function as it was: the results are the same, and slower. Its tests hold it
against the installed version of JAX, in CI the pinned one and the newest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from meta.xla.backend import platform, unrolled
from meta.xla.barriers import computed_once
from meta.xla.interpreter import as_it_is

# A value is either an ordinary array, or a NumPy object array of scalars, of the shape of the array it stands for.
Value = Any

_ELEMENTWISE = frozenset(
    """
    abs add add_any and atan2 cbrt ceil clamp convert_element_type copy cos cosh div eq erf erf_inv exp exp2 expm1 floor
    ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter not or pow rem round rsqrt
    select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor
    """.split()  # noqa: SIM905 (fifty names in quotes of their own read worse)
)
_INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
# What Python raises for a parameter or an attribute that is not there, or has another form.
_UNKNOWN_LAYOUT = (AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)


def scalarize(function: Callable[..., Any], *, max_size: int = 10) -> Callable[..., Any]:
    """`function` with every array of 1 to `max_size` entries replaced by scalars inside, carries and branches included.

    To be batched with `jax.vmap` afterwards. The results are those of `function`, up to the order of sums.
    What it cannot take apart (random bits, matrix products, larger arrays) runs as it was, and so does
    all of `function` where JAX has changed the layout of a primitive, with a RuntimeWarning. On other devices than CPUs
    a function with loops inside of loops runs as it was too: each further value to carry is a kernel in each step.

    Args:
      function: of pytrees of arrays to a pytree of arrays. Custom derivative rules inside have been applied already
        where `function` itself differentiates; the returned function is not meant to be differentiated.
      max_size: up to how many entries an array is taken apart; more is faster to run and slower to compile.
    """

    def scalarized(*args: Any) -> Any:
        jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        if platform() != "cpu" and _loops_within(jaxpr.jaxpr) > 1:
            return function(*args)
        try:
            # Outside of loops an array is used once: nothing to gain there.
            results = _evaluate(jaxpr.jaxpr, jaxpr.consts, jax.tree.leaves(args), _Limits(0, max_size))
        except _UNKNOWN_LAYOUT as error:
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"scalarize: unknown to it in jax {jax.__version__}: {reason}", RuntimeWarning, stacklevel=2)
            return function(*args)
        return jax.tree.unflatten(jax.tree.structure(shape), [_whole(value) for value in results])

    return scalarized


def apart(function: Callable[..., Any], *shapes: jax.ShapeDtypeStruct) -> Callable[..., list[jax.Array]]:
    """`function` of scalars: the entries of its arguments in their order, to those of its results.

    No array is made inside, so that a batch of it runs where only elementwise operations can, as in a kernel.

    Args:
      function: of arrays of these shapes.
      shapes: of its arguments.
    """
    jaxpr, sizes = jax.make_jaxpr(function)(*shapes), [shape.size for shape in shapes]
    limits = _Limits(max(sizes), max(sizes))

    def of_scalars(*scalars: jax.Array) -> list[jax.Array]:
        left = list(scalars)
        arguments = [_objects([left.pop(0) for _ in range(shape.size)], shape.shape) for shape in shapes]
        values = _evaluate(jaxpr.jaxpr, jaxpr.consts, arguments, limits)
        return [x for value in values for x in (value.flat if _is_apart(value) else [value])]

    return of_scalars


def _loops_within(jaxpr: Any) -> int:
    """The depth of loops within each other; one of a single step is none."""
    depths = [0]
    for equation in jaxpr.eqns:
        params = equation.params
        loop = equation.primitive.name == "while" or (equation.primitive.name == "scan" and params["length"] > 1)
        inner = [getattr(leaf, "jaxpr", leaf) for leaf in jax.tree.leaves(list(params.values()), is_leaf=_is_jaxpr)]
        depths += [loop + max([0, *(_loops_within(one) for one in inner if hasattr(one, "eqns"))])]
    return max(depths)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


class _Limits(NamedTuple):
    """Up to how many entries an array is taken apart."""

    here: int
    in_loops: int
    always: Any = None  # in a loop: a condition that XLA cannot infer to be true


def _apart(value: Value, max_size: int) -> Value:
    """The scalars of a small array; anything else as it is."""
    if _is_apart(value):
        return value.item() if value.shape == () else value
    if (
        not np.shape(value)
        or not 0 < np.size(value) <= max_size
        or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    ):
        return value
    flat = jax.numpy.reshape(value, -1)
    return _objects([flat[i] for i in range(flat.size)], np.shape(value))


def _is_apart(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _whole(value: Value) -> Value:
    """The array that a value stands for."""
    if _is_apart(value):
        return jax.numpy.stack([jax.numpy.asarray(x) for x in value.flat]).reshape(value.shape)
    return value


def _objects(scalars: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    values = np.empty(len(scalars), object)
    for i, scalar in enumerate(scalars):  # not in one assignment, for which NumPy would ask a tracer for its values
        values[i] = scalar
    return values.reshape(shape)


def _evaluate(jaxpr: Any, consts: Sequence[Value], args: Sequence[Value], limits: _Limits) -> list[Value]:
    environment: dict[Any, Value] = {}

    def read(atom: Any) -> Value:
        return atom.val if isinstance(atom, core.Literal) else environment[atom]

    for variable, value in zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True):
        environment[variable] = _apart(value, limits.here)
    needed, equations = set(map(id, jaxpr.outvars)), []
    for equation in reversed(jaxpr.eqns):  # derivatives leave many unused results
        if equation.effects or any(id(variable) in needed for variable in equation.outvars):
            needed |= set(map(id, equation.invars))
            equations.append(equation)
    for equation in reversed(equations):
        results = _apply(equation, [read(atom) for atom in equation.invars], limits)
        for variable, value in zip(equation.outvars, results, strict=True):
            environment[variable] = _apart(value, limits.here)
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, values: list[Value], limits: _Limits) -> Sequence[Value]:
    name, params = equation.primitive.name, equation.params
    if name in _INLINED:
        inner = params[_INLINED[name]]
        return _evaluate(inner.jaxpr, inner.consts, values, limits)
    if name == "optimization_barrier" and limits.always is not None:
        return _border(values, limits.always)
    if name == "scan":
        return _scan(params, values, limits.in_loops)
    if name == "cond" and limits.here:
        return _cond(params, values, limits)
    small = all(0 < np.size(variable.aval) <= limits.here for variable in equation.outvars)
    if small and name in _ELEMENTWISE and any(map(_is_apart, values)):
        return [_elementwise(equation, values)]
    if small and name in _STRUCTURAL and all(_is_apart(value) or not np.shape(value) for value in values):
        result = _STRUCTURAL[name](params, *map(_as_objects, values))
        if result is not None:
            return result if isinstance(result, list) else [result]
    return as_it_is(equation, [_whole(value) for value in values])


def _elementwise(equation: Any, values: list[Value]) -> Value:
    shape = equation.outvars[0].aval.shape
    params = equation.params
    columns = [np.broadcast_to(_as_objects(value), shape).ravel() for value in values]
    return _objects([equation.primitive.bind(*entry, **params) for entry in zip(*columns, strict=True)], shape)


def _as_objects(value: Value) -> np.ndarray:
    if _is_apart(value):
        return value
    return _objects([value], ()) if not np.shape(value) else _apart(value, np.size(value))


def _broadcast(params: dict[str, Any], value: np.ndarray) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], value.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(value.reshape(shape), params["shape"])


def _dynamic_slice(params: dict[str, Any], value: np.ndarray, *starts: np.ndarray) -> np.ndarray | None:
    if any(isinstance(start.item(), jax.Array) for start in starts):
        return None
    slices = []
    for start, size, length in zip(starts, params["slice_sizes"], value.shape, strict=True):
        first = min(max(int(start.item()), 0), length - size)  # as XLA clamps it
        slices.append(slice(first, first + size))
    return value[tuple(slices)]


def _pad(params: dict[str, Any], value: np.ndarray, fill: np.ndarray) -> np.ndarray | None:
    low, high, inner = zip(*params["padding_config"], strict=True)
    if any(inner) or min(low + high) < 0:
        return None
    shape = [a + n + b for a, n, b in zip(low, value.shape, high, strict=True)]
    padded = _objects([fill.item()] * int(np.prod(shape)), shape)
    padded[tuple(slice(a, a + n) for a, n in zip(low, value.shape, strict=True))] = value
    return padded


def _reduce_sum(params: dict[str, Any], value: Value) -> Value:
    axes = tuple(params["axes"])
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    rows = np.transpose(value, [*kept, *axes]).reshape([*(value.shape[axis] for axis in kept), -1])
    sums = [reduce(lambda x, y: x + y, row) for row in rows.reshape(-1, rows.shape[-1])]
    return _objects(sums, rows.shape[:-1])


def _border(values: list[Value], always: jax.Array) -> list[Value]:
    """A barrier's stand-in: without it, up to a thousand copies of an inverse in second derivatives were computed."""
    found = computed_once([list(value.flat) if _is_apart(value) else value for value in values], always)
    return [_objects(x, value.shape) if _is_apart(value) else x for x, value in zip(found, values, strict=True)]


_STRUCTURAL: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, *values: np.concatenate(values, params["dimension"]),
    "dynamic_slice": _dynamic_slice,
    "expand_dims": lambda params, value: np.expand_dims(value, params["dimensions"]),
    "pad": _pad,
    "reduce_sum": _reduce_sum,
    "reshape": lambda params, value: value.reshape(params["new_sizes"]),
    "rev": lambda params, value: np.flip(value, params["dimensions"]),
    "slice": lambda params, value: value[
        tuple(map(slice, params["start_indices"], params["limit_indices"], params["strides"] or [1] * value.ndim))
    ],
    "split": lambda params, value: list(np.split(value, np.cumsum(params["sizes"])[:-1], params["axis"])),
    "squeeze": lambda params, value: np.squeeze(value, tuple(params["dimensions"])),
    "stack": lambda params, *values: np.stack(values, params["axis"]),
    "transpose": lambda params, value: np.transpose(value, params["permutation"]),
}


def _scan(params: dict[str, Any], values: list[Value], max_size: int) -> list[Value]:
    body = params["jaxpr"]
    if "ft_in" in params:  # jax 0.11
        num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    values = [_apart(value, max_size) for value in values[: num_consts + num_carry]] + values[num_consts + num_carry :]
    consts, init, xs = (
        values[:num_consts],
        values[num_consts : num_consts + num_carry],
        values[num_consts + num_carry :],
    )

    def run(always: Any, carry: Sequence[Value], x: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        results = _evaluate(body.jaxpr, body.consts, [*consts, *carry, *x], _Limits(max_size, max_size, always))
        return results[:num_carry], results[num_carry:]

    if params["length"] == 1:
        carry, ys = run(None, init, [x[0] for x in xs])
        return [*carry, *(_as_objects(y)[None] if _is_apart(y) or not np.shape(y) else y[None] for y in ys)]
    shapes = [np.shape(value) for value in init]

    def step(carry: Any, x: Any) -> Any:
        count, carry = carry
        carry, ys = run(count >= 0, _unpack(carry, shapes), x)
        return (count + 1, _pack(carry)), [_whole(y) for y in ys]

    start = jax.numpy.int32(0), _pack(init)
    unroll = params["unroll"] if unrolled() == 1 else min(max(params["unroll"], unrolled()), params["length"])
    (_, carry), ys = jax.lax.scan(step, start, [_whole(x) for x in xs], params["length"], params["reverse"], unroll)
    return [*_unpack(carry, shapes), *ys]


def _cond(params: dict[str, Any], values: list[Value], limits: _Limits) -> list[Value]:
    """Scalars cross the border of a branch too: one that gives back an array is one fusion of all its arithmetic."""
    index, operands = values[0], values[1:]
    shapes = [np.shape(value) for value in operands]

    def taken_apart(branch: Any) -> Callable[[list[Any]], list[Any]]:
        def run(packed: list[Any]) -> list[Any]:
            results = _evaluate(branch.jaxpr, branch.consts, _unpack(packed, shapes), limits)
            kinds = [variable.aval for variable in branch.jaxpr.outvars]
            return [_scalars(value, kind, limits.here) for value, kind in zip(results, kinds, strict=True)]

        return run

    results = jax.lax.switch(index, [taken_apart(branch) for branch in params["branches"]], _pack(operands))
    return _unpack(results, [variable.aval.shape for variable in params["branches"][0].jaxpr.outvars])


def _scalars(value: Value, kind: Any, max_size: int) -> Any:
    """The scalars of a small array in a list, whichever form it came in, anything else as an array; of one dtype."""
    if jax.dtypes.issubdtype(kind.dtype, jax.dtypes.prng_key):
        return value
    apart = _apart(value, max_size)
    if _is_apart(apart):
        return [jax.numpy.asarray(x, kind.dtype) for x in apart.flat]
    return jax.numpy.asarray(apart, kind.dtype)


def _pack(values: Sequence[Value]) -> list[Any]:
    """Values in a form that may cross the border of a loop or a branch."""
    return [list(value.flat) if _is_apart(value) else value for value in values]


def _unpack(values: Sequence[Any], shapes: Sequence[Sequence[int]]) -> list[Value]:
    return [_objects(v, s) if isinstance(v, list) else v for v, s in zip(values, shapes, strict=True)]
