"""Presets, one YAML file per experiment, and how a config comes from a preset, a file and the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from configs import files

Config = TypeVar("Config")


class ConfigError(ValueError):
    """Bad input: one line that names the field, the value and what is allowed."""


def presets(command: str) -> list[str]:
    """Names of the presets of a command, such as `mfos`."""
    return sorted(
        path.name[:-5] for path in (resources.files(__name__) / command).iterdir() if path.name.endswith(".yaml")
    )


def load(cls: type[Config], command: str, source: str) -> Config:
    """A config from a preset's name or the path of a YAML file.

    Raises:
      ConfigError: if there is no such preset or file, or if it does not fit.
    """
    if source in presets(command):
        return from_text(cls, (resources.files(__name__) / command / f"{source}.yaml").read_text(), f"preset {source}")
    if not os.path.exists(source) or os.path.isdir(source):
        got = f"preset: got {short(source)!r}"
        if os.path.exists(os.path.join(source, "config.yaml")):
            raise ConfigError(f"{got}, the directory of a run, which goes on with --resume {short(source)}")
        named = source.endswith((".yaml", ".yml"))
        file = f"no YAML file is at {short(source)}" if named else "a YAML file's path serves too"
        raise ConfigError(f"{got}; {one_of(source, presets(command))} ({file})")
    return from_file(cls, Path(source))


def short(path: Path | str) -> str:
    """A path as a message shows it."""
    return str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."


def from_file(cls: type[Config], path: Path) -> Config:
    """A config from a YAML file; every key is checked."""
    return from_text(cls, read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
      ConfigError: if it cannot be read, or is too long for a config.
    """
    try:
        return files.read(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise ConfigError(f"{short(path)}: cannot be read as text ({why})") from None


def from_text(cls: type[Config], text: str, where: str) -> Config:
    """A config from YAML; every key is checked."""
    try:
        values = files.parse(text) or {}
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    return build(cls, values, where)


def to_text(config: Any) -> str:
    """The YAML of a config, fields in the order of their definition."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def plain(value: Any) -> Any:
    """A config as nested dicts and lists."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def named(value: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of nested dicts by their names in full, such as `evolution.sigma`."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {name: x for key, one in value.items() for name, x in named(one, f"{prefix}.{key}".lstrip(".")).items()}


def part(config: Any, words: Mapping[str, str]) -> Any:
    """Some fields of a config as one of its own, with the values that they have.

    Args:
      config: a dataclass.
      words: by the fields' names in full, what the help says of each.
    """
    import tyro

    fields: list[tuple[str, Any, Any]] = []
    for name in dict.fromkeys(name.partition(".")[0] for name in words):
        value, kind = getattr(config, name), get_type_hints(type(config))[name]
        if dataclasses.is_dataclass(value):
            value = part(
                value, {one.partition(".")[2]: text for one, text in words.items() if one.startswith(f"{name}.")}
            )
            kind = type(value)
        else:
            kind = Annotated[kind, tyro.conf.arg(help=words[name])]
        fields.append((name, kind, dataclasses.field(default=value)))
    return dataclasses.make_dataclass(type(config).__name__, fields, frozen=True)()


def replaced(config: Config, given: Any) -> Config:
    """A config with the values of what `part` made of it.

    Raises:
      ConfigError: for one that it refuses.
    """
    values = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        if hasattr(given, field.name):
            value, old = getattr(given, field.name), getattr(config, field.name)
            values[field.name] = replaced(old, value) if dataclasses.is_dataclass(old) else value
    try:
        return dataclasses.replace(config, **values)  # type: ignore[type-var]
    except ValueError as error:
        raise ConfigError(str(error)) from None


def build(cls: type[Config], values: Any, where: str, prefix: str = "") -> Config:
    """A dataclass from a dict, with the types that it declares.

    Raises:
      ConfigError: for an unknown key, a value of another type, or one that the class itself refuses.
    """
    if not isinstance(values, dict):
        raise ConfigError(
            f"{where}: {prefix.rstrip('.') or 'the file'} holds {values!r}; fields with values are needed"
        )
    hints, arguments = get_type_hints(cls), {}
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in names:
            raise ConfigError(f"{where}: unknown field {prefix}{name}; {one_of(str(name), names)}")
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            arguments[name] = build(kind, value, where, f"{prefix}{name}.")  # type: ignore[type-var, arg-type]
        else:
            arguments[name] = _typed(kind, value, f"{where}: {prefix}{name}")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check(config: Any, needed: str, fits: Callable[[Any], bool], *names: str, prefix: str = "") -> None:
    """Raises ValueError for the first of these fields whose value does not fit; None stands for a later default."""
    for name in names:
        if (got := getattr(config, name)) is not None and not fits(got):
            raise ValueError(f"{prefix}{name}: got {got}; {needed} is needed")


def check_least(config: Any, **least: int) -> None:
    """Raises ValueError for the first of these fields that is below the least that it may be."""
    for name, number in least.items():
        if (got := getattr(config, name)) < number:
            raise ValueError(f"{name}: got {got}; a whole number of at least {number} is needed")


def check_seed(seed: int, bits: int = 32, *, seeds: int | None = None) -> None:
    """Raises ValueError for a seed of more bits, and for the first of so many in a row if the last has more."""
    if not 0 <= seed <= 2**bits - (seeds or 1):
        most = f"2**{bits} - {'1' if seeds is None else 'seeds'}"
        raise ValueError(f"seed: got {seed}; a whole number from 0 to {most} is needed")


def one_of(got: str, names: Sequence[str]) -> str:
    """'one of a, b, c is needed', the nearest names first where some are near."""
    near = difflib.get_close_matches(got, names, 3)
    return f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(names)} is needed"


