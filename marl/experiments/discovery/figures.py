"""Figures of a search for an objective: its generations, the objective, and training curves with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marl.blocks.objectives import clipped_surrogate, dpo
from marl.blocks.value_losses import distance_of
from marl.experiments.discovery.trial import TrainingResult
from marl.learners.sampled.objective_registry import Form
from meta.runs.plotting import (
    AMBER,
    BLACK,
    CONTROL,
    EVOLVED,
    GREEN,
    GREY,
    LEARNER,
    PANELS,
    PINK,
    SKY,
    count_steps,
    draw_mean,
    draw_mean_and_error,
    draw_scale,
    name_panel,
    new_axes,
    new_curves,
    new_panels,
    save_figure,
)

COLORS = {
    "plain": CONTROL,
    "begun": AMBER,
    "still": BLACK,
    "tuned": LEARNER,
    "without": SKY,
    "dpo": GREEN,
    "l2": GREEN,
    "clipped_l2": PINK,
    "evolved": EVOLVED,
}
NAMES = {
    "plain": "PPO",
    "begun": "PPO, Huber's loss",
    "still": "no learning",
    "tuned": "PPO, tuned",
    "without": "PPO, settings of the evolved",
    "dpo": "DPO",
    "l2": "L2",
    "clipped_l2": "clipped L2",
    "evolved": "evolved",
}
STYLES = ("-", "--", ":", "-.")  # of several searches
LACK = 3.0  # of a distance, in root mean squares of the batch


def draw_search(folder: Path, stages: dict[str, dict[str, np.ndarray]]) -> Path:
    """The mean fitness of a generation: tuning, and from there with an objective and without one."""
    figure, axes = new_axes("generation", "fitness, mean of a generation")
    begin = 0
    for name, label in (("tuning", "tuning PPO"), ("tuned", "tuning PPO as long again"), ("evolved", "the objective")):
        y = np.asarray(stages[name]["fitness"], np.float64).reshape(len(stages[name]["fitness"]), -1)
        color = {"tuning": CONTROL, "tuned": LEARNER, "evolved": EVOLVED}[name]
        draw_mean(axes, begin + 1 + np.arange(len(y)), y.T, color, label)
        begin += len(y) if name == "tuning" else 0
    number = y.shape[1]
    over = f"mean of {number} searches; band: one standard deviation between them" if number > 1 else "one search"
    title = "Fitness during the evolution of an objective, and of PPO's settings alone"
    return save_figure(figure, folder / "evolution.png", title, f"higher is better; {over}")


def draw_objective(folder: Path, form: Form, each: Sequence[Any], numbers: dict[str, float]) -> Path:
    """The first search's drift over ratio and advantage with its gradient, or all distances with their slopes."""
    if form.kind == "drift":
        return _draw_drift(folder, form, each[0], numbers)
    figure, panels = new_panels((6.6, 2.8), 1, 2)
    s = jnp.linspace(-LACK, LACK, 301)
    start: Any = "l2" if form.start == "l2" else "zero"
    lines: list[tuple[str, str, str, Callable[[jax.Array], jax.Array]]] = [
        ("L2", CONTROL, "-", lambda s: 0.5 * s**2),
        ("Huber, width 1", GREEN, "-", lambda s: jnp.where(jnp.abs(s) < 1, 0.5 * s**2, jnp.abs(s) - 0.5)),
    ]
    for i, one in enumerate(each):
        words = "evolved" if len(each) == 1 else f"evolved, search {i}"
        lines.append((words, EVOLVED, STYLES[i % len(STYLES)], partial(distance_of, one, start=start)))
    for name, color, style, line in lines:
        slope = jax.vmap(jax.grad(lambda s, line=line: line(s[None])[0]))(s)
        # The size of a distance means nothing: the root mean square of all slopes is the same.
        unit = float(jnp.sqrt((slope**2).mean()))
        for axes, values in zip(panels[0], (line(s), slope), strict=True):
            axes.plot(s, values / unit, color=color, label=name, linewidth=1.6, linestyle=style)
    for axes, label in zip(panels[0], ("distance", "slope of the distance"), strict=True):
        axes.set(xlabel="value less target, in root mean squares", ylabel=label)
    title = "The evolved distance of values from their targets, and its slope"
    return save_figure(figure, folder / "objective.png", title, "scaled, so that all slopes have one root mean square")


