"""Command lines that are bad by construction, drawn from a seeded generator: for `tests.fault_injection.commands`.

Each comes with its fault: the word that the message has to name, and the value that it has to shorten. Lines with a
wrong flag are here; lines with a wrong text are in `texts`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from marl.commands import describe

FIRST = {  # a first argument that fits
    "marl.mfos": ("ipd", "imp", "ipd_sampled"),
    "marl.train": ("cartpole", "CartPole-v1"),
    "marl.crossplay": ("ipd", "imp"),
    "marl.reproduce": ("zd", "mfos", "shaper"),
    "marl.bound": ("ipd", "chicken"),
    "marl.schelling": ("public_goods", "ipd"),
    "marl.cola": ("ipd", "chicken"),
    "marl.meva": ("ipd", "chicken"),
    "marl.mmaml": ("ipd", "chicken"),
    "marl.play": ("ipd", "chicken"),
    "attacks.act": ("cartpole", "pendulum"),
    "attacks.reproduce": ("act",),
    "attacks.examine": ("",),
}
NO_WHOLE = (
    "many",
    "",
    "1.5",
    "1e3",
    "0x10",
    "nan",
    "inf",
    "[1]",
    "1,2",
    "🙂",
    "\0",
    "NaN",
    "--",
    "9" * 5000,
    "true",
    "1 2",
)
NO_NUMBER = (
    "much",
    "",
    "nan",
    "inf",
    "-inf",
    "NaN",
    "1e400",
    "1e39",
    "[1]",
    "1,5",
    "ⅷ",
    "\0",
    "x" * 5000,
    "0.5.5",
    "1e",
)
TOO_MANY = ("99999999999999999999", "1000000000000", "4294967296", "9" * 300)
JUNK = ("", "x" * 5000, "ünïcödé", "\0", "💥", "((((", "]", "'", "a b", "../..", "[" * 2000, "None", "-1", "nan")
BAD_YAML = ("a: [1, 2", "{", "- 1\n- 2", "just words", "\t: x", "seed: !!python/object:os.system x", "a: b: c", "3")


class Line(NamedTuple):
    """A bad command line."""

    module: str
    arguments: tuple[str, ...]
    kind: str  # of fault, for the table
    names: tuple[str, ...]  # one of these words has to be in the message
    value: str = ""  # may be shown in `configs.LONGEST` characters only
    files: Mapping[str, bytes] = MappingProxyType({})  # in its working directory


Make = Callable[[Random, str], Line | None]  # (random, module) -> a line, or None where there is none of the kind


class Field(NamedTuple):
    """A field of a config, as `part.field`, and its type."""

    name: str
    kind: Any

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


def config_class(module: str, first: str) -> type:
    """The class of the config that a first argument stands for."""
    return type(describe(module).default(first)) if first else describe(module).kind(first)


def fields(cls: type, prefix: str = "") -> Iterator[Field]:
    """All fields that have a flag, those of configs in a config too."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for name, kind in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(kind):
            yield from fields(kind, f"{prefix}{name}.")  # type: ignore[arg-type]
        elif not hasattr(hints[name], "__metadata__"):
            yield Field(prefix + name, kind)


def _some(random: Random, module: str, *kinds: Any) -> tuple[str, Field] | None:
    """A first argument, and a field of one of these types."""
    first = random.choice(FIRST[module])
    found = [field for field in fields(config_class(module, first)) if field.kind in kinds]
    return (first, random.choice(found)) if found else None


def _line(random: Random, module: str, first: str, field: Field, value: str) -> Line:
    apart = random.random() < 0.3 and value and not value.startswith("-")
    words = (field.flag, value) if apart else (f"{field.flag}={value}",)
    given = (first,) if first else ()
    return Line(module, (*given, *words), "", (field.name, field.flag), value)


def _type(random: Random, module: str) -> Line | None:
    found = _some(random, module, int, float)
    if not found:
        return None
    return _line(random, module, *found, random.choice(NO_WHOLE if found[1].kind is int else NO_NUMBER))


def _range(random: Random, module: str) -> Line | None:
    found = _some(random, module, int, float)
    if not found:
        return None
    values = ("-1", "-9999999999", *TOO_MANY) if found[1].kind is int else ("-1", "-1e-3", "-3e38")
    return _line(random, module, *found, random.choice(values))


MEMORY = {  # counts of arrays too large for memory
    "marl.mfos": ("evaluation_trials", "trials", "evolution.population_size"),
    "marl.train": ("num_envs", "evaluation_episodes", "seeds"),
    "marl.crossplay": ("evaluation_trials",),
    "marl.bound": ("num_states", "evaluation_trials"),
    "marl.cola": ("evaluation_trials", "batch"),
    "marl.meva": ("evaluation_trials", "batch"),
    "marl.mmaml": ("opponents", "evaluation_trials"),
    "attacks.act": ("num_envs", "evaluation_trials", "message_size"),
}


