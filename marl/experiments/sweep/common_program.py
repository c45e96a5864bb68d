"""One program for many points of a sweep: those that differ in traced numbers alone are trained together by `vmap`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from configs import specs
from configs.specs import terms
from marl.experiments import learner_training
from marl.experiments.learner_training import TrainConfig
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.experiment import TRAINING
from marl.experiments.shaping.jobs import make_shaping
from marl.experiments.sweep.plan import Point, is_whole, literal
from marl.experiments.sweep.split_store import SplitStore
from meta import RunDirectory
from meta.run_keys import of_seeds
from meta.runs.progress import Progress, Stages
from meta.strategies import TRACEABLE

SPEC = {ShapingConfig: "opponent", TrainConfig: "learner"}  # whose settings may be traced


def groups_of(points: Sequence[Point]) -> list[list[Point]]:
    """Points that one program can train, in the order of the first of each group.

    They differ in seeds, in numbers of the evolution and in settings of the learner that can be traced.
    """
    found: dict[str, list[Point]] = {}
    traceable: dict[str, bool] = {}
    for point in points:
        common = _common(point, {})
        if common is not None and (settings := settings_of(point)):
            traced = _common(point, settings) or ""
            if traced not in traceable:
                traceable[traced] = _can_trace(point.config, settings)
            common = traced if traceable[traced] else common
        found.setdefault(point.name if common is None else common, []).append(point)
    return list(found.values())


def settings_of(point: Point) -> dict[str, float]:
    """The numbers of a point that are settings of its opponent or learner, by their names."""
    field = _spec_field(point.config)
    inside = {name.partition(".")[2]: text for name, text in point.values.items() if name.startswith(f"{field}.")}
    values = {name: literal(text) for name, text in inside.items() if not is_whole(point.config, f"{field}.{name}", {})}
    return {name: float(x) for name, x in values.items() if isinstance(x, int | float) and not isinstance(x, bool)}


def _spec_field(config: Any) -> str:
    return next((field for kind, field in SPEC.items() if isinstance(config, kind)), "")


def _common(point: Point, settings: Mapping[str, float]) -> str | None:
    """Words that are equal for points of one program; None for a point that is trained alone."""
    config, field = point.config, _spec_field(point.config)
    if not field or len(terms(getattr(config, field))) > 1:
        return None
    kept = configs.plain(config)
    if isinstance(config, ShapingConfig):
        if config.meta_learner != "evolution" or config.preparation or config.is_self_play:
            return None
        kept["evolution"] = {name: x for name, x in kept["evolution"].items() if name not in TRACEABLE}
    if settings:
        name, given = specs.read(field, kept[field], "naive")
        kept[field] = [name, {key: x for key, x in given.items() if key not in settings}, sorted(settings)]
    del kept["seed"]
    return json.dumps([type(config).__name__, kept])


def _can_trace(config: Any, settings: Mapping[str, float]) -> bool:
    """True if a trial or an update can be traced with these settings as arguments."""
    key, numbers = jax.random.key(0), dict.fromkeys(settings, jnp.float32(0.1))
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(config, ShapingConfig):
            experiment = make_shaping(config)
            parameters = jax.eval_shape(experiment.shaper.init, key)
            jax.eval_shape(lambda own, *call: experiment.trial_with(own)(*call), numbers, parameters, key)
        else:
            program = learner_training.make_program(config)

            def update(own: dict[str, jax.Array], key: jax.Array) -> Any:
                traced = learner_training.program_with(config, program, own)
                return traced.update(*traced.begin(key))

            jax.eval_shape(update, numbers, key)
        return True
    return False


def train_together(points: Sequence[Point], runs: Sequence[RunDirectory], console: Console) -> None:
    """Trains the points of a group in one program, or goes on with it; each run has its last checkpoint then.

    Args:
      points: of one group of `groups_of`.
      runs: the directory of each.
      console: shows progress.

    Raises:
      NonFiniteFitness: if the training of one of them fails.
      TooLarge: if the program needs more memory than its devices have; nothing has run then.
    """
    first, each = points[0].config, points[0].config.seeds
    keys = jnp.concatenate([of_seeds(point.config.seed, each) for point in points])
    names = sorted(settings_of(points[0]))
    settings = {name: _of_runs([settings_of(point)[name] for point in points], each) for name in names}
    settings = {name: x for name, x in settings.items() if len(set(x.tolist())) > 1}
    if isinstance(first, ShapingConfig):
        _train_shapers(points, runs, console, keys, settings)
        return
    config = dataclasses.replace(first, seeds=len(keys))
    steps, unit = len(keys) * config.steps_of_an_update, "environment steps"
    store = SplitStore(runs, each, squeeze=False)
    with Progress(console, config.num_updates, steps, unit, _mean_return, name="update") as progress:
        learner_training.train(config, store=store, report=progress, keys=keys, settings=settings)


def _mean_return(metrics: Mapping[str, np.ndarray]) -> str:
    known = metrics["training_return"][np.isfinite(metrics["training_return"])]
    return f"return {known.mean():.1f}" if known.size else "no episode has ended"


def _train_shapers(
    points: Sequence[Point], runs: Sequence[RunDirectory], console: Console, keys: jax.Array, settings: dict[str, Any]
) -> None:
    first, each = points[0].config, points[0].config.seeds
    for point, run in zip(points, runs, strict=True):
        run.check_reads(point.config.reads)
    values = {name: [getattr(point.config.evolution, name) for point in points] for name in TRACEABLE}
    numbers = {name: _of_runs(some, each) for name, some in values.items() if len(set(some)) > 1}
    experiment = make_shaping(dataclasses.replace(first, seeds=len(keys), evaluation_trials=2))
    train = partial(experiment.train_shapers, keys, numbers=numbers, settings=settings)
    stages = Stages(console, experiment.work_of_training())
    stages.begin(TRAINING)
    with experiment.progress(stages) as progress:
        train(store=SplitStore(runs, each, squeeze=True), report=progress)


def _of_runs(values: Sequence[float], each: int) -> jax.Array:
    return jnp.asarray(np.repeat(np.asarray(values, np.float32), each))
