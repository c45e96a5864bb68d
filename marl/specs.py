"""Specs, as users write them on a command line: `name`, or with settings, `name(setting=value)`."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from configs import one_of
from games import Game, make


def parse(field: str, spec: str, known: Mapping[str, Iterable[str]], example: str) -> tuple[str, dict[str, Any]]:
    """The name in a spec, and the settings that are given.

    Args:
      field: what the spec is of, for messages.
      spec: values are Python's literals.
      known: the settings of everything there is, by its name.
      example: a name, for messages.

    Raises:
      ValueError: for a spec of another form, or an unknown name or setting, naming what is allowed.
    """
    name, settings = _read(field, spec, example)
    if name not in known:
        raise ValueError(f"{field}: got {name!r}; {one_of(name, list(known))}")
    allowed = list(known[name])
    for setting in settings:
        if setting not in allowed:
            raise ValueError(f"{field}: {name} has no setting {setting!r}; it takes {', '.join(allowed) or 'none'}")
    return name, settings


def make_game(spec: str) -> Game:
    """A game by its name, with parameters in brackets: `reacher`, `CartPole-v1(max_steps_in_episode=200)`.

    Raises:
      ValueError: for a spec of another form, and as `games.make`.
    """
    name, params = _read("game", spec, "reacher")
    try:
        return make(name, **params)
    except TypeError as error:  # of a value that stands for nothing there
        raise ValueError(f"game: got {spec!r}; {first_line(error)}") from None


def change(spec: str, **settings: Any) -> str:
    """A spec with other settings, and the rest as it was."""
    name, before = _read("spec", spec, "naive")
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in (before | settings).items())})"


def _read(field: str, spec: str, example: str) -> tuple[str, dict[str, Any]]:
    """The name, which may have hyphens, and the settings in brackets; nothing of them is known yet."""
    found = re.fullmatch(r"\s*([^\W\d][\w-]*)\s*(\(.*\))?\s*", spec, re.DOTALL)
    try:
        call = ast.parse(f"spec{found[2] or '()'}" if found else "", mode="eval").body
        if not (found and isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise ValueError
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        if len(settings) < len(call.keywords):
            raise ValueError  # one of them twice
    except (SyntaxError, ValueError):
        message = f"{field}: got {spec!r}; a name such as {example}, or name(setting=value), is needed"
        raise ValueError(message) from None
    return found[1], settings


def defaults(factory: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only arguments of a factory, each with its default: its settings."""
    return {p.name: p.default for p in inspect.signature(factory).parameters.values() if p.kind is p.KEYWORD_ONLY}


def numeric(value: Any) -> bool:
    """Whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def whole(value: Any) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def first_line(error: Exception) -> str:
    """What an error says first."""
    return str(error).strip().split("\n")[0]
