"""The pictures of the reports."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from games import InfinitelyRepeated
from games.exact.zd import IN_A_ROW, MAX_RESIDUAL
from marl.experiments.shaping.figures import LABELS, OPPONENT, PAYOFF, SHAPER, STATES, convex_hull
from meta.runs.plotting import (
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


def draw_scatter(folder: Path, game: InfinitelyRepeated, panels: list[dict[str, Any]]) -> Path:
    """Draws several policies, each against the same random co-players, with the line of its nearest extortioner.

    Args:
      folder: where to.
      game: a repeated prisoner's dilemma.
      panels: of each policy `title`, its `fit`, and `played` (payoffs `own` and `other`, the `slope` of the line
        through (P, P) that fits them).

    Returns:
      The file.
    """
    corners = np.array([game.payoffs.column_payoffs, game.payoffs.row_payoffs], float).T
    hull, (low, high) = np.array(convex_hull(corners.tolist())), (corners.min(0), corners.max(0))
    margin, columns = 0.08 * (high - low).max(), 3
    rows = -(-(len(panels) + 1) // columns)
    figure, panels_of = new_panels((3.1 * columns, 3.3 * rows), rows, columns)
    grid = list(panels_of.flat)
    for axes, panel in zip(grid, panels, strict=False):
        played, fit, floor = panel["played"], panel["fit"], corners[3]
        chi = float(fit.chi) if fit.near else None
        (polygon,) = axes.fill(*hull.T, facecolor="#F2F2F2", edgecolor=GREY, linewidth=0.8, zorder=0)
        for name, corner, offset in zip(STATES[1:], corners, LABELS, strict=True):
            axes.annotate(name, corner, textcoords="offset points", xytext=offset, color=GREY, fontsize=7)
        diagonal = [low.max(), high.min()]
        axes.plot(diagonal, diagonal, ":", color=GREY, linewidth=1, zorder=1)
        axes.plot(played.other, played.own, ".", color=SKY, markersize=4, alpha=0.4, markeredgewidth=0, zorder=2)
        for slope, color, style in ((played.slope, OPPONENT, "-"), (chi, SHAPER, "--")):
            if slope is not None and np.isfinite(slope):
                ends = floor + np.array([[-1.0], [1.0]]) * np.ptp(corners) * np.array([1.0, slope])
                (line,) = axes.plot(*ends.T, style, color=color, linewidth=1.2, zorder=3)
                line.set_clip_path(polygon)
        axes.plot(*floor, "o", color="black", markersize=3.5, zorder=5)
        axes.set_title(
            f"{panel['title']}\n{_chi(chi)}, residual {fit.residual:.3f}, slope {played.slope:.2f}",
            fontsize=8,
        )
        axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
        axes.set(xlabel=f"co-player's {PAYOFF}", ylabel=f"policy's {PAYOFF}")
    for axes in grid[len(panels) :]:
        axes.axis("off")
    key = grid[len(panels)]  # the first one that is left over says what the lines mean
    for color, style, words in (
        (SKY, ".", f"one of {len(panels[0]['played'].own):,} random\nmemory-one co-players"),
        (SHAPER, "--", "zero-determinant strategy nearest to\nthe policy: slope $\\chi$ through (P, P)"),
        (OPPONENT, "-", "line through (P, P) nearest\nto the payoffs"),
        (GREY, ":", "both get the same"),
        ("black", "o", "(P, P)"),
    ):
        key.plot([], [], style, color=color, label=words, markersize=4)
    key.legend(frameon=False, fontsize=8, loc="center", labelspacing=1.1)
    return save_figure(figure, folder / "scatter.png")


def _chi(chi: float | None) -> str:
    return "no $\\chi$" if chi is None else f"$\\chi$ = {chi:.2f}"


def draw_verdict(
    folder: Path, shapers: list[np.ndarray], others: dict[str, np.ndarray], steps: list[dict[str, Any]]
) -> Path:
    """Draws for how long trials are extortion, and in which meta-steps a shaper is.

    Args:
      folder: where to.
      shapers: of each seed, for how many meta-steps in a row each trial is extortion, `[trials]`.
      others: the same of at most four other players.
      steps: of each meta-step the shares of trials `near` a zero-determinant strategy, and `extortionate`.

    Returns:
      The file.
    """
    figure, ((left, right),) = new_panels((7.6, 3.6), 1, 2)
    numbers = np.arange(1, len(steps) + 1)

    def share(longest: np.ndarray) -> np.ndarray:
        found = (longest[:, None] >= numbers).mean(0)
        return np.where(found > 0, found, np.nan)

    for each in shapers:
        left.plot(numbers, share(each), color=SHAPER, linewidth=1.4)
    left.lines[0].set_label("the shaper, each seed")
    for (name, each), color, style in zip(
        others.items(), ("black", GREEN, PINK, SKY), ("-", "--", "-.", ":"), strict=False
    ):
        words = name if each.any() else f"{name}: none"
        left.plot(numbers, share(each), style, color=color, linewidth=1.4, label=words)
    left.axvline(IN_A_ROW, color=GREY, linewidth=0.8, linestyle=":")
    left.set(xlabel="meta-steps in a row, at least", ylabel="share of trials that are extortion", yscale="log")
    for name, words, style in (
        ("near", f"within {MAX_RESIDUAL:g} of a zero-determinant strategy", "--"),
        ("extortionate", "with a feasible chi: extortion", "-"),
    ):
        right.plot(numbers, [step[name] for step in steps], style, color=SHAPER, linewidth=1.4, label=words)
    right.set(xlabel="meta-step", ylabel="share of the shaper's trials", ylim=(-0.03, 1.03))
    for axes in (left, right):
        axes.set_xscale("log")
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100) if tick <= len(steps)]
        axes.set_xticks(ticks, list(map(str, ticks)), minor=False)
        axes.set_xticks([], minor=True)
        axes.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return save_figure(figure, folder / "verdict.png")


def draw_shapers(folder: Path, games: dict[str, list[dict[str, Any]]]) -> Path:
    """Draws what shapers reach between a naive learner's payoff and the white-box bound.

    Args:
      folder: where to.
      games: for each game its settings: `opponent`, `shaper` and `shaped` (payoffs of each seed), and where they are
        known `naive` and `bound`.

    Returns:
      The file.
    """
    most = max(map(len, games.values()))
    figure, panels = new_panels((3.0 * len(games) + 0.6, 1.6 + 0.42 * most), 1, len(games))
    for axes, (game, settings) in zip(panels[0], games.items(), strict=True):
        for y, one in enumerate(settings):
            if one["naive"] is not None and one["bound"] is not None:
                axes.plot([one["naive"], one["bound"]], [y, y], color="#BBBBBB", linewidth=4, solid_capstyle="butt")
            for value, color, marker in ((one["naive"], GREY, "D"), (one["bound"], "black", "|")):
                if value is not None:
                    axes.plot([value], [y], marker, color=color, markersize=6 if marker == "D" else 13)
            axes.plot(one["shaped"], [y] * len(one["shaped"]), "s", color=OPPONENT, markersize=5, alpha=0.6)
            axes.plot(one["shaper"], [y] * len(one["shaper"]), "o", color=SHAPER, markersize=5, alpha=0.8)
        axes.set_yticks(range(len(settings)), [f"against\n{one['opponent']}" for one in settings], fontsize=7)
        axes.set(ylim=(len(settings) - 0.5, -0.5), xlabel=PAYOFF)
        axes.set_title(game.replace("_", " "), fontsize=9, color=GREY)
        axes.locator_params(axis="x", nbins=6)
        axes.grid(visible=False, axis="y")
    handles = [
        figure.axes[0].plot([], [], marker, color=color, linestyle="", label=words)[0]
        for marker, color, words in (
            ("o", SHAPER, "shaper, each seed"),
            ("s", OPPONENT, "its opponent"),
            ("D", GREY, "naive learner in the shaper's place"),
            ("|", "black", "white-box bound"),
        )
    ]
    figure.legend(handles=handles, frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    return save_figure(figure, folder / "shapers.png")


def draw_generalists(folder: Path, rows: list[str], columns: list[str], payoffs: np.ndarray, num_seen: int) -> Path:
    """Draws what those in the rows get from the learners in the columns, a number in each cell.

    Args:
      folder: where to.
      rows: their names.
      columns: the learners' names, those seen in training first.
      payoffs: `[rows, columns]`, means.
      num_seen: how many were; a line parts them from the others.

    Returns:
      The file.
    """
    figure, axes = new_axes("", "", (1.6 + 0.37 * len(columns), 1.5 + 0.3 * len(rows)))
    axes.grid(visible=False)
    image = axes.imshow(payoffs, cmap="cividis", aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor", fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.axvline(num_seen - 0.5, color="white", linewidth=2)
    for (i, j), payoff in np.ndenumerate(payoffs):
        color = "white" if image.norm(payoff) < 0.55 else "black"
        axes.text(j, i, f"{payoff:.2f}", ha="center", va="center", color=color, fontsize=6)
    axes.set_title("seen in training | unseen", fontsize=9, color=GREY)
    draw_scale(figure, image, axes, f"shaper's {PAYOFF}")
    return save_figure(figure, folder / "generalists.png")


def draw_payoffs(file: Path, places: Sequence[str], series: Mapping[str, Sequence[dict[str, Any]]], over: str) -> Path:
    """Draws means with two standard errors.

    Args:
      file: where to.
      places: from left to right.
      series: by their names, `{mean, standard_error}` in each place.
      over: what the errors are over.

    Returns:
      The file.
    """
    figure, axes = new_axes("", PAYOFF, (max(5.0, 1.1 * len(places)), 3.6))
    for i, (name, values) in enumerate(series.items()):
        x = np.arange(len(places)) + 0.08 * (i - (len(series) - 1) / 2)
        mean, error = (np.array([one[key] for one in values], float) for key in ("mean", "standard_error"))
        colors, marker = (BLUE, ORANGE, SKY, GREY, GREEN, PINK), "os^Dv"[i // 6 % 5]
        axes.errorbar(x, mean, 2 * error, fmt=marker, color=colors[i % 6], capsize=3, markersize=4, label=name)
    turned: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"} if len(places) > 3 else {}
    lines = [textwrap.fill(place.replace("(", " (", 1), 32) for place in places]  # specs are long
    axes.set_xticks(range(len(places)), lines, fontsize=7, **turned)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_title(f"bars: two standard errors {over}", fontsize=8, color=GREY)
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return save_figure(figure, file)


def draw_coin_curves(folder: Path, shares: dict[str, np.ndarray], steps: int, updates: int) -> Path:
    """Draws how much of what learners of the coin game took was their own, while they learned with their kind.

    Args:
      folder: where to.
      shares: of each learner, `[parts of the training, seeds]`.
      steps: environment steps of an update.
      updates: of the whole training.

    Returns:
      The file.
    """
    figure, axes = new_axes("environment steps", "share of own coins", (5.5, 3.5))
    for (name, values), color in zip(shares.items(), (BLUE, ORANGE, GREEN, GREY, PINK, SKY), strict=False):
        x = (np.arange(len(values)) + 1) * steps * updates / len(values)
        draw_line(axes, x, values.mean(1), values.std(1), color, name, within=(0, 1))
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set(ylim=(0.45, 1.0))
    axes.legend(frameon=False, fontsize=8)
    number = next(iter(shares.values())).shape[1]
    axes.set_title(f"mean of {number} trainings; band: one standard deviation between them", fontsize=8, color=GREY)
    return save_figure(figure, folder / "own_coins_in_training.png")
