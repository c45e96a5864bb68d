"""Programs that travel: functions as what XLA compiles, so that whoever runs them needs JAX and none of our code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import export

from meta.loop import compiler_options


class Program(NamedTuple):
    """What `unpack` gives. It takes leaves of arguments, keys as their data, and returns those of the result."""

    call: Callable[[Sequence[Any]], list[jax.Array]]
    num_arguments: int


def pack(function: Callable[..., Any], *examples: Any) -> bytes:
    """A pure function of pytrees as bytes.

    Args:
      function: what is to run elsewhere.
      examples: arguments, or their shapes.
    """
    leaves, structure = jax.tree.flatten(examples)

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves)))

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    return bytes(export.export(jax.jit(flat))(*shapes).serialize())


def unpack(packed: bytes) -> Program:
    """Compiles what `pack` gave."""
    found = export.deserialize(bytearray(packed))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in found.in_avals]
    compiled = jax.jit(found.call, compiler_options=compiler_options()).lower(*shapes).compile()

    def as_needed(leaf: Any, shape: jax.ShapeDtypeStruct) -> Any:
        is_key = jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key) and leaf.dtype != shape.dtype
        return jax.random.wrap_key_data(leaf) if is_key else leaf

    return Program(lambda leaves: compiled(*map(as_needed, leaves, shapes)), len(shapes))
