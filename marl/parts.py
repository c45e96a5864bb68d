"""Parts of a long experiment: shapers trained one after another, each in its own run directory, none of them twice."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from marl import report
from marl.config import ShapingConfig
from marl.experiment import train_and_evaluate
from marl.meta_learners import train_shapers
from meta import RunDirectory

# (what is in the opponent's name, seconds for a meta-step, seconds to compile), in those of a naive learner in a
# repeated game, on two cores of a processor; for guessing how long things will take.
COSTS = (("self_play", 1.2, 1.8), ("lola", 2.2, 2.4), ("mmaml", 1.1, 1.3))
PLAYED_ONCE = 0.25
PPO = 25.0
MEASURED_GENERATIONS = 12
SECONDS_TO_DRAW = 3.0


class Part(NamedTuple):
    """One training, of as many seeds as its config says, and where it is kept."""

    name: str
    config: ShapingConfig
    path: Path

    @property
    def is_done(self) -> bool:
        """Whether its result is there already."""
        return (self.path / "summary.json").is_file()


class Speed(NamedTuple):
    """How fast this machine is where the opponent is a naive learner and the game is repeated."""

    meta_steps_per_second: float
    seconds_to_compile: float

    def seconds(self, part: Part) -> float:
        """How long what is left of a part will take, roughly."""
        if part.is_done:
            return 0.0
        cost, compiling = _costs(part.config)
        lines = part.path / "metrics.jsonl"
        done = len(lines.read_text().splitlines()) if lines.is_file() else 0
        left = max(0.0, 1 - done / part.config.generations) * report.num_meta_steps(part.config)
        # Its evaluation is another program, of about the same size.
        return left * cost / self.meta_steps_per_second + 2 * compiling * self.seconds_to_compile + SECONDS_TO_DRAW


def _costs(config: ShapingConfig) -> tuple[float, float]:
    cost, compiling = next((costs for name, *costs in COSTS if name in config.opponent), (1.0, 1.0))
    return cost * (1.0 if config.discount else PLAYED_ONCE) * (PPO if config.meta_learner == "ppo" else 1.0), compiling


def measure(config: ShapingConfig) -> Speed:
    """The speed of this machine, from the first generations of a training; some seconds, most of them to compile."""
    generations = min(MEASURED_GENERATIONS, config.generations)
    short = dataclasses.replace(
        config,
        evolution=dataclasses.replace(config.evolution, generations=generations),
        meta_ppo=dataclasses.replace(config.meta_ppo, iterations=generations),
    )
    trained = train_shapers(short, _keys(short))
    cost, compiling = _costs(config)
    speed = report.num_meta_steps(short) * cost / trained.seconds_to_run
    return Speed(speed, trained.seconds_to_compile / compiling)


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


def run_parts(parts: Sequence[Part], speed: Speed | None, console: Console) -> dict[str, dict[str, Any]]:
    """Trains what has not been trained yet, and says before each part how long all of them will still take.

    Args:
      parts: in their order.
      speed: of this machine; None if nothing is left to do.
      console: where to write.

    Returns:
      The summary of each part, by its name.
    """
    found, started, expected = {}, time.perf_counter(), 0.0
    for i, part in enumerate(parts):
        if part.is_done:
            say(console, f"{part.name}: done before")
        elif speed:
            # What has been found too high or too low so far will be so again.
            pace = np.clip((time.perf_counter() - started) / expected, 0.2, 5) if expected else 1.0
            left = sum(map(speed.seconds, parts[i:])) * pace
            say(console, f"{part.name}: part {i + 1} of {len(parts)}; about {duration(left)} left in all")
            expected += speed.seconds(part)
        found[part.name] = _run(part, console)
    return found


def say(console: Console, words: str) -> None:
    """One line of plain text."""
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, as words."""
    for unit, length, many in (("s", 1, 90), ("min", 60, 240), ("h", 3600, 72)):
        if seconds < many * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"


def _keys(config: ShapingConfig) -> jax.Array:
    return jnp.stack([jax.random.key(config.seed + i) for i in range(config.seeds)])


def _run(part: Part, console: Console) -> dict[str, Any]:
    run = open_run(part.path, part.config, console)
    if part.is_done:
        return json.loads((part.path / "summary.json").read_text())
    return train_and_evaluate(part.config, run, console)[0]


def open_run(path: Path, config: Any, console: Console) -> RunDirectory:
    """The run directory of one part: a new one, or the one in which it was begun.

    Raises:
      ValueError: if that was with another config.
    """
    if not (path / "config.yaml").is_file():
        shutil.rmtree(path, ignore_errors=True)  # nothing was begun there
        return RunDirectory.create(path, configs.to_text(config))
    if configs.from_file(type(config), path / "config.yaml") != config:
        raise ValueError(f"{path}: was begun with other settings; it has to be removed")
    return RunDirectory(path, lambda words: say(console, words))


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
        pace = (time.perf_counter() - started) / expected if expected else 1.0
        left = pace * sum(one.seconds for one in jobs[i:])
        say(console, f"{job.path.name}: part {i + 1} of {len(jobs)}; about {duration(left)} left")
        job.run()
        expected += job.seconds
    return {job.path.name: json.loads((job.path / "summary.json").read_text()) for job in jobs}
