"""The process of the common training of a sweep: `python -m marl.commands.sweep_trainer DIR POINT POINT ...`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.commands.sweep_trainer")  # before imports that take seconds

from rich.console import Console

from configs import one_line, plugins
from marl.commands import COMMANDS, describe
from marl.experiments.sweep import plan
from marl.experiments.sweep.common_program import train_together
from meta import NonFiniteFitness, RunDirectory
from meta.runs.directory import CONFIG
from meta.xla.backend import platform
from meta.xla.numerics import Numerics

PATIENCE = 60  # seconds in which a process of a sweep that was killed may still save its checkpoint


def main(arguments: Sequence[str]) -> int:
    """Trains points of a sweep together, up to their last checkpoints; returns the exit status."""
    try:
        folder, *names = plugins.import_named(arguments)
        quiet = "--quiet" in names
        out, sweep = Path(folder), plan.from_file(Path(folder) / plan.FILE)
        command = describe(COMMANDS[sweep.command].module)
        points = [point for point in plan.points_of(sweep, command) if point.name in names]
        seeds = sum(point.config.seeds for point in points)
        command.choose_devices(dataclasses.replace(points[0].config, seeds=seeds))
        Numerics().set_precision(platform())
        command.prepare(points[0].config)
        process.stop_on_signals()
        with process.recognised(), contextlib.ExitStack() as stack:
            began = " ".join(f"{command.program} {sweep.first}".split())
            runs = [stack.enter_context(_opened(out / one.name, one, began, sweep.imports)) for one in points]
            train_together(points, runs, Console(quiet=quiet, highlight=False))
    except KeyboardInterrupt:
        process.ignore_signals()
        return process.STOPPED
    except (ValueError, OSError, NonFiniteFitness, RuntimeError) as error:
        print(f"sweep: {one_line(str(error))}", file=sys.stderr)
        return 1
    return 0


def _opened(path: Path, point: plan.Point, began: str, imports: Sequence[str]) -> RunDirectory:
    """The run directory of a point: a new one, or the one in which it was begun."""
    if not (path / CONFIG).exists():
        return RunDirectory.create(path, point.config, began, options=[*point.words, *imports])
    for _ in range(PATIENCE):
        with contextlib.suppress(FileExistsError):
            run = RunDirectory(path)
            break
        time.sleep(1)
    else:
        run = RunDirectory(path)
    run.go_on(point.config)
    return run


if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
