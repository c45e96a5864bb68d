"""The tracker of a call of `evolve` or `train`, in a thread beside it."""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs import shown
from meta.trackers import export
from meta.trackers.export import Export, words_of
from meta.trackers.names import NAMES
from meta.trackers.position import OWN
from meta.trackers.tracker import TrackedRun, Tracker, make_row

MOST_BATCHES = 1024  # that wait for a tracker: one for each look of the host


@contextlib.contextmanager
def tracked(store: Any, tracker: Tracker | None, name: str, config: dict[str, Any]) -> Iterator[Any]:
    """Inside, the metrics of a store, or of none, go to a tracker too; yields the store to be used.

    Args:
      store: a `meta.loop.Store`, perhaps a run directory, in which the tracker's position is then kept; or None.
      tracker: the tracker; None for none.
      name: of the run, and
      config: its config, where the store is no run directory.

    Raises:
      TypeError: if the tracker lacks one of the three calls.
    """
    if tracker is None:
        yield store
        return
    for call in ("begin", "log", "finish"):
        if not callable(getattr(tracker, call, None)):
            raise TypeError(f"tracker: got {shown(tracker)}, without {call}; a meta.Tracker is needed")
    path, record = getattr(store, "path", None), getattr(store, "record", None)
    folder = path if isinstance(path, Path) else None
    name, command = (folder.resolve().name if folder else name), getattr(record, "line", "")
    run = TrackedRun("", name, command, getattr(record, "config", config), folder, {})
    named = getattr(tracker, "name", OWN)
    thread = _Thread(Export(tracker, named if named in NAMES else OWN, run, keep=folder is not None))
    using = TrackedStore(store, thread)
    try:
        yield using
    except BaseException:
        thread.end(None)
        raise
    thread.end(using.last)


class TrackedStore:
    """A store whose rows go to a tracker too; what is put in its place has the methods of `meta.loop.Store`.

    Args:
      store: the store, or None.
      thread: of the tracker.
    """

    def __init__(self, store: Any, thread: _Thread):
        self._store, self._thread, self._count = store, thread, 0
        self.last: Mapping[str, Any] = {}  # the last row

    def restore(self, like: Any, last: int) -> Any:
        """The newest checkpoint of the store."""
        return self._store.restore(like, last) if self._store else None

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        """Takes these for all rows so far."""
        self._count = 0
        self._put(rows := list(rows))
        if self._store:
            self._store.rewrite(rows)

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Adds rows."""
        self._put(rows := list(rows))
        if self._store:
            self._store.append(rows)

    def save(self, generation: int, state: Any, metrics: dict[str, Any]) -> None:
        """Saves a checkpoint in the store."""
        if self._store:
            self._store.save(generation, state, metrics)

    def _put(self, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._thread.put([(self._count + i, row) for i, row in enumerate(rows, start=1)])
            self._count, self.last = self._count + len(rows), rows[-1]


class _Thread:
    """The thread in which a tracker is called, with the queue of what it has still to get."""

    def __init__(self, rows_to: Export):
        self._export, self._error = rows_to, ""
        self._queue: queue.Queue[Any] = queue.Queue(MOST_BATCHES)
        self._thread = threading.Thread(target=self._run, name="tracker", daemon=True)
        self._thread.start()

    def put(self, rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Puts rows in the queue, unless the tracker is given up; that is so where the queue is full."""
        if not self._error:
            try:
                self._queue.put_nowait(rows)
            except queue.Full:
                self._error = f"it is {MOST_BATCHES} batches of rows behind, and was given up"

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Waits for the tracker, and gives up after some seconds."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait((summary,))
        if not self._error:
            self._thread.join(export.PATIENCE)
        if not self._error and self._thread.is_alive():
            self._error = f"it was still busy {export.PATIENCE:g} s after the end, and was given up"
        if self._error:
            had = sum(self._export.rows.values())
            warnings.warn(f"tracker: {self._error}; it has {had} rows of the run", RuntimeWarning, stacklevel=5)

    def _run(self) -> None:
        try:
            self._export.begin()
            while isinstance(rows := self._queue.get(), list):
                self._export.send(make_row(step, row) for step, row in rows)
            self._export.finish(rows[0])
        except Exception as error:
            self._error = self._error or words_of(error)
