"""Whether a compiled program fits the memory of its devices, known before it runs."""

from __future__ import annotations

import os
from typing import Any

import jax


class TooLarge(ValueError):
    """A program needs more memory than there is."""


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
    # Arguments and results live beside what is temporary; what is donated counts once.
    needed = (
        analysis.temp_size_in_bytes
        + analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )
    device = jax.local_devices()[0]
    if device.platform == "cpu":  # all its devices share one memory, and so what each of them needs adds up
        needed *= len(compiled.runtime_executable().local_devices())
        there = 0.9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # the rest is taken already
    else:
        there = (device.memory_stats() or {}).get("bytes_limit", 0)
    if there and needed > there:
        raise TooLarge(
            f"memory: the program needs {needed / 2**30:.1f} GiB and there are {there / 2**30:.1f} GiB{advice}"
        )
