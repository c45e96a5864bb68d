"""Figures of an attack."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from attacks.experiments.evaluation import VictimTrainings, hear
from attacks.messages import Message
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
    new_axes,
    new_panels,
    save_figure,
)
from meta.statistics import standard_error

COLORS = {
    "evolved": ORANGE,
    "evolved to harm": ORANGE,
    "evolved to help": GREEN,
    "silent": GREY,
    "random": BLUE,
    "expert": SKY,
    "start": SKY,
}
STYLES = {"silent": "--", "random": ":"}
MAP_ENTRIES = 6  # observations of more have no map


def draw_curves(folder: Path, groups: dict[str, VictimTrainings], steps_per_update: int) -> Path:
    """Draws the victims' training returns under each message; `steps_per_update` counts those of all environments."""
    figure, axes = new_axes("environment steps of the victim", "return in training")
    number = _draw_curves(axes, groups, steps_per_update)
    axes.set_title(f"{number} fresh victims each; band: two standard errors", fontsize=8, color=GREY)
    axes.legend(**BELOW | {"ncols": len(groups)})
    return save_figure(figure, folder / "training_curves.png")


def draw_all_curves(
    folder: Path, environments: dict[str, dict[str, VictimTrainings]], steps_per_update: dict[str, int]
) -> Path:
    """Draws the groups of `draw_curves` of several environments, by their names: a panel for each."""
    columns = min(len(environments), 2)
    rows = -(-len(environments) // columns)
    figure, panels = new_panels((4.2 * columns, 2.9 * rows), rows, columns)
    for axes in panels.flat[len(environments) :]:
        axes.set_axis_off()
    for axes, (name, groups) in zip(panels.flat, environments.items(), strict=False):
        number = _draw_curves(axes, groups, steps_per_update[name])
        axes.set(xlabel="environment steps of the victim", ylabel="return in training")
        axes.set_title(f"{name}, {number} fresh victims each", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    return save_figure(figure, folder / "training_curves.png")


def _draw_curves(axes: Any, groups: dict[str, VictimTrainings], steps_per_update: int) -> int:
    """Draws the curves of each group, with two standard errors; returns the number of victims in one."""
    for name, group in groups.items():
        curves = np.asarray(group.curves, float)
        known = np.isfinite(curves)
        number = np.maximum(known.sum(0), 1)
        mean = np.where(known, curves, 0.0).sum(0) / number
        error = np.sqrt(np.where(known, (curves - mean) ** 2, 0.0).sum(0) / np.maximum(number - 1, 1) / number)
        x = steps_per_update * np.arange(1, curves.shape[1] + 1)
        shown = known.any(0)
        draw_line(axes, x[shown], mean[shown], 2 * error[shown], COLORS.get(name, PINK), name, STYLES.get(name, "-"))
    return len(curves)


def draw_final_returns(folder: Path, groups: dict[str, VictimTrainings]) -> Path:
    """Draws cumulative distributions of the victims' final returns under each message."""
    figure, axes = new_axes("final return, without exploration", "fraction of victims with less")
    for name, group in groups.items():
        returns = np.sort(group.final_returns)
        axes.plot(
            returns,
            (np.arange(len(returns)) + 1) / len(returns),
            STYLES.get(name, "-"),
            color=COLORS.get(name, PINK),
            label=f"{name}: {returns.mean():.4g}",
            linewidth=1.6,
        )
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return save_figure(figure, folder / "final_returns.png")


def draw_evolution(folder: Path, stages: dict[str, dict[str, np.ndarray]], value: str, label: str) -> Path:
    """Draws a metric of evolutions, one after the other by their titles, over the generations."""
    figure, axes = new_axes("generation", label)
    first = 1
    for (name, metrics), color in zip(stages.items(), (SKY, ORANGE)[-len(stages) :], strict=True):
        mean, deviation = np.asarray(metrics[value], float), np.asarray(metrics[f"{value}_deviation"], float)
        draw_line(axes, np.arange(first, first + len(mean)), mean, deviation, color, name)
        first += len(mean)
    if len(stages) > 1:
        axes.legend(**BELOW)
    axes.set_title("mean of the candidates; band: one standard deviation", fontsize=8, color=GREY)
    return save_figure(figure, folder / "evolution.png")


def draw_goal_rewards(folder: Path, rewards: dict[str, np.ndarray]) -> Path:
    """Draws goal rewards `[victims]` of control and its baselines: the mean over victims, with two standard errors."""
    figure, axes = new_axes("goal reward of a step", "", (5.0, 0.8 + 0.35 * len(rewards)))
    for y, (name, values) in enumerate(rewards.items()):
        error = 2 * standard_error(values)
        color = ORANGE if name == "evolved" else BLUE
        axes.errorbar([values.mean()], [y], xerr=[error], fmt="o", color=color, markersize=5, capsize=3)
    axes.set_yticks(range(len(rewards)), [name.replace("_", " ") for name in rewards], fontsize=8)
    axes.set_ylim(len(rewards) - 0.5, -0.5)
    axes.set_title("bars: two standard errors", fontsize=8, color=GREY)
    return save_figure(figure, folder / "goal_rewards.png")


def draw_message(
    folder: Path,
    message: Message,
    parameters: Any,
    observations: np.ndarray,
    steps: int,
    names: list[str] | None = None,
) -> Path | None:
    """Draws a message function as maps over every pair of an observation's entries; the others are at their median.

    A row is an entry of the message, or several that are the same. A message with memory has rows for the first step
    of a training run and for its last.

    Args:
      folder: where to.
      message: the function.
      parameters: of it.
      observations: `[number, entries]` of play; the maps reach from their first to their last percentile.
      steps: of a training run, which are the observations that a memory has seen in the end.
      names: of the entries.

    Returns:
      The file; None where an observation has too many entries, or just one.
    """
    entries = observations.shape[1]
    if not 2 <= entries <= MAP_ENTRIES:
        return None
    low, middle, high = np.percentile(observations, [1, 50, 99], axis=0)
    pairs = list(itertools.combinations(range(entries), 2))
    names = names or [f"o{i}" for i in range(entries)]
    moments = _moments(message, parameters, observations, steps)
    grids = []
    for i, j in pairs:
        x, y = np.meshgrid(np.linspace(low[i], high[i], 61), np.linspace(low[j], high[j], 61))
        points = np.tile(middle, (x.size, 1))
        points[:, i], points[:, j] = x.reshape(-1), y.reshape(-1)
        grids.append(points.astype(np.float32))
    # For each moment, [pairs, points, entries of the message].
    said = {moment: np.stack([speak(grid) for grid in grids]) for moment, speak in moments.items()}
    most = max(float(np.abs(maps).max()) for maps in said.values()) or 1.0
    rows: list[tuple[str, list[int]]] = []  # the moment, and the entries of the message in each
    for moment, maps in said.items():
        same: list[list[int]] = []
        for entry in range(maps.shape[-1]):
            like = [row for row in same if np.allclose(maps[..., entry], maps[..., row[0]], atol=0.01 * most)]
            like[0].append(entry) if like else same.append([entry])
        rows += [(moment, row) for row in same]
    figure, panels = new_panels((1.9 * len(pairs) + 1.0, 1.9 * len(rows) + 0.2), len(rows), len(pairs))
    for (column, (i, j)), (line, (moment, row)) in itertools.product(enumerate(pairs), enumerate(rows)):
        axes = panels[line][column]
        extent = (low[i], high[i], low[j], high[j])
        image = axes.imshow(
            said[moment][column, :, row[0]].reshape(61, 61), origin="lower", extent=extent, aspect="auto", cmap="PuOr",
            vmin=-most, vmax=most,
        )  # fmt: skip
        axes.set(xlabel=names[i], ylabel=names[j])
        axes.grid(visible=False)
        axes.locator_params(nbins=3)
    for line, (moment, row) in enumerate(rows):
        entries = ", ".join(str(entry + 1) for entry in row)
        text = f"{'entries' if len(row) > 1 else 'entry'} {entries}\n{moment or 'of the message'}"
        panels[line][0].annotate(
            text, (0, 0.5), (-48, 0), xycoords="axes fraction", textcoords="offset points", rotation=90, ha="center",
            va="center", fontsize=9,
        )  # fmt: skip
    draw_scale(figure, image, panels.ravel().tolist(), "what is said")
    return save_figure(figure, folder / "message.png")


def _moments(
    message: Message, parameters: Any, observations: np.ndarray, steps: int
) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The message about observations `[number, entries]`, by moments of a training run."""
    remember = message.remember
    if remember is None:
        return {"": jax.jit(jax.vmap(lambda obs: message.speak(parameters, obs)))}
    seen = np.resize(observations.astype(np.float32), (steps, observations.shape[1]))
    last = jax.jit(lambda seen: hear(message, parameters, message.memory, seen)[0])(seen)

    def at(memory: Any) -> Callable[[np.ndarray], np.ndarray]:
        return jax.jit(jax.vmap(lambda obs: message.speak(parameters, obs, remember(parameters, memory, obs))))

    return {"at first": at(message.memory), "in the end": at(last)}


def draw_differences(path: Path, rows: dict[str, dict[str, Any]], goal: str) -> Path:
    """Draws paired differences from silence by kind of victim, with two standard errors.

    A row has the `difference` under evolved messages and the `random_difference` under random ones.
    """
    figure, axes = new_axes("final return, difference from silence", "", (5.5, 2.0 + 0.32 * len(rows)))
    evolved = ORANGE if goal == "harm" else GREEN
    for kind, label, color, offset in (
        ("difference", "evolved", evolved, -0.12),
        ("random_difference", "random, as large", GREY, 0.12),
    ):
        mean = np.array([row[kind]["mean"] for row in rows.values()], float)
        error = np.array([row[kind]["standard_error"] for row in rows.values()], float)
        places = np.arange(len(rows)) + offset
        axes.errorbar(mean, places, xerr=2 * error, fmt="o", color=color, markersize=5, capsize=3, label=label)
    axes.legend(**BELOW)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title("bars: two standard errors", fontsize=8, color=GREY)
    return save_figure(figure, path)
