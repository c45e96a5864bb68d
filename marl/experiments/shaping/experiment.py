"""A whole experiment: shapers trained as a config says, tried on fresh opponents, and kept in a run directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

import configs
from marl.experiments.shaping import figures
from marl.experiments.shaping.agents import AGENT_FILE, save_agent
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.evaluation_cache import EvaluationCache
from marl.experiments.shaping.evaluation_result import ALONE, UNTRAINED, EvaluationResult, analyse, pool
from marl.experiments.shaping.game_kind import GameKind
from meta import RunDirectory
from meta.batched_trials import compile_trials, play_trials
from meta.process import check_stop
from meta.run_keys import RunBranch, of_seeds
from meta.runs import provenance
from meta.runs.formatting import many
from meta.runs.progress import Progress, Stages

SCREENING, TRAINING = "screening of random shapers", "training"


def train_and_evaluate(
    kind: GameKind, run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Trains, or goes on with a training that was stopped, and writes summary, agents and figures.

    Args:
      kind: of the config, which says what to train, and how.
      run: where to.
      console: shows progress, and nothing else.
      started: the `time.perf_counter()` from which `wall_seconds` counts; now if None.

    Returns:
      (what is in `summary.json`, the figures' files).

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite return.
      ValueError: if what the opponents read is not what they read when it was begun.
    """
    started = time.perf_counter() if started is None else started
    config = kind.config
    _check_files(config, run)
    keys, sides = of_seeds(config.seed, config.seeds), side_names(config)
    trials, programs = kind.groups(), dict[str, Future[Any]]()
    fresh = {name: f"{many(config.evaluation_trials, 'fresh trial')}: {name}" for name in (*trials, UNTRAINED)}
    stages = Stages(console, work_of_training(kind) | dict.fromkeys(fresh, work_of_evaluation(kind) / len(fresh)))
    progress = make_progress(kind, console, stages)
    pool_of_one = ThreadPoolExecutor(1)

    def compile_for(names: Iterable[str]) -> None:
        for name in names:
            programs[name] = programs.get(name) or pool_of_one.submit(_compile, kind, trials[name])

    def show(generation: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
        compile_for(trials)
        stages.begin(TRAINING)
        progress(generation, metrics, seconds)

    # What plays the fresh trials is compiled while the training runs, so that nobody waits for it.
    try:
        stages.begin(SCREENING if config.screening else TRAINING)
        with progress:
            trained = kind.train(keys, store=run, report=show, screening=progress.before("random shapers"))
        # Through the host, for what was trained on several devices lies on all of them.
        parameters = jax.tree.map(np.asarray, trained.parameters)
        for name, (how, theirs) in kind.agents(parameters).items():
            kept = theirs if config.seeds > 1 else jax.tree.map(lambda x: x[0], theirs)
            save_agent(run.path / f"{name}{AGENT_FILE}", how, kept)
        each = [jax.tree.map(lambda x, i=i: x[i], parameters) for i in range(config.seeds)]
        before, groups = EvaluationCache(run.path, kind, each), {}
        compile_for(name for name in trials if name == config.opponent or not before.has(name))
        for name in trials:
            stages.begin(name, fresh[name])
            groups[name] = _play(kind, programs.get(name), name, keys, each, before)
        stages.begin(UNTRAINED, fresh[UNTRAINED])
        random = [jax.tree.map(np.asarray, kind.init(jax.random.fold_in(key, RunBranch.RANDOM))) for key in keys]
        groups[UNTRAINED] = _play(kind, programs[config.opponent], UNTRAINED, keys, random, before)
    finally:
        pool_of_one.shutdown(cancel_futures=True)
    runs = [_summarize(kind, {name: found[i] for name, found in groups.items()}, i) for i in range(config.seeds)]
    found = pool([{name: value for name, value in one.items() if name not in ("seed", "num_trials")} for one in runs])
    found |= kind.summarize(found) | {"num_trials": config.evaluation_trials * config.seeds}
    together = {name: jax.tree.map(lambda *x: np.concatenate(x), *played) for name, played in groups.items()}
    files = [
        figures.draw_training(run.figures, trained.metrics, sides),
        figures.draw_trial(run.figures, together, config.opponent, sides),
        *figures.draw_opponents(run.figures, found, "trainings" if config.seeds > 1 else "fresh trials"),
        *kind.draw(run.figures, together, runs[0]),
        *kind.animate(jax.tree.map(lambda x: x[0], parameters), run.figures / "episodes.gif"),
    ]
    done, per_generation = config.generations - trained.first_generation, steps_per_generation(kind)
    unit = "meta_steps" if kind.unit == "meta-steps" else "environment_steps"
    summary = {
        **kind.about(),
        "opponent": config.opponent,
        "shaper": config.shaper,
        "meta_learner": config.meta_learner,
        "start": config.starting,
        **({"evolution": configs.plain(config.evolving)} if config.meta_learner == "evolution" else {}),
        **found,
        "reads": config.reads,
        "seed": config.seed,
        "seeds": config.seeds,
        "generations": config.generations,
        f"num_{unit}": config.training_trials * kind.steps * config.seeds,
        f"{unit}_per_second": per_generation * done / trained.seconds_to_run if done else None,
        "seconds_to_compile": trained.seconds_to_compile,
        "wall_seconds": time.perf_counter() - started,
        "versions": provenance.versions(),
        "devices": provenance.devices(),
        "runs": runs,
    }
    run.write_summary(summary)
    before.clear()
    return summary, files


def _check_files(config: ShapingConfig, run: RunDirectory) -> None:
    path, reads = run.path / "reads.txt", config.reads
    if path.exists() and path.read_text(encoding="utf-8") != reads:
        raise ValueError(f"{run.path}: files that the opponents read have changed since; it has to be begun anew")
    if reads:
        run.write(path.name, reads)


def work_of_training(kind: GameKind) -> dict[str, float]:
    """Stages of a training and the steps of each, in the unit of its kind of game."""
    config = kind.config
    found: dict[str, float] = {TRAINING: config.generations * steps_per_generation(kind)}
    if config.screening:
        return {SCREENING: config.screening.num_trials * kind.steps * config.seeds, **found}
    return found


def work_of_evaluation(kind: GameKind) -> float:
    """Steps of all fresh trials, in those against the opponent."""
    return kind.config.evaluation_trials * kind.fresh * kind.steps * kind.config.seeds


def make_progress(kind: GameKind, console: Console, stages: Stages) -> Progress:
    """Shows how far a training is: the `report` of `kind.train`."""
    config, sides = kind.config, side_names(kind.config)

    def describe(metrics: dict[str, np.ndarray]) -> str:
        values = (np.mean(metrics[f"{name}_return"]) for name in ("shaper", "opponent"))
        words = "  ".join(f"{name} {value:.3f}" for name, value in zip(sides, values, strict=True))
        failed = int(np.sum(metrics["non_finite"]))
        return words + (f"  {failed} not finite" if failed else "")

    return Progress(console, config.generations, steps_per_generation(kind), kind.unit, describe, stages=stages)


def side_names(config: ShapingConfig) -> tuple[str, str]:
    """What the shaper and whom it meets are called."""
    return ("row", "column") if config.is_self_play else ("shaper", "opponent")


def steps_per_generation(kind: GameKind) -> int:
    """Number of steps of all trainings and candidates, in the unit of their kind of game."""
    return kind.config.trials_per_generation * kind.steps * kind.config.seeds


def _summarize(kind: GameKind, groups: dict[str, EvaluationResult], number: int) -> dict[str, Any]:
    """What one training came to: means over its fresh trials, with their standard errors."""
    config = kind.config
    each = {name: analyse(played) | kind.analyse(played) for name, played in groups.items()}
    found = {"against": {name: one for name, one in each.items() if name not in (ALONE, UNTRAINED)}}
    found |= {"untrained": each[UNTRAINED]} | ({"naive": each[ALONE]} if ALONE in each else {})
    found |= kind.find(groups, number)
    return {"seed": config.seed + number, **kind.summarize(found), "num_trials": config.evaluation_trials, **found}


def _compile(kind: GameKind, trial: Callable[[jax.Array, Any], EvaluationResult]) -> Any:
    shapes = jax.eval_shape(kind.init, jax.random.key(0))
    return compile_trials(trial, shapes, kind.config.evaluation_trials, kind.at_once)


def _play(
    kind: GameKind,
    program: Future[Any] | None,
    name: str,
    keys: jax.Array,
    parameters: list[Any],
    before: EvaluationCache,
) -> list[EvaluationResult]:
    """Fresh trials of each training `[K]` against an opponent; what has been played before is not played again."""
    found = []
    for i, key in enumerate(keys):
        check_stop()
        if (played := before.get(name, i)) is None:
            assert program
            # A key that no generation drew from: `evolve` splits its own.
            fresh = jax.random.split(jax.random.fold_in(key, RunBranch.EVALUATION), kind.config.evaluation_trials)
            played = before.keep(name, i, play_trials(program.result(), fresh, parameters[i], kind.at_once))
        found.append(played)
    return found
