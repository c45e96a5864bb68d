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
    BARS,
    BLACK,
    CONTROL,
    EVOLVED,
    GREEN,
    PANELS,
    PINK,
    RANDOM,
    SKY,
    count_steps,
    draw_line,
    draw_mean_and_error,
    draw_rows,
    draw_scale,
    name_panel,
    name_rows,
    new_axes,
    new_curves,
    new_panels,
    save_figure,
)

COLORS = {
    "evolved to harm": EVOLVED,
    "evolved to help": GREEN,
    "evolved to control": EVOLVED,
    "silent": CONTROL,
    "random": RANDOM,
    "expert": PINK,
    "start": PINK,
}
STYLES = {"silent": "--", "random": ":"}
DIRECTIONS = {"harm": "lower is more harm", "help": "higher is more help", "control": "higher is more control"}
MAP_ENTRIES = 6  # observations of more have no map


def _named(groups: dict[str, Any], goal: str) -> dict[str, Any]:
    """The groups with the goal in the name of the evolved one."""
    return {f"evolved to {goal}" if name == "evolved" else name: group for name, group in groups.items()}


def draw_curves(folder: Path, groups: dict[str, VictimTrainings], steps_per_update: int, goal: str) -> Path:
    """Draws the victims' training returns under each message; `steps_per_update` counts those of all environments."""
    figure, axes = new_axes("", "return of an episode")
    number = _draw_curves(axes, _named(groups, goal), steps_per_update)
    title = f"Return of {number:,} victims during training, under each message"
    note = f"{DIRECTIONS[goal]}; band: two standard errors"
    return save_figure(figure, folder / "training_curves.png", title, note)


def draw_all_curves(
    folder: Path, environments: dict[str, dict[str, VictimTrainings]], steps_per_update: dict[str, int]
) -> Path:
    """Draws the groups of `draw_curves` of several environments, by their names: a panel for each."""
    figure, panels = new_curves(len(environments))
    for axes, (name, groups) in zip(panels, environments.items(), strict=True):
        number = _draw_curves(axes, groups, steps_per_update[name])
        axes.set(ylabel="return of an episode")
        name_panel(axes, f"{name}, {number:,} victims")
    title = "Return of victims during training, under each message"
    note = "lower is more harm, higher is more help; band: two standard errors"
    return save_figure(figure, folder / "training_curves.png", title, note)


def _draw_curves(axes: Any, groups: dict[str, VictimTrainings], steps_per_update: int) -> int:
    """Draws the curves of each group, with two standard errors; returns the number of victims in one."""
    count_steps(axes, "environment steps of a victim")
    for name, group in groups.items():
        curves = np.asarray(group.curves, float)
        x = steps_per_update * np.arange(1, curves.shape[1] + 1)
        draw_mean_and_error(axes, x, curves, COLORS[name], name, STYLES.get(name, "-"))
    return len(curves)


def draw_final_returns(folder: Path, groups: dict[str, VictimTrainings], goal: str) -> Path:
    """Draws cumulative distributions of the victims' final returns under each message."""
    figure, axes = new_axes("final return, without exploration", "share of victims with no more")
    for name, group in _named(groups, goal).items():
        returns = np.sort(group.final_returns)
        shares = (np.arange(len(returns)) + 1) / len(returns)
        label, style = f"{name}: {returns.mean():.4g}", STYLES.get(name, "-")
        axes.step([returns[0], *returns], [0, *shares], style, where="post", color=COLORS[name], label=label)
    title = f"Final returns of {len(returns):,} victims, under each message"
    note = f"{DIRECTIONS[goal]}; the legend has the means"
    return save_figure(figure, folder / "final_returns.png", title, note)