def _memory(random: Random, module: str) -> Line | None:
    if module not in MEMORY:
        return None
    field = Field(random.choice(MEMORY[module]), int)
    line = _line(random, module, FIRST[module][0], field, "2147483640")
    more = ("--total-steps=999999999999999",) if field.name == "num_envs" and module == "marl.train" else ()
    # The message may name another field, which has to be a multiple of this one.
    return line._replace(arguments=line.arguments + more, names=(*line.names, "evaluation_episodes", "memory"))


def _choice(random: Random, module: str) -> Line | None:
    first = random.choice(FIRST[module])
    found = [one for one in fields(config_class(module, first)) if typing.get_origin(one.kind) is typing.Literal]
    return _line(random, module, first, random.choice(found), random.choice(JUNK)) if found else None


def _several(random: Random, module: str) -> Line | None:
    first = random.choice(FIRST[module])
    found = [one for one in fields(config_class(module, first)) if _is_numbers(one.kind)]
    if not found:
        return None
    field, values = (
        random.choice(found),
        random.choice((("1", "2", "3"), ("1,2,3,4",), ("a",), ("nan",) * 4, ("",), ("-1",))),
    )
    if values == ("1", "2", "3") and any(... in typing.get_args(one) for one in _tuples(field.kind)):
        return None  # a list of any length
    return Line(module, (first, field.flag, *values), "", (field.name, field.flag))


def _is_numbers(kind: Any) -> bool:
    return any(typing.get_args(one)[0] in (int, float) for one in _tuples(kind))


def _tuples(kind: Any) -> list[Any]:
    return [one for one in (kind, *typing.get_args(kind)) if typing.get_origin(one) is tuple]


def _unknown(random: Random, module: str) -> Line | None:
    first = random.choice(FIRST[module])
    known = [one.flag for one in fields(config_class(module, first))]
    flag = list(random.choice(known))
    place = random.randrange(2, len(flag))
    flag[place] = random.choice("qzx7")
    spelled = random.choice(
        ("".join(flag), "--" + "n" * 5000, "-s", "--ünï", "--seed.seed", "--0", "--=3", "-", "--SEED")
    )
    value = random.choice(("", "=3", "=" + "y" * 5000))
    if spelled in known:
        return None
    given = (first,) if first else ()
    return Line(module, (*given, spelled + value), "", (spelled[:50],), spelled + value)


def _stray(random: Random, module: str) -> Line | None:
    first = random.choice(FIRST[module])
    if module in ("marl.play", "attacks.examine"):  # the word would be read as the agent or the directory
        return None
    word = random.choice(("stray", "z" * 5000, "7", "ünï", "💥", "seed=3", "a b"))
    return Line(module, (first, *random.choice((("--seed", "3"), ())), word), "", (word[:50],), word)


def _twice(random: Random, module: str) -> Line | None:
    first = random.choice(FIRST[module])
    cls = describe(module)
    field = random.choice([*fields(config_class(module, first)), *fields(cls.output)])
    if field.kind is bool:
        words = [random.choice((field.flag, f"--no-{field.flag[2:]}")) for _ in range(2)]
    elif field.kind in (int, float, str):
        words = [f"{field.flag}={random.choice('123')}" for _ in range(2)]
    else:
        return None
    given = (first,) if first else ()
    return Line(module, (*given, *words), "", (field.name, field.flag))


def _missing(random: Random, module: str) -> Line | None:
    found = _some(random, module, int, float, str)
    if not found:
        return None
    first, field = found
    given = (first,) if first else ()
    after = random.choice(((), ("--seed=3",))) if field.name != "seed" else ()
    return Line(module, (*given, field.flag, *after), "", (field.name, field.flag))


def _without_effect(random: Random, module: str) -> Line | None:
    first = random.choice(FIRST[module])
    config = describe(module).default(first) if first else describe(module).config()  # type: ignore[operator]
    idle = [
        field
        for field in fields(type(config))
        if field.kind in (int, float)
        and any(field.name == one or field.name.startswith(f"{one}.") for one in getattr(config, "without_effect", {}))
    ]
    if not idle:
        return None
    field = random.choice(idle)
    return Line(module, (first, f"{field.flag}=0.5" if field.kind is float else f"{field.flag}=2"), "", (field.name,))


KINDS: dict[str, Make] = {
    "type of a flag": _type,
    "range of a flag": _range,
    "more than memory": _memory,
    "one of several": _choice,
    "list": _several,
    "unknown option": _unknown,
    "stray word": _stray,
    "given twice": _twice,
    "no value": _missing,
    "without effect": _without_effect,
}
