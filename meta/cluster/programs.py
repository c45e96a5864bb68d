"""Programs that travel: functions as what XLA compiles, so that whoever runs them needs JAX and none of our code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import export

from meta.loop import compiler_options


def pack(function: Callable[..., Any], *examples: Any) -> bytes:
    """A pure function of pytrees as bytes.

    Args:
      function: what is to run elsewhere.
      examples: arguments, or their shapes.
    """
    leaves, structure = jax.tree.flatten(examples)

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves)))

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in map(jax.numpy.asarray, leaves)]
    return bytes(export.export(jax.jit(flat))(*shapes).serialize())


def unpack(packed: bytes) -> Callable[[Sequence[Any]], list[jax.Array]]:
    """Compiles what `pack` gave: a function of the leaves of its arguments, which returns those of its result."""
    found = export.deserialize(bytearray(packed))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in found.in_avals]
    compiled = jax.jit(found.call, compiler_options=compiler_options()).lower(*shapes).compile()
    return lambda leaves: compiled(*leaves)
