"""The interface of a tracker, and what it is given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import configs


class TrackedRun(NamedTuple):
    """A run, described for a tracker.

    Attributes:
      id: hexadecimal digits, the same when the run is resumed.
      name: the name of its directory, or of the function that was called.
      command: the command line that began it; empty if none did.
      config: every field by its name, nested as in `config.yaml`.
      path: the run directory; None if there is none.
      rows: the number of rows that the tracker had before, by part; empty for a new run.
    """

    id: str
    name: str
    command: str
    config: dict[str, Any]
    path: Path | None
    rows: Mapping[str, int]

    @property
    def resumed(self) -> bool:
        """True if the tracker had rows of this run before."""
        return any(self.rows.values())


class MetricsRow(NamedTuple):
    """A row of metrics.

    Attributes:
      step: its number in its part, from 1: the generation, the update or the iteration.
      metrics: finite numbers by name. Nested metrics have names with dots, and a list, such as one number for each
        seed, has an entry for each of its items: `fitness/0`, `fitness/1`.
      part: the folder of the run directory that it is from; empty for the run itself.
    """

    step: int
    metrics: dict[str, float]
    part: str = ""

    @property
    def named(self) -> dict[str, float]:
        """The metrics, with the part before their names."""
        return {named(self.part, name): value for name, value in self.metrics.items()}


class Tracker(Protocol):
    """A tracker of runs. All calls come from one thread, in this order: `begin`, `log` for each row, `finish`.

    A tracker neither stops nor slows a run: after an exception it gets no more calls, and a call that is still going on
    30 seconds after the run has ended is given up. A warning says so.

    Example:
      >>> class Printer:
      ...     def begin(self, run):
      ...         print(f"{run.name} begins")
      ...
      ...     def log(self, row):
      ...         print(row.step, row.metrics)
      ...
      ...     def finish(self, summary, files):
      ...         print("finished" if summary is not None else "stopped")
    """

    def begin(self, run: TrackedRun) -> Mapping[str, int] | None:
        """Begins to track a run, or goes on with it.

        Args:
          run: the run.

        Returns:
          The number of rows that the tracker has, by part; None for those of `run.rows`.
        """
        ...

    def log(self, row: MetricsRow) -> Any:
        """Records a row.

        Args:
          row: the row, which the tracker has not had before.
        """
        ...

    def finish(self, summary: Mapping[str, Any] | None, files: Sequence[Path]) -> Any:
        """Ends the tracking, until the run is resumed.

        Args:
          summary: the results of the run; None if it was stopped or has failed.
          files: its config, summary, figures and films, as far as there are any.
        """
        ...


def make_row(step: int, entries: Mapping[str, Any], part: str = "") -> MetricsRow:
    """The row of a line of `metrics.jsonl`."""
    found = dict[str, float]()
    for name, value in configs.full_names(dict(entries)).items():
        _add(found, _cleaned(name), value)
    return MetricsRow(step, found, part)


def named(part: str, name: str) -> str:
    """A metric's name with the part before it."""
    return f"{_cleaned(part)}/{name}" if part else name


def _cleaned(name: str) -> str:
    """A name in characters that every tracker takes."""
    return re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)


def _add(found: dict[str, float], name: str, value: Any) -> None:
    if isinstance(value, list):
        for i, x in enumerate(value):
            _add(found, f"{name}/{i}", x)
    elif isinstance(value, int | float) and math.isfinite(value):
        found[name] = value
