"""Progress of an evolution: a live bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from meta.evaluators import current
from meta.runs.words import amount

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Shows how far an evolution is; a context manager whose instance is the `report` of `evolve`.

    Args:
      console: where to write; nothing if it is quiet.
      generations: how many there will be.
      steps_per_generation: what the speed counts.
      unit: what a step is called.
      describe: the metrics of a generation as a few words.
      name: what a generation is called.
    """

    def __init__(
        self,
        console: Console,
        generations: int,
        steps_per_generation: int,
        unit: str,
        describe: Callable[[dict[str, np.ndarray]], str],
        *,
        name: str = "generation",
    ):
        self._console, self._generations, self._unit, self._describe = console, generations, unit, describe
        self._steps, self._name = steps_per_generation, name
        self._first: int | None = None
        self._shown_at = 0.0
        self._bar = Bar(
            TextColumn(f"{name} {{task.completed:.0f}}/{{task.total:.0f}}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[words]}"),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Progress:
        self._entered = time.perf_counter()
        if self._console.is_terminal and not self._console.quiet:
            self._task = self._bar.add_task("", total=self._generations, words="compiling")
            self._bar.start()
        else:
            self._say("compiling")
        return self

    def __exit__(self, *_: Any) -> None:
        if self._console.is_terminal:  # elsewhere it prints an empty line
            self._bar.stop()

    def __call__(self, generation: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
        """One report of `evolve`: generations so far, their last metrics, seconds of running."""
        if self._console.quiet:
            return
        if self._first is None:  # a resumed run begins in the middle: its first call gives no speed
            self._first, self._from = generation, seconds
            self._say(f"compiling took {time.perf_counter() - self._entered - seconds:.1f} s")
        done, elapsed = generation - self._first, seconds - self._from
        speed = done / elapsed if elapsed else 0.0
        words = self._describe(metrics)
        if speed:
            left = (self._generations - generation) / speed
            words += f"  {amount(speed * self._steps)} {self._unit}/s  {_clock(left)} left"
        if cluster := current().cluster:
            words += f"  {cluster.words()}"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=generation, words=words)
        elif generation == self._generations or time.perf_counter() - self._shown_at > SECONDS_BETWEEN_LINES:
            self._shown_at = time.perf_counter()
            self._say(f"{self._name} {generation}/{self._generations}  {words}")

    def before(self, name: str) -> Callable[[int, dict[str, np.ndarray], float], None]:
        """The `report` of `screen`: of what is tried before the first generation; `name` says what, in plural."""

        def report(iteration: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
            self._entered = time.perf_counter()  # compiling the evolution comes after the last of them
            tried, number = int(metrics["tried"]), int(metrics["number"])
            words = f"tried {tried:,} of {number:,} {name}  best trial {np.max(metrics['best']):.3f}"
            left = _clock(seconds * (number / tried - 1))
            words += f"  {left} left" if tried < number else "; the best of them once more, and compiling"
            if self._console.is_terminal and not self._console.quiet:
                self._bar.update(self._task, words=words)
            elif tried == number or time.perf_counter() - self._shown_at > SECONDS_BETWEEN_LINES:
                self._shown_at = time.perf_counter()
                self._say(words)

        return report

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False, markup=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
