"""The first import of each of the five packages: a guard of their common names, and public names on first use.

Where Python finds another file of such a name first, such as a `games.py` in the current directory, one line says
which file it is and how to get around it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

PACKAGES = ("attacks", "configs", "games", "marl", "meta")


def foreign() -> str | None:
    """The first package that is hidden by another file: one line with the file and the remedy; None if there is none.

    Nothing is imported; a package that has been imported is judged as it is.
    """
    root = os.path.dirname(os.path.abspath(__file__))
    for name in PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a module without a spec, such as one that a program has made itself
            spec = ModuleSpec(name, None, origin="a module that the program made itself")
        if spec is None:  # Python's own message about a missing package is clear
            continue
        places = [os.path.dirname(spec.origin)] if spec.origin else list(spec.submodule_search_locations or [])
        if os.path.realpath(os.path.join(root, name)) not in map(os.path.realpath, places):
            found = spec.origin or " and ".join(places)
            remedy = "rename it, start in another directory, or call Python with -P"
            return f"{name}: got {found}, which hides the package of marl-shaping in {root}; {remedy}"
        if not _is_ours(spec):
            from importlib import metadata  # here, because it takes 20 ms

            others = sorted(set(metadata.packages_distributions().get(name, [])) - {"marl-shaping"})
            by = f"that {' and '.join(others)} installed" if others else "of another distribution"
            return f"{name}: got {spec.origin}, a file {by} over marl-shaping's; a virtual environment apart is needed"
    return None


def _is_ours(spec: ModuleSpec) -> bool:
    """True of a package whose source imports this module, and of one that was installed without its source."""
    try:
        source = spec.loader.get_source(spec.name)  # type: ignore[union-attr]
    except (ImportError, OSError, AttributeError, UnicodeDecodeError):
        return True
    return source is None or __name__ in source


def on_first_use(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names are those that its module `public` imports (PEP 562).

    The first use of such a name imports them all. A submodule is imported alone.
    """
    # Not eagerly, because each command imports the package it is in. Minima of 7 runs in turn, in seconds of the CPU,
    # lazy and eager: `marl-shaping --help` 0.06 and 1.61, `python -m marl.mfos --help` 1.05 and 1.42, a first name such
    # as `marl.ppo` 1.2 and 1.2. A signal meanwhile would end a command with a traceback, before `meta.process.begin`.

    def names() -> list[str]:
        return sorted(name for name in vars(importlib.import_module(f"{package}.public")) if not name.startswith("_"))

    def get(name: str) -> Any:
        if name == "__all__":
            return names()
        if name == "__version__":
            from importlib import metadata

            return metadata.version("marl-shaping")
        if not name.startswith("_"):
            if importlib.util.find_spec(f"{package}.{name}"):
                return importlib.import_module(f"{package}.{name}")
            if name in names():
                found = getattr(sys.modules[f"{package}.public"], name)
                setattr(sys.modules[package], name, found)
                return found
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, names


if _line := foreign():
    if sys.argv[:1] == ["-m"]:  # `python -m marl.mfos`, which is importing the package of the command
        _words = sys.orig_argv
        _program = " ".join(["python", *_words[_words.index("-m") : _words.index("-m") + 2]]) if "-m" in _words else ""
        print(f"{_program or 'python'}: {_line}", file=sys.stderr)
        raise SystemExit(2)
    raise ImportError(_line)
