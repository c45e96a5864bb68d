"""Figures of a search for an objective: its generations, the objective, and training curves with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marl.blocks.objectives import clipped_surrogate, distance_of, dpo
from marl.experiments.discovery.trial import TrainingResult
from marl.learners.sampled.objective_registry import Form
from meta.runs.plotting import (
    BELOW,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    draw_line,
    draw_scale,
    new_panels,
    save_figure,
)

COLORS = {
    "plain": GREY,
    "begun": "#E69F00",
    "still": "black",
    "tuned": BLUE,
    "without": SKY,
    "dpo": GREEN,
    "l2": GREEN,
    "clipped_l2": PINK,
}
COLORS |= {"evolved": ORANGE}
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
    figure, ((axes,),) = new_panels((5.0, 3.5))
    axes.set(xlabel="generation", ylabel="fitness of a generation")
    begin = 0
    for name, label in (("tuning", "tuning"), ("tuned", "as long again"), ("evolved", "with an objective")):
        y = np.asarray(stages[name]["fitness"], np.float64).reshape(len(stages[name]["fitness"]), -1)
        color = {"tuning": GREY, "tuned": BLUE, "evolved": ORANGE}[name]
        draw_line(axes, begin + 1 + np.arange(len(y)), y.mean(1), y.std(1), color, label)
        begin += len(y) if name == "tuning" else 0
    if y.shape[1] > 1:
        axes.set_title(f"mean of {y.shape[1]} searches; band: their standard deviation", fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "evolution.png")


def draw_objective(folder: Path, form: Form, each: Sequence[Any], numbers: dict[str, float]) -> Path:
    """The first search's drift over ratio and advantage with its gradient, or all distances with their slopes."""
    if form.kind == "drift":
        return _draw_drift(folder, form, each[0], numbers)
    figure, panels = new_panels((7.0, 3.2), 1, 2)
    s = jnp.linspace(-LACK, LACK, 301)
    start: Any = "l2" if form.start == "l2" else "zero"
    lines: list[tuple[str, str, str, Callable[[jax.Array], jax.Array]]] = [
        ("L2", GREY, "-", lambda s: 0.5 * s**2),
        ("Huber, width 1", GREEN, "-", lambda s: jnp.where(jnp.abs(s) < 1, 0.5 * s**2, jnp.abs(s) - 0.5)),
    ]
    for i, one in enumerate(each):
        words = "evolved" if len(each) == 1 else f"evolved, search {i}"
        lines.append((words, ORANGE, STYLES[i % len(STYLES)], partial(distance_of, one, start=start)))
    for name, color, style, line in lines:
        slope = jax.vmap(jax.grad(lambda s, line=line: line(s[None])[0]))(s)
        # The size of a distance means nothing: the root mean square of all slopes is the same.
        unit = float(jnp.sqrt((slope**2).mean()))
        for axes, values in zip(panels[0], (line(s), slope), strict=True):
            axes.plot(s, values / unit, color=color, label=name, linewidth=1.6, linestyle=style)
    panels[0, 0].set(xlabel="value less target, in root mean squares", ylabel="distance")
    panels[0, 1].set(xlabel="value less target, in root mean squares", ylabel="its slope")
    panels[0, 0].legend(**BELOW)
    return save_figure(figure, folder / "objective.png")


def _draw_drift(folder: Path, form: Form, parameters: Any, numbers: dict[str, float]) -> Path:
    ratio, advantage = np.linspace(0.5, 1.6, 111), np.linspace(-3, 3, 121)
    x, a = (jnp.float32(one) for one in np.meshgrid(np.log(ratio), advantage))
    clip = numbers.get("clip", 0.2)  # it has none where the search began without PPO's drift
    found = form.settings(parameters, clip)["objective"]
    of_time = {"evolved": found}
    if form.timed:
        of_time = {"evolved, at first": found.at(0.0), "evolved, at last": found.at(1.0)}
    shown = {f"PPO, clip {clip:.2g}": clipped_surrogate(clip=clip), "DPO": dpo(), **of_time}
    figure, panels = new_panels((2.6 * len(shown), 5.2), 2, len(shown), sharex=True, sharey=True)
    drifts = {name: np.exp(x) * a - one(x, a) for name, one in shown.items()}
    slopes = {name: jax.vmap(jax.vmap(jax.grad(one)))(x, a) / np.exp(x) for name, one in shown.items()}
    most = max(np.abs(one).max() for name, one in drifts.items())
    for row, (values, limits, colors, label) in enumerate(
        ((drifts, (0, most), "viridis", "drift"), (slopes, (-3, 3), "RdBu_r", "slope of the objective in the ratio"))
    ):
        for column, (name, one) in enumerate(values.items()):
            axes = panels[row, column]
            axes.grid(visible=False)
            image = axes.pcolormesh(
                ratio, advantage, np.asarray(one), cmap=colors, vmin=limits[0], vmax=limits[1], rasterized=True
            )
            axes.axvline(1.0, color="white" if row == 0 else GREY, linewidth=0.6)
            if row == 0:
                axes.set_title(name, fontsize=9)
            else:
                axes.set_xlabel("ratio")
        panels[row, 0].set_ylabel("advantage")
        draw_scale(figure, image, panels[row, -1], label)
    return save_figure(figure, folder / "objective.png")


def draw_curves(folder: Path, trainings: dict[str, dict[str, TrainingResult]], steps: int) -> Path:
    """Learning curves of fresh trainings in every game, with two standard errors; `steps` are those of an update."""
    columns = min(len(trainings), 3)
    rows = -(-len(trainings) // columns)
    figure, panels = new_panels((3.4 * columns, 2.9 * rows), rows, columns)
    for axes in panels.flat[len(trainings) :]:
        axes.set_visible(False)
    for axes, (name, of_arms) in zip(panels.flat, trainings.items(), strict=False):
        axes.set_title(name, fontsize=9)
        several = of_arms["plain"].rewards.shape[-1] > 1
        axes.set(xlabel="environment steps", ylabel="reward of all in a step" if several else "return in training")
        for arm, result in of_arms.items():
            known = np.isfinite(result.curve)
            number = np.maximum(known.sum(0), 1)
            y = np.where(known, result.curve, 0).sum(0) / number
            variance = (np.where(known, result.curve - y, 0) ** 2).sum(0) / np.maximum(number - 1, 1)
            spread = np.sqrt(variance / number)
            shown = known.sum(0) > len(known) / 4
            x = steps * (1 + np.arange(len(y)))
            draw_line(axes, x[shown], y[shown], 2 * spread[shown], COLORS[arm], NAMES[arm])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, frameon=False, ncols=4, loc="outside lower center")
    words = f"{len(known)} fresh trainings each, of the first search; bands: two standard errors between them"
    figure.suptitle(words, fontsize=8, color=GREY)
    return save_figure(figure, folder / "learning_curves.png")


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
