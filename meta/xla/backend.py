"""The backend that programs are traced for, and what of it their choices depend on: one place that all of them ask."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import jax

from configs import ConfigError, shown
from meta.xla.control_groups import memory_limit

Platform = Literal["cpu", "gpu", "tpu"]


class Target(NamedTuple):
    """A backend that this process need not have.

    Attributes:
      platform: its name
      memory: bytes of one of its devices; 0 if unknown
    """

    platform: Platform
    memory: float = 0.0


# Part of what JAX keeps traced functions by, so that no program of one backend is taken for that of another.
_target = jax.make_user_context(None)


@contextlib.contextmanager
def tracing_for(platform: Platform, memory: float = 0.0) -> Iterator[None]:
    """Inside, programs are traced for one device of this backend, whatever this process has.

    Such a program can be lowered, or compiled by a compiler for that backend, but it need not run here.

    Args:
      platform: the backend.
      memory: bytes of the device, for choices that are bounded by it; 0 bounds none.

    Example:
      >>> from meta.xla.backend import platform, tracing_for
      >>> with tracing_for("gpu"):
      ...     platform()
      'gpu'
    """
    with _target(Target(platform, memory)):
        yield


def platform() -> Platform:
    """The backend that is traced for: that of `tracing_for`, otherwise that of this process."""
    target: Target | None = _target.value
    return target.platform if target else _own_platform()


def local_devices() -> list[jax.Device]:
    """The devices that a program is spread over: all of this process, or one that stands for a backend not its own."""
    devices = jax.local_devices()
    return devices if platform() == _own_platform() else devices[:1]


def device_memory() -> float:
    """Bytes of a device that may be used, of a CPU those of the machine or of its container; 0 if unknown."""
    target: Target | None = _target.value
    if target and (target.memory or target.platform != _own_platform()):
        return target.memory
    if platform() == "cpu":
        if not hasattr(os, "sysconf"):  # Windows
            return 0.0
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return 0.9 * min(machine, memory_limit())  # the rest is taken already
    return float((jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 0))


def check_backend() -> None:
    """Starts JAX if JAX_PLATFORMS asks for another device than a CPU, whose cores may still be chosen.

    Raises:
      ConfigError: if no such device works, in one line.
    """
    named = getattr(jax.config, "jax_platforms", None)
    if not named or "cpu" in named.split(","):
        return
    try:
        jax.local_devices()
    except (AssertionError, RuntimeError) as error:  # JAX asserts that a platform of JAX_PLATFORMS is there
        reason = " ".join(str(error).split()) or "no device of it is found"
        raise ConfigError(f"JAX_PLATFORMS: got {shown(named)}; {reason}") from None


@contextlib.contextmanager
def plugin_errors_in_one_line(say: Callable[[str], object]) -> Iterator[None]:
    """Inside, a GPU that JAX cannot use is one line in place of JAX's traceback; JAX then computes on the CPU.

    Args:
      say: takes the line.
    """
    logger = logging.getLogger("jax._src.xla_bridge")

    def shorten(record: logging.LogRecord) -> bool:
        if not record.exc_info:
            return True
        reason = " ".join(str(record.exc_info[1]).split())
        say(f"JAX cannot use the GPU: {reason}")
        return False

    logger.addFilter(shorten)
    try:
        yield
    finally:
        logger.removeFilter(shorten)


def unrolled() -> int:
    """Steps of a game that one iteration of a loop takes: four on a GPU, where XLA joins kernels of several.

    docs/notes/speed.md has how many launches that saves.
    """
    return 1 if platform() == "cpu" else 4


def _own_platform() -> Platform:
    found = jax.default_backend()
    return "gpu" if found in ("cuda", "rocm") else found  # type: ignore[return-value]
