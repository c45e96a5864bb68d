"""A whole experiment: a learner trained alone as a config says, evaluated on fresh episodes, kept in a directory."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from marl import report, tensors
from marl.charts import BLUE, GREY, draw_line, new_axes, save_figure
from marl.evaluation import evaluate
from marl.train_config import TrainConfig
from meta import RunDirectory
from meta.devices import spread
from meta.loop import Iterated, Report, Store, compiler_options, iterate
from meta.progress import Progress

LEARNER_FILE = "learner.safetensors"
POINTS = 200  # of a curve at most


class Trained(NamedTuple):
    """What `train` returns. `S` is the number of seeds."""

    states: Any  # of the learners in the end, `[S, ...]`
    returns: np.ndarray  # `[updates, S]`: mean return of the episodes that ended before an update, NaN if none
    loop: Iterated


def train(config: TrainConfig, *, store: Store | None = None, report: Report | None = None) -> Trained:
    """Trains a learner, every seed in one program, spread over the local devices.

    What a seed learns is what `learn` with the key `jax.random.key(seed)` makes of it.

    Args:
      config: what to train, and how.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(updates so far, their last metrics, seconds of running)` by the host.
    """
    program, seeds = config.make_program(), config.seeds

    def update(key: jax.Array, number: jax.Array, carry: Any) -> tuple[Any, dict[str, jax.Array]]:
        # `fold_in` makes the key with that number of `jax.random.split`.
        carry, found = program.update(carry, jax.random.fold_in(key, number))
        return carry, {"training_return": found.returns[0], "reward": found.rewards[0], **found.metrics[0]}

    update_all = spread(update, seeds)

    def step(keys: jax.Array, number: jax.Array, carry: Any) -> tuple[Any, dict[str, jax.Array]]:
        carry, metrics = update_all(keys, jnp.broadcast_to(number, (seeds,)), carry)
        return carry, metrics if seeds > 1 else jax.tree.map(lambda x: x[0], metrics)

    carry, keys = jax.jit(spread(program.begin, seeds))(_keys(config))
    found = iterate(
        step,
        carry,
        keys,
        config.num_updates,
        store=store,
        report=report,
        checkpoint_seconds=config.checkpoint_seconds,
        name="update",
    )
    returns = found.metrics["training_return"].reshape(-1, seeds)
    return Trained(found.state.states[0], returns, found)


def train_and_evaluate(
    config: TrainConfig, run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Trains, or goes on with a training that was stopped, and writes summary, parameters and figures.

    Args:
      config: what to train, and how.
      run: where to.
      console: shows progress, and nothing else.
      started: the `time.perf_counter()` from which `wall_seconds` counts; now if None.

    Returns:
      (what is in `summary.json`, the figures' files).
    """
    started = time.perf_counter() if started is None else started
    program, keys = config.make_program(), _keys(config)

    def describe(metrics: dict[str, np.ndarray]) -> str:
        known = metrics["training_return"][np.isfinite(metrics["training_return"])]
        return f"return {known.mean():.1f}" if known.size else "no episode has ended"

    @jax.jit
    @jax.vmap
    def evaluate_all(key: jax.Array, state: Any) -> jax.Array:
        # A learner with a memory has one for each environment of its training.
        envs = config.num_envs if program.learner.forget else 1
        returns = evaluate(
            jax.random.fold_in(key, 2**32 - 1),  # no update drew from it: `learning` splits its own
            program.game,
            program.learner,
            state,
            num_episodes=-(-config.evaluation_episodes // envs) * envs,
            num_steps=program.longest_episode,
            num_envs=envs if envs > 1 else None,
        )
        return returns[: config.evaluation_episodes]

    def compile_evaluation() -> Any:
        states = jax.eval_shape(jax.vmap(program.learner.init), keys)
        return evaluate_all.lower(keys, states).compile(compiler_options())

    steps = config.seeds * config.steps_of_an_update
    progress = Progress(
        console, config.num_updates, steps, "environment steps", describe, quiet=console.quiet, name="update"
    )
    # The evaluation is compiled while the training runs, so that nobody waits for it.
    compiling: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as pool, progress:

        def show(update: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
            if not compiling:
                compiling.append(pool.submit(compile_evaluation))
            progress(update, metrics, seconds)

        trained = train(config, store=run, report=show)
        evaluation = compiling[0].result() if compiling else compile_evaluation()
        states = jax.device_put(trained.states, jax.local_devices()[0])
        returns = np.asarray(evaluation(keys, states), np.float64)
    done = config.num_updates - trained.loop.first_iteration
    summary = {
        "game": config.game,
        "learner": config.learner,
        "seed": config.seed,
        "seeds": config.seeds,
        "total_steps": config.num_updates * config.steps_of_an_update,
        "returns": _statistics(config, returns),
        "training_return": _statistics(config, trained.returns[config.num_updates * 9 // 10 :].T),
        "evaluation_episodes": config.evaluation_episodes,
        "wall_seconds": time.perf_counter() - started,
        "seconds_to_compile": trained.loop.seconds_to_compile,
        "steps_per_second": steps * done / trained.loop.seconds_to_run if done else None,
        "versions": report.versions(),
        "devices": report.devices(),
    }
    files = [_draw_training(run.figures, config, trained.returns)]
    tensors.replace(run.path / LEARNER_FILE, _policy(states), {"method": "train", "config": configs.plain(config)})
    run.write("summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    return summary, files


def _keys(config: TrainConfig) -> jax.Array:
    return jnp.stack([jax.random.key(config.seed + i) for i in range(config.seeds)])


def _policy(states: Any) -> dict[str, Any]:
    """What a learner needs to act, and not what it needs to go on learning."""
    return {name: getattr(states, name) for name in ("params", "statistics") if hasattr(states, name)}


def _statistics(config: TrainConfig, values: np.ndarray) -> dict[str, Any]:
    """Means of what is finite in `[S, ...]`: of each seed, over the seeds, and the standard error between seeds.

    None where there is no number: of one seed nobody knows the error.
    """
    means = np.array([np.mean(x[np.isfinite(x)]) if np.isfinite(x).any() else np.nan for x in values])
    error = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan
    each = [{"seed": config.seed + i, "mean": _number(mean)} for i, mean in enumerate(means)]
    return {"mean": _number(means.mean()), "standard_error": _number(error), "seeds": each}


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def _draw_training(folder: Path, config: TrainConfig, returns: np.ndarray) -> Path:
    """The training return `[updates, S]` over the environment steps of a seed."""
    parts = np.array_split(np.arange(len(returns)), min(POINTS, len(returns)))
    ended = [part for part in parts if np.isfinite(returns[part]).any(0).all()]
    figure, axes = new_axes("environment steps", "return of the episodes that ended")
    if ended:
        x = np.array([(part[-1] + 1) * config.steps_of_an_update for part in ended])
        y = np.array([np.nanmean(returns[part], 0) for part in ended])
        draw_line(axes, x, y.mean(1), y.std(1), BLUE, config.learner_name)
    words = (
        f"mean of {config.seeds} seeds; band: one standard deviation between them" if config.seeds > 1 else "one seed"
    )
    axes.set_title(f"{config.game}, {config.learner_name}\n{words}", fontsize=8, color=GREY)
    return save_figure(figure, folder / "training_return.png")
