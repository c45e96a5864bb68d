"""Limits that a container, or a job of a cluster, sets to this process by the control groups of Linux."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
UNREADABLE = contextlib.suppress(OSError, ValueError, ZeroDivisionError)


def memory_limit(root: Path = ROOT) -> float:
    """Bytes that this process and those beside it may have; infinite if nothing limits them.

    Args:
      root: of the file system.
    """
    limits = [math.inf]
    for folder in _folders("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):  # of version 2 and of version 1
            with UNREADABLE:  # "max" is no limit
                limits.append(float((folder / name).read_text()))
    return min(limits)


def core_limit(root: Path = ROOT) -> float:
    """Cores whose time this process and those beside it may use, such as 1.5; infinite if nothing limits them.

    Args:
      root: of the file system.
    """
    limits = [math.inf]
    for folder in _folders("cpu", root):
        with UNREADABLE:
            quota, period = map(float, (folder / "cpu.max").read_text().split())
            limits.append(quota / period)
        with UNREADABLE:
            quota, period = (float((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
            limits.append(quota / period if quota > 0 else math.inf)
    return min(limits)


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """The groups of this process with a controller, each after those in it, because a limit binds them too."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return
    for _, controllers, path in (group.split(":", 2) for group in groups if group.count(":") > 1):
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers  # version 2 has one tree, without a name, for all controllers
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            yield folder
            if folder == top:
                break
