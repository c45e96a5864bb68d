"""The description of a command: its config, the options beside it, and the run directory that these open."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

import configs
from configs import ConfigError
from configs.usage import docs_of
from meta import RunDirectory
from meta.runs import provenance
from meta.runs.directory import CONFIG, check_changes
from meta.trackers.names import TrackerName

LONGEST_NAME = 200  # bytes of a directory, of the 255 that systems allow
RUN = ".run"  # what the directory of a run adds to the name of the file that it makes


class NewRun(NamedTuple):
    """A run that is about to begin."""

    name: str  # of its directory or file, where no option gives one
    config: Any
    command: str  # by which it is begun, with the first argument
    typed: Sequence[str]  # the rest of the command line
    say: Callable[[str], Any]
    read: Callable[[Path], tuple[Any, Any]]  # (directory of an earlier run) -> its config as begun, and as it is now

    def create(self, path: Path) -> RunDirectory:
        """Begins the run in a new directory."""
        return RunDirectory.create(path, self.config, self.command, self.say, self.typed)


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No option beside the config."""

    def open(self, run: NewRun) -> RunDirectory | None:
        """The directory of a new run; None if it keeps none.

        Raises:
          ValueError, FileExistsError: for a place where no run can begin; one line.
          OSError: if it cannot be written to.
        """
        return None


@dataclasses.dataclass(frozen=True)
class Quiet(Nothing):
    """Options of a command that writes where its arguments say."""

    quiet: bool = False
    """Show neither progress nor tables."""


