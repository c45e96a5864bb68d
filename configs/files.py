"""Text and YAML that strangers may have written: what is read is a file, and small."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 2**16  # thirty times the longest preset
MAX_DEPTH = 16  # of lists and dicts within each other


def read(path: Path, *, most: int = MAX_BYTES) -> bytes:
    """The contents of a regular file of at most `most` bytes.

    Raises:
      OSError: if it cannot be read, or is a pipe, a device or larger.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no regular file")
        if found.st_size > most:
            raise OSError(f"it has {found.st_size:,} bytes, and {most:,} are the most")
        return file.read(found.st_size)  # and not `most`, for which the memory would be taken first


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe without waiting for its other end, where the system can."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class Loader(yaml.SafeLoader):
    """YAML without what makes a short text long or deep: a config needs neither aliases nor many levels."""

    def __init__(self, stream: Any):
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"aliases such as *{str(self.peek_event().anchor)[:40]} are not read")
        if self._depth == MAX_DEPTH:
            raise yaml.YAMLError(f"more than {MAX_DEPTH} levels are not read")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1
