"""Results side by side: a table, a page in Markdown and figures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import configs
from configs.flags import Positional
from marl.bench.methods import SPENDING
from marl.bench.protocol import SIZES, TRAININGS, VERSION
from marl.bench.scores import (
    GROUPS,
    MEASURES,
    RESULT,
    aggregate,
    improvement,
    missing,
    profile,
    scores_of,
    shown,
    trains_once,
)
from marl.bench.tracks import TRACKS, track_of
from meta.runs.formatting import amount, say
from meta.runs.plotting import BARS, colors_of, draw_line, name_rows, new_axes, new_curves, save_figure
from meta.runs.reports.aggregates import Estimate
from meta.runs.reports.claims import table as markdown

FIELDS = ("bench", "track", "method", "kind", "size", "trainings", "seed", "tasks", "trials", "seconds", "versions")
Aggregates = dict[tuple[str, str], Estimate]  # of one method, by group and measure
LEVELS = np.linspace(-0.5, 1.5, 101)


@dataclasses.dataclass(frozen=True)
class TableConfig(configs.CommandConfig):
    """Results that are put side by side."""

    results: Annotated[tuple[str, ...], Positional("FILE ...")] = ()
    """Files or run directories of results, complete ones of one version."""
    out: str = "bench"
    """Directory of table.md and the figures; it is made if it is not there."""


def load_result(path: str, field: str = "results") -> dict[str, Any]:
    """A result from its file, or from the run directory that has it.

    Args:
      path: of the file or the directory.
      field: of the config, for messages.

    Raises:
      ValueError: if there is none, or for one of another version or without a field; one line.
    """
    file = Path(path) / RESULT if Path(path).is_dir() else Path(path)
    needed = "the result of python -m marl.bench is needed"
    try:
        found = json.loads(file.read_bytes())
    except OSError:
        raise ValueError(f"{field}: got {path!r}, which cannot be read; {needed}") from None
    except ValueError:
        raise ValueError(f"{field}: got {path!r}, which is no whole JSON; {needed}") from None
    lacking = [name for name in FIELDS if not isinstance(found, dict) or name not in found]
    if lacking:
        raise ValueError(f"{field}: got {path!r}, without {lacking[0]}; a result of python -m marl.bench is needed")
    if found["bench"] != VERSION:
        raise ValueError(f"{field}: got {path!r}, of version {found['bench']}; one of version {VERSION} is needed")
    whole = isinstance(found["tasks"], dict) and isinstance(found["trainings"], int)
    if not whole or found["size"] not in SIZES or found["track"] not in TRACKS:
        raise ValueError(f"{field}: got {path!r}, which is damaged; a result of python -m marl.bench is needed")
    known = {(task, part.opponent) for part in track_of(found["track"]).parts for task in part.tasks}
    unknown = [f"{task}/{name}" for task, row in found["tasks"].items() for name in row if (task, name) not in known]
    if unknown:
        raise ValueError(f"{field}: got {path!r}, with {unknown[0]}, which is no task of the bench")
    return dict(found)


class Results(NamedTuple):
    """Results that fit into one table, by method, and the directory of the table."""

    by_method: dict[str, dict[str, Any]]
    folder: Path


def load_results(config: TableConfig) -> Results:
    """Complete results; the name of a method has its size where sizes differ.

    Raises:
      ValueError: for no result, one that lacks tasks or trainings, two of one method and size, or two tracks.
    """
    if not config.results:
        raise ValueError("results: got none; files of results are needed")
    found: dict[str, dict[str, Any]] = {}
    for path in config.results:
        one = load_result(path)
        if lacking := missing(one):
            needed = f"a finite payoff of each of its {one['trainings']} trainings in every task is needed"
            raise ValueError(f"results: got {path!r}, which lacks some of {lacking[0]}; {needed}")
        if not scores_of(one)["gain"]:
            raise ValueError(f"results: got {path!r}, which has no scores; one with a scale of its tasks is needed")
        if one["trainings"] < TRAININGS:
            got = f"{path!r}, of {one['trainings']} training(s)"
            raise ValueError(f"results: got {got}; one of at least {TRAININGS} is needed")
        if found and one["track"] != (track := next(iter(found.values()))["track"]):
            raise ValueError(f"results: got {path!r}, of the {one['track']} track; one of the {track} track is needed")
        name = f"{one['method']} ({one['size']})"
        if name in found:
            raise ValueError(f"results: got two of {name}; one is needed")
        found[name] = one
    methods = [one["method"] for one in found.values()]
    by_method = {one["method"] if methods.count(one["method"]) == 1 else name: one for name, one in found.items()}
    return Results(by_method, Path(config.out))


def make_table(prepared: Results, out: None, console: Console) -> None:
    """Prints the table, and writes it with its figures to the directory."""
    results, folder = prepared
    folder.mkdir(parents=True, exist_ok=True)
    scores = {name: scores_of(one) for name, one in results.items()}
    found = {
        name: {
            (group, measure): aggregate(some[measure], group, once=trains_once(results[name]))
            for group in GROUPS
            for measure in MEASURES
        }
        for name, some in scores.items()
    }
    ranked = sorted(results, key=lambda name: -found[name]["held-out", "gain"].value)
    rows = [_row(name, results[name], found[name]) for name in ranked]
    # The scores fit into 80 characters, with most names in one line; table.md has the other columns too.
    width = min(max(map(len, ranked)), LONGEST_NAME)
    columns = [Column(name, max_width=SCORE_WIDTH) for name in COLUMNS[1:SCORED]]
    shown_table = Table(Column(COLUMNS[0], overflow="fold", min_width=width), *columns)
    for row in rows:
        shown_table.add_row(*row[:SCORED])
    console.print(shown_table)
    (folder / "table.md").write_text(markdown(list(COLUMNS), rows) + "\n", encoding="utf-8")
    best = ranked[0]
    track = results[best]["track"]
    files = [
        draw_scores(folder, {name: found[name] for name in ranked}, track),
        draw_profiles(folder, {name: scores[name] for name in ranked}),
    ]
    lines = Table("method", f"probability of a higher gain than {best}, held-out forms")
    for name in ranked[1:]:
        once = trains_once(results[name]), trains_once(results[best])
        estimate = improvement(scores[name]["gain"], scores[best]["gain"], "held-out", once=once)
        lines.add_row(name, shown(estimate._asdict()))
    if len(results) > 1:
        console.print(lines)
    say(console, f"written to {folder}: table.md, {', '.join(file.name for file in files)}")


COLUMNS = ("method", "gain, training", "welfare, training", "gain, held-out", "welfare, held-out", "size", "trials")
SCORED = 1 + len(GROUPS) * len(MEASURES)  # columns up to the last score
LONGEST_NAME, SCORE_WIDTH = 24, 9  # characters of a line
MOST_PROFILES = 8  # lines of a figure


def _row(name: str, result: dict[str, Any], found: Aggregates) -> list[str]:
    cells = [shown(found[group, measure]._asdict()) for group in GROUPS for measure in MEASURES]
    return [name, *cells, result["size"] if result["kind"] in SPENDING else "-", amount(result["trials"])]


def draw_scores(folder: Path, found: dict[str, Aggregates], track: str) -> Path:
    """Draws gain and welfare of every method, with their intervals.

    Args:
      folder: where to.
      found: aggregates of each method, from the top to the bottom.
      track: its name.

    Returns:
      The file.
    """
    figure, panels = new_curves(2)
    figure.set_figheight(0.9 + 0.3 * len(found))
    for axes, measure in zip(panels, MEASURES, strict=True):
        for offset, (group, color) in zip((-0.12, 0.12), colors_of(GROUPS).items(), strict=True):
            each = [one[group, measure] for one in found.values()]
            value, low, high = (np.array([getattr(x, bound) for x in each]) for bound in ("value", "low", "high"))
            spread = np.maximum(np.nan_to_num(np.stack([value - low, high - value])), 0)
            y = np.arange(len(each)) + offset
            axes.errorbar(value, y, xerr=spread, marker="o", color=color, label=f"{group} forms", **BARS)
        axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
        axes.set_xlabel(measure)
        name_rows(axes, list(found) if measure == "gain" else [""] * len(found), 24)
    title = f"Shaping Bench {VERSION}, {track} track: gain of a method and welfare of its opponents"
    note = (
        "0: the opponent's own kind in the method's place; 1: the most that is known; interquartile means; bars: 95 %"
    )
    return save_figure(figure, folder / "scores.png", title, note)


def draw_profiles(folder: Path, scores: dict[str, dict[str, dict[str, np.ndarray]]]) -> Path:
    """Draws the performance profiles against held-out forms, of the first methods if there are many.

    Args:
      folder: where to.
      scores: of each method, as of `scores_of`, from the best on.

    Returns:
      The file.
    """
    figure, axes = new_axes("gain", "share of tasks and trainings above it", (5.5, 3.4))
    first = dict([*scores.items()][:MOST_PROFILES])
    for name, color in colors_of(first).items():
        levels = profile(scores[name]["gain"], "held-out", LEVELS)
        draw_line(axes, LEVELS, levels, np.zeros(len(LEVELS)), color, name)
    axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
    note = "further up is better; 0: the opponent's own kind in the method's place; 1: the most that is known"
    if len(first) < len(scores):
        note += f"; the first {len(first)} of {len(scores)} methods"
    return save_figure(figure, folder / "profiles.png", "Gains against held-out forms of the opponents", note)


def draw_opponents(folder: Path, result: dict[str, Any]) -> Path:
    """Draws the gain of one method against each opponent, a point for each game.

    Args:
      folder: where to.
      result: of the method.

    Returns:
      The file.
    """
    scores = scores_of(result)["gain"]
    figure, axes = new_axes("gain", "", (5.5, 3.0))
    met = {name.split("/")[1] for name in scores}
    names = [name for name in track_of(result["track"]).opponents if name in met]
    for group, color in colors_of(GROUPS).items():
        points = [
            (np.nanmean(x), names.index(name.split("/")[1]) + (0.15 if group == "held-out" else -0.15))
            for name, x in scores.items()
            if name.rpartition("/")[2] in GROUPS[group]
        ]
        if points:
            axes.plot(*zip(*points, strict=True), "o", color=color, markersize=4, alpha=0.7, label=f"{group} forms")
    axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
    name_rows(axes, names or ["no task with a scale"])
    note = (
        "a point: mean of the trainings in one game, against one form; 0: the opponent's own kind in its place; "
        "1: the most that is known"
    )
    return save_figure(figure, folder / "opponents.png", f"Gain of {result['method']} in each game", note)
