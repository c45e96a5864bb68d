"""One way through every experiment: header, training, evaluation, summary, figures and tables."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rich.console import Console

from meta import RunDirectory, process
from meta.evaluators import platform_of_trials
from meta.runs.formatting import amount, say
from meta.runs.progress import Stages
from meta.runs.provenance import devices, environment
from meta.runs.reports.ending import print_report
from meta.runs.reports.tables import keep_tables
from meta.xla import numerics

Trained = TypeVar("Trained")
Found = TypeVar("Found")


class Programs:
    """Programs that are compiled in a thread, so that the evaluation's are ready when the training ends.

    Args:
      compilers: functions that compile a program, by its name.
    """

    def __init__(self, compilers: Mapping[str, Callable[[], Any]]):
        self._compilers, self._thread = compilers, ThreadPoolExecutor(1)
        self._programs: dict[str, Future[Any]] = {}

    def begin(self, names: Iterable[str] | None = None) -> None:
        """Begins to compile the programs of these names, or all; once each."""
        for name in self._compilers if names is None else names:
            if name not in self._programs:
                self._programs[name] = self._thread.submit(self._compilers[name])

    def get(self, name: str) -> Any:
        """The compiled program of that name."""
        self.begin([name])
        return self._programs[name].result()

    def close(self) -> None:
        """Drops what has not been begun, and waits for the rest."""
        self._thread.shutdown(cancel_futures=True)


class Context(NamedTuple):
    """Surroundings of an experiment that runs."""

    run: RunDirectory
    stages: Stages
    programs: Programs

    @property
    def console(self) -> Console:
        """The console that shows progress."""
        return self.stages.console


class Experiment(abc.ABC, Generic[Trained, Found]):
    """An experiment of a command, resolved from its config; `run_experiment` calls the methods in this order."""

    agent_file = ""  # what `train` or `evaluate` keeps beside the summary
    counted = "environment_steps"  # the summary has `{counted}_per_second`
    unit = "environment steps"  # the same in words

    @abc.abstractmethod
    def print_header(self, console: Console) -> None:
        """Prints what is about to run, and how much of it."""

    @abc.abstractmethod
    def work(self) -> dict[str, float]:
        """Work of every stage by its name, as of `Stages`."""

    def compilers(self) -> dict[str, Callable[[], Any]]:
        """Functions that compile the programs of the evaluation, by name."""
        return {}

    @abc.abstractmethod
    def train(self, context: Context) -> Trained:
        """Trains, or goes on with a training that was stopped.

        Raises:
          NonFiniteFitness: if nothing that was tried in a generation had a finite return.
        """

    @abc.abstractmethod
    def evaluate(self, context: Context, trained: Trained) -> Found:
        """Evaluates what was trained on fresh draws, and keeps the agents."""

    @abc.abstractmethod
    def draw(self, folder: Path, trained: Trained, found: Found) -> list[Path]:
        """Draws the figures of the run."""

    @abc.abstractmethod
    def summarize(self, trained: Trained, found: Found) -> dict[str, Any]:
        """The first entries of `summary.json`, without the time, the versions and the devices."""

    def clean_up(self, run: RunDirectory) -> None:
        """Removes files that only a stopped run needs, when the summary is written."""

    @abc.abstractmethod
    def conclusion(self, summary: dict[str, Any]) -> str:
        """The result in one or two sentences with the numbers of the run, which come before the tables."""

    @abc.abstractmethod
    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        """Prints the tables that end a run, and lines about them; a report keeps them too."""

    def print_speed(self, console: Console, summary: dict[str, Any]) -> None:
        """Prints the speed of a run, where it is known, and the time that it took."""
        speed = summary[f"{self.counted}_per_second"]
        pace = f"{amount(speed)} {self.unit}/s; " if speed else ""  # None for a run that had nothing left to do
        pace += f"compiling {summary['seconds_to_compile']:.1f} s, all in all {summary['wall_seconds']:.1f} s"
        say(console, pace)


def run_experiment(
    experiment: Experiment[Any, Any], run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Trains and evaluates, or goes on where a run was stopped, and writes summary, agents and figures.

    Args:
      experiment: the steps.
      run: where to.
      console: shows progress, and nothing else.
      started: the `time.perf_counter()` from which `wall_seconds` counts; now if None.

    Returns:
      (content of `summary.json`, the figures' files).

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite return.
    """
    started = time.perf_counter() if started is None else started
    context = Context(run, Stages(console, experiment.work()), Programs(experiment.compilers()))
    try:
        trained = experiment.train(context)
        found = experiment.evaluate(context, trained)
    finally:
        context.programs.close()
    files = experiment.draw(run.figures, trained, found)
    summary = experiment.summarize(trained, found)
    summary = {"conclusion": experiment.conclusion(summary), **summary}
    summary |= {"wall_seconds": time.perf_counter() - started, **environment()}
    run.write_summary(summary)
    experiment.clean_up(run)
    return summary, files


def run_and_print(experiment: Experiment[Any, Any], run: RunDirectory, console: Console) -> None:
    """Runs an experiment as a command does: prints the header before it, and tables and files after it."""
    experiment.print_header(console)
    if rounding := numerics.described(platform_of_trials()):
        say(console, f"{', '.join(devices())}: {rounding}")
    summary, files = run_experiment(experiment, run, console, started=process.began())
    say(console, summary["conclusion"])
    with keep_tables(console, run.path):
        experiment.print_result(console, summary)
    experiment.print_speed(console, summary)
    print_report(console, run.path)
    kept = ", ".join(filter(None, ["summary.json", experiment.agent_file, "metrics.jsonl", "config.yaml"]))
    say(console, f"written to {run.path}: {kept}, checkpoints")
    for file in files:
        say(console, f"  {file}")
