"""Presets, one YAML file per experiment, and how a config comes from a preset, a file and the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import yaml

import marl_shaping as marl_shaping  # it reports a file that hides one of the packages
from configs import files
from configs.command_config import CommandConfig as CommandConfig
from configs.command_config import Part as Part
from configs.usage import HELP

Config = TypeVar("Config")
MOST = 2**31 - 1  # what is counted on a device is counted in 32 bits
LARGEST = 3.4028234663852886e38  # finite in single precision
LONGEST = 200  # characters of a value that are shown
LISTED = 40  # names of a list that are shown


class ConfigError(ValueError):
    """Bad input: one line that names the field, the value and what is allowed."""


class ContractError(TypeError):
    """A function of a user's returned what it should not: one line that names it, its result and what is needed.

    Example:
      >>> import configs, jax, meta
      >>> try:
      ...     meta.evolve(lambda x, key: 3.0, lambda key: jax.numpy.ones(()), jax.random.key(0), num_trials=1)
      ... except configs.ContractError as error:
      ...     print(error)
      trial: returned a float; meta.Outcome(fitness, metrics) is needed, such as Outcome(fitness, {})
    """


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
        return from_text(
            cls,
            (resources.files(__name__) / command / f"{source}.yaml").read_text(encoding="utf-8"),
            f"preset {source}",
        )
    if not os.path.exists(source) or os.path.isdir(source):
        got = f"preset: got {shown(source)}"
        if os.path.exists(os.path.join(source, "config.yaml")):
            raise ConfigError(f"{got}, the directory of a run, which goes on with --resume {short(source)}")
        named = source.endswith((".yaml", ".yml"))
        file = f"no YAML file is at {short(source)}" if named else "a YAML file's path serves too"
        raise ConfigError(f"{got}; {one_of(source, presets(command))} ({file})")
    return from_file(cls, Path(source))


def from_file(cls: type[Config], path: Path) -> Config:
    """A config from a YAML file; every key is checked."""
    return from_text(cls, read_text(path), str(path))


def read_text(path: Path, *, most: int = files.MAX_BYTES) -> str:
    """The text of a file of at most `most` bytes.

    Raises:
      ConfigError: if it cannot be read, or is too long for a config.
    """
    try:
        return files.read(path, most=most).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise ConfigError(f"{short(str(path))}: cannot be read as text ({why})") from None


def from_text(cls: type[Config], text: str, where: str) -> Config:
    """A config from YAML; every key is checked."""
    return build(cls, values(text, where), where)


def values(text: str, where: str) -> Any:
    """The content of a YAML text, as nested dicts and lists.

    Raises:
      ConfigError: if it is none, or none that we read.
    """
    try:
        found = yaml.load(text, _Loader)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:  # of a tag whose text does not fit, too
        why = short(" ".join(str(error).split()))
        raise ConfigError(f"{where}: not valid YAML ({why}); fields with values, as in seed: 3, are needed") from None
    return {} if found is None else found


def to_text(config: Any) -> str:
    """The YAML of a config, fields in the order of their definition."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def plain(value: Any) -> Any:
    """A config as nested dicts and lists."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def full_names(value: Any, prefix: str = "") -> dict[str, Any]:
    """The fields of nested dicts by their names in full, such as `evolution.sigma`."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {name: x for key, one in value.items() for name, x in full_names(one, f"{prefix}.{key}".lstrip(".")).items()}


