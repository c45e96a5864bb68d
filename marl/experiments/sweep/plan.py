"""The plan of a sweep: a command, values of its options, and the points that these make."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import configs
from configs import ConfigError, flags, shown, specs
from configs.specs import terms
from meta.atomic_files import write_whole
from meta.runs.command import Command, directory_name
from meta.strategies import Evolution

FILE = "sweep.yaml"
SWEPT = ("mfos", "train", "distributed", "discover", "act")
MOST_POINTS = 10_000
DRAWS = 1_000  # in a row of points that are there already, before a random search is at its end
MAX_BYTES = 2**20  # of a file, which may have as many values
LONGEST_NAME = 100  # letters of a directory
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")

Values = list[list[str]]  # of an option: each the words that follow it on a command line


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """The options of the sweep itself."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    resume: str = ""
    """Directory of a sweep to go on with, in place of the command and its options."""
    file: str = ""
    """YAML file of a sweep, in place of the command and its options: command, first, and options with lists."""
    samples: int = 0
    """Random search: this many different points, or as many as there are, drawn from the values, and from ranges such
    as 0.001..0.1. 0 is the grid."""
    sample_seed: int = 0
    """Seed of the random search."""
    on: Literal["here", "ray", "slurm"] = "here"
    """Place of the runs: here, one after the other; ray, the cluster of RAY_ADDRESS or one that is begun on this
    machine; slurm, an array of jobs. The last two need a folder that all machines share."""
    slurm: tuple[str, ...] = ()
    """Settings of the SLURM jobs as of submitit, each as NAME=VALUE: slurm_partition=gpu timeout_min=60."""
    separately: bool = False
    """Train each point in a program of its own, also where one program can train several."""
    quiet: bool = False
    """Show neither progress nor the table."""

    def __post_init__(self) -> None:
        words = f"a whole number from 0 to {MOST_POINTS}"
        configs.check(self, words, lambda x: 0 <= x <= MOST_POINTS, "samples")
        configs.check(self, "a whole number from 0 to 2**32 - 1", lambda x: 0 <= x < 2**32, "sample_seed")
        for name, x, needed in (("sample_seed", self.sample_seed, "samples"), ("slurm", self.slurm, "on slurm")):
            if x and not (self.samples if name == "sample_seed" else self.on == "slurm"):
                raise ConfigError(f"{name}: has no effect without --{needed}")
        if bad := next((one for one in self.slurm if not re.fullmatch(r"\w+=.+", one)), None):
            raise ConfigError(f"slurm: got {shown(bad)}; NAME=VALUE is needed, such as timeout_min=60")


class Sweep(NamedTuple):
    """A command over values of its options.

    Attributes:
      command: one of `SWEPT`
      first: its first argument
      options: the values of each option, by its name without hyphens in front
      samples: points that are drawn; 0 for all combinations
      sample_seed: of these draws
      imports: words that import the user's modules
      separately: whether each point is trained in a program of its own
    """

    command: str
    first: str
    options: dict[str, Values]
    samples: int = 0
    sample_seed: int = 0
    imports: tuple[str, ...] = ()
    separately: bool = False

    @property
    def axes(self) -> list[str]:
        """The options that differ between points."""
        return [name for name, values in self.options.items() if len(values) > 1 or _ranges(values)]


class Point(NamedTuple):
    """A run of a sweep.

    Attributes:
      name: of its directory
      values: of the options that differ between points, as words
      words: of its command line, after the first argument
      config: that these words make
    """

    name: str
    values: dict[str, str]
    words: list[str]
    config: Any


