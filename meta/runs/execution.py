"""The execution of a command: from a command line to a run directory and an exit status."""

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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jax.errors import JaxRuntimeError
from rich.console import Console

import configs
from configs import ConfigError, flags, plugins
from configs.usage import usage
from meta import NonFiniteFitness, RunDirectory, process
from meta.cluster.connection import Connection, OnCluster, connect
from meta.evaluators import platform_of_trials
from meta.loop import Lost
from meta.runs import formatting
from meta.runs.array_files import load_arrays
from meta.runs.command import (
    Command,
    NewRun,
    Nothing,
    Quiet,
    Resume,
    ToFile,
    ToTable,
    describe_error,
    file_of,
    resume_options,
)
from meta.runs.directory import check_changes, read_configs, read_record
from meta.runs.gpu_defaults import gpu_line, with_gpu_defaults
from meta.runs.provenance import version_line
from meta.xla.backend import check_backend, plugin_errors_in_one_line
from meta.xla.devices import claim_cores
from meta.xla.numerics import Numerics

if TYPE_CHECKING:
    from meta.cluster.multi_process import ProcessGroup

NOTHING = "nothing was written"
GENERAL = """\
--version prints the versions.
--import MODULE first imports a module of yours, which may register games, learners, shapers and messages."""


@process.running()
def execute(command: Command, arguments: Sequence[str]) -> int:
    """Runs a command; returns its exit status: 0, 1 where something went wrong, 2 for bad input, 130 if stopped."""
    status, connected = 1, list[Connection]()
    called = process.called(command.program)
    try:
        with plugin_errors_in_one_line(lambda line: print(f"{called}: {line}", file=sys.stderr)):
            status = _execute(command, arguments, connected)
    finally:
        for connection in connected:
            status = connection.leave(status)
    return status


def _execute(command: Command, arguments: Sequence[str], connected: list[Connection]) -> int:
    if command.all_cores:
        claim_cores()
    kept = NOTHING

    def say(message: str, status: int = 0) -> int:
        line = f"{process.called(command.program)}: {configs.one_line(message)}"
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
            task = _begin(command, arguments, say, connected)
        except (ValueError, FileExistsError, configs.ContractError) as error:
            return say(str(error), 2)
        except OSError as error:
            return say(f"out: cannot be written to: {describe_error(error)}", 2)
        group = _group(connected)
        kept = task.kept if not group or group.first else "process 0 keeps the run"
        process.stop_on_signals()
        # Closed at once: an exception that a library keeps would otherwise hold this frame, and so the lock.
        with process.recognised(), task.target or contextlib.nullcontext(), task.tracking(say):
            if group:
                group.agree()  # all of them have begun
            if task.note:
                formatting.say(task.console, task.note)
            command.run(task.prepared, task.target, task.console)
    except KeyboardInterrupt:
        process.ignore_signals()  # further Ctrl-C shows no traceback
        return say(f"stopped; {kept}", process.STOPPED)
    except (NonFiniteFitness, ValueError, configs.ContractError) as error:
        return say(str(error), 1)
    except Lost as error:
        return say(f"{error}; {kept}", 1)
    except JaxRuntimeError as error:  # such as a device whose memory does not suffice
        return say(str(error).strip().split("\n")[0], 1)
    except RuntimeError as error:
        if not str(error).startswith("Unable to initialize backend"):
            raise
        return say(" ".join(str(error).split()), 1)  # such as a GPU with another driver
    except OSError as error:
        return say(f"{describe_error(error)}; {kept}", 1)
    return 0


class _Task(NamedTuple):
    """A run that is ready to begin: all of it is known to fit."""

    prepared: Any
    target: RunDirectory | None
    quiet: bool
    kept: str  # what stays of it if it is stopped
    tracker: str = ""  # its name, if there is one
    note: str = ""  # a line before the header, if there is one

    @property
    def console(self) -> Console:
        """The console that shows progress and results."""
        return Console(quiet=self.quiet, highlight=False)

    def tracking(self, say: Callable[[str], Any]) -> contextlib.AbstractContextManager[Any]:
        """A context inside of which the metrics of the run go to its tracker."""
        if not self.tracker or not self.target or not self.target.record:
            return contextlib.nullcontext()
        from meta.trackers.tracker_process import TrackerProcess  # here, because few runs have one

        record, path = self.target.record, self.target.path
        tell = partial(formatting.say, self.console)
        return TrackerProcess(self.tracker, path, record.line, record.config, say, tell)


