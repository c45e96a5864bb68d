"""The processes of a sweep: a common training of several points, and the ordinary command of each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

TOGETHER = ""  # stands for the common training, where the name of a point stands else
TRAINER = "marl.commands.sweep_trainer"
# `python -m MODULE`; Linux stops the process when its parent has died, also by a signal that cannot be handled.
_MODULE = ["-m"]
if sys.platform == "linux":
    _PR_SET_PDEATHSIG, _CALL = 1, "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
    _PARENT = f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGTERM)})"
    _MODULE = ["-c", f"import ctypes, runpy, sys; {_PARENT}; {_CALL}"]
_SECONDS_TO_STOP = 60.0  # of a process that was asked to, in which it saves a checkpoint


class Task(NamedTuple):
    """Points that one process after another trains and evaluates.

    Attributes:
      out: directory of the sweep
      module: of the command
      first: its first argument, as words
      points: the name and the command line of each
      together: whether they are trained in one program first
      imports: words that import the user's modules
      folder: from which the sweep was started
      show: whether the common training shows its progress
      cache: folder of compiled programs that the processes share; none if empty
    """

    out: str
    module: str
    first: tuple[str, ...]
    points: tuple[tuple[str, tuple[str, ...]], ...]
    together: bool
    imports: tuple[str, ...]
    folder: str
    show: bool = False
    cache: str = ""

    @property
    def num_parts(self) -> int:
        """Processes, one after the other."""
        return len(self.points) + self.together


class Ended(NamedTuple):
    """The end of a process: the name of the point or `TOGETHER`, the reason of a failure or nothing, and the time."""

    name: str
    problem: str
    seconds: float


def run_task(
    task: Task, begin: Callable[[str], object] = lambda name: None, end: Callable[[Ended], object] = lambda ended: None
) -> list[Ended]:
    """Runs the processes of a task; a failure of one is none of the others.

    Args:
      task: the points.
      begin: called with the name of a point, or `TOGETHER`, before its process.
      end: called after it.

    Returns:
      The end of each process.

    Raises:
      KeyboardInterrupt: when this process is asked to stop; the running process has stopped then.
    """
    found = []
    lines = [(TOGETHER, _together(task))] if task.together else []
    for name, words in [*lines, *((name, None) for name, _ in task.points)]:
        line = words or _alone(task, name)
        begin(name)
        started = time.perf_counter()
        problem = _run(line, task, show=task.show and name == TOGETHER)
        found.append(Ended(name, problem, time.perf_counter() - started))
        end(found[-1])
    return found


def _together(task: Task) -> list[str]:
    names = [name for name, _ in task.points]
    return [*_MODULE, TRAINER, task.out, *([] if task.show else ["--quiet"]), *task.imports, *names]


def _alone(task: Task, name: str) -> list[str]:
    """The ordinary command of a point, which goes on with what is there of it."""
    path, words = os.path.join(task.out, name), next(words for one, words in task.points if one == name)
    begun = os.path.exists(os.path.join(path, "config.yaml")) or os.path.exists(os.path.join(path, "run.json"))
    line = ["--resume", path, *_tracker(words)] if begun else [*task.first, *words, "--out", path]
    return [*_MODULE, task.module, *line, "--quiet", *task.imports]


def _tracker(words: Sequence[str]) -> Sequence[str]:
    """The option that names a tracker: a point that was trained with others has none yet."""
    for i, word in enumerate(words):
        if word.split("=")[0] == "--tracker":
            return words[i : i + 1 + ("=" not in word)]
    return ()


def _run(words: Sequence[str], task: Task, *, show: bool) -> str:
    """Runs Python on these words; returns the reason if it fails.

    The process is a group of its own: a signal from the keyboard reaches it through this process alone.
    """
    output = None if show else subprocess.DEVNULL
    cache = {"JAX_COMPILATION_CACHE_DIR": task.cache} if task.cache else {}
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=task.folder,
        env=cache | os.environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, said = process.communicate()
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_SECONDS_TO_STOP)
        process.kill()
        raise
    if process.returncode == 0:
        return ""
    last = (said.strip().splitlines() or [""])[-1]
    return last.partition(": ")[2] or last or f"its process ended with status {process.returncode}"


def here(tasks: Iterable[Task], begin: Callable[[str], object], end: Callable[[Ended], object]) -> None:
    """Runs tasks one after the other, whose processes share what they compile.

    Args:
      tasks: all of them.
      begin: as of `run_task`.
      end: as of `run_task`.
    """
    with tempfile.TemporaryDirectory() as cache:
        for task in tasks:
            run_task(task._replace(cache=cache), begin, end)


def folder_of_sweeps(name: str) -> Path:
    """A new directory under runs/.

    Args:
      name: of the sweep.
    """
    path, number = Path("runs") / name, 1
    while os.path.lexists(path):
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path
