"""Shaping experiments of configs, and many of them as jobs of known duration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.experiments.shaping.exact import ExactShaping
from marl.experiments.shaping.runtime_estimate import Speed, cost_of
from marl.experiments.shaping.sampled import SampledShaping
from meta.runs.formatting import amount, duration, say
from meta.runs.jobs import Job, experiment_job, finished


def make_shaping(config: ShapingConfig) -> ExactShaping | SampledShaping:
    """The experiment of a config; raises ValueError as `ExactShaping` and `SampledShaping` do."""
    if isinstance(config, SampledShapingConfig):
        return SampledShaping(config)
    assert isinstance(config, ExactShapingConfig)
    return ExactShaping(config)


def measure(config: ShapingConfig) -> Speed:
    """The speed of this machine, from the first generations of a training; some seconds, most of them to compile."""
    return make_shaping(config.shortened()).speed()


def shaping_jobs(configs: Mapping[Path, ShapingConfig], console: Console) -> list[Job]:
    """Trainings, each in its own directory, with the time that they will take on this machine.

    Measures and shows the speed of those that are not done yet: in each sampled game with each learner, in formulas
    once for the learners whose relative costs are known, and with each of the others.
    """
    left = [path for path, config in configs.items() if not finished(path, config)]
    speeds: dict[str, Speed] = {}
    where = {path: cost_of(config).measured_in for path, config in configs.items()}
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
        return experiment_job(path, config, seconds, make_shaping, console)

    jobs = [job(path, config) for path, config in configs.items()]
    if left:
        for one in jobs:
            say(console, f"  {one.path.name}: {duration(one.seconds) if one.seconds else 'done before'}")
    return jobs
