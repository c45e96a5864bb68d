"""All devices of this process: a core of a CPU can be one, and what is batched is spread over them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P


def use_all_cores() -> None:
    """Makes each core of the CPU a device of its own. For commands, before JAX computes anything.

    Small programs leave the other cores idle on one device. Nothing happens where the user has chosen a number of
    devices or a platform without a CPU, or where JAX has begun to compute.
    """
    platforms, flags = getattr(jax.config, "jax_platforms", None), os.environ.get("XLA_FLAGS", "")
    chosen = getattr(jax.config, "jax_num_cpu_devices", -1) > 0 or "xla_force_host_platform_device_count" in flags
    if chosen or (platforms and "cpu" not in platforms.split(",")):
        return
    with contextlib.suppress(RuntimeError):  # JAX has begun already
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def spread(function: Callable[..., Any], size: int) -> Callable[..., Any]:
    """`jax.vmap` of a function over `size` members, spread over as many local devices as divide their number evenly.

    Arguments and results have the members in front, `[size, ...]`. What comes out does not depend on the devices but
    for rounding.
    """
    batched, devices = jax.vmap(function), jax.local_devices()
    number = max(n for n in range(1, min(size, len(devices)) + 1) if size % n == 0)
    if number == 1:
        return batched
    mesh = Mesh(np.array(devices[:number]), ("members",))
    return jax.shard_map(batched, mesh=mesh, in_specs=P("members"), out_specs=P("members"), check_vma=False)