def draw_evolution(folder: Path, stages: dict[str, dict[str, np.ndarray]], value: str, label: str, goal: str) -> Path:
    """Draws a metric of evolutions, one after the other, over the generations.

    Args:
      folder: where to.
      stages: by title the metrics of each evolution.
      value: name of the metric.
      label: of the axis.
      goal: of the attack.

    Returns:
      The file.
    """
    figure, axes = new_axes("generation", label)
    first = 1
    for (name, metrics), color in zip(stages.items(), (SKY, EVOLVED)[-len(stages) :], strict=True):
        mean, deviation = (np.asarray(metrics[f"{value}{end}"], float) for end in ("", "_deviation"))
        x = np.arange(first, first + len(mean))
        draw_line(axes, x, mean, deviation, color, name)
        first += len(mean)
    title = f"{label[0].upper()}{label[1:]} during the search, mean of all candidates"
    note = f"{DIRECTIONS[goal]}; band: one standard deviation between candidates"
    return save_figure(figure, folder / "evolution.png", title, note)


def draw_goal_rewards(folder: Path, rewards: dict[str, dict[str, Any]], number: int) -> Path:
    """Draws goal rewards of control and its baselines, `mean` and `standard_error` over so many victims each."""
    figure, axes = new_axes("goal reward of a step", "", (5.0, 0.6 + 0.3 * len(rewards)))
    for y, (name, found) in enumerate(rewards.items()):
        mean, error = (np.array([found[key]], float) for key in ("mean", "standard_error"))
        color = EVOLVED if name == "evolved" else CONTROL
        axes.errorbar(mean, [y], xerr=2 * error, marker="o", color=color, **BARS)
    name_rows(axes, [name.replace("_", " ") for name in rewards])
    title = f"Goal reward of {number:,} victims under control and under baselines"
    note = "higher is more control; bars: two standard errors"
    return save_figure(figure, folder / "goal_rewards.png", title, note)


def draw_message(
    folder: Path,
    message: Message,
    parameters: Any,
    observations: np.ndarray,
    steps: int,
    names: list[str] | None = None,
) -> Path | None:
    """Draws a message function as maps over pairs of an observation's entries; the others are at their median.

    A map shows an entry of the message, or several that are the same. A message with memory has maps for the first
    step of a training run and for its last. Of more than six maps those are left out over whose pairs the message
    varies less.

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
    high = np.where(high > low, high, low + 1.0)  # of an entry that is constant
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
    rows = rows[:PANELS]
    variation = sum(maps.std(1).sum(-1) for maps in said.values())
    columns = sorted(np.argsort(-variation, kind="stable")[: max(PANELS // len(rows), 1)])
    shown = list(itertools.product(rows, columns))
    width = min(len(shown), 3)
    height = -(-len(shown) // width)
    figure, panels = new_panels((2.0 * width + 1.0, 2.1 * height), height, width)
    for axes in panels.flat[len(shown) :]:
        axes.remove()
    for axes, ((moment, row), column) in zip(panels.flat, shown, strict=False):
        i, j = pairs[column]
        image = axes.imshow(
            said[moment][column, :, row[0]].reshape(61, 61), origin="lower", extent=(low[i], high[i], low[j], high[j]),
            aspect="auto", cmap="PuOr", vmin=-most, vmax=most,
        )  # fmt: skip
        words = f"{'entries' if len(row) > 1 else 'entry'} {', '.join(str(entry + 1) for entry in row)}"
        axes.set(xlabel=names[i], ylabel=names[j])
        name_panel(axes, words, moment)
        axes.grid(visible=False)
        axes.locator_params(nbins=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:.3g}")
    draw_scale(figure, image, [axes for axes in panels.flat if axes.figure], "entry of the message")
    title = "The message over two entries of the observation, the others at their median"
    return save_figure(figure, folder / "message.png", title)


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
    figure, axes = new_axes("final return, difference from silence", "", (5.5, 0.6 + 0.35 * len(rows)))
    kinds = {"evolved": "difference", "random, as large": "random_difference"}
    series = {label: [row[kind] for row in rows.values()] for label, kind in kinds.items()}
    colors = {"evolved": COLORS[f"evolved to {goal}"], "random, as large": RANDOM}
    draw_rows(axes, [name.replace("_", " ") for name in rows], series, colors)
    axes.axvline(0, color=BLACK, linewidth=0.8, linestyle="--")
    title = "Final return of each kind of victim under messages, less that in silence"
    return save_figure(figure, path, title, f"{DIRECTIONS[goal]}; bars: two standard errors")
