"""The pictures of a shaping run in a sampled game."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from marl.charts import BLUE, GREEN, GREY, ORANGE, PINK, SKY, draw_line, new_axes, save_figure

REWARD = "reward in a step"
STATE_COLORS = (GREEN, SKY, ORANGE, GREY, PINK, BLUE, "#E69F00", "#000000")
BELOW: dict[str, Any] = {
    "frameon": False,
    "fontsize": 8,
    "ncols": 2,
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.18),
}


def draw_learning(folder: Path, groups: dict[str, Any], opponent: str) -> Path:
    """Draws both players' rewards over the opponent's learning, and those of learners alone.

    Args:
      folder: where to.
      groups: `Played` by opponent, and `naive`.
      opponent: the one that the shaper was trained against.

    Returns:
      The file.
    """
    figure, axes = new_axes("episode, after each of which the opponent learns", REWARD)
    shaped, naive = groups[opponent], groups["naive"]
    for values, color, label, style in (
        (shaped.shaper, ORANGE, "shaper", "-"),
        (shaped.opponent, BLUE, _name(opponent), "-"),
        (naive.shaper, GREY, "learners alone, first seat", "--"),
        (naive.opponent, GREY, "learners alone, the others", ":"),
    ):
        _line(axes, values, color, label, style)
    axes.set_title(f"{len(shaped.shaper)} fresh trials each; band: two standard errors", fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "learning.png")


def draw_opponents(folder: Path, groups: dict[str, Any]) -> Path:
    """Draws what the shaper and each opponent get over a whole trial, also opponents not seen in training.

    Args:
      folder: where to.
      groups: `Played` by opponent, and `naive`.

    Returns:
      The file.
    """
    figure, axes = new_axes(f"{REWARD}, over a trial", "", (6.5, 1.2 + 0.5 * len(groups)))
    for y, played in enumerate(groups.values()):
        for values, color, label in ((played.shaper, ORANGE, "shaper"), (played.opponent, BLUE, "opponent")):
            each = values.mean(1)
            error = 2 * each.std(ddof=1) / len(each) ** 0.5
            style = {"fmt": "o", "color": color, "markersize": 5, "capsize": 3, "label": "" if y else label}
            axes.errorbar([each.mean()], [y], xerr=[error], **style)
    names = ["learners alone" if name == "naive" else textwrap.fill(name, 36) for name in groups]
    axes.set_yticks(range(len(groups)), names, fontsize=7)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_title("bars: two standard errors; the first was met in training", fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "opponents.png")


def draw_evolution(folder: Path, metrics: dict[str, np.ndarray]) -> Path:
    """Draws how the shaper's training went.

    Args:
      folder: where to.
      metrics: of every generation, `[generations]`.

    Returns:
      The file.
    """
    figure, axes = new_axes("generation", f"{REWARD}, over a trial")
    x = np.arange(1, len(metrics["fitness"]) + 1)
    for name, color, style in (("shaper", ORANGE, "-"), ("opponent", BLUE, "--")):
        values, deviation = (np.asarray(metrics[f"{name}_return{end}"], float) for end in ("", "_deviation"))
        draw_line(axes, x, values, deviation, color, name, style)
    axes.set_title("mean of what was tried; band: one standard deviation", fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "evolution.png")


def draw_counts(folder: Path, groups: dict[str, Any], opponent: str, num_shapers: int) -> list[Path]:
    """Draws what the game counts: own coins, cooperation, or how often each state of a repeated dilemma is visited.

    Args:
      folder: where to.
      groups: `Played` by opponent, and `naive`.
      opponent: the one that the shaper was trained against.
      num_shapers: how many of the players are shapers.

    Returns:
      The files; none for a game that counts nothing of it.
    """
    files, shaped, naive = [], groups[opponent], groups["naive"]
    first, others = np.s_[..., :num_shapers], np.s_[..., num_shapers:]
    states = [name for name in shaped.counts if set(name) <= {"C", "D"} and len(name) > 1]
    for name, label, counted in (
        ("own_coins", "own coins of those taken", "own_coin"),
        ("cooperation", "cooperation (the first action)", "cooperation"),
    ):
        if counted not in shaped.counts or (states and name == "cooperation"):  # the states tell more
            continue
        figure, axes = new_axes("episode", label)
        for played, seats, color, who, style in (
            (shaped, first, ORANGE, "shaper", "-"),
            (shaped, others, BLUE, _name(opponent), "-"),
            (naive, first, GREY, "learners alone", "--"),
        ):
            share = share_of_occasions(counted, {key: x[seats] for key, x in played.counts.items()})
            axes.plot(np.arange(1, len(share) + 1), share, style, color=color, label=who, linewidth=1.6)
        axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_ylim(-0.02, 1.02)
        axes.legend(**BELOW)
        files.append(save_figure(figure, folder / f"{name}.png"))
    if states:
        figure, axes = new_axes("episode", "share of rounds")
        for i, state in enumerate(states):
            style = ("-", "--", ":")[i // len(STATE_COLORS) % 3]
            color = STATE_COLORS[i % len(STATE_COLORS)]
            _line(axes, shaped.counts[state][..., :num_shapers].mean(-1), color, state, style)
        axes.set_ylim(-0.02, 1.02)
        axes.set_title("the shaper's action first; band: two standard errors", fontsize=8, color=GREY)
        axes.legend(**BELOW | {"ncols": 4})
        files.append(save_figure(figure, folder / "states.png"))
    return files


def share_of_occasions(counted: str, counts: dict[str, np.ndarray]) -> np.ndarray:
    """How much of the coins taken, of the meetings where players meet at times, or of the steps was of one kind.

    Args:
      counted: the kind, `own_coin` or `cooperation`.
      counts: what the game counted, `[trials, episodes, players]`.

    Returns:
      A share in each episode, over all trials and players; NaN where there was no occasion.
    """
    part = counts[counted]
    whole = part + counts["other_coin"] if counted == "own_coin" else counts.get("interactions", np.ones_like(part))
    part, whole = part.mean((0, -1)), whole.mean((0, -1))
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


def _name(opponent: str) -> str:
    """Of a spec, without its settings."""
    return opponent.split("(")[0]


def _line(axes: Any, values: np.ndarray, color: str, label: str, style: str) -> None:
    """The mean over trials `[trials, episodes]`."""
    error = values.std(0, ddof=1) / len(values) ** 0.5
    draw_line(axes, np.arange(1, values.shape[1] + 1), values.mean(0), 2 * error, color, label, style)
