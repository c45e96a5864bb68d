"""All devices of this process: a core of a CPU can be one, and what is batched is spread over them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meta import process
from meta.xla.backend import local_devices, platform
from meta.xla.control_groups import core_limit
from meta.xla.fixed_order import in_fixed_order


def cores() -> list[int]:
    """Numbers of the cores that this process may use; of all that there are, where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def use_all_cores(most: int | None = None) -> None:
    """Makes each core of the CPU, or of a container's share, a device. For commands, before JAX computes anything.

    XLA gets as many threads as devices: one device with two threads passes a chain of small operations from one to the
    other, which costs a third of the CPU time, and far more where another process has one of the cores.

    Small programs leave the other cores idle on one device. Nothing happens where the user has chosen a number of
    devices or a platform without a CPU, or where JAX has begun to compute.

    Args:
      most: of the cores that are of use, if fewer are.
    """
    platforms, flags = getattr(jax.config, "jax_platforms", None), os.environ.get("XLA_FLAGS", "")
    chosen = getattr(jax.config, "jax_num_cpu_devices", -1) > 0 or "xla_force_host_platform_device_count" in flags
    if chosen or (platforms and "cpu" not in platforms.split(",")):
        return
    number = math.ceil(min(len(cores()), most or math.inf, core_limit()))
    with contextlib.suppress(RuntimeError):  # JAX has begun already
        jax.config.update("jax_num_cpu_devices", number)
        os.environ.setdefault("NPROC", str(number))  # XLA's name for the threads of its pool
        # Devices wait for each other in collectives; XLA aborts after 40 s, so raise that timeout.
        patience = "--xla_cpu_collective_call_terminate_timeout_seconds"
        if patience not in flags and jax.__version_info__ < (0, 13):  # the versions that are known to have it
            os.environ["XLA_FLAGS"] = f"{flags} {patience}=10000000".strip()


def claim_cores(most: int | None = None) -> None:
    """`use_all_cores` for a command in a process of its own; another program chooses its devices itself."""
    if process.is_own():
        use_all_cores(most)


def spread(function: Callable[..., Any], size: int, *, at_once: int | None = None) -> Callable[..., Any]:
    """`jax.vmap` of a function over `size` members, spread over as many local devices as divide their number evenly.

    Arguments and results have the members in front, `[size, ...]`. What comes out does not depend on the devices but
    for rounding.

    Args:
      function: of one member.
      size: how many members there are.
      at_once: members that a core computes together, the next when these are done; fewer where that divides them
        evenly. None, or a device that is no core: all of them.
    """
    devices = local_devices()
    number = _largest_divisor(size, len(devices))
    share = size // number
    group = share if at_once is None or platform() != "cpu" else _largest_divisor(share, at_once)
    batched = jax.vmap(function)
    if share == 1:  # an axis of one more costs half of the time of what is batched inside
        batched = partial(_alone, function)
    elif group < share:
        batched = partial(_in_groups, function, group)
    if number == 1:
        return batched
    mesh = Mesh(np.array(devices[:number]), ("members",))
    return jax.shard_map(batched, mesh=mesh, in_specs=P("members"), out_specs=P("members"), check_vma=False)


def in_chunks(function: Callable[..., Any], size: int, width: int) -> Callable[..., Any]:
    """`jax.vmap` of a function over `size` members in chunks, whose bits do not depend on the number of devices.

    Arguments and results have the members in front, `[size, ...]`. Some of them are computed twice where `width`
    does not divide `size`, or the devices the number of chunks.

    Args:
      function: of one member.
      size: number of members.
      width: number of members that a core computes together; a device that is no core computes all of its share.
    """
    if platform() != "cpu":
        return spread(function, size)
    chunks = -(-size // width)
    each = -(-chunks // len(local_devices()))
    devices = local_devices()[: -(-chunks // each)]  # those that have a chunk
    chunk = in_fixed_order(jax.vmap(function))

    def share(*arguments: Any) -> Any:
        def of(i: jax.Array | int) -> Any:
            return chunk(*jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, i * width, width), arguments))

        def one(i: jax.Array, results: Any) -> Any:
            return jax.tree.map(
                lambda all, x: jax.lax.dynamic_update_slice_in_dim(all, x, i * width, 0), results, of(i)
            )

        shapes = jax.eval_shape(of, 0)
        nothing = jax.tree.map(lambda x: jnp.zeros((each * width, *x.shape[1:]), x.dtype), shapes)
        # XLA compiles the body of a loop of unknown length by itself, without what is around it.
        return jax.lax.fori_loop(0, jax.lax.optimization_barrier(jnp.int32(each)), one, nothing)

    def whole(*arguments: Any) -> Any:
        rows = jnp.minimum(jnp.arange(len(devices) * each * width), size - 1)
        shares = share
        if len(devices) > 1:
            mesh = Mesh(np.array(devices), ("members",))
            shares = jax.shard_map(share, mesh=mesh, in_specs=P("members"), out_specs=P("members"), check_vma=False)
        return jax.tree.map(lambda x: x[:size], shares(*jax.tree.map(lambda x: x[rows], arguments)))

    return whole


def _largest_divisor(size: int, most: int) -> int:
    return max(n for n in range(1, min(size, most) + 1) if size % n == 0)


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.tree.map(lambda x: x[None], function(*jax.tree.map(lambda x: x[0], arguments)))


def _in_groups(function: Callable[..., Any], group: int, *arguments: Any) -> Any:
    return jax.lax.map(lambda one: function(*one), arguments, batch_size=group)
