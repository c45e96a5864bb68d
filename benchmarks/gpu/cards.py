"""Graphics cards that programs are compiled for on a machine without one."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")


class Card(NamedTuple):
    """A card as XLA describes it, with the numbers of the files among its sources."""

    name: str
    cores: int
    units: int  # of single precision in a core
    memory: int  # bytes
    bandwidth: float  # bytes per second
    cache: int  # bytes of the second level
    shared: int  # bytes of a core
    shared_by_block: int
    capability: str
    clock: float  # GHz

    @property
    def description(self) -> str:
        """A `GpuTargetConfigProto` in text form."""
        return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 shared_memory_per_block: 49152
  shared_memory_per_core: {self.shared} shared_memory_per_block_optin: {self.shared_by_block}
  core_count: {self.cores} fpus_per_core: {self.units} clock_rate_ghz: {self.clock}
  memory_bandwidth: {self.bandwidth:.0f} l2_cache_size: {self.cache} device_memory_size: {self.memory}
  cuda_compute_capability {{ {self.capability} }}
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }} runtime_version {{ major: 13 }}
device_description_str: "{self.name}"
"""

    @functools.cache  # noqa: B019 (there are two cards)
    def devices(self, topology: str) -> tuple[Any, ...]:
        """Devices that are not here: of `1x1x8` eight in one process, of `1x8x1` one in each of eight processes."""
        from jax.experimental import topologies

        found = topologies.get_topology_desc(platform="cuda", target_config=self.description, topology=topology)
        return tuple(found.devices)

    def compile(self, jitted: Any, arguments: tuple[Any, ...], topology: str = "1x1x1") -> Any:
        """A program compiled for this card, or for several, which cannot run here."""
        there = NamedSharding(Mesh(np.array(self.devices(topology)), ("members",)), PartitionSpec())
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), arguments)
        return jitted.lower(*shapes).compile()


CARDS = {
    "h100": Card(
        name="NVIDIA H100 80GB HBM3",
        cores=132,
        units=128,
        memory=84_978_434_048,
        bandwidth=3.35232e12,
        cache=52_428_800,
        shared=233_472,
        shared_by_block=232_448,
        capability="major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES",
        clock=1.98,
    ),
    "a100": Card(
        name="NVIDIA A100-SXM4-40GB",
        cores=108,
        units=64,
        memory=42_331_013_120,
        bandwidth=1.5552e12,
        cache=41_943_040,
        shared=167_936,
        shared_by_block=166_912,
        capability="major: 8 minor: 0 feature_extension: NONE",
        clock=1.41,
    ),
}


def has_plugin() -> bool:
    """True if JAX's compiler for NVIDIA's cards is installed."""
    if importlib.util.find_spec("jax_plugins") is None:
        return False
    return any(importlib.util.find_spec(name) for name in PLUGINS)
