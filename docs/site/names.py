"""The public names of the library, found as a user finds them: by import."""

from __future__ import annotations

import ast
import importlib
import types
from pathlib import Path
from typing import Any

PACKAGES = ("games", "marl", "marl.shapers", "marl.distributed", "marl.bench", "meta", "attacks")
NAMESPACES = ("attacks.control", "attacks.defences", "attacks.messages")  # modules with `__all__`
MODULES = (  # modules, of which every name without underscore is public
    "games.zd",
    "marl.objectives",
    "marl.value_losses",
)
ADAPTERS = {  # to other libraries, each imported by its users alone
    "games.gymnasium": ("env", "vector_env"),
    "games.gymnax": ("env",),
    "games.jaxmarl": ("wrap",),
    "games.pettingzoo": ("parallel_env", "env", "batched_parallel_env"),
    "games.stable_baselines3": ("vec_env",),
}
# The names of `configs` that users import.
CONFIGS = ("ConfigError", "ContractError", "from_file", "load", "presets", "to_text")


def find(path: str) -> Any:
    """The object of a path such as `games.zd.fit`."""
    parts = path.split(".")
    found = importlib.import_module(parts[0])
    for name in parts[1:]:
        found = getattr(found, name)
    return found


def public_names() -> dict[str, list[str]]:
    """Every public name by its shortest path, with its others: `attacks.Message` is `attacks.messages.Message`."""
    paths = [f"{package}.{name}" for package in (*PACKAGES, *NAMESPACES) for name in find(package).__all__]
    paths += [f"{module}.{name}" for module in MODULES for name in defined_names(find(module))]
    paths += [f"configs.{name}" for name in CONFIGS]
    by_object: dict[Any, list[str]] = {}
    for path in sorted(set(paths), key=lambda path: (path.count("."), path)):
        found = find(path)
        by_object.setdefault(path if isinstance(found, int | float) else id(found), []).append(path)
    public = {same[0]: same[1:] for same in by_object.values()}
    return public | {f"{module}.{name}": [] for module, names in ADAPTERS.items() for name in names}


def defined_names(module: types.ModuleType) -> list[str]:
    """The names that a module defines at its top and that begin with no underscore, in their order."""
    names: list[str] = []
    for node in ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]