def _typed(kind: Any, value: Any, where: str) -> Any:
    from typeguard import TypeCheckError, check_type

    if isinstance(value, list) and get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        return tuple(_typed(get_args(kind)[0], x, where) for x in value)
    if isinstance(value, list):
        parts = set(get_args(kind)) - {type(None)}
        if len(parts) == 1 and get_origin(part := parts.pop()) is tuple and len(get_args(part)) == len(value):
            return tuple(_typed(one, x, where) for one, x in zip(get_args(part), value, strict=True))
    if kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):  # text too, for YAML 1.1 reads 1e-3 as that
            return float(value)
    try:
        if isinstance(value, bool) and kind is not bool:
            raise TypeCheckError("")
        return check_type(value, kind)
    except TypeCheckError:
        raise ConfigError(f"{where}: got {value!r}; {_describe(kind)} is needed") from None


def _describe(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names.get(kind) or re.sub(r"typing\.|Literal", "", str(kind))


def parse(default: Config, arguments: Sequence[str], program: str, description: str) -> Config:
    """A config from command-line flags over `default`. Prints the help and exits for --help.

    Raises:
      ConfigError: for flags or values that do not fit.
    """
    import tyro

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(type(default), default=default, args=list(arguments), prog=program, description=description)
    except SystemExit as exit:
        if not exit.code:
            raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    # tyro prints a title and a box of several lines, whose first paragraph says what is wrong. Where the terminal is
    # not UTF-8 the box is of hyphens, which an option's name has too.
    lines = [re.sub("^-+$", "", line.strip("│╭╮╰╯─ \n")) for line in errors.getvalue().splitlines()][1:]
    message = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines)))
    if unknown := re.match(r"Unrecognized options: (\S+?)(,|$)", message):
        flags = [f"--{name}" for name in _flags(type(default))]
        kind = "option" if unknown[1].startswith("-") else "argument"
        raise ConfigError(f"unknown {kind} {unknown[1]}; {one_of(unknown[1], flags)}")
    raise ConfigError(re.sub(r"^(Error parsing )?(\w+: (?=[\w.]+: ))?", "", message))


def _flags(cls: Any, prefix: str = "") -> list[str]:
    flags = []
    for name, kind in get_type_hints(cls).items():
        flag = prefix + name.replace("_", "-")
        flags += _flags(kind, f"{flag}.") if dataclasses.is_dataclass(kind) else [flag]
    return flags
