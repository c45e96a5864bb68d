"""Parts of a long experiment: each in its own run directory, none of them done twice."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console

from configs import CommandConfig
from meta import RunDirectory
from meta.runs import provenance
from meta.runs.directory import read_configs
from meta.runs.experiment import Experiment, run_experiment
from meta.runs.formatting import duration, say
from meta.runs.provenance import Record, digest_of
from meta.runs.reports.ending import print_report


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


def open_run(path: Path, config: CommandConfig, console: Console) -> RunDirectory:
    """The run directory of one part: a new one, or the one in which it was begun.

    Raises:
      ValueError: if that was with another config.
    """
    with contextlib.suppress(FileExistsError):
        return RunDirectory.create(path, config, warn=lambda words: say(console, words))
    was, now = read_configs(path, "", "", "", lambda first: type(config))
    if was != config or now != config:
        raise ValueError(f"{path}: was begun with other settings; it has to be removed")
    run = RunDirectory(path, lambda words: say(console, words))
    run.go_on(config)
    return run


def finished(path: Path, config: CommandConfig) -> dict[str, Any] | None:
    """The summary of a part that is done, by whichever command; None if none is whole and of this config.

    Where a config says by `reads` what is in the files that it names, the summary has to say the same.
    """
    try:
        found = json.loads((path / "summary.json").read_bytes())
        whole = found.pop("digest") == digest_of(found)
        by = Record.from_json((path / provenance.FILE).read_bytes())
        wanted = Record.begin(by.command if by else "", config, "").digest
        reads = config.reads
        same = found["config_digest"] == wanted and found.get("reads", reads) == reads
        return found if whole and same else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


class Job(NamedTuple):
    """A part of an experiment whose duration is known beforehand, roughly."""

    path: Path
    config: Any  # a CommandConfig; it is done where the path holds the summary of this
    seconds: float
    run: Callable[[], Any]


def experiment_job(
    path: Path, config: Any, seconds: float, make: Callable[[Any], Experiment[Any, Any]], console: Console
) -> Job:
    """A job that runs the experiment which `make` makes of the config, in a directory of its own."""
    return Job(path, config, seconds, lambda: run_experiment(make(config), open_run(path, config, console), console))


def run_jobs(jobs: Sequence[Job], console: Console) -> dict[str, dict[str, Any]]:
    """Runs what has not been run yet, and says before each job how long all of them will still take.

    Returns:
      The summary of each, by the name of its directory.

    Raises:
      ValueError: if one was begun with another config.
    """
    summaries: dict[str, dict[str, Any]] = {}
    started, expected = time.perf_counter(), 0.0
    for i, job in enumerate(jobs):
        if found := finished(job.path, job.config):
            say(console, f"{job.path.name}: done before")
            summaries[job.path.name] = found
            continue
        if (job.path / "summary.json").exists():
            say(console, f"{job.path.name}: its summary.json is damaged or of other settings")
        # What has been found too high or too low so far will be so again.
        pace = min(max((time.perf_counter() - started) / expected, 0.2), 5.0) if expected else 1.0
        left = pace * sum(one.seconds for one in jobs[i:] if not finished(one.path, one.config))
        say(console, f"{job.path.name}: part {i + 1} of {len(jobs)}; about {duration(left)} left in all")
        job.run()
        found = finished(job.path, job.config)
        assert found, f"{job.path}: a job writes its summary"
        print_report(Console(quiet=True), job.path)
        summaries[job.path.name] = found
        expected += job.seconds
    return summaries
