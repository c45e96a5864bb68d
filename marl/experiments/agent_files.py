"""The files that an agent reads: what its numbers depend on beside its spec."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from marl.learners.exact.trained import SHIPPED
from marl.learners.sampled.objectives import FILE as OBJECTIVE_FILE


def digests(spec: str) -> list[str]:
    """Twelve digits of each file that whoever a spec names reads: files and runs it names, and those that we ship."""
    quoted = [Path(text) for text in re.findall(r"""['"](.+?)['"]""", spec)]  # files, or runs of `marl.discover`
    named = [path / OBJECTIVE_FILE if path.is_dir() else path for path in quoted]
    words = set(re.findall(r"\w+", spec))
    shipped = [file for file in sorted(SHIPPED.glob("*.safetensors")) if words & {*file.stem.split("-")}]
    return [hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in [*named, *shipped] if file.is_file()]
