"""Files of a run directory, which a stranger may have made: nothing leads out of it, and each is written whole."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

MAX_LEVELS = 16  # of folders within each other


def check_folder(path: Path) -> None:
    """Raises ValueError if anything in a directory is neither a folder nor a file of its own; one line.

    Writing to a link, symbolic or hard, would change a file elsewhere, and reading a pipe would never end.
    """
    left = [path]
    while left:
        for entry in os.scandir(left.pop()):
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # the scratch file of a process that is writing there
                continue
            inside = Path(entry.path)
            if stat.S_ISDIR(found.st_mode) and len(inside.relative_to(path).parts) < MAX_LEVELS:
                left.append(inside)
            elif not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                name = str(inside.relative_to(path))[:100]
                raise ValueError(f"{path}: {name!r} is no file of its own; a run holds neither links nor pipes")


def save_whole(path: Path, save: Callable[[IO[bytes]], Any]) -> Path:
    """Writes a file by a function that writes to an open one, as `write_whole` does."""
    contents = io.BytesIO()
    save(contents)
    write_whole(path, contents.getvalue())
    return path


def write_whole(path: Path, contents: bytes) -> None:
    """Writes a file: a reader finds the old contents or the new, never half of them, even after a power cut."""
    scratch = path.with_name(f".{path.name}")
    scratch.unlink(missing_ok=True)
    try:
        with open(scratch, "xb", opener=no_link) as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # what there was of a full disk is not to be kept by a half
        scratch.unlink(missing_ok=True)
        raise
    scratch.replace(path)
    if hasattr(os, "O_DIRECTORY"):  # Windows has no directories that can be flushed
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def no_link(path: str, flags: int) -> int:
    """Opens a file for `open(..., opener=no_link)`, and no symbolic link where the system can refuse one."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
