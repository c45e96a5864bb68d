"""Serialised programs: functions as StableHLO, which need JAX and none of our code to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import export

from meta.loop import compiler_options
from meta.prng_data import data_of, kind_of, typed
from meta.xla.backend import Platform, tracing_for


class ExportedProgram(NamedTuple):
    """The result of `unpack`. It maps leaves of the arguments to leaves of the result; keys travel as their data."""

    call: Callable[[Sequence[Any]], list[jax.Array]]
    num_arguments: int


_LOWERED_FOR = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}


def pack(platform: Platform, function: Callable[..., Any], *examples: Any) -> bytes:
    """A pure function of pytrees as bytes.

    Args:
      platform: the backend that it will run on, for which it is traced; this process need not have it.
      function: what is to run elsewhere.
      examples: arguments, or their shapes.
    """
    leaves, structure = jax.tree.flatten(examples)
    kinds = list(map(kind_of, leaves))

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        found = function(*jax.tree.unflatten(structure, map(typed, leaves, kinds)))
        return [data_of(x) for x in jax.tree.leaves(found)]

    shapes = [jax.eval_shape(data_of, leaf) for leaf in leaves]
    with tracing_for(platform):
        return bytes(export.export(jax.jit(flat), platforms=[_LOWERED_FOR[platform]])(*shapes).serialize())


def unpack(packed: bytes) -> ExportedProgram:
    """Compiles what `pack` gave."""
    found = export.deserialize(bytearray(packed))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in found.in_avals]
    compiled = jax.jit(found.call, compiler_options=compiler_options()).lower(*shapes).compile()
    return ExportedProgram(lambda leaves: compiled(*leaves), len(shapes))
