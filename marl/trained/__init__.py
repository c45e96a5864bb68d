"""Parameters that were trained once and come with the library, as safetensors files."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from importlib import resources
from pathlib import Path


@functools.cache
def folder() -> Path:
    """The directory of the files; a temporary copy for this process if the library is imported from a zip file."""
    packed = resources.files(__name__)
    if isinstance(packed, Path):
        return packed
    unpacked = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
    for file in packed.iterdir():
        if file.is_file():
            (unpacked / file.name).write_bytes(file.read_bytes())
    return unpacked
