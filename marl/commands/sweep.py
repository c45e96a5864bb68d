"""`python -m marl.sweep COMMAND FIRST --option VALUE,VALUE ...`: run a command with many values of its options.

COMMAND is mfos, train, distributed, discover or act, and FIRST its first argument. An option of it that has several
values, with commas between them, makes a point of the sweep for each; several such options make all combinations. With
--samples N, each of N points draws its values, also from ranges such as 0.001..0.1. --opponent.learning_rate 0.1,1 is a
setting inside of the opponent. Each point is a run directory; points that differ in traced numbers alone are trained by
one program. `python -m marl.sweep --resume DIR` goes on with a sweep that was stopped, and repeats nothing.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from filelock import lock_descriptor
from rich.console import Console

import configs
from configs import ConfigError, flags, plugins, shown
from configs.usage import usage
from marl.commands import COMMANDS, describe
from marl.experiments.sweep import plan
from marl.experiments.sweep.plan import Point, Sweep, SweepOptions
from marl.experiments.sweep.tasks import TOGETHER, Ended, Task, folder_of_sweeps, here
from meta import process
from meta.atomic_files import check_folder, no_link
from meta.runs.command import Command, describe_error, directory_name
from meta.runs.execution import GENERAL
from meta.runs.formatting import duration, many, say
from meta.runs.provenance import version_line

PROGRAM = "python -m marl.sweep"
LOCK = ".lock"  # alone in a directory, it is of a sweep that was killed before it wrote anything
OF_RESUME = ("on", "slurm", "separately", "quiet", "resume")


class Planned(NamedTuple):
    """A sweep that is known to fit."""

    sweep: Sweep
    options: SweepOptions
    command: Command
    points: list[Point]
    out: Path


@process.running()
def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status: 1 if a point fails, 2 for bad input, 130 if it was stopped."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(usage([SweepOptions()], f"{process.called(PROGRAM)} COMMAND FIRST", f"{__doc__}\n\n{GENERAL}"))
        return 0
    if "--version" in arguments:
        print(version_line())
        return 0
    kept = "nothing was written"
    try:
        planned = _plan(arguments)
        process.stop_on_signals()
        with _opened(planned):
            words = ["--resume", shlex.quote(str(planned.out)), *plugins.imported()]
            kept = f"go on with {' '.join([process.called(PROGRAM), *words])}"
            return _run(planned)
    except (ValueError, FileExistsError) as error:
        return _say(str(error), 2)
    except KeyboardInterrupt:
        process.ignore_signals()
        return _say(f"stopped; {kept}", process.STOPPED)
    except OSError as error:
        return _say(f"{describe_error(error)}; {kept}", 1)


def _say(message: str, status: int) -> int:
    print(f"{process.called(PROGRAM)}: {configs.one_line(message)}", file=sys.stderr)
    return status


def _plan(arguments: Sequence[str]) -> Planned:
    """Reads and checks all of it, before anything is written."""
    from marl.experiments.sweep import clusters  # here, as what follows: --help needs none of it

    words, found = plan.split(arguments)
    names = set(SweepOptions.__dataclass_fields__)
    own = {name: found.pop(name) for name in list(found) if name in names}
    options = flags.parse(SweepOptions(), [word for name, some in own.items() for word in (f"--{name}", *some)])
    imports = tuple(plugins.imported())
    if options.resume:
        if words or found or (more := sorted(own.keys() - set(OF_RESUME))):
            got = (words or [f"--{name}" for name in [*found, *([] if words or found else more)]])[0]
            allowed = ", ".join(f"--{name}" for name in OF_RESUME[:-1])
            raise ConfigError(f"--resume: got {got} beside it; {allowed} and no others are needed")
        out = Path(options.resume)
        if not (out / plan.FILE).is_file():
            raise ConfigError(f"--resume: got {shown(options.resume)}; the directory of a sweep is needed")
        check_folder(out)
        sweep = plan.from_file(out / plan.FILE)
        if missing := plugins.missing(" ".join(sweep.imports)):
            raise ConfigError(f"--resume: the sweep was begun with {' '.join(missing)}; it is needed again")
    elif options.file:
        if words or found:
            raise ConfigError(f"file: got {(words or list(found))[0]} beside it; the file has command and options")
        sweep = plan.from_file(Path(options.file))._replace(imports=imports)
    else:
        values = {name: plan.values_of(name, some) for name, some in found.items()}
        sweep = Sweep("".join(words[:1]), " ".join(words[1:]), values, options.samples, options.sample_seed, imports)
    if sweep.command not in plan.SWEPT:
        got = f"got {shown(sweep.command)}" if sweep.command else "none given"
        raise ConfigError(f"command: {got}; {configs.one_of(sweep.command, plan.SWEPT)}")
    if options.samples and not options.resume:
        sweep = sweep._replace(samples=options.samples, sample_seed=options.sample_seed)
    sweep = sweep._replace(separately=sweep.separately or options.separately)
    command = describe(COMMANDS[sweep.command].module)
    if process.is_own():
        import jax

        jax.config.update("jax_platforms", "cpu")  # a GPU is for the processes of the sweep
    points = plan.points_of(sweep, command)
    clusters.check(options)
    for point in points if not options.resume else []:
        command.prepare(point.config)
    out = Path(
        options.resume or options.out or folder_of_sweeps(directory_name(f"sweep {sweep.command} {sweep.first}"))
    )
    return Planned(sweep, options, command, points, out)


@contextlib.contextmanager
def _opened(planned: Planned) -> Iterator[None]:
    """Inside, the directory of the sweep belongs to this process.

    Raises:
      FileExistsError: if another process has it, or a new sweep finds something there.
    """
    out = planned.out
    if not planned.options.resume:
        if os.path.lexists(out) and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir())):
            go_on = f", or go on with --resume {shlex.quote(str(out))}" if (out / plan.FILE).exists() else ""
            raise FileExistsError(f"{out}: already holds something; name another{go_on}")
        out.mkdir(parents=True, exist_ok=True)
    with open(out / LOCK, "ab", opener=no_link) as lock:
        if not lock_descriptor(lock.fileno(), blocking=False):
            raise FileExistsError(f"{out}: another sweep is writing there")
        plan.write(out / plan.FILE, planned.sweep)
        yield


def _run(planned: Planned) -> int:
    from marl.experiments.sweep import figure, results
    from marl.experiments.sweep.common_program import groups_of
    from meta.runs.jobs import finished

    sweep, options, points, out = planned.sweep, planned.options, planned.points, planned.out
    console = Console(quiet=options.quiet, highlight=False)
    left = [point for point in points if not finished(out / point.name, point.config)]
    done = f", {len(points) - len(left):,} of them done before" if len(left) < len(points) else ""
    all_of = f" of {sweep.samples:,} asked for, because no more differ" if len(points) < sweep.samples else ""
    say(console, f"{sweep.command} {sweep.first}: {many(len(points), 'point')}{all_of}{done}")
    groups = [[point] for point in left] if sweep.separately else groups_of(left)
    tasks = [_task(planned, group) for group in groups]
    problems = _Parts(console, planned, tasks).run()
    failed = [point for point in points if not finished(out / point.name, point.config)]
    rows = results.rows_of(out, points)
    if rows:
        say(console, results.conclusion(rows))
        results.print_table(console, rows)
        files = [results.write_csv(out, rows), figure.draw(out, rows, f"{sweep.command} {sweep.first}".strip())]
        say(
            console,
            f"written to {out}: {', '.join(file.name for file in files)}, {plan.FILE}, and a run for each point",
        )
        say(console, f"compare them with marl-shaping compare {out}/*/")
    for point in failed:
        _say(f"{point.name}: failed; {problems.get(point.name) or 'it has no result'}", 1)
    return 1 if failed else 0


def _task(planned: Planned, group: Sequence[Point]) -> Task:
    sweep, folders = planned.sweep, [planned.out / point.name for point in group]
    trained = all(map(_is_trained, folders, group))
    return Task(
        out=os.path.abspath(planned.out),
        module=COMMANDS[sweep.command].module,
        first=tuple(sweep.first.split()) if planned.command.words > 1 else (sweep.first,),
        points=tuple((point.name, tuple(point.words)) for point in group),
        together=len(group) > 1 and not trained and stopped_together(folders),
        imports=sweep.imports,
        folder=os.getcwd(),
        show=not planned.options.quiet and planned.options.on == "here",
    )


def stopped_together(folders: Sequence[Path]) -> bool:
    """True if no run has more than one checkpoint behind the newest that all have, and so may be trained with them.

    What a run did alone would be lost, because the runs go on from there.
    """
    kept = [{int(x.name) for x in folder.glob("checkpoints/*") if x.name.isdigit()} for folder in folders]
    common = max(set.intersection(*kept), default=0)
    return all(sum(generation > common for generation in own) <= 1 for own in kept)


def _is_trained(path: Path, point: Point) -> bool:
    """True if a run has the checkpoint of its last generation or update."""
    last = getattr(point.config, "generations", getattr(point.config, "num_updates", None))
    return last is not None and (path / "checkpoints" / f"{last:08d}").exists()


class _Parts:
    """The processes of a sweep, one line for each with the time that is left."""

    def __init__(self, console: Console, planned: Planned, tasks: Sequence[Task]):
        self._console, self._planned, self._tasks = console, planned, tasks
        self._number, self._done, self._started = sum(task.num_parts for task in tasks), 0, time.perf_counter()
        self._problems: dict[str, str] = {}
        kinds = {True: "a point that was trained with others", False: "a point"}
        self._kinds = {TOGETHER: "training"} | {name: kinds[task.together] for task in tasks for name, _ in task.points}
        names = [name for task in tasks for name in ([TOGETHER] * task.together + [name for name, _ in task.points])]
        self._to_come = Counter(self._kinds[name] for name in names)
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def run(self) -> dict[str, str]:
        """Runs all of them; returns the problem of each point that failed."""
        from marl.experiments.sweep import clusters

        place, out = self._planned.options.on, self._planned.out
        if place == "here":
            here(self._tasks, self._begin, self._end)
        elif place == "ray":
            say(self._console, f"{many(len(self._tasks), 'task')} on Ray; {out} has to be a folder of all machines")
            clusters.on_ray(self._tasks, self._end)
        else:
            say(self._console, f"an array of {many(len(self._tasks), 'job')}; {out} has to be a folder of all machines")
            clusters.on_slurm(self._tasks, self._end, out / ".slurm", self._planned.options.slurm)
        return self._problems

    def _begin(self, name: str) -> None:
        words = name or "training of several points in one program"
        say(self._console, f"part {self._done + 1} of {self._number}: {words}{self._left()}")

    def _left(self) -> str:
        """The time left, when a part of each kind that is still to come has ended: kinds differ by far."""
        kinds = [kind for kind, number in self._to_come.items() if number]
        if not kinds or not all(self._seconds[kind] for kind in kinds):
            return ""
        seconds = sum(self._to_come[kind] * fmean(self._seconds[kind]) for kind in kinds)
        at_a_time = sum(map(sum, self._seconds.values())) / (time.perf_counter() - self._started)
        return f"; about {duration(seconds / at_a_time)} left in all"

    def _end(self, ended: Ended) -> None:
        self._to_come[self._kinds[ended.name]] -= 1
        if not ended.problem:
            self._seconds[self._kinds[ended.name]].append(ended.seconds)
        self._done += 1
        self._problems[ended.name] = ended.problem
        if self._planned.options.on != "here":
            name = ended.name or "training of several points in one program"
            say(self._console, f"{self._done} of {self._number} done: {name}{self._left()}")
        if ended.problem and ended.name == TOGETHER:
            _say(f"one program for several points failed ({ended.problem}); each is trained by its own", 1)
            plan.write(self._planned.out / plan.FILE, self._planned.sweep._replace(separately=True))
