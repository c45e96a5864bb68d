"""Configs from the flags of a command line."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from configs import Config, ConfigError, Part, of_part, one_of, short, shown, type_in_words, typed
from configs.usage import Positional

HELP = "--help shows what there is"


def parse(default: Config, arguments: Sequence[str]) -> Config:
    """A config from command-line flags over `default`: `parse_all` of one config."""
    return parse_all([default], arguments)[0]


def parse_all(defaults: Sequence[Any], arguments: Sequence[str]) -> list[Any]:
    """Configs from the flags of one command line, each over its default; no two of them share a field.

    Flags are `--field value` and `--field=value`, `--field` and `--no-field` of a bool, and `--part.field` of a config
    in a config. Values follow the rules of files.

    Raises:
      ConfigError: for flags or values that do not fit, or that are given twice.
    """
    given = _given([type(default) for default in defaults], arguments)
    found = []
    for default in defaults:
        own = {field.name for field in dataclasses.fields(default)}
        found.append(_replaced(default, {name: x for name, x in given.items() if name.partition(".")[0] in own}))
    return found


def parse_known(default: Config, arguments: Sequence[str]) -> Config:
    """A config from those of the flags that are of its fields, whatever else the command line says."""
    names = {field.name for field in dataclasses.fields(default)}  # type: ignore[arg-type]
    names |= {f"no_{name}" for name in names}
    words, known = list(arguments), list[str]()
    while words:
        name, equals, _ = (word := words.pop(0)).partition("=")
        if name.startswith("--") and name[2:].replace("-", "_") in names:
            known += [word] if equals else [word, *(value for value in words[:1] if not _is_flag(value))]
    return parse(default, known)


def check_effect(config: Any, arguments: Sequence[str]) -> None:
    """Raises ConfigError for a flag of a field that changes nothing, as the config and those in it say."""
    given, idle = names(arguments), dict(config.without_effect)
    for part in dataclasses.fields(config):
        if isinstance(inner := getattr(config, part.name), Part):
            idle |= {f"{part.name}.{name}": reason for name, reason in inner.without_effect.items()}
    for field, reason in idle.items():
        for one in given:
            if one in (field, f"no_{field}") or one.startswith(f"{field}."):
                raise ConfigError(f"{one}: has no effect {reason}")


def names(arguments: Sequence[str]) -> list[str]:
    """The fields that are given as flags, by their names in full."""
    return [argument[2:].split("=")[0].replace("-", "_") for argument in arguments if argument.startswith("--")]


def _replaced(config: Any, changes: Mapping[str, Any], prefix: str = "") -> Any:
    """A config with other values of some fields, those of configs in it as `part.field`."""
    parts: dict[str, dict[str, Any]] = {}
    own = {name: value for name, value in changes.items() if "." not in name}
    for name, value in changes.items():
        part, dot, field = name.partition(".")
        if dot:
            parts.setdefault(part, {})[field] = value
    inner = {name: _replaced(getattr(config, name), theirs, f"{prefix}{name}.") for name, theirs in parts.items()}
    try:
        return dataclasses.replace(config, **own, **inner)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(of_part(prefix, error)) from None


def _given(classes: Sequence[type], arguments: Sequence[str]) -> dict[str, Any]:
    """The fields that are given, by name, with values of their types."""
    spellings: dict[str, tuple[str, Any]] = {}
    positional: list[tuple[str, Any]] = []
    for cls in classes:
        flags, others = _spellings(cls)
        spellings |= flags
        positional += others
    given: dict[str, Any] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if not _is_flag(word):
            if not positional:
                raise ConfigError(f"unknown argument {short(word) or repr(word)}; {_near(word, spellings)}")
            field, kind = positional[0]
            if get_origin(kind) is tuple:  # takes all that follow
                given[field] = (*given.get(field, ()), word)
            else:
                given[positional.pop(0)[0]] = word
            continue
        if (flag := name.replace("_", "-")) not in spellings:
            raise ConfigError(f"unknown option {short(word)}; {_near(name, spellings)}")
        field, kind = spellings[flag]
        if field in given:
            raise ConfigError(f"{flag}: given twice; once is needed")
        values = [text] if equals else []
        while len(values) < _most(kind, values) and words and not _is_flag(words[0]):
            values.append(words.pop(0))
        if kind is bool and not values:
            values = [not flag.rpartition(".")[2].removeprefix("--").startswith("no-")]  # type: ignore[list-item]
        given[field] = _value(flag, kind, values)
    return given


def _value(flag: str, kind: Any, values: Sequence[Any]) -> Any:
    """The value of a field from these arguments; raises ConfigError where it is not of the field's type."""
    if kind is bool:
        if isinstance(values[0], bool):
            return values[0]
        raise ConfigError(f"{flag}: got {shown(values[0])}; {flag} alone is needed")
    may_be_none = NoneType in get_args(kind)
    inner = next(one for one in get_args(kind) if one is not NoneType) if may_be_none else kind
    if may_be_none and list(values) == ["None"]:
        return None
    if get_origin(inner) is not tuple:
        if not values:
            raise ConfigError(f"{flag}: no value is given; {type_in_words(kind)} is needed")
        return _one(flag, inner, values[0])
    parts = get_args(inner)
    each = parts[:1] * len(values) if parts[1:] == (...,) else parts
    if len(each) != len(values):
        raise ConfigError(f"{flag}: got {shown(' '.join(values))}; {type_in_words(kind)} is needed")
    return tuple(_one(flag, one, value) for one, value in zip(each, values, strict=True))


def _one(flag: str, kind: Any, text: str) -> Any:
    value: Any = text
    if kind is int:
        with contextlib.suppress(ValueError):
            value = int(text)
    return typed(kind, value, flag)


def _is_flag(word: str) -> bool:
    """True for an argument that is no value: it begins with a hyphen, and is no number."""
    with contextlib.suppress(ValueError):
        float(word)
        return False
    return word.startswith("-")


def _most(kind: Any, values: Sequence[str]) -> float:
    """The number of arguments that a flag of a type may take, if they begin with these."""
    if kind is bool or list(values) == ["None"]:
        return 0
    tuples = [get_args(one) for one in (kind, *get_args(kind)) if get_origin(one) is tuple]
    return max((math.inf if parts[1:] == (...,) else len(parts) for parts in tuples), default=1)


def _near(word: str, spellings: Mapping[str, Any]) -> str:
    return one_of(word, list(spellings), HELP)


def _spellings(cls: type, prefix: str = "") -> tuple[dict[str, tuple[str, Any]], list[tuple[str, Any]]]:
    """The field and the type of every flag that there is, and of the fields that have none, in their order."""
    flags: dict[str, tuple[str, Any]] = {}
    positional = []
    hints = get_type_hints(cls, include_extras=True)
    for name, kind in get_type_hints(cls).items():
        flag = f"--{prefix}{name}".replace("_", "-")
        if dataclasses.is_dataclass(kind):
            flags |= _spellings(kind, f"{prefix}{name}.")[0]  # type: ignore[arg-type]
        elif any(isinstance(x, Positional) for x in getattr(hints[name], "__metadata__", ())):
            positional.append((prefix + name, kind))
        else:
            flags[flag] = prefix + name, kind
            if kind is bool:
                flags[f"--{prefix}no_{name}".replace("_", "-")] = prefix + name, kind
    return flags, positional