def _begin(command: Command, arguments: Sequence[str], say: Callable[[str], int], connected: list[Connection]) -> _Task:
    """Nothing is written before all of it fits."""
    called = process.called(command.program)
    description = f"{command.description.strip()}\n\n{GENERAL}"
    first, rest = "", list(arguments)
    for argument in arguments:
        if "\0" in argument:  # which no file, no process and no YAML can have
            name, equals, _ = argument.partition("=")
            got = configs.shown(argument)
            raise ConfigError(f"{name if equals else 'argument'}: got {got}; a text without NUL is needed")
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
            _parse(command, command.kind(command.names[0])(), command.output, ["--help"], f"{called} {named}", about)
        got = f"got {rest[0]!r} first" if rest else "none given"
        raise ConfigError(f"{command.first}: {got}; {command.needed}")
    began, default = f"{command.program} {first}".strip(), command.default(first)
    config, options, numerics, place = _parse(
        command, default, command.output, rest, f"{called} {first}".strip(), description
    )
    flags.check_effect(config, rest)
    numerics.set_flags()
    adds = command.output is ToTable and bool(options.out)
    tracker = _tracker(options, Path(options.out) if adds else None, say)
    command.choose_devices(config)
    check_backend()
    preset = config
    if place.cluster:
        connected.append(connect(place, say))
        config = config.in_chunks()
    elif first in command.names or not any(map(os.path.isfile, (first, first.split(" ")[-1]))):  # a user's file stays
        config = with_gpu_defaults(preset, flags.names(rest))
    line = "" if place.cluster else gpu_line(preset, config)
    prepared, name = command.prepare(config), command.name(re.sub(r"[.]ya?ml$", "", Path(first).name), config)
    if group := _group(connected):
        _check_same(group, began, config)
        mirror = group.mirrored(Path(options.out or name), content=adds)
        options = options if group.first else dataclasses.replace(options, out=str(mirror))
    process.delay_signals()  # from now on a stop says what is kept
    numerics.set_precision(platform_of_trials())

    def read(path: Path) -> tuple[Any, Any]:
        return read_configs(path, command.program, "", command.first, command.kind)

    typed, again = [*rest, *plugins.imported()], shlex.join(plugins.imported())
    run = options.open(NewRun(name, config, " ".join(began.split()), typed, say, read))
    if run:
        kept = f"go on with {called} --resume {shlex.quote(str(run.path))} {again}".rstrip()
    else:
        kept = f"go on with {called} {shlex.join(arguments)} {again}".rstrip() if command.output is Quiet else NOTHING
    tracker = "" if group and not group.first else tracker
    return _Task(prepared, run, getattr(options, "quiet", False), kept, tracker, line)


def _tracker(options: Any, folder: Path | None, say: Callable[[str], int]) -> str:
    """The name of the tracker of a run that begins, or goes on in a folder; empty if it has none."""
    if not hasattr(options, "tracker") or options.tracker is folder is None:
        return ""
    from meta.trackers.tracker_process import chosen  # here, because few runs have one

    return chosen(options.tracker, folder, say)


def _group(connected: list[Connection]) -> ProcessGroup | None:
    """The processes that all run this command; None if this is the only one."""
    return next((connection.group for connection in connected), None)


def _check_same(group: ProcessGroup, began: str, config: Any) -> None:
    """Raises ConfigError if the processes do not run the same command on the same files."""
    said = json.dumps([began, configs.plain(config), config.reads])
    number = int(hashlib.sha256(said.encode()).hexdigest()[:12], 16)
    for i, theirs in enumerate(numbers := group.agree(number)):
        if theirs != numbers[0]:
            raise ConfigError(f"cluster: process {i} has other options or input files than process 0")


