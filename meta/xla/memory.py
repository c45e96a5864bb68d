"""Checks that programs fit the memory of their devices before they run, and arrays before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax

import configs
from meta.xla.backend import device_memory, platform

Made = TypeVar("Made")


class TooLarge(ValueError):
    """A program needs more memory than there is.

    Attributes:
      times: how many times as much, at least
    """

    times = 1.0

    @classmethod
    def needing(cls, needed: float, there: float, message: str) -> TooLarge:
        """An error with the ratio of both numbers."""
        error = cls(message)
        error.times = needed / there
        return error


def largest_that_fits(make: Callable[[int], Made], size: int) -> Made:
    """The result of `make` for a size, or on a device that is no CPU for a smaller one that fits its memory.

    The ratio by which a size failed gives the next one, so that few are tried.

    Args:
      make: `(size) -> result`; raises TooLarge.
      size: the largest one.

    Raises:
      TooLarge: if nothing fits; on a CPU, whose widths are meant for its caches, if `size` does not.
    """
    while True:
        try:
            return make(size)
        except TooLarge as error:
            if platform() == "cpu" or size == 1:
                raise
            size = max(1, int(size / max(1.1 * error.times, 2.0)))


def check_memory(compiled: Any, advice: str = "") -> None:
    """Looks at what a compiled program will allocate.

    Args:
      compiled: what `jax.jit(...).lower(...).compile()` gives.
      advice: what to do about it, for the message.

    Raises:
      TooLarge: if that is more than a device has, in one line with both numbers. Nothing where they are not known.
    """
    analysis = compiled.memory_analysis()
    if analysis is None:
        return
    # Arguments and results are held beside what is temporary; what is donated counts once.
    needed = (
        analysis.temp_size_in_bytes
        + analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )
    if platform() == "cpu":  # they share one memory, and so what each of them needs adds up
        needed *= len(compiled.runtime_executable().local_devices())
    there = device_memory()
    if there and needed > there:
        words = f"the program needs {needed / 2**30:.1f} GiB and there are {there / 2**30:.1f} GiB"
        raise TooLarge.needing(needed, there, f"memory: {words}{advice}")


def check_bytes(field: str, value: Any, needed: float) -> None:
    """Looks at what arrays will take whose size is known before anything is compiled, such as those of a result.

    Args:
      field: on which it depends most, for the message.
      value: of the field.
      needed: bytes, or fewer than will be needed.

    Raises:
      TooLarge: if that is more than there is, in one line with both numbers.
    """
    there = device_memory()
    if there and needed > there:
        raise TooLarge(
            f"{field}: got {configs.shown(value)}, which needs {needed / 2**30:,.1f} GiB of memory; "
            f"one that needs less than the {there / 2**30:.1f} GiB that there are is needed"
        )


def bytes_of(tree: Any) -> int:
    """Bytes of the arrays of a tree, or of arrays with its shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
