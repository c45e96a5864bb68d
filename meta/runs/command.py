"""The one skin of all commands: first argument, options, --resume, --version, one line of error, exit status."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jax.errors import JaxRuntimeError
from rich.console import Console

import configs
from configs import flags
from configs.usage import usage
from meta import NonFiniteFitness, RunDirectory, process
from meta.loop import Lost
from meta.runs import provenance, resume_checks
from meta.runs.array_files import load
from meta.runs.cluster import Connection, OnCluster, connect, said_of
from meta.runs.provenance import version_line
from meta.xla.devices import claim_cores

if TYPE_CHECKING:
    from meta.cluster.multi_process import ProcessGroup

NOTHING = "nothing was written"
RUN = ".run"  # what the directory of a run adds to the name of the file that it makes
STARTED = time.perf_counter()  # when a command began, but for what Python itself had to import before


@dataclasses.dataclass(frozen=True)
class Nothing:
    """No option beside the config."""


@dataclasses.dataclass(frozen=True)
class Quiet:
    """What can be said to a command that writes where its arguments say."""

    quiet: bool = False
    """Show neither progress nor tables."""


@dataclasses.dataclass(frozen=True)
class ToDirectory(Quiet):
    """What can be said to a command that keeps a run in a directory; it has --resume as well."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    resume: str = ""
    """Directory of a run to go on with, in place of all else; --resume DIR --help tells what may then be changed."""


@dataclasses.dataclass(frozen=True)
class ToTable(ToDirectory):
    """What can be said to a command that adds to what a directory has, if it has anything."""

    out: str = ""
    """Directory to write to, a new one or that of an earlier table; a new one under runs/ if empty."""


@dataclasses.dataclass(frozen=True)
class ToFile(Quiet):
    """What can be said to a command that writes one file, FILE, and keeps its run beside it, in FILE.run."""

    out: str = ""
    """File to write; one in the current directory, named after the game, if empty. Its run is kept in FILE.run."""
    resume: str = ""
    """Directory FILE.run to go on with, in place of all else; --resume FILE.run --help tells what may be changed."""


@dataclasses.dataclass(frozen=True)
class Resume(Quiet):
    """What can be said about a run that goes on beside what may change; its config is in its directory."""

    resume: str = ""
    """Directory of the run."""


class Command(NamedTuple):
    """`python -m PACKAGE.NAME FIRST [options]`, or `--resume DIR` instead of both.

    A config says by ValueError what does not fit.
    """

    program: str  # as it is called
    description: str
    config: type[configs.CommandConfig] | Mapping[str, type[configs.CommandConfig]]  # or one for each first argument
    run: Callable[[Any, Any, Console], Any]  # (what `prepare` gives, RunDirectory or None, console)
    output: type | None = ToDirectory  # what can be said beside the config: one of the classes above, or nothing
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
        """Whether there is a run directory, and with it --resume."""
        return issubclass(self.output or object, ToDirectory | ToFile)

    @property
    def names(self) -> list[str]:
        """First arguments that are known."""
        return list(self.config) if isinstance(self.config, Mapping) else configs.presets(self.presets)

    @property
    def needed(self) -> str:
        """What the first argument has to be."""
        file = "" if isinstance(self.config, Mapping) else ", or a YAML file,"
        return f"{self.choice} one of {', '.join(self.names)}{file} is needed".strip()

    def kind(self, first: str) -> type:
        """The config of a first argument.

        Raises:
          ConfigError: if there is none.
        """
        if not isinstance(self.config, Mapping):
            return self.config
        if first not in self.config:
            raise configs.ConfigError(f"{self.first}: got {first!r}; {configs.one_of(first, self.names)}")
        return self.config[first]

    def default(self, first: str) -> Any:
        """The config that a first argument stands for.

        Raises:
          ConfigError: if it stands for none.
        """
        if self.load:
            return self.load(first)
        return configs.load(self.kind(first), self.presets, first) if self.presets else self.kind(first)()

    def parse(self, config: Any, arguments: Sequence[str], named: str, description: str) -> _Given:
        """The config with what the command line says instead, and the other options.

        Raises:
          ValueError: for what does not fit, as each of their classes checks it.
        """
        return _parse(config, self.output or Nothing, self.evolves, arguments, named, description)

    @process.running()
    def main(self, arguments: Sequence[str]) -> int:
        """Runs a command; returns its exit status: 0, 1 where something went wrong, 2 for bad input, 130 if stopped."""
        status, connected = 1, list[Connection]()
        try:
            status = self._main(arguments, connected)
        finally:
            for connection in connected:
                status = connection.leave(status)
        return status

    def _main(self, arguments: Sequence[str], connected: list[Connection]) -> int:
        if self.all_cores:
            claim_cores()
        kept = NOTHING

        def say(message: str, status: int = 0) -> int:
            line = f"{process.called(self.program)}: {configs.one_line(message)}"
            if group := _group(connected):
                group.say(line)
            else:
                print(line, file=sys.stderr)
            return status

        if "--version" in arguments:
            print(version_line())
            return 0
        try:
            try:
                task = _begin(self, arguments, say, connected)
            except (ValueError, FileExistsError) as error:
                return say(str(error), 2)
            except OSError as error:
                return say(f"out: cannot be written to: {_plain(error)}", 2)
            group = _group(connected)
            kept = task.kept if not group or group.first else "process 0 keeps the run"
            process.stop_on_signals()
            # Closed at once: an exception that a library keeps would otherwise hold this frame, and so the lock.
            with process.recognised(), task.target or contextlib.nullcontext():
                if group:
                    group.agree()  # all of them have begun
                self.run(task.prepared, task.target, Console(quiet=task.quiet, highlight=False))
        except KeyboardInterrupt:
            process.ignore_signals()  # who is impatient sees no traceback
            return say(f"stopped; {kept}", process.STOPPED)
        except (NonFiniteFitness, ValueError) as error:
            return say(str(error), 1)
        except Lost as error:
            return say(f"{error}; {kept}", 1)
        except JaxRuntimeError as error:  # such as a device whose memory does not suffice
            return say(str(error).strip().split("\n")[0], 1)
        except OSError as error:
            return say(f"{_plain(error)}; {kept}", 1)
        return 0