def _draw_drift(folder: Path, form: Form, parameters: Any, numbers: dict[str, float]) -> Path:
    ratio, advantage = np.linspace(0.5, 1.6, 111), np.linspace(-3, 3, 121)
    x, a = (jnp.float32(one) for one in np.meshgrid(np.log(ratio), advantage))
    clip = numbers.get("clip", 0.2)  # it has none where the search began without PPO's drift
    found = form.settings(parameters, clip)["objective"]
    of_time = {"evolved": found}
    if form.timed:
        of_time = {"evolved, at first": found.at(0.0), "evolved, at last": found.at(1.0)}
    beside = {} if form.timed else {"DPO": dpo()}  # three columns
    shown = {f"PPO, clip {clip:.2g}": clipped_surrogate(clip=clip), **beside, **of_time}
    figure, panels = new_panels((2.2 * len(shown), 4.4), 2, len(shown), sharex=True, sharey=True)
    drifts = {name: np.exp(x) * a - one(x, a) for name, one in shown.items()}
    slopes = {name: jax.vmap(jax.vmap(jax.grad(one)))(x, a) / np.exp(x) for name, one in shown.items()}
    most = max(np.abs(one).max() for name, one in drifts.items())
    for row, (values, limits, colors, label) in enumerate(
        ((drifts, (0, most), "viridis", "drift"), (slopes, (-3, 3), "RdBu_r", "slope of the objective"))
    ):
        for column, (name, one) in enumerate(values.items()):
            axes = panels[row, column]
            axes.grid(visible=False)
            image = axes.pcolormesh(
                ratio, advantage, np.asarray(one), cmap=colors, vmin=limits[0], vmax=limits[1], rasterized=True
            )
            axes.axvline(1.0, color="white" if row == 0 else GREY, linewidth=0.6)
            if row == 0:
                name_panel(axes, name)
            else:
                axes.set_xlabel("ratio of probabilities")
        panels[row, 0].set_ylabel("advantage")
        draw_scale(figure, image, panels[row, -1], label)
    title = "The evolved drift over ratio and advantage, and the slope of its objective in the ratio"
    return save_figure(figure, folder / "objective.png", title)


def draw_curves(folder: Path, trainings: dict[str, dict[str, TrainingResult]], steps: int) -> list[Path]:
    """Draws learning curves of fresh trainings, with two standard errors: six games in a figure.

    Args:
      folder: where to.
      trainings: by game and by objective.
      steps: environment steps of an update.

    Returns:
      The files.
    """
    names, files = list(trainings), []
    for first in range(0, len(names), PANELS):
        shown = names[first : first + PANELS]
        figure, panels = new_curves(len(shown))
        for axes, name in zip(panels, shown, strict=True):
            number = _draw_curves(axes, name, trainings[name], steps)
        title = "Return during training with the evolved objective and with others"
        note = f"higher is better; {number:,} fresh trainings each, of the first search; band: two standard errors"
        file = folder / ("learning_curves.png" if first == 0 else f"learning_curves_{first // PANELS + 1}.png")
        files.append(save_figure(figure, file, title, note))
    return files


def _draw_curves(axes: Any, name: str, of_arms: dict[str, TrainingResult], steps: int) -> int:
    """Draws the curves of a game; returns the number of trainings of one."""
    count_steps(axes)
    several = of_arms["plain"].rewards.shape[-1] > 1
    name_panel(axes, name)
    axes.set(ylabel="reward of all per step" if several else "return of an episode")
    for arm, result in of_arms.items():
        curve = np.asarray(result.curve)
        x = steps * (1 + np.arange(curve.shape[1]))
        draw_mean_and_error(axes, x, curve, COLORS[arm], NAMES[arm], least=0.25)
    return len(curve)


def shape_of(form: Form, parameters: Any) -> dict[str, float]:
    """The difference of a distance from L2: numbers between root mean squares of -3 and 3.

    `asymmetry`: what it makes of values that are too high less what of those too low, over both together, from -1 to
    1. `convex`: the share of the range in which it bends upwards. `tail`: its slope at 3 over that at 1, on average of
    both sides, which is 3 for L2 and 1 for Huber's.
    """
    s = jnp.linspace(-LACK, LACK, 601)
    start: Any = "l2" if form.start == "l2" else "zero"

    def one(s: jax.Array) -> jax.Array:
        return distance_of(parameters, s[None], start)[0]

    d, slope, bend = (np.asarray(jax.vmap(f)(s), np.float64) for f in (one, jax.grad(one), jax.grad(jax.grad(one))))
    high, low = d[301:].sum(), d[:300].sum()
    at = {x: np.abs(slope[np.abs(np.abs(s) - x).argsort()[:2]]).mean() for x in (1.0, LACK)}
    return {
        "asymmetry": float((high - low) / (high + low)),
        "convex": float((bend >= -1e-6).mean()),
        "tail": float(at[LACK] / at[1.0]),
    }
