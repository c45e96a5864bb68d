"""One program on the devices of several processes, each of which compiles it and calls it in step with the others."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meta.loop import Step, compiler_options, several
from meta.prng_data import data_of, kind_of, typed
from meta.xla.memory import check_memory


class Exported(NamedTuple):
    """Several steps of a loop, written down for the devices of all processes."""

    program: bytes  # for `Program`
    kinds: list[Any]  # of the keys among the leaves of the state and of the key that steps get, None of the rest
    structure: Any  # of a new state and the metrics


def export_steps(step: Step, name: str, state: Any, key: jax.Array) -> Exported:
    """Writes down `meta.loop.several` for arguments like these.

    Raises:
      ValueError: if a metric is called as an iteration is.
    """
    leaves, structure = jax.tree.flatten((state, key))
    kinds, as_one, found = list(map(kind_of, leaves)), of_first_device(step), []

    def flat(*data: jax.Array) -> list[jax.Array]:
        state, key = jax.tree.unflatten(structure, map(typed, data[:-2], kinds))
        results, returned = jax.tree.flatten(several(as_one, name, state, key, *data[-2:]))
        found.append(returned)
        return [data_of(x) for x in results]

    data = [*map(data_of, leaves), np.int32(0), np.int32(0)]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in data]
    program = export.export(jax.jit(flat, in_shardings=everywhere(), out_shardings=everywhere()))(*shapes)
    return Exported(bytes(program.serialize()), kinds, found[0])


class Program:
    """What was exported, compiled for the devices of all, each of which has all arguments and results.

    Its arguments are the leaves of a state, a key, an iteration and a number of them; its results the leaves of a state
    and further ones. Keys are their data.
    """

    def __init__(self, exported: bytes, advice: str):
        self._everywhere, found = everywhere(), export.deserialize(bytearray(exported))
        self._shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._everywhere) for x in found.in_avals]
        program = jax.jit(found.call, out_shardings=self._everywhere, compiler_options=compiler_options())
        self._compiled = program.lower(*self._shapes).compile()
        check_memory(self._compiled, advice)
        self._carried: list[jax.Array] = []

    def call(self, arguments: Sequence[Any], first: int, count: int) -> list[jax.Array]:
        """Takes some iterations, without arguments from where it was."""
        if arguments:
            self._carried = [self._put(x) for x in arguments]
        results = self._compiled(*self._carried, self._put(np.int32(first)), self._put(np.int32(count)))
        self._carried[:-1] = results[: len(self._carried) - 1]
        return jax.block_until_ready(results)

    def call_as_written(self, call: bytes) -> None:
        """`call` with what `written` gave."""
        first, count = _HEAD.unpack_from(call)
        arguments, offset = [], _HEAD.size
        for shape in self._shapes[:-2] if len(call) > offset else []:
            arguments.append(np.ndarray(shape.shape, shape.dtype, call, offset))
            offset += arguments[-1].nbytes
        self.call(arguments, first, count)

    def _put(self, x: Any) -> jax.Array:
        # Not `jax.device_put`, which compares what the processes give.
        return jax.make_array_from_callback(np.shape(x), self._everywhere, lambda index: np.asarray(x)[index])


_HEAD = struct.Struct("!qq")


def written(arguments: Sequence[np.ndarray], first: int, count: int) -> bytes:
    """A call of `Program`, written down."""
    return _HEAD.pack(first, count) + b"".join(x.tobytes() for x in arguments)


def everywhere() -> NamedSharding:
    """All of an array on each device of all processes."""
    return NamedSharding(Mesh(np.array(jax.devices()), ("members",)), P())


def of_first_device(step: Step) -> Step:
    """The step from the state that the first device has.

    All of them compute it, and none of another kind or with another algorithm rounds as the first does, which would
    add up.
    """

    def share(data: list[jax.Array]) -> list[jax.Array]:
        packed = jnp.concatenate([_bytes(x) for x in data])  # as one, for it is the number of sums that costs time
        alone = jnp.where(jax.lax.axis_index("members") == 0, packed, 0)
        parts = jnp.split(jax.lax.psum(alone, "members"), np.cumsum([_bytes(x).size for x in data])[:-1])
        return [_of_bytes(part, x) for part, x in zip(parts, data, strict=True)]

    shared = jax.shard_map(share, mesh=everywhere().mesh, in_specs=P(), out_specs=P(), check_vma=False)

    def as_one(key: jax.Array, iteration: jax.Array, state: Any) -> Any:
        leaves, structure = jax.tree.flatten(state)
        # Apart from what is around it, for XLA would compile it with that, and round there in another way.
        data = jax.lax.cond(iteration < 0, lambda data: data, shared, [data_of(x) for x in leaves])
        same = map(typed, data, map(kind_of, leaves))
        return step(key, iteration, jax.tree.unflatten(structure, same))

    return as_one


def _bytes(x: jax.Array) -> jax.Array:
    """Those of an array, `[bytes]`."""
    return jax.lax.bitcast_convert_type(x.astype(jnp.uint8) if x.dtype == bool else x, jnp.uint8).ravel()


def _of_bytes(data: jax.Array, like: jax.Array) -> jax.Array:
    """An array like another of its bytes."""
    if like.dtype == bool:
        return data.reshape(like.shape).astype(bool)
    size = like.dtype.itemsize
    return jax.lax.bitcast_convert_type(data.reshape(like.shape + (size,) * (size > 1)), like.dtype)
