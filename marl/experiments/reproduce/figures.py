"""The pictures of the reports."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from games import InfinitelyRepeated
from games.exact.zd import IN_A_ROW, MAX_RESIDUAL
from marl.experiments.shaping.figures import LABELS, OPPONENT, PAYOFF, SHAPER, STATES, convex_hull
from meta.runs.plotting import (
    BLACK,
    BOUND,
    CONTROL,
    GREY,
    SKY,
    WIDEST,
    colors_of,
    count_steps,
    draw_mean,
    draw_rows,
    draw_scale,
    in_parts,
    name_panel,
    name_rows,
    new_axes,
    new_curves,
    new_panels,
    save_figure,
    shorten,
    write_cells,
)


def draw_scatter(folder: Path, game: InfinitelyRepeated, panels: list[dict[str, Any]]) -> Path:
    """Draws several policies, each against the same random co-players, with the line of its nearest extortioner.

    Args:
      folder: where to.
      game: a repeated prisoner's dilemma.
      panels: of each policy, six at most, `title`, its `fit`, and `played` (payoffs `own` and `other`, the `slope` of
        the line through (P, P) that fits them).

    Returns:
      The file.
    """
    corners = np.array([game.payoffs.column_payoffs, game.payoffs.row_payoffs], float).T
    hull, (low, high) = np.array(convex_hull(corners.tolist())), (corners.min(0), corners.max(0))
    margin, columns = 0.08 * (high - low).max(), 3
    rows = -(-len(panels) // columns)
    figure, panels_of = new_panels((2.45 * columns, 3.1 * rows), rows, columns)
    grid = list(panels_of.flat)
    for axes, panel in zip(grid, panels, strict=False):
        played, fit, floor = panel["played"], panel["fit"], corners[3]
        chi = float(fit.chi) if fit.near else None
        (polygon,) = axes.fill(*hull.T, facecolor="#F2F2F2", edgecolor=GREY, linewidth=0.8, zorder=0)
        for name, corner, offset in zip(STATES[1:], corners, LABELS, strict=True):
            axes.annotate(name, corner, textcoords="offset points", xytext=offset, color=GREY, fontsize=7)
        diagonal = [low.max(), high.min()]
        axes.plot(diagonal, diagonal, ":", color=GREY, linewidth=1, zorder=1, label="both get the same")
        label = f"one of {len(played.own):,} random memory-one co-players"
        axes.plot(played.other, played.own, ".", color=SKY, markersize=4, alpha=0.4, zorder=2, label=label)
        for slope, color, style, label in (
            (played.slope, OPPONENT, "-", "line through (P, P) nearest to the payoffs"),
            (chi, SHAPER, "--", "zero-determinant strategy nearest to the policy: slope $\\chi$ through (P, P)"),
        ):
            if slope is not None and np.isfinite(slope):
                ends = floor + np.array([[-1.0], [1.0]]) * np.ptp(corners) * np.array([1.0, slope])
                (line,) = axes.plot(*ends.T, style, color=color, linewidth=1.2, zorder=3, label=label)
                line.set_clip_path(polygon)
        axes.plot(*floor, "o", color=BLACK, markersize=3.5, zorder=5, label="(P, P)")
        words = f"{_chi(chi)}, residual {fit.residual:.3f},\nslope of the payoffs {played.slope:.2f}"
        name_panel(axes, panel["title"], words)
        axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
        axes.set(xlabel="co-player's payoff", ylabel="policy's payoff")
    for axes in grid[len(panels) :]:
        axes.remove()
    title = "Single policies against random co-players: an extortioner has a slope above 1"
    return save_figure(figure, folder / "scatter.png", title, f"{PAYOFF}; higher is better")


def _chi(chi: float | None) -> str:
    return "no $\\chi$" if chi is None else f"$\\chi$ = {chi:.2f}"


def draw_verdict(
    folder: Path, shapers: list[np.ndarray], others: dict[str, np.ndarray], steps: list[dict[str, Any]]
) -> Path:
    """Draws for how long trials are extortion, and in which meta-steps a shaper is.

    Args:
      folder: where to.
      shapers: of each seed, for how many meta-steps in a row each trial is extortion, `[trials]`.
      others: the same of other players.
      steps: of each meta-step the shares of trials `near` a zero-determinant strategy, and `extortionate`.

    Returns:
      The file.
    """
    figure, ((left, right),) = new_panels((6.6, 2.8), 1, 2)
    numbers = np.arange(1, len(steps) + 1)

    def share(longest: np.ndarray) -> np.ndarray:
        found = (longest[:, None] >= numbers).mean(0)
        return np.where(found > 0, found, np.nan)

    for each in shapers:
        left.plot(numbers, share(each), color=SHAPER, linewidth=1.4)
    left.lines[0].set_label("the shaper, each seed")
    for (name, color), style in zip(colors_of(others).items(), itertools.cycle(("-", "--", "-.", ":")), strict=False):
        words = name if others[name].any() else f"{name}: none"
        left.plot(numbers, share(others[name]), style, color=color, linewidth=1.4, label=words)
    left.axvline(IN_A_ROW, color=GREY, linewidth=0.8, linestyle=":")
    left.set(xlabel="meta-steps in a row, at least", ylabel="share of trials that are extortion")
    if any(each.any() for each in (*shapers, *others.values())):
        left.set_yscale("log")
    for name, words, style in (
        ("near", f"right: within {MAX_RESIDUAL:g} of a zero-determinant strategy", "--"),
        ("extortionate", "right: with a feasible $\\chi$ too, which is extortion", "-."),
    ):
        right.plot(numbers, [step[name] for step in steps], style, color=SHAPER, linewidth=1.4, label=words)
    right.set(xlabel="meta-step", ylabel="share of the shaper's trials", ylim=(-0.03, 1.03))
    for axes in (left, right):
        axes.set_xscale("log")
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100) if tick <= len(steps)]
        axes.set_xticks(ticks, list(map(str, ticks)), minor=False)
        axes.set_xticks([], minor=True)
    title = "How long zero-determinant extortion lasts, and when the shaper is near to it"
    note = f"dotted: the {IN_A_ROW} meta-steps in a row that count as extortion"
    return save_figure(figure, folder / "verdict.png", title, note)


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
    figure, panels = new_panels((5.5, (0.7 + 0.35 * most) * len(games)), len(games))
    points = {"shaper": ("shaper", "o", SHAPER), "shaped": ("its opponent", "s", OPPONENT)}
    points |= {"naive": ("naive learner in the shaper's place", "D", CONTROL), "bound": ("white-box bound", "|", BOUND)}
    for axes, (game, settings) in zip(panels[:, 0], games.items(), strict=True):
        for y, one in enumerate(settings):
            if one["naive"] is not None and one["bound"] is not None:
                axes.plot([one["naive"], one["bound"]], [y, y], color="#BBBBBB", linewidth=4, solid_capstyle="butt")
            axes.plot([np.min(one["shaper"]), np.max(one["shaper"])], [y, y], color=SHAPER, linewidth=1.4)
            for kind, (label, marker, color) in points.items():
                if one[kind] is not None:
                    size = 13 if marker == "|" else 5
                    axes.plot(np.mean(one[kind]), y, marker, color=color, markersize=size, label=label)
        axes.locator_params(axis="x", nbins=6)
        axes.set(xlabel=PAYOFF)
        name_panel(axes, game.replace("_", " "))
        name_rows(axes, [f"against {one['opponent']}" for one in settings])
    title = "Shapers between a naive learner in their place and the white-box bound"
    note = "further right is better for the shaper; means of the seeds, line: from the shaper's lowest to its highest"
    return save_figure(figure, folder / "shapers.png", title, note)


def draw_extortion(
    folder: Path, horizons: Sequence[int], rates: Sequence[float | None], grids: Mapping[str, np.ndarray]
) -> Path:
    """Draws when shapers extort, over the length of the opponent's learning and its step size.

    Args:
      folder: where to.
      horizons: learning steps of the rows.
      rates: step sizes of the columns.
      grids: `[horizons, rates]` each: the shares of meta-steps that are extortion, where a policy is `kept` and where
        it is `changing`, and the `gain` of the second.

    Returns:
      The file.
    """
    names = {
        "kept": "a kept policy: extortion",
        "changing": "a policy that changes: extortion",
        "gain": "payoff of changing, less the best kept",
    }
    figure, panels = new_panels((7.4, 1.3 + 0.45 * len(horizons)), 1, 3, sharey=True)
    for axes, (name, words) in zip(panels[0], names.items(), strict=True):
        values = grids[name]
        limits = {} if name == "gain" else {"vmin": 0, "vmax": 1}
        image = axes.imshow(values, cmap="cividis", aspect="auto", **limits)
        axes.grid(visible=False)
        axes.set_xticks(range(len(rates)), ["own" if rate is None else f"{rate:g}" for rate in rates])
        axes.set_yticks(range(len(horizons)), [f"{horizon:,}" for horizon in horizons])
        shown = "{:+.2f}" if name == "gain" else "{:.0%}"
        texts = {at: shown.format(value) for at, value in np.ndenumerate(values) if np.isfinite(value)}
        write_cells(axes, image, texts, 0.4, 8)  # type: ignore[arg-type]
        axes.set_xlabel("step size of the learner")
        name_panel(axes, words)
    panels[0, 0].set_ylabel("learning steps")
    title = "When zero-determinant extortion is learned, and what a policy that changes gets beside it"
    return save_figure(figure, folder / "extortion.png", title, "shares of meta-steps; payoffs per round")


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
    size = min(2.0 + 0.37 * len(columns), WIDEST), 1.2 + 0.3 * len(rows)
    figure, axes = new_axes("learner: seen in training, on the right of the line unseen", "shaper", size)
    axes.grid(visible=False)
    image = axes.imshow(payoffs, cmap="cividis", aspect="auto")
    columns, rows = ([shorten(name, 26) for name in names] for names in (columns, rows))
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.axvline(num_seen - 0.5, color="white", linewidth=2)
    texts = {at: f"{payoff:.2f}" for at, payoff in np.ndenumerate(payoffs) if np.isfinite(payoff)}
    write_cells(axes, image, texts, 0.3, 6)  # type: ignore[arg-type]
    draw_scale(figure, image, axes, f"shaper's {PAYOFF}")
    title = "Payoffs of shapers against learners seen in training, and against others"
    return save_figure(figure, folder / "generalists.png", title, "higher is better for the shaper")


def draw_payoffs(
    file: Path,
    places: Sequence[str],
    series: Mapping[str, Sequence[dict[str, Any]]],
    over: str,
    title: str,
    *,
    label: str = PAYOFF,
    subject: str = "the player that is named",
) -> Path:
    """Draws means with two standard errors.

    Args:
      file: where to.
      places: from the top to the bottom.
      series: by their names, `{mean, standard_error}` in each place.
      over: what the errors are over.
      title: above it.
      label: what the means are.
      subject: for what more is better.

    Returns:
      The file.
    """
    figure, axes = new_axes(label, "", (6.0, 0.6 + (0.15 + 0.12 * len(series)) * len(places)))
    draw_rows(axes, places, series, colors_of(series))
    note = f"further right is better for {subject}; bars: two standard errors {over}"
    return save_figure(figure, file, title, note)


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
    figure, axes = new_axes("", "share of own coins")
    count_steps(axes)
    for name, color in colors_of(shares).items():
        values = shares[name]
        draw_mean(axes, (np.arange(len(values)) + 1) * steps * updates / len(values), values.T, color, name)
    axes.axhline(0.5, color=BLACK, linewidth=0.8, linestyle=":")
    number = next(iter(shares.values())).shape[1]
    title = "Own coins among those taken, while learners train with their own kind"
    note = (
        f"1 is cooperation, dotted: all coins are taken; {number} trainings; band: one standard deviation between them"
    )
    return save_figure(figure, folder / "own_coins_in_training.png", title, note)


def draw_learning(folder: Path, games: Mapping[str, Mapping[str, np.ndarray]], steps: int) -> Path:
    """Draws the collective return during training, a panel for each game, six at most.

    Args:
      folder: where to.
      games: of each game and learner, `[updates, seeds]`, NaN where no episode has ended.
      steps: environment steps of an update.

    Returns:
      The file.
    """
    shown = dict(itertools.islice(games.items(), 6))
    figure, panels = new_curves(len(shown))
    for axes, (game, learners) in zip(panels, shown.items(), strict=True):
        for name, color in colors_of(learners).items():
            ends, means = in_parts(learners[name])
            if len(ends):
                draw_mean(axes, ends * steps, means, color, name)
        count_steps(axes)
        axes.set_ylabel("return of all players")
        name_panel(axes, game.replace("(", " ("))
    number = next(iter(next(iter(games.values())).values())).shape[1]
    note = f"higher is better for the group; {number} trainings; band: one standard deviation between them"
    return save_figure(figure, folder / "collective_returns.png", "Collective returns during training", note)
