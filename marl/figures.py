"""The pictures of a shaping run, fit for a paper: PNG, colour-blind safe, labelled with units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from games import InfinitelyRepeated
from marl.charts import BLUE, GREEN, GREY, ORANGE, PINK, SKY, draw_line, new_axes, save_figure

SHAPER, OPPONENT = ORANGE, BLUE
STATES = ("start", "CC", "CD", "DC", "DD")
LABELS = ((6, -8), (5, -9), (-4, 5), (-19, -3))  # offsets of CC to DD in points, clear of edges, lines and diagonal
PAYOFF = "average payoff per round"


def draw(
    folder: Path,
    game: InfinitelyRepeated,
    opponent: str,
    metrics: dict[str, np.ndarray],
    trials: Any,
    scatter: list[dict[str, Any]],
    zd: dict[str, Any],
) -> list[Path]:
    """Draws every figure of a run.

    Args:
      folder: where to.
      game: that was played.
      opponent: its name.
      metrics: of every generation, `[G]` or `[G, K]`.
      trials: `Trials` with leading axes `[K, trials, meta_steps]`.
      scatter: policies against random co-players: `label`, `own` and `other` payoffs of each.
      zd: the zero-determinant verdict of the summary.

    Returns:
      The files.
    """
    figures = {
        "learning_curve": _learning_curve(metrics, opponent),
        "trial_payoffs": _trial_payoffs(trials, opponent),
        "payoff_polygon": _payoff_polygon(game, scatter, zd),
        "policy": _policy(trials),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=200)
    return paths


def _learning_curve(metrics: dict[str, np.ndarray], opponent: str) -> Any:
    figure, axes = new_axes("generation", PAYOFF)
    for name, color, label, style in (
        ("shaper_return", SHAPER, "shaper", "-"),
        ("opponent_return", OPPONENT, f"opponent ({opponent})", "--"),
    ):
        values, deviation = metrics[name], metrics[f"{name}_deviation"]
        if values.ndim == 2:  # several seeds: the band is between them
            values, deviation = values.mean(1), values.std(1)
        draw_line(axes, np.arange(1, len(values) + 1), values, deviation, color, label, style)
    axes.set_title("mean of the population; band: one standard deviation", fontsize=8, color=GREY)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def _trial_payoffs(trials: Any, opponent: str) -> Any:
    figure, axes = new_axes("meta-step (learning steps of the opponent)", PAYOFF)
    for values, color, label, style in (
        (trials.shaper_payoffs, SHAPER, "shaper", "-"),
        (trials.opponent_payoffs, OPPONENT, f"opponent ({opponent})", "--"),
    ):
        values = values.reshape(-1, values.shape[-1])
        draw_line(axes, np.arange(1, values.shape[1] + 1), values.mean(0), values.std(0), color, label, style)
    axes.set_title("fresh trials of the evolved shaper; band: one standard deviation", fontsize=8, color=GREY)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def _payoff_polygon(game: InfinitelyRepeated, scatter: list[dict[str, Any]], zd: dict[str, Any]) -> Any:
    figure, axes = new_axes(f"opponent's {PAYOFF}", f"shaper's {PAYOFF}", (4.6, 4.4))
    corners = np.array([game.payoffs.column_payoffs, game.payoffs.row_payoffs], float).T
    hull = np.array(_convex_hull(corners.tolist()))
    (polygon,) = axes.fill(*hull.T, facecolor="#EEEEEE", edgecolor=GREY, linewidth=1, zorder=0)
    for name, corner, offset in zip(STATES[1:], corners, LABELS, strict=True):
        axes.annotate(name, corner, textcoords="offset points", xytext=offset, color=GREY, fontsize=8)
    for policy, color, marker in zip(scatter, (GREEN, PINK), ("o", "s"), strict=False):
        axes.plot(policy["other"], policy["own"], marker, color=color, markersize=1.6, alpha=0.2, markeredgewidth=0)
        axes.plot([], [], marker, color=color, markersize=6, label=policy["label"])
    if zd["chi"] is not None and zd["extortionate"]:
        # Drawn from (P, P) on, and clipped where no pair of players can get.
        start = np.array([corners[3][0], corners[3][1]])
        far = start + np.ptp(corners[:, 0]) * np.array([1.0, zd["chi"]])
        line = f"zero-determinant line, $\\chi$ = {zd['chi']:.2f}"
        (drawn,) = axes.plot(*np.stack([start, far]).T, color="black", linewidth=1.2, label=line, zorder=1)
        drawn.set_clip_path(polygon)
    low, high = corners.min(0), corners.max(0)
    margin = 0.1 * (high - low).max()
    axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
    if scatter:  # of a game that is played once there is none
        number = f"{len(scatter[0]['own']):,}"
        axes.set_title(f"each policy against {number} random memory-one co-players", fontsize=8, color=GREY)
        axes.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


def _convex_hull(points: list[list[float]]) -> list[list[float]]:
    """The corners of the hull in order, by Andrew's monotone chain; two where all points lie on a line."""
    sides: list[list[list[float]]] = []
    for ordered in (sorted(points), sorted(points, reverse=True)):
        side: list[list[float]] = []
        for x, y in ordered:
            while len(side) > 1:
                (ax, ay), (bx, by) = side[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                side.pop()
            side.append([x, y])
        sides.append(side[:-1])
    return sides[0] + sides[1]


def _policy(trials: Any) -> Any:
    figure, axes = new_axes("meta-step (learning steps of the opponent)", "probability of the first action")
    policies = trials.shaper_policies.reshape(-1, *trials.shaper_policies.shape[-2:])
    steps = np.arange(1, policies.shape[1] + 1)
    colors, styles = (GREY, SHAPER, OPPONENT, GREEN, PINK), ("-", "-", "--", "-.", ":")
    for i in range(policies.shape[-1]):
        name = "at the start" if i == 0 else f"after {STATES[i]}"
        draw_line(axes, steps, policies[..., i].mean(0), policies[..., i].std(0), colors[i], name, styles[i])
    axes.set_ylim(-0.03, 1.03)
    axes.set_title("the shaper's policy, its own action first; band: one standard deviation", fontsize=8, color=GREY)
    axes.legend(frameon=False, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def draw_crossplay(folder: Path, game: InfinitelyRepeated, names: list[str], payoffs: np.ndarray) -> Path:
    """Draws the table of everybody against everybody as a heat map, every number in its cell.

    Args:
      folder: where to.
      game: that was played.
      names: of the agents.
      payoffs: the row's, `[agents, agents]`; NaN where there is none.

    Returns:
      The file.
    """
    side = 1.8 + 0.55 * len(names)
    figure, axes = new_axes("column", "row", (side + 1.0, side))
    axes.grid(visible=False)
    image = axes.imshow(payoffs, cmap="cividis")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for (i, j), payoff in np.ndenumerate(payoffs):
        if np.isfinite(payoff):
            color = "white" if image.norm(payoff) < 0.55 else "black"
            axes.text(j, i, f"{payoff:.2f}", ha="center", va="center", color=color, fontsize=7)
    figure.colorbar(image, ax=axes, label=f"row's {PAYOFF}", shrink=0.8)
    axes.set_title(game.payoffs.name.replace("_", " "), fontsize=9, color=GREY)
    return save_figure(figure, folder / "crossplay.png")


def draw_scatter(folder: Path, game: InfinitelyRepeated, panels: list[dict[str, Any]]) -> Path:
    """Draws several policies, each against the same random co-players, with the line of its nearest extortioner.

    Args:
      folder: where to.
      game: a repeated prisoner's dilemma.
      panels: of each policy `title`, `chi`, `residual` and `played` (payoffs `own` and `other`, the `slope` of the
        line through (P, P) that fits them).

    Returns:
      The file.
    """
    from matplotlib.figure import Figure

    corners = np.array([game.payoffs.column_payoffs, game.payoffs.row_payoffs], float).T
    hull, (low, high) = np.array(_convex_hull(corners.tolist())), (corners.min(0), corners.max(0))
    margin, columns = 0.08 * (high - low).max(), 3
    rows = -(-(len(panels) + 1) // columns)
    figure = Figure(figsize=(3.1 * columns, 3.3 * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(grid, panels, strict=False):
        played, floor = panel["played"], corners[3]
        (polygon,) = axes.fill(*hull.T, facecolor="#F2F2F2", edgecolor=GREY, linewidth=0.8, zorder=0)
        for name, corner, offset in zip(STATES[1:], corners, LABELS, strict=True):
            axes.annotate(name, corner, textcoords="offset points", xytext=offset, color=GREY, fontsize=7)
        diagonal = [low.max(), high.min()]
        axes.plot(diagonal, diagonal, ":", color=GREY, linewidth=1, zorder=1)
        axes.plot(played.other, played.own, ".", color=SKY, markersize=4, alpha=0.4, markeredgewidth=0, zorder=2)
        for slope, color, style in ((played.slope, OPPONENT, "-"), (panel["chi"], SHAPER, "--")):
            if np.isfinite(slope):
                ends = floor + np.array([[-1.0], [1.0]]) * np.ptp(corners) * np.array([1.0, slope])
                (line,) = axes.plot(*ends.T, style, color=color, linewidth=1.2, zorder=3)
                line.set_clip_path(polygon)
        axes.plot(*floor, "o", color="black", markersize=3.5, zorder=5)
        axes.set_title(
            f"{panel['title']}\n$\\chi$ = {panel['chi']:.2f}, residual {panel['residual']:.3f}, "
            f"slope {played.slope:.2f}",
            fontsize=8,
        )
        axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
        axes.set_xlabel(f"co-player's {PAYOFF}", fontsize=7)
        axes.set_ylabel(f"policy's {PAYOFF}", fontsize=7)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    key = grid[len(panels)]  # the first one that is left over tells what the lines mean
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


def draw_enforced_slopes(folder: Path, steps: list[dict[str, Any]], max_residual: float) -> Path:
    """Draws over the meta-steps what slope a shaper enforces, and how far it is from any zero-determinant strategy.

    Args:
      folder: where to.
      steps: of each meta-step `chi`, `slope`, `distance`, `residual` and `residual_quartiles`.
      max_residual: up to which a policy is called zero-determinant.

    Returns:
      The file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    x = np.arange(1, len(steps) + 1)
    chi, slope, distance, residual = (
        np.array([step[name] for step in steps], float) for name in ("chi", "slope", "distance", "residual")
    )
    above.plot(x, _angle(slope), "-", color=OPPONENT, linewidth=1.6, label="slope of the payoffs' line through (P, P)")
    above.plot(x, _angle(chi), "--", color=SHAPER, linewidth=1.6, label="$\\chi$ of the nearest strategy")
    above.axhline(_angle(np.array(1.0)), color=GREY, linewidth=0.8, linestyle=":")
    words = {"textcoords": "offset points", "ha": "right", "fontsize": 7, "color": GREY}
    above.annotate("equal shares", (x[-1], _angle(np.array(1.0))), xytext=(0, 3), **words)
    # By the angle, so that a line may turn through the vertical, where the co-player's payoff is fixed.
    ticks = np.array([0.0, 0.5, 1.0, 2.0, 5.0, np.inf, -5.0, -2.0, -1.0])
    above.set_yticks(_angle(ticks), ["$\\infty$" if np.isinf(tick) else f"{tick:g}" for tick in ticks])
    above.set_ylabel("own payoff per co-player's")
    above.set_ylim(-3, 138)
    low, high = np.array([step["residual_quartiles"] for step in steps]).T
    below.fill_between(x, low, high, color=SHAPER, alpha=0.2, linewidth=0, label="residual of single trials, quartiles")
    below.plot(x, residual, "--", color=SHAPER, linewidth=1.6, label="residual of the mean policy (probability)")
    below.plot(x, distance, "-", color=OPPONENT, linewidth=1.6, label="distance of payoffs from their line")
    below.axhline(max_residual, color=GREY, linewidth=0.8, linestyle=":")
    below.annotate(f"{max_residual:g}: zero-determinant up to here", (x[-1], max_residual), xytext=(0, 3), **words)
    below.set(xlabel="meta-step (learning steps of the opponent)", ylabel="root mean square")
    below.set_ylim(0, 1.4 * max(distance.max(), high.max(), residual.max(), max_residual))  # room for the legend
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.tick_params(labelsize=8)
        axes.legend(frameon=False, fontsize=7, loc="lower right" if axes is above else "upper right")
    return save_figure(figure, folder / "enforced_slope.png")


def _angle(slope: np.ndarray) -> np.ndarray:
    """The angle of a line in degrees, from 0 to 180."""
    return np.degrees(np.arctan(slope)) % 180


def draw_shapers(folder: Path, games: dict[str, list[dict[str, Any]]]) -> Path:
    """Draws what shapers reach between a naive learner's payoff and the white-box bound.

    Args:
      folder: where to.
      games: for each game its settings: `opponent`, `shaper` and `shaped` (payoffs of each seed), and where they are
        known `naive` and `bound`.

    Returns:
      The file.
    """
    from matplotlib.figure import Figure

    most = max(map(len, games.values()))
    figure = Figure(figsize=(3.0 * len(games) + 0.6, 1.6 + 0.42 * most), layout="constrained")
    for axes, (game, settings) in zip(figure.subplots(1, len(games), squeeze=False)[0], games.items(), strict=True):
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
        axes.tick_params(axis="x", labelsize=7)
        axes.locator_params(axis="x", nbins=6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6, axis="x")
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