class _Given(NamedTuple):
    """A command line, read: the config, the options of the output, and those of where trials run."""

    config: Any
    output: Any
    place: OnCluster


class _Task(NamedTuple):
    """What is to be done, when all of it is known to fit."""

    prepared: Any
    target: RunDirectory | None
    quiet: bool
    kept: str  # what stays of it if it is stopped


def _plain(error: OSError) -> str:
    """An OSError as words, with the file if it is known."""
    if not error.strerror:
        return str(error)
    return f"{configs.short(error.filename)}: {error.strerror}" if error.filename else error.strerror


def _begin(command: Command, arguments: Sequence[str], say: Callable[[str], int], connected: list[Connection]) -> _Task:
    """Nothing is written before all of it fits."""
    called = process.called(command.program)
    description = f"{command.description.strip()}\n\n--version tells the versions."
    first, rest = "", list(arguments)
    for argument in arguments:
        if "\0" in argument:  # which no file, no process and no YAML can have
            name, equals, _ = argument.partition("=")
            got = configs.shown(argument)
            raise configs.ConfigError(f"{name if equals else 'argument'}: got {got}; a text without NUL is needed")
    words = list(itertools.takewhile(lambda argument: not argument.startswith("-"), rest))[: command.words]
    if command.first:
        first, rest = " ".join(words), rest[len(words) :]
    if command.keeps_a_run and any(argument.split("=")[0] == "--resume" for argument in rest):
        return _resume(command, first, rest, say, connected)
    if command.first and not first:
        if rest and rest[0] in ("-h", "--help"):
            several = isinstance(command.config, Mapping)  # the first of them is explained
            about = f"{description}\n\n{'Experiments' if several else 'Presets'}: {', '.join(command.names)}\n"
            named = command.names[0] if several else command.first.upper()
            command.parse(command.kind(command.names[0])(), ["--help"], f"{called} {named}", about)
        got = f"got {rest[0]!r} first" if rest else "none given"
        raise configs.ConfigError(f"{command.first}: {got}; {command.needed}")
    named, default = f"{command.program} {first}".strip(), command.default(first)
    config, options, place = command.parse(default, rest, f"{called} {first}".strip(), description)
    config.check_preset(default)
    _check_effect(config, rest)
    command.choose_devices(config)
    if place.cluster:
        connected.append(connect(place, say))
        config = config.in_chunks()
    prepared, name = command.prepare(config), command.name(re.sub(r"[.]ya?ml$", "", Path(first).name), config)
    if group := _group(connected):
        _check_same(group, named, config)
        adds = command.output is ToTable and bool(options.out)
        mirror = group.mirrored(Path(options.out or name), content=adds)
        options = options if group.first else dataclasses.replace(options, out=str(mirror))
    process.delay_signals()  # who is stopped from now on is told what there is
    if command.keeps_a_run:
        began = " ".join(named.split())
        if command.output is ToFile:
            run = _beside(Path(options.out or name), config, began, rest, say)
        else:
            run = _open(command, options.out, _file_name(name), began, config, rest, say)
        return _Task(prepared, run, options.quiet, f"go on with {called} --resume {run.path}")
    if command.output is Quiet:
        return _Task(prepared, None, options.quiet, f"go on with {called} {shlex.join(arguments)}")
    return _Task(prepared, None, False, NOTHING)


