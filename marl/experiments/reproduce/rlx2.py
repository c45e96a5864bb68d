"""RLx2: what is left of a return with few weights, and which of the parts that should help with that do."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from games.registry import make_game
from marl.blocks.sparse import kernels, num_weights
from marl.experiments.learner_training import TrainConfig, train
from marl.experiments.returns import read_returns
from marl.experiments.single_agent import SingleAgent
from marl.learners.registry import make_learner
from meta import RunDirectory
from meta.runs.formatting import say
from meta.runs.jobs import Job, experiment_job, finished
from meta.runs.plotting import (
    AMBER,
    BLUE,
    BOUND,
    CONTROL,
    EVOLVED,
    GREEN,
    GREY,
    PINK,
    SKY,
    count_steps,
    draw_mean_and_error,
    in_parts,
    name_rows,
    new_axes,
    save_figure,
)
from meta.runs.reports.claims import Claim, Section, number, table
from meta.statistics import or_nan, rounded, with_error

HIDDEN, BATCH, STEPS_OF_ALL = 64, 256, 40_000
DENSITY = 0.08
ROLLOUT, OF_ROLLOUTS = 100, 7  # steps of a rollout; times the seconds of a training without them
WITHIN, BELOW_BOTH = 0.97, 2.5  # of dense, and standard errors
RANDOM = "untrained"
DENSE, TINY, STATIC, SET, RIGL = "dense", "Tiny", "static", "SET", "RigL"
STEPS, FORGETS, ALL, RULE = "RigL, three steps", "RigL, buffer of 0.2", "RLx2", "RLx2, buffer of half"
TRUE = "RigL, true values"
COLORS = {DENSE: BOUND, TINY: CONTROL, STATIC: GREEN, SET: PINK, RIGL: BLUE, STEPS: SKY, FORGETS: AMBER, ALL: EVOLVED}
COLORS |= {RULE: "#B59B00", TRUE: "#7A5195"}  # ochre and violet, which no other row has

# Masses, length, force, damping and the end of Gymnasium's InvertedPendulum, with other steps, 500 of an episode.
INVERTED = (
    "inverted_pendulum(mass_cart=10.5, mass_pole=5.0, half_length=0.3, damping=1.0, max_force=300.0, dt=0.04, "
    "track=1.0, ends_at_track=False)"
)


class Task(NamedTuple):
    """A task of the report: an environment and its learners."""

    environment: str
    learner: str
    rows: tuple[str, ...]
    words: str
    steps: int = STEPS_OF_ALL
    density: float = DENSITY  # of the weights of sparse rows


TASKS = {
    "pendulum": Task("Pendulum-v1", "td3", (DENSE, TINY, STATIC, SET, RIGL, STEPS, ALL, RULE), "A pendulum, by TD3"),
    "swing-up": Task("cart_pole_swing_up", "sac", (DENSE, RIGL, STEPS, FORGETS, ALL, RULE), "A pole on a cart, by SAC"),
    "balance": Task(
        INVERTED, "td3", (DENSE, STATIC, RIGL, TRUE, ALL), "A pole that is balanced, by TD3", steps=20_000, density=0.03
    ),
}


class Sizes(NamedTuple):
    """Sizes of the networks of a row."""

    actor: int  # weights
    critics: int  # of both
    learner: str

    @property
    def inference(self) -> float:
        """Operations of an action: a product and a sum for each weight."""
        return 2.0 * self.actor

    @property
    def training(self) -> float:
        """Operations of a gradient step of the critics, with its share of the actor's.

        The target needs an actor and both critics once. What follows gradients costs three times as much as once, and
        a network that only hands them on twice: both critics 3; the actor 3, and what it asks 2, which TD3 does every
        second time, of one critic, and SAC every time, of both. Changes of the topology are not counted: one dense
        gradient in more than a hundred steps.
        """
        actor, critics = 2.0 * self.actor, 2.0 * self.critics
        climbs = 3 * actor + 2 * critics if self.learner == "sac" else (3 * actor + 2 * critics / 2) / 2
        return BATCH * (actor + critics + 3 * critics + climbs)


def make_configs(*, seeds: int, seed: int, fast: bool) -> dict[str, dict[str, TrainConfig]]:
    """The trainings of each task, by row."""
    found = {}
    for name, task in list(TASKS.items())[: 1 if fast else None]:
        rows = (DENSE, RIGL) if fast else (RANDOM, *task.rows)
        steps = 64 if fast else task.steps
        found[name] = {
            row: TrainConfig(
                environment=task.environment,
                learner=_learner(row, task, steps),
                total_steps=steps if row != RANDOM else 8,
                num_envs=1,
                steps_per_update=8,
                seed=seed,
                seeds=seeds,
                evaluation_episodes=4 if fast else 128,
                checkpoint_seconds=60.0,
            )
            for row in rows
        }
    return found


def _learner(row: str, task: Task, steps: int) -> str:
    """The spec of a row. What the paper has per three million steps is so here in proportion."""
    hidden, extra = HIDDEN, {}
    climbs = 2 if task.learner == "td3" else 1  # gradient steps of the critics for one of the actor
    topology = f"density={task.density}, every={max(steps // 300, 1)}, until={max(steps * 99 // 100, 1)}"
    if row == TINY:
        hidden = tiny(task)
    elif row == STATIC:
        extra["sparsity"] = f"'static(density={task.density})'"
    elif row not in (DENSE, RANDOM):
        # Each counts its own steps, and its changes end when it has made them.
        own = f"density={task.density}, every={max(steps // 300, 1)}, until={max(steps * 99 // (100 * climbs), 1)}"
        update = "set" if row == SET else "rigl"
        extra |= {"sparsity": f"'{update}({own})'", "critic_sparsity": f"'{update}({topology})'"}
    if row in (STEPS, ALL, RULE):
        extra |= {"multi_step": "3", "multi_step_from": str(steps // 10)}
    if row in (FORGETS, ALL, RULE):
        extra |= {"buffer_drift": "0.2", "buffer_least": str(steps // 15), "buffer_every": str(max(steps // 300, 1))}
    if row == RULE:
        extra |= {"buffer_drift": "0.5", "buffer_relative": "True"}
    if row == TRUE:
        extra |= {"value_rollouts": str(ROLLOUT)}
    if row == RANDOM:
        extra = {"learning_starts": "1_000_000"}
    settings = f"hidden=[{hidden}, {hidden}], learning_rate=1e-3, buffer_size={2 ** math.ceil(math.log2(steps))}"
    return f"{task.learner}({settings}{''.join(f', {key}={x}' for key, x in extra.items())})"


@functools.cache
def sizes(environment: str, learner: str) -> Sizes:
    """Numbers of weights of the networks."""
    networks = make_learner(learner, make_game(environment)).init(jax.random.key(0)).networks
    actor, critics, _ = networks.optimizer
    return Sizes(num_weights(networks.actor, actor), num_weights(networks.critics, critics), learner.partition("(")[0])


def tiny(task: Task) -> int:
    """Units of each layer of dense networks with as many weights as the sparse ones have."""
    learner = make_learner(_learner(DENSE, task, 1), make_game(task.environment))
    networks = jax.eval_shape(learner.init, jax.random.key(0)).networks
    shapes = [kernel.shape for kernel in kernels((networks.actor, networks.critics))]

    def weights(units: int) -> int:
        return sum(math.prod(units if side == HIDDEN else side for side in shape) for shape in shapes)

    return min(range(1, HIDDEN), key=lambda units: abs(weights(units) - task.density * weights(HIDDEN)))


def make_jobs(folder: Path, parts: dict[str, dict[str, TrainConfig]], console: Console, *, fast: bool) -> list[Job]:
    """The trainings, with the seconds that they will take on this machine; the dense one of each task is measured."""
    jobs = []
    for name, rows in parts.items():
        paths = {row: folder / name / row.replace(",", "").replace(" ", "-").lower() for row in rows}
        is_done = all(finished(path, rows[row]) for row, path in paths.items())
        seconds = 0.0 if fast or is_done else _measured(rows[DENSE], console)
        for row, config in rows.items():
            path = paths[row]
            took = 20.0 if row == RANDOM else seconds * OF_ROLLOUTS if row == TRUE else seconds
            jobs.append(experiment_job(path, config, took, SingleAgent, console))
    return jobs


def _measured(config: TrainConfig, console: Console) -> float:
    say(console, f"measuring the speed of this machine: {config.environment}")
    started = 1_000 // config.steps_of_an_update  # nothing is learned before
    short = train(dataclasses.replace(config, total_steps=2 * (started + 1) * config.steps_of_an_update))
    updates = config.num_updates - started
    return short.loop.seconds_to_compile + short.loop.seconds_to_run / (started + 2) * updates


def sections(
    run: RunDirectory,
    parts: dict[str, dict[str, TrainConfig]],
    jobs: Sequence[Job],
    results: dict[Path, dict[str, Any]],
) -> list[Section]:
    """The report: a section for each task."""
    by_config = {(job.config.environment, job.config.learner): job.path for job in jobs}
    found = []
    for name, configs in parts.items():
        paths = {row: by_config[config.environment, config.learner] for row, config in configs.items()}
        found.append(_section(run, name, configs, paths, {row: results[path] for row, path in paths.items()}))
    return found


def _section(
    run: RunDirectory,
    name: str,
    configs: dict[str, TrainConfig],
    paths: dict[str, Path],
    results: dict[str, dict[str, Any]],
) -> Section:
    task, returns = TASKS[name], {row: found["returns"] for row, found in results.items()}
    floor = or_nan(returns.get(RANDOM, {"mean": 0.0})["mean"])
    (dense, dense_error), one = _both(returns[DENSE]), configs[DENSE]
    rows, shares = [], {}
    for row, config in configs.items():
        mean, error = _both(returns[row])
        share = (mean - floor) / (dense - floor)
        apart = 0.0 if row == DENSE else math.hypot(error, share * dense_error)
        shares[row] = (share, apart / abs(dense - floor))
        size, full = sizes(config.environment, config.learner), sizes(one.environment, one.learner)
        cells = [with_error(returns[row], 1), f"{100 * share:.1f} ± {100 * shares[row][1]:.1f}"]
        if row != RANDOM:
            cells += [f"{size.actor:,}", f"{size.critics:,}"]
            cells += [f"{size.inference / full.inference:.3f}"]
            cells += [
                "" if row == TRUE else f"{size.training / full.training:.3f}"
            ]  # steps of the game are no operations
            speed = results[row]["steps_per_second"]
            cells += ["" if speed is None else number(1e3 / speed, 2)]
        rows.append([row, *cells, *[""] * (7 - len(cells))])
    header = ["", "return", "% of dense", "weights, actor", "critics", "operations of an action", "of a step"]
    header += ["ms a step"]
    text = (
        f"`{one.environment}`, {one.total_steps:,} steps, {one.seeds} trainings a row at a time, "
        f"{one.evaluation_episodes} episodes of each; errors are between trainings. Percent are of the way from an "
        "untrained actor, which does not explore, to dense, with the error of both; operations are parts of dense, of "
        f"the weights that are there. Sparse rows have {task.density:.0%} of the weights of networks of {HIDDEN}, "
        f"{HIDDEN} units, by the allocation of Erdős and Rényi."
    )
    if TRUE in configs:
        text += f" With true values the returns of {ROLLOUT} steps of the game are in the critics' targets."
    pictures = [("returns", f"figures/{name}-returns.png"), ("learning curves", f"figures/{name}-curves.png")]
    _draw_returns(run.figures, name, shares)
    _draw_curves(run.figures, name, configs, {row: path for row, path in paths.items() if row != RANDOM})
    found = {row: or_nan(one["mean"]) for row, one in returns.items() if row not in (RANDOM, DENSE, TINY, TRUE)}
    sparse = max(found, key=lambda row: np.nan_to_num(found[row], nan=-np.inf))
    answer = (
        f"With {task.density:.0%} of the weights {sparse} gets the largest return, "
        f"{rounded(returns[sparse]['mean'], 1)}: {100 * shares[sparse][0]:.1f} % of the way from an untrained actor to "
        f"dense ({rounded(dense, 1)})."
    )
    return Section(task.words, text, _claims(name, returns, shares), [table(header, rows)], pictures, answer)


def _claims(name: str, returns: dict[str, Any], shares: dict[str, tuple[float, float]]) -> list[Claim]:
    claims = []
    if name == "pendulum":
        claims.append(Claim("RigL, of dense", *shares[RIGL], least=WITHIN))
    if STATIC in returns:
        for better in (RIGL, DENSE):
            claims.append(_apart(f"{better} above static", returns[better], returns[STATIC], BELOW_BOTH))
    for row in (TRUE, STEPS, FORGETS, ALL, RULE):
        if row in returns:
            least = BELOW_BOTH if row == TRUE else None  # the first figure of the paper
            claims.append(_apart(f"{row}, against RigL", returns[row], returns[RIGL], least))
    return claims


def _called(name: str) -> str:
    """The environment of a task without its settings, for a title."""
    return TASKS[name].environment.partition("(")[0]


def _both(found: dict[str, Any]) -> tuple[float, float]:
    return or_nan(found["mean"]), or_nan(found["standard_error"])


def _apart(name: str, one: dict[str, Any], other: dict[str, Any], least: float | None) -> Claim:
    """A claim about the difference of two results in standard errors; without a target it helps, hurts, or neither."""
    (mean, of_one), (others, of_other) = _both(one), _both(other)
    difference, error = mean - others, math.hypot(of_one, of_other)
    apart = difference / error if error else math.nan
    verdict = "helps" if apart > BELOW_BOTH else "hurts" if apart < -BELOW_BOTH else "neither helps nor hurts"
    comment = with_error({"mean": difference, "standard_error": error}, 1)
    return Claim(f"{name}, in standard errors", apart, None, least=least, comment=f"{comment}: {verdict}")


def _draw_returns(folder: Path, name: str, shares: dict[str, tuple[float, float]]) -> Path:
    shown = {row: share for row, share in shares.items() if row != RANDOM}
    figure, axes = new_axes("return in % of dense networks; 0 is an untrained actor", "", (5.5, 0.6 + 0.3 * len(shown)))
    means, errors = (100 * np.array([share[i] for share in shown.values()]) for i in range(2))
    colors = [COLORS[row] for row in shown]
    axes.barh(range(len(shown)), means, xerr=2 * errors, color=colors, height=0.6, error_kw={"capsize": 3})
    axes.axvline(100, color=GREY, linewidth=0.8, linestyle=":")
    name_rows(axes, list(shown))
    title = f"Return in {_called(name)} with {TASKS[name].density:.0%} of the weights"
    note = "higher is better; bars: two standard errors between trainings"
    return save_figure(figure, folder / f"{name}-returns.png", title, note)


def _draw_curves(folder: Path, name: str, configs: dict[str, TrainConfig], paths: dict[str, Path]) -> Path:
    figure, axes = new_axes("", "return of an episode", (5.5, 3.4))
    count_steps(axes)
    for row, path in paths.items():
        returns = read_returns(path / "metrics.jsonl")
        ends, means = in_parts(returns)
        if len(ends):
            draw_mean_and_error(axes, ends * configs[row].total_steps / len(returns), means, COLORS[row], row)
    density = TASKS[name].density
    title = f"Return during training in {_called(name)}, sparse networks with {density:.0%} of the weights"
    note = "higher is better; band: two standard errors between trainings"
    return save_figure(figure, folder / f"{name}-curves.png", title, note)
