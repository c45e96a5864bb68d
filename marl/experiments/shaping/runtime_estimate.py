"""How long a shaping run will take on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.experiment import steps_per_generation, train_and_evaluate
from marl.experiments.shaping.game_kind import make_kind
from meta.run_keys import of_seeds
from meta.runs.formatting import amount, duration, say
from meta.runs.jobs import Job, finished, open_run

MEASURED_GENERATIONS = {"meta-steps": 12, "steps": 3}


class Speed(NamedTuple):
    """How fast this machine is in what was measured: in games that are formulas with a naive learner, or its like."""

    steps_per_second: float
    seconds_to_compile: float

    def seconds(self, config: ShapingConfig, done: int = 0) -> float:
        """How long a config takes, with its evaluation, roughly.

        Args:
          config: in the game that was measured, or in another formula if that was one.
          done: generations that are there already.
        """
        kind, groups = make_kind(config), 1 + len(config.unseen) + (not config.is_self_play)
        cost, compiling = kind.costs
        trials = (
            max(0, config.generations - done) * config.trials_per_generation + config.evaluation_trials * kind.fresh
        )
        trials += config.screening.num_trials if config.screening and not done else 0
        running = trials * kind.steps * config.seeds * cost / self.steps_per_second
        # The training and each group of the evaluation is a program, all of about the same size.
        return running + (1 + groups) * compiling * self.seconds_to_compile + kind.seconds_to_draw


def measure(config: ShapingConfig) -> Speed:
    """The speed of this machine, from the first generations of a training; some seconds, most of them to compile."""
    kind = make_kind(config)
    short = make_kind(kind.shortened(min(MEASURED_GENERATIONS[kind.unit], config.generations)))
    trained = short.train(of_seeds(config.seed, short.config.seeds))
    cost, compiling = kind.costs
    steps = short.config.generations * steps_per_generation(short)
    return Speed(steps * cost / trained.seconds_to_run, trained.seconds_to_compile / compiling)


def shaping_jobs(configs: Mapping[Path, ShapingConfig], console: Console) -> list[Job]:
    """What is to be trained, each config in its own directory, with the time that it will take on this machine.

    Measures the speed of what is not done yet, and says it: in each sampled game with each learner, in formulas once
    for the learners of which it is known how much longer others take, and with each of the others.
    """
    left = [path for path, config in configs.items() if not finished(path, config)]
    speeds: dict[str, Speed] = {}

    where = {path: make_kind(config).measured for path, config in configs.items()}
    for path in left:
        if where[path] not in speeds:
            say(console, f"measuring the speed of this machine in {where[path]}")
            speeds[where[path]] = speed = measure(configs[path])
            rate, compiling = f"{amount(speed.steps_per_second)} steps/s", f"{speed.seconds_to_compile:.0f} s"
            say(console, f"{rate}, {compiling} to compile")

    def job(path: Path, config: ShapingConfig) -> Job:
        lines = path / "metrics.jsonl"
        done = len(lines.read_text(encoding="utf-8").splitlines()) if lines.is_file() else 0
        seconds = speeds[where[path]].seconds(config, done) if path in left else 0.0
        return Job(path, config, seconds, partial(_run, path, config, console))

    jobs = [job(path, config) for path, config in configs.items()]
    if left:
        for one in jobs:
            say(console, f"  {one.path.name}: {duration(one.seconds) if one.seconds else 'done before'}")
    return jobs


def _run(path: Path, config: ShapingConfig, console: Console) -> None:
    train_and_evaluate(make_kind(config), open_run(path, config, console), console)
