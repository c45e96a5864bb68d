"""What the commands that keep a run in a directory have in common: presets, options, --resume, one line of error."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax.errors import JaxRuntimeError
from rich.console import Console

import configs
from meta import NonFiniteFitness, RunDirectory
from meta.interrupt import stop_on_signals


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """What can be said about a run that goes on; its config is in its directory."""

    resume: str
    """Directory of the run."""
    quiet: bool = False
    """Show neither progress nor tables."""


class Command(NamedTuple):
    """`python -m PACKAGE.NAME PRESET [options]`, or `--resume DIR` instead of both."""

    program: str  # as it is called
    description: str
    presets: str  # the folder of its presets in configs
    config: type  # a dataclass that says by ValueError what does not fit; `config.yaml` keeps it
    options: type  # its subclass with `out` (a directory; a new one if empty) and `quiet` as well
    name: Callable[[str, Any], str]  # (preset, config) -> name of a new directory under runs/
    run: Callable[[Any, RunDirectory, Console], None]
    # For a command whose first argument may also be something else than a preset.
    first: str = "preset"  # what it is called
    choice: str = ""  # what else it may be, in words that end in a comma
    load: Callable[[str], Any] | None = None  # (first argument) -> options; of a preset or a YAML file if None


def main(command: Command, arguments: Sequence[str]) -> int:
    """Runs a command; returns its exit status: 0, 1 where something went wrong, 2 for bad input, 130 if stopped."""
    stop_on_signals()

    def say(message: str, status: int = 0) -> int:
        print(f"{command.program}: {message}", file=sys.stderr)
        return status

    try:
        config, run, quiet = _begin(command, arguments, say)
    except (configs.ConfigError, FileExistsError) as error:
        return say(str(error), 2)
    except OSError as error:
        return say(f"out: cannot be written to: {_plain(error)}", 2)
    go_on = f"{command.program} --resume {run.path}"
    try:
        command.run(config, run, Console(quiet=quiet))
    except KeyboardInterrupt:
        return say(f"stopped; go on with {go_on}", 130)
    except (NonFiniteFitness, ValueError) as error:
        return say(str(error), 1)
    except JaxRuntimeError as error:  # such as a device whose memory does not suffice
        return say(str(error).strip().split("\n")[0], 1)
    except OSError as error:
        return say(f"{run.path}: {_plain(error)}; what was saved stays usable: {go_on}", 1)
    return 0


def _plain(error: OSError) -> str:
    """An OSError as words in one line, with the file if it is known."""
    if not error.strerror:
        return " ".join(str(error).split())
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _begin(command: Command, arguments: Sequence[str], say: Callable[[str], int]) -> tuple[Any, RunDirectory, bool]:
    """The config, the run directory and whether to be quiet; nothing is written before all of it fits."""
    program, presets = command.program, configs.presets(command.presets)
    choice = f"{command.choice} one of {', '.join(presets)}".strip()
    if not arguments:
        raise configs.ConfigError(f"{command.first}: none given; {choice}, or a YAML file, is needed")
    if arguments[0] in ("-h", "--help"):
        about = f"{command.description}\n\nPresets: {', '.join(presets)}\n"
        configs.parse(command.options(), ["--help"], f"{program} {command.first.upper()}", about)
    if any(argument.split("=")[0] == "--resume" for argument in arguments):
        if not arguments[0].startswith("-"):
            raise configs.ConfigError(
                f"{command.first}: got {arguments[0]!r}; none is needed with --resume, the directory has it"
            )
        resume = configs.parse(ResumeOptions(""), arguments, program, "Goes on with a run that was stopped.")
        path = Path(resume.resume)
        if not (path / "config.yaml").is_file():
            raise configs.ConfigError(
                f"--resume: got {resume.resume!r}; the directory of a run (with config.yaml) is needed"
            )
        return configs.from_file(command.config, path / "config.yaml"), RunDirectory(path, say), resume.quiet
    first, *rest = arguments
    if first.startswith("-"):
        raise configs.ConfigError(f"{command.first}: got {first!r} first; {choice} or a YAML file is needed")
    default = command.load(first) if command.load else configs.load(command.options, command.presets, first)
    options = configs.parse(default, rest, f"{program} {first}", command.description)
    config = command.config(**{f.name: getattr(options, f.name) for f in dataclasses.fields(command.config)})
    text = configs.to_text(config)
    if options.out:
        return config, RunDirectory.create(Path(options.out), text, say), options.quiet
    name = re.sub(r"[^\w.=-]+", "-", command.name(first, config)).strip("-")
    for number in itertools.count(1):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            return config, RunDirectory.create(path, text, say), options.quiet
    raise AssertionError("there is always a free name")