def _group(connected: list[Connection]) -> ProcessGroup | None:
    """The processes that all run this command; None if this is the only one."""
    return next((connection.group for connection in connected), None)


def _check_same(group: ProcessGroup, named: str, config: Any) -> None:
    """Raises ConfigError if the processes do not run the same command on the same files."""
    said = json.dumps([named, configs.plain(config), config.reads])
    number = int(hashlib.sha256(said.encode()).hexdigest()[:12], 16)
    for i, theirs in enumerate(numbers := group.agree(number)):
        if theirs != numbers[0]:
            raise configs.ConfigError(f"cluster: process {i} has other options or input files than process 0")


def _check_effect(config: Any, arguments: Sequence[str]) -> None:
    """Raises ConfigError for what is given and changes nothing."""
    given = [argument[2:].split("=")[0].replace("-", "_") for argument in arguments if argument.startswith("--")]
    idle = dict(config.without_effect)
    for part in dataclasses.fields(config):
        if isinstance(inner := getattr(config, part.name), configs.Part):
            idle |= {f"{part.name}.{name}": reason for name, reason in inner.without_effect.items()}
    for field, reason in idle.items():
        for one in given:
            if one == field or one.startswith(f"{field}."):
                raise configs.ConfigError(f"{one}: has no effect {reason}")


_RESERVED = re.compile("con|prn|aux|nul|(com|lpt)[0-9¹²³]", re.IGNORECASE)  # devices of Windows, with any suffix


def _file_name(words: str) -> str:
    """A name for a directory on every system, from words and specs.

    `naive(learning_rate=0.5) + lola` becomes `naive,learning_rate=0.5+lola`, which needs no quotes.
    """
    rules = [(r" *([+,(]) *", r"\1"), (r"['\"[\])]", ""), (r"\(", ","), (r"[^\w.=+,-]+", "-"), (",(?=-|$)", "")]
    for pattern, by in rules:
        words = re.sub(pattern, by, words)
    words = words.strip("-").rstrip(".")
    return f"run-{words}" if _RESERVED.fullmatch(words.partition(".")[0]) or not words else words


def _resume(
    command: Command, first: str, arguments: Sequence[str], say: Callable[[str], int], connected: list[Connection]
) -> _Task:
    """The config is in the directory; a first argument is only held against the one with which the run was begun."""
    if command.evolves and (place := said_of(arguments, OnCluster())).cluster == "jax":
        connected.append(connect(place, say))  # at once, because only the first process has the directory
    called, program, named = process.called(command.program), command.program, f"{command.program} {first}".strip()
    at = next(i for i, argument in enumerate(arguments) if argument.split("=")[0] == "--resume")
    folder = arguments[at].partition("=")[2] or next(iter(arguments[at + 1 :]), "")
    about = "Goes on with a run that was stopped, or makes it longer."
    if folder and (group := _group(connected)):
        folder = str(group.mirrored(Path(folder), content=os.path.isdir(folder)))
    if not os.path.isdir(folder):
        if not {"-h", "--help"}.isdisjoint(arguments):
            some = resume_checks.options(command.kind(first or command.names[0])())
            _parse(some, Resume, command.evolves, ["--help"], f"{called} --resume DIR", about)
        _parse(Nothing(), Resume, command.evolves, arguments, called, about)
        raise configs.ConfigError(f"--resume: got {configs.short(folder)!r}; the directory of a run is needed")
    path = Path(folder)
    was, now = resume_checks.read(path, program, first, command.first, command.kind)
    # Before the config is looked at with what is asked of it, which may start JAX.
    elsewhere = said_of(arguments, configs.part(now, dict.fromkeys(command.connects, "")))
    command.choose_devices(configs.replaced(now, elsewhere))
    changed, options, place = _parse(resume_checks.options(now), Resume, command.evolves, arguments, called, about)
    now = configs.replaced(now, changed)
    _check_effect(now, arguments)
    words = resume_checks.check(was, now)
    if place.cluster and not connected:
        connected.append(connect(place, say))
    if place.cluster and now.in_chunks() != now:
        say("it was begun without evolution.chunk_size: last bits of what follows depend on where trials run")
    if command.output is ToFile:
        _check_file(file_of(path), now)
    prepared = (command.prepare_again or command.prepare)(now)
    if group := _group(connected):
        _check_same(group, named, now)
    process.delay_signals()
    try:
        run = RunDirectory(path, say)
        run.go_on(now)
    except FileExistsError:  # another process has it
        raise
    except OSError as error:
        raise configs.ConfigError(f"--resume: cannot go on there: {_plain(error)}") from None
    for one in words if any((path / "checkpoints").glob("*")) else ():
        say(one)
    return _Task(prepared, run, options.quiet, f"go on with {called} --resume {path}")


