"""What a package offers, imported when somebody asks for it: a command that starts does not wait for all of it."""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path
from typing import Any


def find(package: str, name: str) -> Any:
    """A public name of a package whose `__init__` imports it for type checkers alone, from where it says.

    For the module's `__getattr__`, which is asked once for each name.

    Raises:
      AttributeError: if the package offers no such name.
    """
    module = importlib.import_module(package)
    source, original = _offered(str(module.__file__)).get(name, ("", ""))
    if not source:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    holder = vars(importlib.import_module(source))
    found = holder[original] if original in holder else importlib.import_module(f"{source}.{original}")
    setattr(module, name, found)
    return found


@functools.cache
def _offered(file: str) -> dict[str, tuple[str, str]]:
    """By its name: the module that has it, and what it is called there."""
    imports = [node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (node.module or "", alias.name) for node in imports for alias in node.names}