@dataclasses.dataclass(frozen=True)
class ToDirectory(Quiet):
    """Options of a command that keeps a run in a directory, and can go on with it."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    resume: str = ""
    """Directory of a run to go on with, in place of all else; --resume DIR --help shows what may then be changed."""
    tracker: TrackerName | None = None
    """Where metrics, results and figures go too; its package has to be installed."""

    def open(self, run: NewRun) -> RunDirectory:
        """Opens the directory that is named, or a new one under runs/."""
        if self.out:
            return run.create(Path(self.out))
        name = directory_name(run.name)
        for number in itertools.count(1):
            path = Path("runs") / (name if number == 1 else f"{name}-{number}")
            try:
                return run.create(path)
            except FileExistsError as error:
                if not os.path.lexists(path):  # but what should be the folder around it is something else
                    problem = describe_error(error)
                    raise ConfigError(f"out: cannot write there: {problem}; --out DIR is needed") from None
        raise AssertionError("there is always a free name")


@dataclasses.dataclass(frozen=True)
class ToTable(ToDirectory):
    """Options of a command that adds to what a directory has, if it has anything."""

    out: str = ""
    """Directory to write to, a new one or that of an earlier table; a new one under runs/ if empty."""

    def open(self, run: NewRun) -> RunDirectory:
        """Opens the directory of an earlier table, or a new one."""
        path = Path(self.out)
        if not self.out or not os.path.isfile(path / CONFIG):
            return super().open(run)
        was, now = run.read(path)
        if now != run.config:  # a process that died between the two files wrote one of them
            check_changes(was, now)  # it may have been damaged or edited
        run.config.check_adds_to(was)
        found = RunDirectory(path, run.say)
        place, before_there = provenance.place(), found.record and found.record.place
        if before_there and place != before_there:
            run.say(f"the table so far is of {before_there}, what is added of {place}")
        found.begin(run.command, run.config, run.typed)
        return found


@dataclasses.dataclass(frozen=True)
class ToFile(ToDirectory):
    """Options of a command that writes one file, FILE, and keeps its run beside it, in FILE.run."""

    out: str = ""
    """File to write; one in the current directory, named after the game, if empty. Its run is kept in FILE.run."""
    resume: str = ""
    """Directory FILE.run to go on with, in place of all else; --resume FILE.run --help shows what may be changed."""

    def open(self, run: NewRun) -> RunDirectory:
        """Opens FILE.run: where it can be written, so can the file beside it."""
        file = Path(self.out or run.name)
        with contextlib.suppress(FileNotFoundError):
            os.lstat(file)  # raises OSError for a path that there cannot be
            raise ConfigError(f"out: {file} already exists; another name is needed")
        if not os.path.isdir(file.parent):
            raise ConfigError(f"out: got {str(file)!r}; a file in a directory that exists is needed")
        return run.create(file.with_name(f"{file.name}{RUN}"))


def file_of(run: Path) -> Path:
    """The file that the run in a directory makes: beside it, for a run writes nowhere that its own files name.

    Raises:
      ConfigError: if the directory has another name than such runs have.
    """
    if not run.name.removesuffix(RUN) or not run.name.endswith(RUN):
        raise ConfigError(f"--resume: got {str(run)!r}; a directory FILE{RUN} beside the file is needed")
    return run.with_name(run.name.removesuffix(RUN))


@dataclasses.dataclass(frozen=True)
class Resume(Quiet):
    """Options of a run that goes on, beside what may change; its config is in its directory."""

    resume: str = ""
    """Directory of the run."""
    tracker: TrackerName | None = None
    """Where metrics, results and figures go too; that of the run if None."""


def resume_options(config: Any) -> Any:
    """The fields that --resume takes as options, with the values of a config."""
    rising, others = config.may_rise, config.may_change
    docs = docs_of(config.__class__)
    words = dict.fromkeys(rising, "At least as many as so far.") | {name: docs.get(name, "") for name in others}
    return configs.part(config, words)


class Command(NamedTuple):
    """`python -m PACKAGE.NAME FIRST [options]`, or `--resume DIR` instead of both.

    A config says by ValueError what does not fit.
    """

    config: type[configs.CommandConfig] | Mapping[str, type[configs.CommandConfig]]  # or one for each first argument
    run: Callable[[Any, Any, Console], Any]  # (what `prepare` gives, RunDirectory or None, console)
    program: str = ""  # as it is called
    description: str = ""
    output: type[Nothing] = ToDirectory  # the options beside the config, one of the classes above
    name: Callable[[str, Any], str] = lambda first, config: first  # -> of a new directory under runs/, or of the file
    prepare: Callable[[Any], Any] = lambda config: config  # raises ValueError before anything has been written
    prepare_again: Callable[[Any], Any] | None = None  # as `prepare`, for a run that goes on; None is `prepare` itself
    presets: str = ""  # the folder of its presets in configs
    first: str = "preset"  # what the first argument is called; empty if there is none
    words: int = 1  # that the first argument has, at most
    choice: str = ""  # what else than a preset it may be, in words that end in a comma
    load: Callable[[str], Any] | None = None  # (first argument) -> config; of a preset or a YAML file if None
    choose_devices: Callable[[Any], Any] = lambda config: None  # of a config, before anything starts JAX
    connects: tuple[str, ...] = ()  # what may change of where it runs, which `choose_devices` reads
    all_cores: bool = False  # each core of a CPU as a device of its own: for what is sampled step by step
    evolves: bool = False  # what it does by `evolve` can be done on a cluster

    @property
    def keeps_a_run(self) -> bool:
        """True if there is a run directory, and with it --resume."""
        return issubclass(self.output, ToDirectory)

    @property
    def names(self) -> list[str]:
        """First arguments that are known."""
        return list(self.config) if isinstance(self.config, Mapping) else configs.presets(self.presets)

    @property
    def needed(self) -> str:
        """The values that the first argument may have."""
        file = "" if isinstance(self.config, Mapping) else ", or a YAML file,"
        return f"{self.choice} one of {', '.join(self.names)}{file} is needed".strip()

    def kind(self, first: str) -> type:
        """The config of a first argument.

        Raises:
          ConfigError: if there is none.
        """
        if not isinstance(self.config, Mapping):
            return self.config.class_of({})
        if first not in self.config:
            raise ConfigError(f"{self.first}: got {first!r}; {configs.one_of(first, self.names)}")
        return self.config[first]

    def default(self, first: str) -> Any:
        """The config that a first argument stands for.

        Raises:
          ConfigError: if it stands for none.
        """
        if self.load:
            return self.load(first)
        return configs.load(self.kind(first), self.presets, first) if self.presets else self.kind(first)()


def directory_name(words: str) -> str:
    """A name for a directory on every system, from words and specs.

    `naive(learning_rate=0.5) + lola` becomes `naive,learning_rate=0.5+lola`, which needs no quotes.
    """
    rules = [(r" *([+,(]) *", r"\1"), (r"['\"[\])]", ""), (r"\(", ","), (r"[^\w.=+,-]+", "-"), (",(?=-|$)", "")]
    for pattern, by in rules:
        words = re.sub(pattern, by, words)
    words = words.encode()[:LONGEST_NAME].decode(errors="ignore").strip("-").rstrip(".")
    return f"run-{words}" if _RESERVED.fullmatch(words.partition(".")[0]) or not words else words


_RESERVED = re.compile("con|prn|aux|nul|(com|lpt)[0-9¹²³]", re.IGNORECASE)  # devices of Windows, with any suffix


def describe_error(error: OSError) -> str:
    """An OSError as words, with the file if it is known."""
    if not error.strerror:
        return str(error)
    return f"{configs.short(error.filename)}: {error.strerror}" if error.filename else error.strerror
