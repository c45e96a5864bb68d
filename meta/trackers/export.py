"""The export of rows to a tracker, whatever they come from: counting, and what is done at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from meta.trackers.position import Position
from meta.trackers.tracker import MetricsRow, TrackedRun, Tracker

PATIENCE = 30.0  # seconds for which a run that has ended waits for its tracker
RESULTS = ("config.yaml", "summary.json", "report.md", "report.json", "report.html", "crossplay.json", "crossplay.csv")


class Export:
    """The rows of a run on their way to a tracker, which gets each of them once, also after a resumption.

    Args:
      tracker: where to.
      name: of the tracker in `tracker.json`.
      run: the run, without its id and its rows.
      keep: whether the position is kept, in the run directory.
    """

    def __init__(self, tracker: Tracker, name: str, run: TrackedRun, *, keep: bool):
        self._tracker, self._folder = tracker, run.path if keep else None
        self._position = (self._folder and Position.read(self._folder)) or Position()
        self._position.tracker = name
        self.rows = self._position.rows.setdefault(name, {})
        self._run = run._replace(id=self._position.id, rows=dict(self.rows))

    def begin(self) -> None:
        """Begins the tracking."""
        self._keep()
        known = self._tracker.begin(self._run)
        if isinstance(known, Mapping):
            self.rows.clear()
            self.rows.update(known)

    def send(self, rows: Iterable[MetricsRow]) -> None:
        """Hands over rows, those excepted that the tracker has."""
        before = dict(self.rows)
        try:
            for row in rows:
                if row.step > self.rows.get(row.part, 0):
                    self._tracker.log(row)
                    self.rows[row.part] = row.step
            if self.rows != before and (flush := getattr(self._tracker, "flush", None)):
                flush()
        except BaseException:
            if hasattr(self._tracker, "flush"):  # it may not have any of them
                self.rows.clear()
                self.rows.update(before)
            raise
        finally:
            if self.rows != before:
                self._keep()

    def finish(self, summary: Mapping[str, Any] | None) -> str:
        """Ends the tracking; returns where the tracker has the run, if it says so."""
        self._tracker.finish(summary, results_in(self._run.path) if self._run.path and summary is not None else [])
        return str(getattr(self._tracker, "place", ""))

    def _keep(self) -> None:
        if self._folder:
            self._position.write(self._folder)


def results_in(folder: Path) -> list[Path]:
    """The config, the results, the figures and the films in a run directory."""
    figures = sorted(file for file in (folder / "figures").glob("*") if file.suffix in (".png", ".gif"))
    return [*(folder / name for name in RESULTS if (folder / name).is_file()), *figures]


def words_of(error: BaseException) -> str:
    """An exception in one line."""
    return without_passwords(" ".join(f"{type(error).__name__}: {error}".split())[:300])


def without_passwords(text: str) -> str:
    """A text without the user and the password of addresses in it."""
    return re.sub(r"//[^/@\s]*@", "//", text)
