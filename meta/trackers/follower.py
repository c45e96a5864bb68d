"""The process of a tracker: it follows the files of metrics of a run directory, and hands their rows to the tracker.

A process of its own, because a library that hangs, or that handles signals and the exit of its process, then touches
no run. Its standard input is a pipe from the run, which ends with the run, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from filelock import lock_descriptor

from meta.trackers.export import PATIENCE, Export, words_of
from meta.trackers.names import make_tracker
from meta.trackers.tracker import MetricsRow, TrackedRun, make_row

METRICS, LOG = "metrics.jsonl", "tracker.log"
SECONDS = 1.0  # between two looks at the files


class Followed:
    """A file of metrics that grows, or is replaced by another that begins with the same rows.

    Args:
      path: the file.
      part: the folder of the run directory that it is in.
      done: the number of rows that are left out.
    """

    def __init__(self, path: Path, part: str, done: int):
        self._path, self._part, self._done = path, part, done
        self._inode, self._offset, self._number = 0, 0, 0

    def changed_since(self, nanoseconds: int) -> bool:
        """True if it was written after that time."""
        return self._path.stat().st_mtime_ns >= nanoseconds

    def rows(self) -> Iterator[MetricsRow]:
        """The rows that are new, as far as they are whole.

        Raises:
          ValueError: for a line that is damaged.
        """
        with open(self._path, "rb") as file:
            if (inode := os.fstat(file.fileno()).st_ino) != self._inode:
                self._inode, self._offset, self._number = inode, 0, 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._number += 1
                if self._number > self._done:
                    self._done = self._number
                    try:
                        yield make_row(self._number, json.loads(line), self._part)
                    except (ValueError, AttributeError, RecursionError):
                        raise ValueError(f"{self._path}: line {self._number} is damaged") from None


class Rows:
    """The rows of all files of metrics in a run directory.

    Args:
      folder: the directory.
      done: the numbers of rows that are left out, by part.
    """

    def __init__(self, folder: Path, done: dict[str, int]):
        self._folder, self._done, self._files = folder, dict(done), dict[str, Followed]()

    def new(self, since: int) -> Iterator[MetricsRow]:
        """The rows that are new, in files that were written after a time in nanoseconds."""
        there = [Path(folder) / METRICS for folder, _, names in os.walk(self._folder) if METRICS in names]
        for path in sorted(there, key=lambda path: (len(path.parts), path)):  # a part may be removed meanwhile
            part = path.parent.relative_to(self._folder).as_posix()
            part = "" if part == "." else part
            if part not in self._files:
                self._files[part] = Followed(path, part, self._done.get(part, 0))
            with contextlib.suppress(FileNotFoundError):
                if self._files[part].changed_since(since):
                    yield from self._files[part].rows()


class Ending:
    """The end of the run, which its pipe says: `finished`, `stopped`, or nothing if the process was killed."""

    def __init__(self, pipe: IO[bytes]):
        self._ended, self._pipe, self.finished = threading.Event(), pipe, False
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Waits for the end, or for so many seconds; returns whether the run has ended."""
        return self._ended.wait(seconds)

    def _read(self) -> None:
        self.finished = self._pipe.read() == b"finished"
        self._ended.set()
        threading.Event().wait(PATIENCE + 5.0)  # the run itself, if it is there, gives up before
        os._exit(1)


def follow(folder: Path, name: str, run: TrackedRun, ending: Ending, begun: int) -> tuple[int, str]:
    """Exports rows until the run has ended.

    Args:
      folder: the run directory.
      name: the tracker's.
      run: the run, without its id and its rows.
      ending: the end of the run.
      begun: the time in nanoseconds at which the run began; older files are read in the end, because a run that goes on
        replaces its metrics.

    Returns:
      (the number of rows that the tracker has in all, where it has them).
    """
    export = Export(make_tracker(name), name, run, keep=True)
    export.begin()
    rows, ended = Rows(folder, export.rows), False
    while not ended:
        ended = ending.wait(SECONDS)
        export.send(rows.new(0 if ended else begun))
    place = export.finish(_summary(folder) if ending.finished else None)
    return sum(export.rows.values()), place


def main(folder: Path, name: str, begun: int) -> None:
    """Runs as the process of a tracker: the run as JSON in the first line of standard input, the outcome on output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(10)  # the run comes first
    pipe, outcome = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # the log gets what libraries print
    found: dict[str, Any] = {}
    try:
        run = TrackedRun("", path=folder, rows={}, **json.loads(pipe.readline()))
        ending = Ending(pipe)
        with open(folder / LOG, "ab") as log:
            lock_descriptor(log.fileno(), blocking=True)  # until the process of a run that was killed is done
            found["rows"], found["place"] = follow(folder, name, run, ending, begun)
    except BaseException as error:  # a library may end its process
        found["error"] = words_of(error)
    print(json.dumps(found), file=outcome, flush=True)
    os._exit(0)  # without the hooks of libraries, which may wait


def _summary(folder: Path) -> dict[str, Any]:
    for name in ("summary.json", "crossplay.json", "report.json"):  # a run has one of them
        if (folder / name).is_file():
            found = json.loads((folder / name).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
    return {}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
