"""The tracker of a command, in a process of its own beside the run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from meta.atomic_files import no_link
from meta.trackers.export import PATIENCE
from meta.trackers.follower import LOG
from meta.trackers.names import NAMES, check_installed, is_installed
from meta.trackers.position import FILE, OWN, Position

ROOT = Path(__file__).parents[2]  # where Python finds these packages


def chosen(named: str | None, folder: Path | None, say: Callable[[str], Any]) -> str:
    """The name of the tracker of a run; empty if it has none.

    Args:
      named: the one that an option names; None for that of a run that goes on.
      folder: the directory of a run that goes on; None for a new one.
      say: gets a line about a tracker that the run had and now has not.

    Raises:
      ConfigError: if one is named that is not installed.
    """
    if named is not None:
        if named != "none":
            check_installed(named, "--tracker")
        return "" if named == "none" else named
    if folder is None or not (folder / FILE).exists():
        return ""
    position = Position.read(folder)
    before = position.tracker if position else ""
    if before in NAMES and is_installed(before):
        return before
    if before != OWN:
        problem = f"{before} is not installed" if before else f"{FILE} is damaged"
        say(f"tracker: {problem}; the run goes on without its tracker")
    return ""


class TrackerProcess:
    """A process that hands the metrics of a run to a tracker; a context manager around the run.

    Args:
      name: the tracker's.
      folder: the run directory.
      command: the command line that began the run.
      config: every field.
      say: gets one line if something has gone wrong.
      tell: gets one line about where the tracker has the run.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        command: str,
        config: dict[str, Any],
        say: Callable[[str], Any],
        tell: Callable[[str], Any],
    ):
        self._name, self._folder, self._say, self._tell = name, folder, say, tell
        self._run = {"name": folder.resolve().name, "command": command, "config": config}

    def __enter__(self) -> TrackerProcess:
        self._process: subprocess.Popen[bytes] | None = None
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "meta.trackers.follower", str(self._folder), self._name, str(time.time_ns())]
        try:
            with open(self._folder / LOG, "ab", opener=no_link) as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": paths},
                    process_group=0,  # Ctrl-C is for the run; in its session, because nice() counts inside of one
                )
            self._write(json.dumps(self._run).encode() + b"\n")
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for what is left, and gives up after `PATIENCE` seconds."""
        if not self._process:
            return
        self._write(b"stopped" if kind else b"finished", close=True)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._fail(f"was still busy {PATIENCE:.0f} s after the end and was given up")
            return
        finally:
            self._kill()
        assert self._process.stdout
        with self._process.stdout as outcome:
            found = json.loads(outcome.read() or '{"error": "its process was killed"}')
        if "error" in found:
            self._fail(found["error"])
        elif found["place"]:
            self._tell(f"tracked, {found['rows']:,} rows: {found['place']}")

    def _write(self, data: bytes, *, close: bool = False) -> None:
        assert self._process
        assert self._process.stdin
        with contextlib.suppress(OSError):  # the process has ended, which its outcome says
            self._process.stdin.write(data)
            self._process.stdin.flush()
        if close:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _kill(self) -> None:
        """Ends the process with those that it has started."""
        assert self._process
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()

    def _fail(self, words: str) -> None:
        remedy = f"{self._folder / LOG} has its output; metrics are in the run directory"
        self._say(f"tracker: {self._name}: {words}; {remedy}")
