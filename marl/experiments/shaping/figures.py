"""The pictures of shaping runs and of tables, fit for a paper: PNG, colour-blind safe, labelled with units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from games import InfinitelyRepeated
from marl.experiments.shaping.evaluation import IN_PLACE, OWN_KIND, EvaluationResult, controls_of
from meta.runs.plotting import (
    AMBER,
    BLACK,
    BLUE,
    CONTROL,
    EVOLVED,
    GREEN,
    GREY,
    LEARNER,
    ORANGE,
    PINK,
    SKY,
    WIDEST,
    count_whole,
    draw_line,
    draw_mean,
    draw_rows,
    draw_scale,
    new_axes,
    save_figure,
    shorten,
    write_cells,
)

PAYOFF = "average payoff per round"
LEARNING_STEP = "learning step of the opponent"
SHAPER, OPPONENT = EVOLVED, LEARNER
DEVIATION = "band: one standard deviation"
STATES = ("start", "CC", "CD", "DC", "DD")
LABELS = ((6, -8), (5, -9), (-4, 5), (-19, -3))  # offsets of CC to DD in points, clear of edges, lines and diagonal
STATE_COLORS = (GREEN, SKY, ORANGE, GREY, PINK, BLUE, AMBER, BLACK)
MARKERS = "osD^v<>P*X"  # of other players
COUNTED = {  # by a game, for each player, and what is written beside it
    "own_coin": "own coins of those taken",
    "cooperation": "cooperation (the first action)",
}
COUNTED_TITLES = {
    "own_coin": "Share of own coins while the opponent learns",
    "cooperation": "Share of cooperation while the opponent learns",
}
WITH_ERRORS = 8  # agents of a table whose cells have room for errors, at most
STYLES = ((SHAPER, "-"), (OPPONENT, "--"))  # of the shaper and of the opponent


def draw_training(
    folder: Path,
    metrics: dict[str, np.ndarray],
    sides: tuple[str, str],
    over: str,
    time: str = "generation",
    payoff: str = PAYOFF,
) -> Path:
    """Draws how the training went.

    Args:
      folder: where to.
      metrics: of every generation, `[G]` or `[G, K]`.
      sides: what the shaper and its opponent are called.
      over: what the means of a generation are over, such as '1,024 candidates'.
      time: the name of the axis of time.
      payoff: name of the axis of payoffs.

    Returns:
      The file.
    """
    figure, axes = new_axes(time, payoff)
    note = f"mean of {over}; {DEVIATION} between them"
    for side, name, (color, style) in zip(sides, ("shaper", "opponent"), STYLES, strict=True):
        values, deviation = (np.asarray(metrics[f"{name}_return{end}"], float) for end in ("", "_deviation"))
        x = np.arange(1, len(values) + 1)
        if values.ndim == 2:
            note = f"{values.shape[1]} trainings, means of {over}; {DEVIATION} between trainings"
            draw_mean(axes, x, values.T, color, side, style)
        else:
            draw_line(axes, x, values, deviation, color, side, style)
    title = f"Payoffs of {sides[0]} and {sides[1]} during the training"
    return save_figure(figure, folder / "learning_curve.png", title, note)


def draw_trial(
    folder: Path,
    groups: dict[str, EvaluationResult],
    opponent: str,
    sides: tuple[str, str],
    payoff: str = PAYOFF,
    time: str = LEARNING_STEP,
) -> Path:
    """Draws both players' payoffs over the opponent's learning, and those of two of the opponent's own kind.

    Args:
      folder: where to.
      groups: by opponent.
      opponent: the one that the shaper was trained against.
      sides: what the shaper and its opponent are called.
      payoff: name of the axis of payoffs.
      time: name of the axis of learning steps.

    Returns:
      The file.
    """
    figure, axes = new_axes("", payoff)
    count_whole(axes, time)
    shaped, (row, column) = groups[opponent], sides
    lines = [(shaped.shaper, *STYLES[0], row), (shaped.opponent, *STYLES[1], f"{column} ({short_name(opponent)})")]
    if alone := groups.get(OWN_KIND):
        own = f"{OWN_KIND} in the shaper's place"
        lines += [(alone.shaper, CONTROL, "-.", own), (alone.opponent, CONTROL, ":", "its opponent")]
    for values, color, style, label in lines:
        draw_mean(axes, np.arange(1, values.shape[1] + 1), values, color, label, style)
    title = f"Payoffs of {row} and {column} over the opponent's learning"
    return save_figure(figure, folder / "trial_payoffs.png", title, f"{len(shaped.shaper):,} fresh trials; {DEVIATION}")


def draw_cooperation(
    folder: Path, groups: dict[str, EvaluationResult], opponent: str, sides: tuple[str, str], action: str
) -> Path:
    """Draws the shares of rounds in which both players cooperate, and two of the opponent's own kind.

    Args:
      folder: where to.
      groups: by opponent; `more["cooperation"]` is `[trials, meta_steps, 2]`.
      opponent: the one that the shaper was trained against.
      sides: what the shaper and its opponent are called.
      action: the first action as a verb, such as `cooperates`.

    Returns:
      The file.
    """
    figure, axes = new_axes(LEARNING_STEP, "share of rounds")
    shares = groups[opponent].more["cooperation"]
    lines = [(shares[..., i], *STYLES[i], sides[i]) for i in range(2)]
    if alone := groups.get(OWN_KIND):
        both = alone.more["cooperation"].mean(-1)
        lines.append((both, CONTROL, ":", "each of two learners of the opponent's kind"))
    for values, color, style, label in lines:
        draw_mean(axes, np.arange(1, values.shape[1] + 1), values, color, label, style)
    axes.set_ylim(-0.02, 1.02)
    title = f"Share of rounds in which each player {action}"
    return save_figure(figure, folder / "cooperation.png", title, f"{len(shares):,} fresh trials; {DEVIATION}")


def draw_opponents(folder: Path, found: dict[str, Any], over: str, payoff: str = PAYOFF) -> list[Path]:
    """Draws what the shaper and each opponent get over a whole trial, where there are several.

    Args:
      folder: where to.
      found: `against`, by opponent the means and errors of `shaper` and `opponent`, and those of controls.
      over: what the errors are over.
      payoff: name of the axis of payoffs.

    Returns:
      The files.
    """
    opponents = {f"against {name}": row for name, row in found["against"].items()}
    rows = opponents | {f"{IN_PLACE}: {name}": row for name, row in controls_of(found).items()}
    if len(rows) == 1:
        return []
    figure, axes = new_axes(payoff, "", (6.0, 0.6 + 0.4 * len(rows)))
    series = {side: [row[side] for row in rows.values()] for side in ("shaper", "opponent")}
    draw_rows(axes, list(rows), series, {"shaper": SHAPER, "opponent": OPPONENT})
    axes.axhline(len(opponents) - 0.5, color=GREY, linewidth=0.8)  # below it are the controls
    title = "Payoffs against each opponent, over a whole trial"
    note = f"the first was seen in training; bars: two standard errors over {over}"
    return [save_figure(figure, folder / "opponents.png", title, note)]


def short_name(opponent: str) -> str:
    """The name of a spec, without its settings."""
    return opponent.split("(")[0]


def draw_crossplay(
    folder: Path,
    game: str,
    names: list[str],
    values: np.ndarray,
    errors: np.ndarray | None = None,
    *,
    label: str = f"row's {PAYOFF}",
    caption: str = "",
    file: str = "crossplay.png",
) -> Path:
    """Draws the table of all pairs as a heat map as wide as a page, a number in each cell where it has room.

    Of eight agents or fewer the standard errors stand below the numbers. Of more than a dozen agents the numbers have
    one decimal and the columns are numbered as the rows are; of more than two dozen only the color remains.

    Args:
      folder: where to.
      game: its name.
      names: of the agents.
      values: the row's, `[agents, agents]`; NaN where there is none.
      errors: of the values, `[agents, agents]`.
      label: what the values are.
      caption: what the errors are over, where they are shown.
      file: the figure's name.

    Returns:
      The file.
    """
    number, words = len(names), 0.07 * min(max(map(len, names)) + 3, 27)  # inches of their names
    side = min(max(0.55 * number, 2.4), 5.2, WIDEST - 1.2 - words)  # of the cells
    below = 0.7 * words if number <= 12 else 0.0
    figure, axes = new_axes("column", "row", (side + 1.2 + words, side + 0.6 + below))
    axes.grid(visible=False)
    image = axes.imshow(values, cmap="cividis")
    size, digits = (6, 1) if number > 12 else (7, 2)
    rows = [shorten(name, 24) for name in names]
    if number > 12:
        rows = [f"{name}  {i}" for i, name in enumerate(rows, 1)]
        axes.set_xticks(range(number), range(1, number + 1), fontsize=size)
    else:
        axes.set_xticks(range(number), rows, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(number), rows, fontsize=7 if number > 12 else 8)
    texts = {}
    for at, value in np.ndenumerate(values):
        if np.isfinite(value) and number <= 24:
            texts[at] = f"{round(value, digits) + 0.0:.{digits}f}"  # no minus before a zero
            if errors is not None and number <= WITH_ERRORS and np.isfinite(errors[at]):
                texts[at] += f"\n±{errors[at]:.{digits}f}"
    write_cells(axes, image, texts, side / number, size)  # type: ignore[arg-type]
    draw_scale(figure, image, axes, label)
    title = f"All pairs in {game.replace('_', ' ')}: the {label}"
    return save_figure(figure, folder / file, title, caption if number <= WITH_ERRORS else "")


def draw_polygon(
    folder: Path,
    game: InfinitelyRepeated,
    shaper: np.ndarray,
    opponent: np.ndarray,
    least_chi: float | None,
    beside: dict[str, tuple[float, float]] | None = None,
) -> Path:
    """Draws what a shaper and its opponent get over the opponent's learning, within what two players can get.

    Args:
      folder: where to.
      game: that was played.
      shaper: its payoffs, `[trials, meta_steps]`.
      opponent: its payoffs, `[trials, meta_steps]`.
      least_chi: the least extortion factor; what extortioners get is shaded. None where there is no extortion.
      beside: mean payoffs (own, opponent's) of other players in the shaper's place, by their names.

    Returns:
      The file.
    """
    figure, axes = new_axes(f"opponent's {PAYOFF}", f"shaper's {PAYOFF}", (5.0, 4.6))
    corners = np.array([game.payoffs.column_payoffs, game.payoffs.row_payoffs], float).T
    hull = np.array(convex_hull(corners.tolist()))
    (polygon,) = axes.fill(*hull.T, facecolor="#EEEEEE", edgecolor=GREY, linewidth=1, zorder=0)
    for name, corner, offset in zip(STATES[1:], corners, LABELS, strict=True):
        axes.annotate(name, corner, textcoords="offset points", xytext=offset, color=GREY, fontsize=8)
    if least_chi is not None:
        # s_X - P = chi (s_Y - P): from the line of the least chi to the vertical, where chi is infinite.
        wide = np.ptp(corners)
        extorted = corners[3] + wide * np.array([[0.0, 0.0], [1.0, least_chi], [0.0, least_chi]])
        words = f"what extortioners get: \u03c7 \u2265 {least_chi:.2f}"
        (shade,) = axes.fill(*extorted.T, facecolor=GREEN, alpha=0.25, linewidth=0, label=words, zorder=1)
        shade.set_clip_path(polygon)
    axes.plot(opponent.mean(1), shaper.mean(1), ".", color=SHAPER, markersize=2, alpha=0.2, zorder=2)
    axes.plot([], [], ".", color=SHAPER, markersize=4, alpha=0.4, label="means of single trials")
    path = np.stack([opponent.mean(0), shaper.mean(0)], 1)
    label = "mean of the trials, by meta-step"
    axes.plot(*path.T, ".-", color=SHAPER, markersize=4, linewidth=1, zorder=3, label=label)
    numbered = np.empty((0, 2))
    for step in sorted({1, 2, 5, 10, len(path)} & set(range(1, len(path) + 1))):
        where = {"textcoords": "offset points", "xytext": (-4, -8), "ha": "right", "fontsize": 7, "color": SHAPER}
        if np.all(np.abs(numbered - path[step - 1]).max(1, initial=0) > 0.08 * np.ptp(corners)):  # clear of the others
            axes.annotate(str(step), path[step - 1], **where)
            numbered = np.append(numbered, path[step - 1 : step], 0)
    for (name, (own, other)), marker in zip((beside or {}).items(), MARKERS, strict=False):
        axes.plot(other, own, marker, color="black", markersize=4, linestyle="", label=name, zorder=4)
    low, high = corners.min(0), corners.max(0)
    margin = 0.1 * (high - low).max()
    axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
    title = "Payoffs of shaper and opponent within the feasible region"
    note = "first letter: the shaper's action; up is better for the shaper, right is better for its opponent"
    return save_figure(figure, folder / "payoff_polygon.png", title, note)


def draw_policy(folder: Path, policies: np.ndarray) -> Path:
    """Draws the shaper's policy over the opponent's learning, `[trials, meta_steps, logits]` probabilities."""
    figure, axes = new_axes("meta-step (learning step of the opponent)", "probability of the first action")
    steps = np.arange(1, policies.shape[1] + 1)
    colors, styles = (BLACK, *STATE_COLORS[:4]), ("-", "-", "--", "-.", ":")
    for i in range(policies.shape[-1]):
        name = "at the start" if i == 0 else f"after {STATES[i]}"
        draw_mean(axes, steps, policies[..., i], colors[i], name, styles[i])
    axes.set_ylim(-0.03, 1.03)
    title = "The shaper's policy over the opponent's learning"
    note = f"states: the shaper's action first; {len(policies):,} fresh trials; {DEVIATION}"
    return save_figure(figure, folder / "policy.png", title, note)


def convex_hull(points: list[list[float]]) -> list[list[float]]:
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


def draw_counts(folder: Path, groups: dict[str, EvaluationResult], opponent: str, num_shapers: int) -> list[Path]:
    """Draws what the game counts: own coins, cooperation, or how often each state of a repeated dilemma is visited.

    Args:
      folder: where to.
      groups: by opponent, and the opponent's own kind in all seats.
      opponent: the one that the shaper was trained against.
      num_shapers: how many of the players are shapers.

    Returns:
      The files; none for a game that counts nothing of it.
    """
    files, shaped, alone = [], groups[opponent], groups[OWN_KIND]
    first, others = np.s_[..., :num_shapers], np.s_[..., num_shapers:]
    states = [name for name in shaped.more if set(name) <= {"C", "D"} and len(name) > 1]
    for counted, label in COUNTED.items():
        if counted not in shaped.more or (states and counted == "cooperation"):  # the states show more
            continue
        figure, axes = new_axes("", label)
        count_whole(axes, "episode")
        for played, seats, color, style, title in (
            (shaped, first, *STYLES[0], "shaper"),
            (shaped, others, *STYLES[1], f"opponent ({short_name(opponent)})"),
            (alone, first, CONTROL, ":", OWN_KIND),
        ):
            share = share_of_occasions(counted, {key: x[seats] for key, x in played.more.items()})
            axes.plot(np.arange(1, len(share) + 1), share, style, color=color, label=title, linewidth=1.6)
        axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_ylim(-0.02, 1.02)
        name = {"own_coin": "own_coins.png"}.get(counted, f"{counted}.png")
        note = f"{len(shaped.shaper):,} fresh trials together; dotted: one half"
        files.append(save_figure(figure, folder / name, COUNTED_TITLES[counted], note))
    if states:
        figure, axes = new_axes("", "share of rounds")
        count_whole(axes, "episode")
        # Four states have the colours of CC, CD, DC and DD, with any number of opponents that all do the same.
        alike = [one[0] + one[1] * (len(states[0]) - 1) for one in STATES[1:]]
        for i, state in enumerate(sorted(states, key=lambda state: (alike + states).index(state))):
            style = ("-", "--", ":")[i // len(STATE_COLORS) % 3]
            color = STATE_COLORS[i % len(STATE_COLORS)]
            shares = shaped.more[state][..., :num_shapers].mean(-1)  # [trials, episodes]
            draw_mean(axes, np.arange(1, shares.shape[1] + 1), shares, color, state, style)
        axes.set_ylim(-0.02, 1.02)
        title = "States of the game while the opponent learns"
        note = f"the shaper's action first; {len(shaped.shaper):,} fresh trials; {DEVIATION}"
        files.append(save_figure(figure, folder / "states.png", title, note))
    return files


def share_of_occasions(counted: str, counts: dict[str, np.ndarray]) -> np.ndarray:
    """The share of one kind among the coins taken, the meetings, or the steps.

    Args:
      counted: the kind, one of `COUNTED`.
      counts: what the game counted, `[trials, episodes, players]`.

    Returns:
      A share in each episode, over all trials and players; NaN where there was no occasion.
    """
    part, whole = (x.mean((0, -1)) for x in occasions(counted, counts))
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


def occasions(counted: str, counts: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of something that was done and of its occasions, of the same shape as each count."""
    part = counts[counted]
    return part, part + counts["other_coin"] if counted == "own_coin" else counts.get(
        "interactions", np.ones_like(part)
    )