def part(config: Any, words: Mapping[str, str]) -> Any:
    """Some fields of a config as one of its own, with the values that they have.

    Args:
      config: a dataclass.
      words: by the fields' names in full, what the help says of each.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name in dict.fromkeys(name.partition(".")[0] for name in words):
        value, kind = getattr(config, name), get_type_hints(type(config))[name]
        if dataclasses.is_dataclass(value):
            inner = {one.partition(".")[2]: text for one, text in words.items() if one.startswith(f"{name}.")}
            value = part(value, inner)
            kind = type(value)
        fields.append((name, kind, dataclasses.field(default=value, metadata={HELP: words.get(name, "")})))
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


def build(cls: type[Config], values: Any, where: str, prefix: str = "", default: Config | None = None) -> Config:
    """A dataclass from a dict, with the types that it declares; what is not given is as in `default`, or its own.

    Raises:
      ConfigError: for an unknown key, a value of another type, or one that the class itself refuses.
    """
    if not isinstance(values, dict):
        what = prefix.rstrip(".") or "the file"
        raise ConfigError(f"{where}: {what} holds {shown(values)}; fields with values are needed")
    if issubclass(cls, CommandConfig):
        try:
            cls = cls.class_of(values)  # type: ignore[assignment]
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
    hints, arguments = get_type_hints(cls), {}
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    names = list(fields)
    for name, value in values.items():
        if name not in names:
            raise ConfigError(f"{where}: unknown field {prefix}{short(str(name))}; {one_of(str(name), names)}")
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            make = fields[name].default_factory
            inner = fields[name].default if make is dataclasses.MISSING else make()
            inner = None if inner is dataclasses.MISSING else inner
            arguments[name] = build(kind, value, where, f"{prefix}{name}.", inner)  # type: ignore[type-var, arg-type]
        else:
            arguments[name] = typed(kind, value, f"{where}: {prefix}{name}")
    try:
        return cls(**arguments) if default is None else dataclasses.replace(default, **arguments)  # type: ignore[type-var]
    except ValueError as error:
        raise ConfigError(of_part(prefix, error)) from None


def of_part(prefix: str, error: ValueError) -> str:
    """The message of a nested config about a field, which is named `part.field` in whatever config it stands."""
    return re.sub(r"^\w+\.(?=\w+: )", prefix, str(error)) if prefix else str(error)


def check(config: Any, needed: str, fits: Callable[[Any], bool], *names: str, prefix: str = "") -> None:
    """Raises ValueError for the first of these fields whose value does not fit."""
    for name in names:
        got = getattr(config, name)
        try:
            wrong = not fits(got)
        except (TypeError, ValueError):  # of another type, which cannot be compared
            wrong = True
        if wrong:
            raise ValueError(f"{prefix}{name}: got {shown(got)}; {needed} is needed")


def has_defaults(config: Any, *names: str) -> bool:
    """True if these fields, or all if none is named, have their defaults, which need no check."""
    fields = {field.name: field.default for field in dataclasses.fields(config)}
    return all(getattr(config, name) == fields[name] for name in names or fields)


def check_least(config: Any, **least: int) -> None:
    """Raises ValueError for the first of these fields that is below the least that it may be, or cannot be counted."""
    for name, number in least.items():
        got = getattr(config, name)
        if not number <= got <= MOST:
            limits = f"at least {number}" if got < number else f"at most {MOST}"
            raise ValueError(f"{name}: got {shown(got)}; a whole number of {limits} is needed")


def check_product(config: Any, *names: str) -> None:
    """Raises ValueError where there are more of these fields in each other than can be counted."""
    if math.prod(getattr(config, name) for name in names) > MOST:
        got, others = shown(getattr(config, names[0])), " and ".join(names[1:])
        raise ValueError(f"{names[0]}: got {got}; at most {MOST} together with {others} is needed")


def check_seed(seed: int, bits: int = 32, *, seeds: int | None = None) -> None:
    """Raises ValueError for a seed of more bits, and for the first of so many in a row if the last has more."""
    if not 0 <= seed <= 2**bits - (seeds or 1):
        most = f"2**{bits} - {'1' if seeds is None else 'seeds'}"
        raise ValueError(f"seed: got {shown(seed)}; a whole number from 0 to {most} is needed")


def one_of(got: str, names: Sequence[str], otherwise: str = "") -> str:
    """'one of a, b, c is needed', or `otherwise`; the nearest names where some are near, and `LISTED` at most."""
    near = difflib.get_close_matches(got[:LONGEST], names, 3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if otherwise:
        return otherwise
    more = f", ... ({len(names)} names)" if len(names) > LISTED else ""
    return f"one of {', '.join(names[:LISTED])}{more} is needed"


def shown(value: Any) -> str:
    """A value as messages show it: in `LONGEST` characters at most."""
    try:
        text = repr(value)
        return short(" ".join(text.split()) if "\n" in text else text)  # arrays have several lines
    except (ValueError, RecursionError):  # a whole number of thousands of digits
        return f"a {type(value).__name__} that is too long to be shown"


def short(text: str) -> str:
    """A text in `LONGEST` characters at most, without what is in its middle."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 43]}... ({len(text)} characters) ...{text[-10:]}"


def one_line(message: str) -> str:
    """A message about bad input in one line, in which no value has more than `LONGEST` characters."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in message).split())
    for value in (r"(?<=got )('.*?'|\".*?\"|.+?)(?=; |, which |$)", r"\[[^\[\]]*\]", r"\S+"):
        line = re.sub(value, lambda found: short(found[0]), line)
    return line


class _Loader(files.Loader):
    """The safe loader, which also refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for number, key in enumerate(keys):
            if key in keys[:number] and key != "<<":
                raise ConfigError(f"{short(key)} is given twice; once is needed")
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 010 as 8 and 1:30 as 90. Here numbers are decimal, and those are text, which their fields refuse.
_WHOLE, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag not in (_WHOLE, _FLOAT)]
    for first, found in _Loader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_WHOLE, re.compile(r"[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789"))
_POINT = r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(e[-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$"
_Loader.add_implicit_resolver(_FLOAT, re.compile(_POINT, re.IGNORECASE), list("-+.0123456789"))


def typed(kind: Any, value: Any, where: str) -> Any:
    """A value with the type that a field declares; raises ConfigError, in words that begin with `where`."""
    if isinstance(value, list) and get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        return tuple(typed(get_args(kind)[0], x, where) for x in value)
    if isinstance(value, list):
        parts = set(get_args(kind)) - {NoneType}
        if len(parts) == 1 and get_origin(part := parts.pop()) is tuple and len(get_args(part)) == len(value):
            return tuple(typed(one, x, where) for one, x in zip(get_args(part), value, strict=True))
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        number = math.nan
        with contextlib.suppress(ValueError, OverflowError):  # text too, for YAML 1.1 reads 1e-3 as that
            number = float(value)
        if not abs(number) <= LARGEST:
            raise ConfigError(f"{where}: got {shown(value)}; {type_in_words(kind)} is needed")
        return number
    if not _fits(kind, value):
        raise ConfigError(f"{where}: got {shown(value)}; {type_in_words(kind)} is needed")
    return value


def _fits(kind: Any, value: Any) -> bool:
    """True for a value of a field's type: a plain one, a Literal, a tuple of these, or a union of all."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if get_origin(kind) is tuple:
        kinds = arguments[:1] * len(value) if arguments[1:] == (...,) and isinstance(value, tuple) else arguments
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, kinds, value))
    if get_origin(kind) is Annotated:
        return _fits(arguments[0], value)
    if arguments:
        return any(_fits(one, value) for one in arguments)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def type_in_words(kind: Any) -> str:
    """The values of a field of this type hint, in words."""
    names = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", NoneType: "None"}
    if kind in names:
        return names[kind]
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        one = type_in_words(parts[0]).removeprefix("a ")
        return f"a list of {one}s".replace("texts", "text") if parts[1:] == (...,) else f"{len(parts)} {one}s"
    return " or ".join(map(type_in_words, parts))
