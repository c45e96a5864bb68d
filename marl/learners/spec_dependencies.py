"""The files that an agent reads: what its numbers depend on beside its spec."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import get_args

from marl.learners.sampled.objective_registry import FILE as OBJECTIVE_FILE
from marl.learners.sampled.objective_registry import Kind
from marl.trained import folder
from marl.trained.catalogue import PREFIX, located

LEARNERS = ("cola", "meva", "mmaml")  # of which a file is shipped for each game; objectives have names of their own


def digests(spec: str) -> list[str]:
    """Twelve digits of each file that a spec's agent reads: files and runs that it names, and those of the library."""
    quoted = [Path(text) for text in re.findall(r"""['"](.+?)['"]""", spec)]  # files, or runs of `marl.discover`
    named = [path / OBJECTIVE_FILE if os.path.isdir(path) else path for path in quoted]
    named += [Path(located(spec))] if spec.startswith(PREFIX) else []
    words = set(re.findall(r"\w+", spec))
    learned = [file for name in LEARNERS if name in words for file in sorted(folder().glob(f"{name}-*.safetensors"))]
    objectives = [folder() / f"{kind}-{word}.safetensors" for kind in get_args(Kind) for word in sorted(words)]
    files = [file for file in (*named, *learned, *objectives) if os.path.isfile(file)]  # False of too long a name
    return [hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files]
