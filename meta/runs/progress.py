"""Progress of a command: a live bar on a terminal, one line that moves in a notebook, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from meta.evaluators import current
from meta.runs.formatting import amount, duration, say

SECONDS_BETWEEN_LINES = 5.0  # at least
LINES = 10  # of a stage without a terminal, if it is short
LONGEST_SILENCE = 600.0  # seconds; long stages have more lines


class Line:
    """A line about how far something is: it moves in a notebook, and stands in few lines elsewhere."""

    def __init__(self, console: Console):
        self._console, self._width = console, 0
        self._shown, self._at = 0.0, -LONGEST_SILENCE  # share that was done when the last line was shown, and when

    def show(self, share: float, words: str) -> None:
        """Shows the words if it is time to: the first and the last ones always, in a notebook all."""
        if self._console.quiet:
            return
        if self._console.is_jupyter:
            # Notebooks go back to the beginning of a line, as terminals do; rich would show every line as a new one.
            print(f"\r{words.ljust(self._width)}", end="", flush=True)
            self._width = len(words)
            return
        silence = time.perf_counter() - self._at
        due = silence > SECONDS_BETWEEN_LINES and share >= self._shown + 1 / LINES
        if share >= 1 or due or silence > LONGEST_SILENCE:
            self._shown, self._at = share, time.perf_counter()
            say(self._console, words)

    def end(self) -> None:
        """Ends the line: the next one begins in a line of its own, at a share of 0."""
        if self._width:
            print(flush=True)
        self._width, self._shown, self._at = 0, 0.0, -LONGEST_SILENCE


class Stages:
    """The stages of a command, with one estimate of the time that all of them still need.

    The estimate comes from the running speed so far and is corrected with every report. A stage that is still to come
    counts as its work at that speed and as much compilation as the last stage had.

    Args:
      console: where stages are announced.
      work: the work of every stage by its name, in the order of the stages and in one unit, such as environment steps.
    """

    def __init__(self, console: Console, work: Mapping[str, float]):
        self.console, self._work = console, dict(work)
        self._name = ""
        self._done = (0.0, 0.0)  # work of earlier stages, and the seconds that it took to run
        self._now: tuple[float, float] | None = None  # the same of the current stage; None if it reports nothing
        self._begun, self._compiling = 0.0, 0.0

    def begin(self, name: str, words: str = "") -> None:
        """Announces a stage, as "stage 2 of 5: `words`", with the time left if it is known; once for each stage."""
        if name == self._name:
            return
        now = time.perf_counter()
        if self._name:
            work, seconds = self._now or (self._work[self._name], now - self._begun)
            self._done = (self._done[0] + work, self._done[1] + seconds)
        self._name, self._now, self._begun = name, None, now
        self._work.setdefault(name, 0.0)  # a stage that could not be foreseen
        number = list(self._work).index(name) + 1
        line = f"stage {number} of {len(self._work)}: {words or name}" if len(self._work) > 1 else words or name
        if self._done[0]:
            line += f"; about {duration(self._left_of(self._work[name]) + self.later())} left in all"
        say(self.console, line)

    def report(self, share: float, seconds: float, compiling: float = 0.0) -> None:
        """Records that a share of the current stage's work took so many seconds of running, after compilation."""
        self._now, self._compiling = (share * self._work[self._name], seconds), compiling or self._compiling

    def later(self) -> float:
        """Seconds that the stages after the current one will take; 0 as long as no speed is known."""
        names = list(self._work)
        return sum(self._left_of(self._work[name]) for name in names[names.index(self._name) + 1 :])

    def _left_of(self, work: float) -> float:
        worked, seconds = (sum(pair) for pair in zip(self._done, self._now or (0.0, 0.0), strict=True))
        return work * seconds / worked + self._compiling if worked else 0.0


class Progress:
    """Shows how far a stage is; a context manager whose instance is the `report` of `evolve`.

    Args:
      console: where to write; nothing if it is quiet.
      generations: how many there will be.
      steps_per_generation: what the speed counts.
      unit: what a step is called.
      describe: the metrics of a generation as a few words.
      name: what a generation is called.
      stages: the stages of which this is the current one: the time left is that of all.
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
        stages: Stages | None = None,
    ):
        self._console, self._generations, self._unit, self._describe = console, generations, unit, describe
        self._steps, self._name, self._stages = steps_per_generation, name, stages
        self._first: int | None = None
        self._line = Line(console)
        self._bar = Bar(
            TextColumn(f"{name} {{task.completed:.0f}}/{{task.total:.0f}}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[words]}"),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Progress:
        self._entered = time.perf_counter()
        if self._stages:
            self._stages.report(0.0, 0.0)  # a stage that was done before says nothing about the speed
        if self._console.is_terminal and not self._console.quiet:
            self._task = self._bar.add_task("", total=self._generations, words="compiling")
            self._bar.start()
        else:
            self._say("compiling")
        return self

    def __exit__(self, *_: Any) -> None:
        if self._console.is_terminal:  # elsewhere it prints an empty line
            self._bar.stop()
        self._line.end()

    def __call__(self, generation: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
        """One report of `evolve`: generations so far, their last metrics, seconds of running."""
        if self._console.quiet:
            return
        if self._first is None:  # a resumed run begins in the middle: its first call gives no speed
            self._first, self._from = generation, seconds
            self._compiling = time.perf_counter() - self._entered - seconds
            self._say(f"compiling took {self._compiling:.1f} s")
        done, elapsed = generation - self._first, seconds - self._from
        speed = done / elapsed if elapsed else 0.0
        words = self._describe(metrics)
        if speed:
            left = (self._generations - generation) / speed
            if self._stages:
                self._stages.report(done / self._generations, elapsed, self._compiling)
                left += self._stages.later()
            words += f"  {amount(speed * self._steps)} {self._unit}/s  {_clock(left)} left"
        if cluster := current().cluster:
            words += f"  {cluster.words()}"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=generation, words=words)
        else:
            self._line.show(generation / self._generations, f"{self._name} {generation}/{self._generations}  {words}")

    def before(
        self, describe: Callable[[int, dict[str, np.ndarray]], tuple[float, str]]
    ) -> Callable[[int, dict[str, np.ndarray], float], None]:
        """The `report` of what comes before the first generation.

        Args:
          describe: `(iteration, metrics) -> (the share of it that is done, words)`.
        """

        def report(iteration: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
            self._entered = time.perf_counter()  # compiling the evolution comes after the last of them
            share, words = describe(iteration, metrics)
            left = seconds * (1 / share - 1)
            if self._stages:
                self._stages.report(share, seconds)
                left += self._stages.later()
            words += f"  {_clock(left)} left" if share < 1 else "; compiling"
            if self._console.is_terminal and not self._console.quiet:
                self._bar.update(self._task, words=words)
            else:
                self._line.show(share, words)
                if share == 1:
                    self._line.end()

        return report

    def _say(self, words: str) -> None:
        self._line.end()
        say(self._console, words)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
