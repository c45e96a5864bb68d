"""A worker: a process with one device, which compiles the programs that it is sent and runs chunks of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from meta.cluster.scheduler import Report

KEPT_PROGRAMS = 8


def versions() -> dict[str, str]:
    """Versions of the libraries that have to be the same everywhere, without importing them."""
    found = {}
    for name in ("marl-shaping", "jax", "jaxlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def processor() -> str:
    """The kind of processor, because another one rounds sums in another order.

    Of a GPU its name, otherwise the widest vector units of the machine. Starts JAX.
    """
    import jax

    device = jax.local_devices()[0]
    return _vector_units() if device.platform == "cpu" else device.device_kind


def _vector_units() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line.split(":")[1].split() for line in file if line.startswith(("flags", "Features"))), [])
    except OSError:
        return "unknown"
    return next((name for name in ("avx512f", "avx2", "avx", "sve", "asimd") if name in flags), "none")


class Evaluations:
    """Programs and the generation that are at hand, and the evaluation of chunks.

    Args:
      fetch: gives what a handle stands for.
    """

    def __init__(self, fetch: Callable[[Any], Any]):
        self._fetch = fetch
        self._programs: dict[str, tuple[Any, Any]] = {}
        self._token: Any = None
        self._asked: Sequence[Any] = ()

    def evaluate(self, generation: tuple[Any, ...], chunk: int) -> tuple[list[Any], float]:
        """The outcomes of a chunk, as arrays, and the seconds that it took.

        Args:
          generation: (digest of the programs, handle of them, token of the generation, whether its handle is of the
            state that asks, or of what was asked, that handle).
          chunk: its number.
        """
        import numpy as np

        started = time.perf_counter()
        digest, programs, token, is_state, handle = generation
        if digest not in self._programs:
            from meta.cluster.exported_programs import unpack

            while len(self._programs) >= KEPT_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            ask, work = self._fetch(programs)
            self._programs[digest] = unpack(ask), unpack(work)
        ask, work = self._programs[digest]
        if token != self._token:
            leaves = self._fetch(handle)
            # The strategy's next state follows the candidates, and is not needed here.
            self._asked = ask.call(leaves)[: work.num_arguments - 1] if is_state else leaves
            self._token = token
        outcomes = [np.asarray(x) for x in work.call([*self._asked, np.int32(chunk)])]
        return outcomes, time.perf_counter() - started


def prepare(cores: Sequence[int], cache: str, flags: str, gpu: bool, driver: str = "") -> Report:
    """Makes this process a worker, before it imports JAX.

    Args:
      cores: that it computes on; empty for all. XLA's threads respect nothing but this.
      cache: a folder for compiled programs, which several workers share; empty for none.
      flags: XLA's flags of the process that evolves, because some change bits.
      gpu: whether it has one.
      driver: the machine of the process that evolves, with which a GPU may be shared; empty if there is none.
    """
    if "jax" in sys.modules:  # it has been one before
        return _report()
    os.environ["XLA_FLAGS"] = flags
    if cores:
        if hasattr(os, "sched_setaffinity"):  # macOS has none
            os.sched_setaffinity(0, cores)
        os.environ["NPROC"] = str(len(cores))
    if not gpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    elif driver == os.uname().nodename:
        take_memory_as_needed()
    import jax

    if not gpu:
        jax.config.update("jax_num_cpu_devices", 1)
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
    return _report()


def take_memory_as_needed() -> None:
    """Lets several processes share the memory of a GPU, of which each would otherwise take three quarters."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _report() -> Report:
    from meta.xla.backend import platform

    return Report(versions() | {"platform": platform()}, os.uname().nodename, processor())