def _parse(config: Any, output: type, evolves: bool, arguments: Sequence[str], named: str, description: str) -> _Given:
    """A command line over the defaults of a config and of the options beside it; prints the help and exits for --help.

    Args:
      config: a dataclass with the defaults.
      output: the class of the options of the output.
      evolves: whether there are options of where trials run.
      arguments: flags and their values.
      named: the command, for the help.
      description: for the help.

    Raises:
      ValueError: for what does not fit.
    """
    defaults = [output(), *([OnCluster()] if evolves else []), config]
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(usage([config, *defaults[:-1]], named, description))
        sys.exit(0)
    options, *place, config = flags.parse_all(defaults, arguments)
    return _Given(config, options, place[0] if place else OnCluster())


def _open(
    command: Command,
    out: str,
    name: str,
    named: str,
    config: Any,
    typed: Sequence[str],
    say: Callable[[str], int],
) -> RunDirectory:
    """A new directory, or the one of an earlier run where the command adds to it."""
    if out and command.output is ToTable and os.path.isfile(Path(out) / "config.yaml"):
        was, now = resume_checks.read(Path(out), command.program, "", command.first, command.kind)
        if now != config:  # who was killed between the two files wrote into one what is named again
            resume_checks.check(was, now)  # it may have been damaged or edited
        config.check_adds_to(was)
        run = RunDirectory(Path(out), say)
        place, before_there = provenance.place(), run.record and run.record.place
        if before_there and place != before_there:
            say(f"the table so far is of {before_there}, what is added of {place}")
        run.begin(named, config, typed)
        return run
    if out:
        return RunDirectory.create(Path(out), config, named, say, typed)
    for number in itertools.count(1):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            return RunDirectory.create(path, config, named, say, typed)
        except FileExistsError as error:
            if not os.path.lexists(path):  # but what should be the folder around it is something else
                raise configs.ConfigError(f"out: cannot write there: {_plain(error)}; --out DIR is needed") from None
    raise AssertionError("there is always a free name")


def _beside(file: Path, config: Any, began: str, typed: Sequence[str], say: Callable[[str], int]) -> RunDirectory:
    """The directory of the run that will make a file. It is beside it: where this can be written, so can the file."""
    with contextlib.suppress(FileNotFoundError):
        os.lstat(file)  # raises OSError for a path that there cannot be
        raise configs.ConfigError(f"out: {file} already exists; another name is needed")
    if not os.path.isdir(file.parent):
        raise configs.ConfigError(f"out: got {str(file)!r}; a file in a directory that exists is needed")
    return RunDirectory.create(file.with_name(f"{file.name}{RUN}"), config, began, say, typed)


def file_of(run: Path) -> Path:
    """The file that the run in a directory makes: beside it, for a run writes nowhere that its own files name.

    Raises:
      ConfigError: if the directory has another name than such runs have.
    """
    if not run.name.removesuffix(RUN) or not run.name.endswith(RUN):
        raise configs.ConfigError(f"--resume: got {str(run)!r}; a directory FILE{RUN} beside the file is needed")
    return run.with_name(run.name.removesuffix(RUN))


def _check_file(file: Path, config: Any) -> None:
    """A run that goes on may replace what it has written itself, and nothing else."""
    if not file.exists():
        return
    try:
        if not file.is_file():
            raise ValueError
        resume_checks.check(configs.build(type(config), load(file)[1].get("config"), str(file)), config)
    except ValueError:
        raise configs.ConfigError(f"out: {file} already exists, and is not of this run; move it away") from None