def _resume(
    command: Command, first: str, arguments: Sequence[str], say: Callable[[str], int], connected: list[Connection]
) -> _Task:
    """The config is in the directory; a first argument is only held against the one with which the run was begun."""
    called, program = process.called(command.program), command.program
    at = next(i for i, argument in enumerate(arguments) if argument.split("=")[0] == "--resume")
    folder = arguments[at].partition("=")[2] or next(iter(arguments[at + 1 :]), "")
    begun = Numerics()
    if os.path.isdir(folder) and (record := read_record(Path(folder))):
        begun = flags.parse_known(begun, record.repeated)
    flags.parse_known(begun, arguments).set_flags()
    if command.evolves and (place := flags.parse_known(OnCluster(), arguments)).cluster == "jax":
        connected.append(connect(place, say))  # at once, because only the first process has the directory
    about = "Goes on with a run that was stopped, or makes it longer."
    if folder and (group := _group(connected)):
        folder = str(group.mirrored(Path(folder), content=os.path.isdir(folder)))
    if not os.path.isdir(folder):
        if not {"-h", "--help"}.isdisjoint(arguments):
            some = resume_options(command.kind(first or command.names[0])())
            _parse(command, some, Resume, ["--help"], f"{called} --resume DIR", about)
        _parse(command, Nothing(), Resume, arguments, called, about)
        raise ConfigError(f"--resume: got {configs.short(folder)!r}; the directory of a run is needed")
    path = Path(folder)
    if (record := read_record(path)) and (needed := shlex.join(plugins.missing(record.options))):
        raise ConfigError(f"--resume: got {configs.short(folder)!r}, which was begun with {needed}; it is needed again")
    was, now = read_configs(path, program, first, command.first, command.kind)
    # Before the config is looked at with what is asked of it, which may start JAX.
    elsewhere = flags.parse_known(configs.part(now, dict.fromkeys(command.connects, "")), arguments)
    command.choose_devices(configs.replaced(now, elsewhere))
    begun = flags.parse_known(begun, record.repeated if record else [])
    changed, options, numerics, place = _parse(command, resume_options(now), Resume, arguments, called, about, begun)
    now = configs.replaced(now, changed)
    flags.check_effect(now, arguments)
    tracker = _tracker(options, path, say)
    words = check_changes(was, now)
    if place.cluster and not connected:
        connected.append(connect(place, say))
    if place.cluster and now.in_chunks() != now:
        say("it was begun without evolution.chunk_size: last bits of what follows depend on where trials run")
    if command.output is ToFile:
        _check_file(file_of(path), now)
    check_backend()
    prepared = (command.prepare_again or command.prepare)(now)
    if group := _group(connected):
        _check_same(group, f"{program} {first}".strip(), now)
    process.delay_signals()
    numerics.set_precision(platform_of_trials())
    try:
        run = RunDirectory(path, say)
        run.go_on(now)
    except FileExistsError:  # another process has it
        raise
    except OSError as error:
        raise ConfigError(f"--resume: cannot go on there: {describe_error(error)}") from None
    for one in words if any((path / "checkpoints").glob("*")) else ():
        say(one)
    again, tracker = shlex.join(plugins.imported()), "" if group and not group.first else tracker
    return _Task(
        prepared, run, options.quiet, f"go on with {called} --resume {shlex.quote(str(path))} {again}".rstrip(), tracker
    )


def _check_file(file: Path, config: Any) -> None:
    """A run that goes on may replace what it has written itself, and nothing else."""
    if not file.exists():
        return
    try:
        if not file.is_file():
            raise ValueError
        check_changes(configs.build(type(config), load_arrays(file)[1].get("config"), str(file)), config)
    except ValueError:
        raise ConfigError(f"out: {file} already exists, and is not of this run; move it away") from None


def _parse(
    command: Command,
    config: Any,
    output: type,
    arguments: Sequence[str],
    named: str,
    description: str,
    begun: Numerics | None = None,
) -> tuple[Any, Any, Numerics, OnCluster]:
    """(config, options of the output, of rounding, of where trials run) of a command line, over their defaults.

    Prints the help of the command as it is `named`, and exits, for --help.
    """
    numerics, place = begun or Numerics(), OnCluster()
    several = [*([numerics] if command.keeps_a_run else []), *([place] if command.evolves else [])]
    defaults = [output(), *several, config]
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(usage([config, *defaults[:-1]], named, description))
        sys.exit(0)
    options, *found, config = flags.parse_all(defaults, arguments)
    for one in found:
        if isinstance(one, Numerics):
            numerics = one
        else:
            place = one
    return config, options, numerics, place