def split(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """(leading words, words after each option by its name) of a command line.

    Raises:
      ConfigError: for an option that is given twice.
    """
    words = list(arguments)
    first = list(itertools.takewhile(lambda word: not word.startswith("--"), words))
    found: dict[str, list[str]] = {}
    for word in words[len(first) :]:
        if word.startswith("--"):
            name, equals, text = word[2:].partition("=")
            name = name.replace("-", "_")
            if name in found:
                raise ConfigError(f"--{name}: given twice; once is needed, with commas between values")
            found[name] = [text] if equals else []
        else:
            found[list(found)[-1]].append(word)
    return first, found


def values_of(name: str, words: list[str]) -> Values:
    """The values of an option: several where its only word has commas outside of brackets and quotes.

    Raises:
      ConfigError: for an empty one between commas.
    """
    if len(words) != 1:
        return [words]
    found = [one.strip() for one in terms(words[0], ",")]
    if len(found) > 1 and not all(found):
        raise ConfigError(f"{name}: got {shown(words[0])}; a value on either side of each comma is needed")
    return [[one] for one in found]


def from_file(path: Path) -> Sweep:
    """A sweep from a YAML file.

    Raises:
      ConfigError: if it cannot be read, or has other fields.
    """
    found = configs.values(configs.read_text(path, most=MAX_BYTES), str(path))
    known = (*Sweep._fields, "points")  # which earlier sweeps have
    if not isinstance(found, dict) or not {"command", "options"} <= found.keys() <= set(known):
        raise ConfigError(f"{path}: got {shown(found)}; command, first and options are needed")
    for name, kind in (("command", str), ("first", str), ("options", dict), ("samples", int), ("sample_seed", int)):
        if name in found and (not isinstance(found[name], kind) or isinstance(found[name], bool)):
            raise ConfigError(f"{path}: {name}: got {shown(found[name])}; a {kind.__name__} is needed")
    SweepOptions(
        samples=found.get("samples", 0), sample_seed=found.get("sample_seed", 0) if found.get("samples") else 0
    )
    words = found.get("imports", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"{path}: imports: got {shown(words)}; a list of text is needed")
    options = {str(name).replace("-", "_"): _values_in_file(value) for name, value in found["options"].items()}
    if empty := next((name for name, values in options.items() if not values), None):
        raise ConfigError(f"{path}: {empty}: got no value; one at least is needed")
    return Sweep(
        found["command"],
        found.get("first", ""),
        options,
        found.get("samples", 0),
        found.get("sample_seed", 0),
        tuple(words),
        found.get("separately") is True,
    )


def write(path: Path, sweep: Sweep) -> None:
    """Writes the file of a sweep, by which `points_of` makes its points again."""
    kept = sweep._asdict() | {"imports": list(sweep.imports)}
    kept["options"] = {name: [_shortest(words) for words in values] for name, values in sweep.options.items()}
    write_whole(path, configs.to_text(kept).encode())


def points_of(sweep: Sweep, command: Command) -> list[Point]:
    """All points of a sweep, each with its config.

    Args:
      sweep: the plan.
      command: the description of the command that is swept.

    Raises:
      ConfigError, ValueError: for options or values that do not fit, before anything is written.
    """
    default = command.default(sweep.first)
    if sweep.samples:
        whole = {name: is_whole(default, name, sweep.options) for name in sweep.options}
        different = dict[tuple[tuple[str, ...], ...], dict[str, list[str]]]()
        number = last = 0
        while len(different) < sweep.samples and number - last < DRAWS:
            chosen = _draw(sweep, whole, number)
            number, before = number + 1, len(different)
            different.setdefault(tuple(map(tuple, chosen.values())), chosen)
            last = number if len(different) > before else last
        drawn = [*different.values()]
    else:
        if name := next((name for name, values in sweep.options.items() if _ranges(values)), None):
            got = shown(sweep.options[name][0][0])
            raise ConfigError(f"{name}: got {got}; --samples N, which draws from it, is needed with a range")
        if (number := int(np.prod([float(len(values)) for values in sweep.options.values()]))) > MOST_POINTS:
            raise ConfigError(f"sweep: got {number} points; at most {MOST_POINTS} are needed")
        drawn = [dict(zip(sweep.options, some, strict=True)) for some in itertools.product(*sweep.options.values())]
    points = [_point(command, default, sweep, chosen) for chosen in drawn]
    names = [point.name for point in points]
    if len({name.lower() for name in names}) < len(names):
        points = [point._replace(name=f"{i}-{point.name}") for i, point in enumerate(points)]
    return points


def _point(command: Command, default: Any, sweep: Sweep, chosen: Mapping[str, list[str]]) -> Point:
    words = _command_line(default, chosen)
    _, config = flags.parse_all([command.output(), default], words)
    flags.check_effect(config, words)
    for field in dataclasses.fields(config):  # on a GPU too, so that a run has the config of the plan
        part = getattr(config, field.name)
        if isinstance(part, Evolution) and part.chunk_size and f"{field.name}.chunk_size" not in chosen:
            words += [f"--{field.name}.chunk_size", str(part.chunk_size)]
    values = {name: " ".join(chosen[name]) for name in sweep.axes}
    name = directory_name(" ".join(f"{name}={value}" for name, value in values.items()) or "run")
    return Point(name[:LONGEST_NAME].rstrip("."), values, words, config)


def _command_line(default: Any, chosen: Mapping[str, list[str]]) -> list[str]:
    """The command line of a point, in which settings such as `opponent.learning_rate` stand inside of their spec."""
    given = {name: list(words) for name, words in chosen.items() if not _is_setting(default, name)}
    for name in chosen.keys() - given.keys():
        field, _, setting = name.partition(".")
        base = given.get(field, [getattr(default, field)])
        if len(chosen[name]) != 1 or len(base) != 1:
            raise ConfigError(f"{name}: got {shown(' '.join(chosen[name]))}; one value is needed")
        before, settings = specs.read(field, base[0], "naive")
        given[field] = [specs.write(before, settings | {setting: literal(chosen[name][0])})]
    line = list[str]()
    for name, words in given.items():
        part, dot, field = name.rpartition(".")
        off = words == ["false"] and isinstance(_field(default, name), bool)
        line.append(f"--{part}{dot}{'no_' if off else ''}{field}")
        line += [] if isinstance(_field(default, name), bool) and words in (["true"], ["false"]) else words
    return line


def literal(word: str) -> Any:
    """The value of a setting of a spec: a literal of Python, or text."""
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word


def _is_setting(default: Any, name: str) -> bool:
    """True for a setting inside of a spec, such as `opponent.learning_rate`."""
    field, dot, _ = name.partition(".")
    return bool(dot) and isinstance(getattr(default, field, None), str)


def _field(default: Any, name: str) -> Any:
    """The value of a field of a config, such as `evolution.sigma`; None if there is none."""
    for part in name.split("."):
        default = getattr(default, part, None)
    return default


def is_whole(default: Any, name: str, options: Mapping[str, Values]) -> bool:
    """True for an option whose numbers are whole.

    Args:
      default: a config.
      name: of the option.
      options: values of the options that stand for those of the config.
    """
    if not _is_setting(default, name):
        value = _field(default, name)
        return isinstance(value, int) and not isinstance(value, bool)
    from marl.learners.registry import FORMULA, SAMPLED  # here, because --help needs none of it

    field, _, setting = name.partition(".")
    spec = " ".join(options[field][0]) if field in options else getattr(default, field)
    learner = spec.partition("(")[0].strip()
    found = [registry.settings(learner) for registry in (FORMULA, SAMPLED) if learner in registry]
    return any(setting in settings and settings[setting].hint is int for settings in found)


def _ranges(values: Values) -> bool:
    return any(len(words) == 1 and _RANGE.fullmatch(words[0]) for words in values)


def _draw(sweep: Sweep, whole: Mapping[str, bool], number: int) -> dict[str, list[str]]:
    """The values of a point of a random search, which depend on the seed and the number of the point alone."""
    generator = np.random.default_rng([sweep.sample_seed, number])
    chosen = {}
    for name, values in sweep.options.items():
        words = values[int(generator.integers(len(values)))] if len(values) > 1 else values[0]
        found = _RANGE.fullmatch(words[0]) if len(words) == 1 else None
        if found:
            low, high = float(found[1]), float(found[2])
            if not (low < high and np.isfinite([low, high]).all()):
                raise ConfigError(f"{name}: got {shown(words[0])}; the lowest number first is needed")
            drawn = np.exp(generator.uniform(*np.log([low, high]))) if low > 0 else generator.uniform(low, high)
            even = 2 if name.endswith("population_size") else 1  # antithetic sampling needs it
            words = [str(even * round(drawn / even)) if whole[name] else f"{drawn:.4g}"]
        chosen[name] = words
    return chosen


def _values_in_file(value: Any) -> Values:
    each = value if isinstance(value, list) else [value]
    return [[_word(x) for x in one] if isinstance(one, list) else [] if one is None else [_word(one)] for one in each]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shortest(words: list[str]) -> Any:
    return words[0] if len(words) == 1 else words or None
