"""Extensions of a user: what installed packages offer by entry points, and modules that `--import` names.

An entry point of the group `marl_shaping.games`, `.learners`, `.shapers` or `.messages` is a factory under its name.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from configs import ConfigError, shown

GROUP = "marl_shaping"
OPTION = "--import"

_loaded: set[str] = set()
_imported: list[str] = []


def load(kind: str, register: Callable[[str, Any], Any]) -> None:
    """Registers the factories that installed packages offer, once for each kind in a process.

    A package whose factory cannot be imported or registered is left out with a warning.

    Args:
      kind: games, learners, shapers or messages.
      register: `(name, factory)`.
    """
    if kind in _loaded:
        return
    _loaded.add(kind)
    from importlib.metadata import entry_points  # here, because it is needed for unknown names and lists only

    for entry in entry_points(group=f"{GROUP}.{kind}"):
        try:
            register(entry.name, entry.load())
        except Exception as error:  # of a stranger's package
            owner = entry.dist.name if entry.dist else "a package"
            reason = " ".join(str(error).split())
            warnings.warn(f"{GROUP}.{kind}: {entry.name} of {owner} is left out ({reason})", stacklevel=2)


def offers(kind: str) -> bool:
    """True if an installed package offers something of a kind: games, learners, shapers or messages."""
    from importlib.metadata import entry_points

    return bool(entry_points(group=f"{GROUP}.{kind}"))


def import_named(arguments: Sequence[str]) -> list[str]:
    """Imports the modules that `--import MODULE` names, also from the current directory.

    Args:
      arguments: of a command.

    Returns:
      The arguments without these.

    Raises:
      ConfigError: for a module that cannot be imported.
    """
    rest, words = [], list(arguments)
    while words:
        word = words.pop(0)
        option, equals, name = word.partition("=")
        if option != OPTION:
            rest.append(word)
            continue
        if not equals:
            name = words.pop(0) if words else ""
        search_here()
        try:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ImportError("it is no name of a module")
            importlib.import_module(name)
        except Exception as error:  # of the user's own module
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(
                f"{OPTION}: got {shown(name)}; a module that can be imported is needed ({reason})"
            ) from None
        if name not in _imported:
            _imported.append(name)
    return rest


def search_here() -> None:
    """Lets Python find modules in the current directory too, as `python -m` does and an installed command does not."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())


def imported() -> list[str]:
    """The words of a command line by which the modules of this process are imported again."""
    return [word for name in _imported for word in (OPTION, name)]


def missing(options: str) -> list[str]:
    """The words that the options of an earlier command line have and this process lacks, of modules that it imported.

    They are not imported by themselves, because a directory may be a stranger's.

    Args:
      options: of the earlier command line.
    """
    names = modules_in(shlex.split(options))
    return [word for name in names if name not in _imported for word in (OPTION, name)]


def modules_in(words: Sequence[str]) -> list[str]:
    """The modules that the options of an earlier command line name, each once."""
    return list(dict.fromkeys(after for word, after in itertools.pairwise(words) if word == OPTION))
