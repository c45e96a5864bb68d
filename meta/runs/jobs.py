"""Parts of a long experiment: each in its own run directory, none of them done twice."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console

from meta import RunDirectory
from meta.runs import resume


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """Keeps compiled programs for this process: what was measured need not be compiled again to be run."""
    if jax.config.values["jax_compilation_cache_dir"]:  # the user keeps them already
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        try:
            yield
        finally:
            jax.config.update("jax_compilation_cache_dir", None)


def say(console: Console, words: str) -> None:
    """One line of plain text."""
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, as words."""
    for unit, length, many in (("s", 1, 90), ("min", 60, 240), ("h", 3600, 72)):
        if seconds < many * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"


def open_run(path: Path, config: Any, console: Console) -> RunDirectory:
    """The run directory of one part: a new one, or the one in which it was begun.

    Raises:
      ValueError: if that was with another config.
    """
    if not (path / "config.yaml").is_file():
        shutil.rmtree(path, ignore_errors=True)  # nothing was begun there
        return RunDirectory.create(path, config)
    was, now = resume.read(path, "", "", "", lambda first: type(config))
    if was != config or now != config:
        raise ValueError(f"{path}: was begun with other settings; it has to be removed")
    run = RunDirectory(path, lambda words: say(console, words))
    run.go_on(config)
    return run


class Job(NamedTuple):
    """A part of an experiment whose duration is known beforehand, roughly."""

    path: Path  # it is done where this holds a summary.json
    seconds: float
    run: Callable[[], Any]


def run_jobs(jobs: Sequence[Job], console: Console) -> dict[str, dict[str, Any]]:
    """Runs what has not been run yet, and says before each job how long all of them will still take.

    Returns:
      The summary of each, by the name of its directory.
    """
    started, expected = time.perf_counter(), 0.0
    for i, job in enumerate(jobs):
        if (job.path / "summary.json").is_file():
            say(console, f"{job.path.name}: done before")
            continue
        # What has been found too high or too low so far will be so again.
        pace = min(max((time.perf_counter() - started) / expected, 0.2), 5.0) if expected else 1.0
        left = pace * sum(one.seconds for one in jobs[i:])
        say(console, f"{job.path.name}: part {i + 1} of {len(jobs)}; about {duration(left)} left in all")
        job.run()
        expected += job.seconds
    return {job.path.name: json.loads((job.path / "summary.json").read_text()) for job in jobs}
