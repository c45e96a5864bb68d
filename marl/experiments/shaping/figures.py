"""The pictures of shaping runs and of tables, fit for a paper: PNG, colour-blind safe, labelled with units."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from games import InfinitelyRepeated
from marl.experiments.shaping.evaluation import IN_PLACE, OWN_KIND, EvaluationResult, controls_of
from meta.runs.plotting import BELOW, BLUE, GREEN, GREY, ORANGE, PINK, SKY, draw_line, draw_scale, new_axes, save_figure

PAYOFF = "average payoff per round"
SHAPER, OPPONENT = ORANGE, BLUE
STATES = ("start", "CC", "CD", "DC", "DD")
LABELS = ((6, -8), (5, -9), (-4, 5), (-19, -3))  # offsets of CC to DD in points, clear of edges, lines and diagonal
STATE_COLORS = (GREEN, SKY, ORANGE, GREY, PINK, BLUE, "#E69F00", "#000000")
MARKERS = "osD^v<>P*X"  # of other players
COUNTED = {  # by a game, for each player, and what is written beside it
    "own_coin": "own coins of those taken",
    "cooperation": "cooperation (the first action)",
}
STYLES = ((SHAPER, "-"), (OPPONENT, "--"))  # of the shaper and of the opponent


def draw_training(folder: Path, metrics: dict[str, np.ndarray], sides: tuple[str, str]) -> Path:
    """Draws how the training went.

    Args:
      folder: where to.
      metrics: of every generation, `[G]` or `[G, K]`.
      sides: what the shaper and its opponent are called.

    Returns:
      The file.
    """
    figure, axes = new_axes("generation", PAYOFF)
    band = "one standard deviation"
    for side, name, (color, style) in zip(sides, ("shaper", "opponent"), STYLES, strict=True):
        values, deviation = (np.asarray(metrics[f"{name}_return{end}"], float) for end in ("", "_deviation"))
        if values.ndim == 2:
            values, deviation, band = values.mean(1), values.std(1), "one standard deviation between trainings"
        draw_line(axes, np.arange(1, len(values) + 1), values, deviation, color, side, style)
    axes.set_title(f"mean of what was tried; band: {band}", fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "learning_curve.png")


def draw_trial(folder: Path, groups: dict[str, EvaluationResult], opponent: str, sides: tuple[str, str]) -> Path:
    """Draws both players' payoffs over the opponent's learning, and those of two of the opponent's own kind.

    Args:
      folder: where to.
      groups: by opponent.
      opponent: the one that the shaper was trained against.
      sides: what the shaper and its opponent are called.

    Returns:
      The file.
    """
    figure, axes = new_axes("learning step of the opponent", PAYOFF)
    shaped, (row, column) = groups[opponent], sides
    lines = [(shaped.shaper, *STYLES[0], row), (shaped.opponent, *STYLES[1], f"{column} ({short_name(opponent)})")]
    if alone := groups.get(OWN_KIND):
        own = f"{OWN_KIND} in the shaper's place"
        lines += [(alone.shaper, GREY, "-.", own), (alone.opponent, GREY, ":", "its opponent")]
    for values, color, style, label in lines:
        draw_line(axes, np.arange(1, values.shape[1] + 1), values.mean(0), values.std(0), color, label, style)
    axes.set_title(f"{len(shaped.shaper):,} fresh trials; band: one standard deviation", fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "trial_payoffs.png")


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
    figure, axes = new_axes("learning step of the opponent", "share of rounds")
    shares = groups[opponent].more["cooperation"]
    lines = [(shares[..., i], *STYLES[i], f"{sides[i]} {action}") for i in range(2)]
    if alone := groups.get(OWN_KIND):
        both = alone.more["cooperation"].mean(-1)
        lines.append((both, GREY, ":", "each of two learners of the opponent's kind"))
    for values, color, style, label in lines:
        x = np.arange(1, values.shape[1] + 1)
        draw_line(axes, x, values.mean(0), values.std(0), color, label, style, within=(0, 1))
    axes.set_ylim(-0.02, 1.02)
    title = f"Shares of rounds while the opponent learns\n{len(shares):,} fresh trials; band: one standard deviation"
    axes.set_title(title, fontsize=8, color=GREY)
    axes.legend(**BELOW)
    return save_figure(figure, folder / "cooperation.png")


def draw_opponents(folder: Path, found: dict[str, Any], over: str) -> list[Path]:
    """Draws what the shaper and each opponent get over a whole trial, where there are several.

    Args:
      folder: where to.
      found: `against`, by opponent the means and errors of `shaper` and `opponent`, and those of controls.
      over: what the errors are over.

    Returns:
      The files.
    """
    opponents = {f"against {name}": row for name, row in found["against"].items()}
    rows = opponents | {f"{IN_PLACE}: {name}": row for name, row in controls_of(found).items()}
    if len(rows) == 1:
        return []
    figure, axes = new_axes(f"{PAYOFF}, over a trial", "", (6.5, 1.2 + 0.5 * len(rows)))
    for side, (color, _) in zip(("shaper", "opponent"), STYLES, strict=True):
        values = np.array([[row[side][name] for name in ("mean", "standard_error")] for row in rows.values()], float)
        style = {"fmt": "o", "color": color, "markersize": 5, "capsize": 3, "label": side}
        axes.errorbar(values[:, 0], range(len(rows)), xerr=2 * values[:, 1], **style)
    axes.set_yticks(range(len(rows)), [textwrap.fill(name, 36) for name in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axhline(len(opponents) - 0.5, color=GREY, linewidth=0.8)  # below it are the controls
    axes.set_title(f"bars: two standard errors over {over}; the first was seen in training", fontsize=8, color=GREY)
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return [save_figure(figure, folder / "opponents.png")]


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
    """Draws the table of all pairs as a heat map as wide as a page, a number in each cell.

    Of eight agents or fewer the standard errors stand below the numbers. Of more than a dozen agents the numbers have
    one decimal and the columns are numbered as the rows are; of more than two dozen only the color remains.

    Args:
      folder: where to.
      game: its name.
      names: of the agents.
      values: the row's, `[agents, agents]`; NaN where there is none.
      errors: of the values, `[agents, agents]`.
      label: what the values are.
      caption: what the errors are over.
      file: the figure's name.

    Returns:
      The file.
    """
    number, side = len(names), min(max(0.55, 2.4 / len(names)) * len(names), 5.2)  # inches of the cells
    words = 0.065 * min(max(map(len, names)), 30)  # of their names
    below = 0.7 * words if number <= 12 else 0.0
    figure, axes = new_axes("column", "row", (side + 1.1 + words, side + 0.8 + below + 0.3 * bool(caption)))
    axes.grid(visible=False)
    image = axes.imshow(values, cmap="cividis")
    rows = [textwrap.shorten(name, 30, placeholder="…") for name in names]
    if number > 12:
        rows = [f"{name}  {i}" for i, name in enumerate(rows, 1)]
        axes.set_xticks(range(number), range(1, number + 1), fontsize=6)
    else:
        axes.set_xticks(range(number), rows, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(number), rows, fontsize=6 if number > 12 else 8)
    digits = 1 if number > 12 else 2
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value) and number <= 24:
            color = "white" if image.norm(value) < 0.55 else "black"
            text = f"{round(value, digits) + 0.0:.{digits}f}"  # no minus before a zero
            if errors is not None and number <= 8 and np.isfinite(errors[i, j]):
                text += f"\n±{errors[i, j]:.{digits}f}"
            axes.text(j, i, text, ha="center", va="center", color=color, fontsize=6 if number > 12 else 7)
    draw_scale(figure, image, axes, label)
    axes.set_title(game.replace("_", " "), fontsize=9, color=GREY)
    if caption:
        width = int(17 * figure.get_figwidth())  # letters
        figure.supxlabel("\n".join(textwrap.wrap(caption, width)), fontsize=7, color=GREY)
    return save_figure(figure, folder / file)


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
    size = (4.6, 4.6 + 0.1 * len(beside or {}))
    figure, axes = new_axes(f"opponent's {PAYOFF}", f"shaper's {PAYOFF}", size)
    corners = np.array([game.payoffs.column_payoffs, game.payoffs.row_payoffs], float).T
    hull = np.array(convex_hull(corners.tolist()))
    (polygon,) = axes.fill(*hull.T, facecolor="#EEEEEE", edgecolor=GREY, linewidth=1, zorder=0)
    for name, corner, offset in zip(STATES[1:], corners, LABELS, strict=True):
        axes.annotate(name, corner, textcoords="offset points", xytext=offset, color=GREY, fontsize=8)
    if least_chi is not None:
        # s_X - P = chi (s_Y - P): from the line of the least chi to the vertical, where chi is infinite.
        wide = np.ptp(corners)
        extorted = corners[3] + wide * np.array([[0.0, 0.0], [1.0, least_chi], [0.0, least_chi]])
        words = f"what extortioners get: $\\chi$ $\\geq$ {least_chi:.2f}"
        (shade,) = axes.fill(*extorted.T, facecolor=GREEN, alpha=0.25, linewidth=0, label=words, zorder=1)
        shade.set_clip_path(polygon)
    axes.plot(opponent.mean(1), shaper.mean(1), ".", color=SKY, markersize=2, alpha=0.3, markeredgewidth=0, zorder=2)
    axes.plot([], [], ".", color=SKY, markersize=8, label="means of single trials")
    path = np.stack([opponent.mean(0), shaper.mean(0)], 1)
    axes.plot(
        *path.T, ".-", color=SHAPER, markersize=4, linewidth=1, zorder=3, label="mean of the trials, by meta-step"
    )
    for step in sorted({1, 2, 5, 10, len(path)} & set(range(1, len(path) + 1))):
        where = {"textcoords": "offset points", "xytext": (-4, -8), "ha": "right", "fontsize": 7, "color": SHAPER}
        axes.annotate(str(step), path[step - 1], **where)
    for (name, (own, other)), marker in zip((beside or {}).items(), MARKERS, strict=False):
        axes.plot(other, own, marker, color="black", markersize=4, linestyle="", label=name, zorder=4)
    low, high = corners.min(0), corners.max(0)
    margin = 0.1 * (high - low).max()
    axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return save_figure(figure, folder / "payoff_polygon.png")


def draw_policy(folder: Path, policies: np.ndarray) -> Path:
    """Draws the shaper's policy over the opponent's learning, `[trials, meta_steps, logits]` probabilities."""
    figure, axes = new_axes("meta-step (learning steps of the opponent)", "probability of the first action")
    steps = np.arange(1, policies.shape[1] + 1)
    colors, styles = (GREY, SHAPER, OPPONENT, GREEN, PINK), ("-", "-", "--", "-.", ":")
    for i in range(policies.shape[-1]):
        name = "at the start" if i == 0 else f"after {STATES[i]}"
        mean, deviation = policies[..., i].mean(0), policies[..., i].std(0)
        draw_line(axes, steps, mean, deviation, colors[i], name, styles[i], within=(0, 1))
    axes.set_ylim(-0.03, 1.03)
    axes.set_title("the shaper's policy, its own action first; band: one standard deviation", fontsize=8, color=GREY)
    axes.legend(frameon=False, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return save_figure(figure, folder / "policy.png")


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
    files, shaped, naive = [], groups[opponent], groups[OWN_KIND]
    first, others = np.s_[..., :num_shapers], np.s_[..., num_shapers:]
    states = [name for name in shaped.more if set(name) <= {"C", "D"} and len(name) > 1]
    for counted, label in COUNTED.items():
        if counted not in shaped.more or (states and counted == "cooperation"):  # the states show more
            continue
        figure, axes = new_axes("episode", label)
        for played, seats, color, who, style in (
            (shaped, first, ORANGE, "shaper", "-"),
            (shaped, others, BLUE, short_name(opponent), "-"),
            (naive, first, GREY, OWN_KIND, "--"),
        ):
            share = share_of_occasions(counted, {key: x[seats] for key, x in played.more.items()})
            axes.plot(np.arange(1, len(share) + 1), share, style, color=color, label=who, linewidth=1.6)
        axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_ylim(-0.02, 1.02)
        axes.legend(**BELOW)
        name = {"own_coin": "own_coins.png"}.get(counted, f"{counted}.png")
        files.append(save_figure(figure, folder / name))
    if states:
        figure, axes = new_axes("episode", "share of rounds")
        for i, state in enumerate(states):
            style = ("-", "--", ":")[i // len(STATE_COLORS) % 3]
            color = STATE_COLORS[i % len(STATE_COLORS)]
            shares = shaped.more[state][..., :num_shapers].mean(-1)  # [trials, episodes]
            episodes = np.arange(1, shares.shape[1] + 1)
            draw_line(axes, episodes, shares.mean(0), shares.std(0), color, state, style, within=(0, 1))
        axes.set_ylim(-0.02, 1.02)
        axes.set_title("the shaper's action first; band: one standard deviation", fontsize=8, color=GREY)
        axes.legend(**BELOW | {"ncols": 4})
        files.append(save_figure(figure, folder / "states.png"))
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
