"""The command `compare`: several runs or seeds side by side, as a page and as a CSV file."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from configs.usage import Positional
from meta.atomic_files import write_whole
from meta.runs.formatting import many, say
from meta.runs.reports import curves, page
from meta.runs.reports.aggregates import (
    LEVEL,
    TAILS,
    Estimate,
    interquartile_mean,
    probability_of_improvement,
    trimmed_mean,
)
from meta.runs.reports.trainings import TASKS, Compared, Training, choose_score, read_trainings
from meta.statistics import standard_error

COLUMNS = ("quantity", "game", "method", "against", "seed", "trainings", "value", "standard_error", "low", "high")
ALL = "all games, scaled"
POINTS = 200  # of a curve, each with a bootstrap of its own
MOST_CHARTS = 24
BAND_RESAMPLES = 500


@dataclasses.dataclass(frozen=True)
class CompareConfig(configs.CommandConfig):
    """Runs that are compared."""

    runs: Annotated[tuple[str, ...], Positional("RUN ...")] = ()
    """Directories of finished runs."""
    score: str = ""
    """The number of summary.json that is compared, such as shaper_return; if empty, the return of the evaluation."""
    tasks: tuple[str, ...] = TASKS
    """Fields of the config that name the game; runs that differ in others are of several methods."""
    resamples: int = 5000
    """Draws of each bootstrap interval."""
    seed: int = 0
    """Seed of the bootstrap."""
    out: str = "comparison"
    """Where to write: OUT.html and OUT.csv."""

    def __post_init__(self) -> None:
        configs.check_least(self, resamples=1)
        configs.check(self, "a number of at most 100,000", lambda x: x <= 100_000, "resamples")
        configs.check_seed(self.seed)


class Comparison(NamedTuple):
    """Runs that have been read, and by which score they are compared."""

    config: CompareConfig
    compared: Compared
    score: str


class Cell(NamedTuple):
    """Aggregates of a method in a game."""

    trainings: int
    mean: float
    error: float  # standard, NaN of one training
    middle: Estimate  # the interquartile mean


def prepare(config: CompareConfig) -> Comparison:
    """The trainings of a config.

    Args:
      config: which runs.

    Raises:
      ValueError: for runs that cannot be compared, and for a place where nothing can be written; one line.
    """
    out = config.out.removesuffix(".html")
    if not out or not Path(os.path.abspath(out)).parent.is_dir():
        raise ValueError(f"out: got {configs.shown(config.out)}; a name in a directory that exists is needed")
    for file, mark in zip(_files(out), (f'content="{page.GENERATOR}"', ",".join(COLUMNS)), strict=True):
        if file.exists() and not (file.is_file() and mark in file.read_bytes()[:2000].decode("utf-8", "replace")):
            raise ValueError(f"out: {file} already exists, and is no comparison; another name is needed")
    compared = read_trainings(config.runs, config.tasks)
    return Comparison(dataclasses.replace(config, out=out), compared, choose_score(compared, config.score))


def compare(comparison: Comparison, target: None, console: Console) -> None:
    """Writes the page and the CSV file, and prints the table.

    Args:
      comparison: what `prepare` gives.
      target: no directory.
      console: where to print.
    """
    config, found = comparison.config, _Aggregates(comparison)
    files = _files(config.out)
    write_whole(files[0], page.document("comparison of runs", *_body(found)).encode())
    write_whole(files[1], _csv(found).encode())
    say(console, found.conclusion)
    for title, columns, rows in found.tables():
        table = Table(*columns, title=title, title_justify="left", box=None)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    say(console, found.note)
    say(console, f"written to {files[0]} and {files[1]}")


def _files(out: str) -> list[Path]:
    return [Path(f"{out}{ending}") for ending in (".html", ".csv")]


class _Aggregates:
    """Everything that a comparison shows, computed once."""

    def __init__(self, comparison: Comparison):
        self.config, self.compared, self.score = comparison
        groups, tasks, methods = self.compared.groups, self.compared.tasks, self.compared.methods
        self.scores = {key: np.array([one.scores[self.score] for one in group]) for key, group in groups.items()}
        self.draws: dict[str, Any] = {"resamples": self.config.resamples, "seed": self.config.seed}
        self.cells = {key: self._cell([values]) for key, values in self.scores.items()}
        whole = [one for one in methods if all((task, one) in groups for task in tasks)]
        if len(tasks) > 1:  # games have returns of several scales
            for one in whole:
                self.cells[ALL, one] = self._cell([self._scaled(task, one) for task in tasks])
        self.better = {
            (one, other): probability_of_improvement(
                [self.scores[task, one] for task in tasks], [self.scores[task, other] for task in tasks], **self.draws
            )
            for one, other in itertools.permutations(whole, 2)
        }

    def _cell(self, scores: Sequence[np.ndarray]) -> Cell:
        every = np.concatenate(scores)
        error = float(standard_error(every)) if len(scores) == 1 else math.nan
        return Cell(len(every), float(every.mean()), error, interquartile_mean(scores, **self.draws))

    def _scaled(self, task: str, method: str) -> np.ndarray:
        """Scores of a method in a game, where 0 is the lowest and 1 the highest score of any training in it."""
        every = np.concatenate([values for (name, _), values in self.scores.items() if name == task])
        return (self.scores[task, method] - every.min()) / (np.ptp(every) or 1.0)

    @property
    def rows(self) -> list[str]:
        """Games, and all of them together if there are several."""
        return [*self.compared.tasks, *([ALL] if any(task == ALL for task, _ in self.cells) else [])]

    @property
    def conclusion(self) -> str:
        """The best method in one sentence."""
        task = self.rows[-1]
        known = [one for one in self.compared.methods if (task, one) in self.cells]
        first, *others = sorted(known, key=lambda one: -self.cells[task, one].middle.value)
        cell, score = self.cells[task, first], curves.words(self.score)
        where = "" if len(self.rows) == 1 else f" over {task}"
        if len(self.rows) > 1 and task != ALL:
            where += " (no method was played in every game)"
        said = f"{first} has an interquartile mean of {score}{where} of {_interval(cell.middle)}"
        if others:
            said = f"{first} has the highest interquartile mean of {score}{where}, {_interval(cell.middle)}"
        pair = (first, *others[:1])
        if pair in self.better and all(len(self.scores[task, one]) > 1 for task in self.compared.tasks for one in pair):
            chance = _interval(self.better[first, others[0]])
            said += f"; with probability {chance} one of its trainings scores higher than one of {others[0]}"
        return f"{said}."

    @property
    def note(self) -> str:
        """The samples that intervals are over."""
        counts = sorted({cell.trainings for (task, _), cell in self.cells.items() if task != ALL})
        said = f"Intervals: {LEVEL:.0%}, stratified bootstrap over trainings (seeds), "
        said += f"{' or '.join(map(str, counts))} of each method and game; ± one standard error over trainings."
        if counts[0] < 4:
            said += " Fewer than four trainings have no quarter to leave out, and their interquartile mean is the mean."
        if ALL in self.rows:
            said += f" {ALL.capitalize()}: 0 is the lowest and 1 the highest score of any training in a game."
        return said

    def tables(self) -> Iterator[tuple[str, list[str], list[list[str]]]]:
        """(title, columns, rows) of the aggregates and of the probabilities of improvement."""
        methods, rows = self.compared.methods, []
        for task in self.rows:
            if len(self.rows) > 1:
                rows.append([task, *[""] * len(methods)])
            cells = [self.cells.get((task, one)) for one in methods]
            rows.append(["trainings", *(str(cell.trainings) if cell else "-" for cell in cells)])
            rows.append(["interquartile mean", *(_number(cell.middle.value) if cell else "-" for cell in cells)])
            rows.append([f"its {LEVEL:.0%} interval", *(_bounds(cell.middle) if cell else "-" for cell in cells)])
            rows.append(["mean", *(_with_error(cell) if cell else "-" for cell in cells)])
        yield curves.words(self.score), ["", *methods], rows
        if self.better:
            known = [one for one in methods if any(one in pair for pair in self.better)]
            rows = [
                [one, *("" if one == other else _interval(self.better[one, other]) for other in known)] for one in known
            ]
            yield "probability that the row scores higher than the column", ["", *known], rows


def _body(found: _Aggregates) -> Iterator[Element]:
    compared, config = found.compared, found.config
    number = sum(map(len, compared.groups.values()))
    title = f"{many(number, 'training')} of {many(len(compared.methods), 'method')}"
    yield page.element("h1", f"{title}, compared by {curves.words(found.score)}")
    yield page.element("p", found.conclusion, class_="conclusion")
    tables = [page.table(columns, rows, name) for name, columns, rows in found.tables()]
    yield page.section("Results", *tables, page.element("p", found.note, class_="note"))
    if parts := list(_curves(found)):
        hint = "Drag across a curve to zoom, double-click for the whole; the values at the cursor stand below it."
        yield page.section("Curves", page.element("p", hint, class_="note"), *parts)
    rows = [
        [str(one.run), task, method, str(one.seed), _number(one.scores[found.score], 6)]
        for (task, method), group in compared.groups.items()
        for one in group
    ]
    yield page.section("Trainings", page.table(["run", "game", "method", "seed", curves.words(found.score)], rows))
    if fields := next(iter(compared.settings.values())):
        rows = [
            [name, *(configs.short(str(compared.settings[one][name])) for one in compared.methods)] for name in fields
        ]
        yield page.section("Settings that differ", page.table(["field", *compared.methods], rows))
    usual, words = CompareConfig(), ["marl-shaping", "compare", *config.runs, "--score", found.score]
    for name in ("tasks", "resamples", "seed", "out"):
        if (value := getattr(config, name)) != getattr(usual, name):
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else [value])]
    yield page.section("Repeat", page.element("pre", page.element("code", shlex.join(words))))


def _curves(found: _Aggregates) -> Iterator[Element]:
    compared = found.compared
    for task in compared.tasks:
        groups = {name: group for (of, name), group in compared.groups.items() if of == task}
        where = task if len(compared.tasks) > 1 else ""
        shown = [page.curves(one) for one in itertools.islice(_charts(where, groups), MOST_CHARTS)]
        yield from shown[:1]
        if shown[1:]:
            title = ": ".join(filter(None, (where, many(len(shown) - 1, "other metric"))))
            yield page.folded(title, *shown[1:])


def _charts(task: str, groups: dict[str, list[Training]]) -> Iterator[dict[str, Any]]:
    every = [one.metrics for group in groups.values() for one in group]
    label = next(iter(every[0]), "")
    if not label or any(next(iter(one), "") != label for one in every):
        return
    names = [name for name in every[0] if name != label and all(name in one for one in every)]
    for name in sorted(names, key=lambda name: (not curves.is_return(name), not name.startswith("shaper"))):
        bands = [_band(method, group, label, name) for method, group in groups.items()]
        x = np.unique(np.concatenate([points for points, _ in bands]))
        lines = [_placed(line, np.searchsorted(x, points), len(x)) for points, line in bands]
        note = f"Interquartile mean over trainings; band: its {LEVEL:.0%} bootstrap interval."
        title = ": ".join(filter(None, (task, curves.words(name))))
        yield curves.chart(title, curves.words(label), x, lines, note)


def _band(method: str, group: list[Training], label: str, name: str) -> tuple[np.ndarray, curves.Line]:
    """(x `[points]`, interquartile mean and band) of a metric, over the rows that all trainings have."""
    x = group[0].metrics[label]
    for one in group[1:]:
        x = np.intersect1d(x, one.metrics[label])
    values = np.stack([one.metrics[name][np.isin(one.metrics[label], x)][: len(x)] for one in group], 1)
    points, thinned = curves.last(x, POINTS), curves.thin(values, POINTS).reshape(-1, len(group))
    thinned[~np.isfinite(thinned).all(1)] = np.nan  # a row counts where all trainings have a number
    middle = trimmed_mean(thinned)
    if len(group) < 2:
        return points, curves.Line(method, middle)
    draws = np.random.default_rng(0).integers(len(group), size=(BAND_RESAMPLES, len(group)))
    low, high = np.quantile(trimmed_mean(thinned[:, draws]), TAILS, axis=1)
    return points, curves.Line(method, middle, low, high)


def _placed(line: curves.Line, at: np.ndarray, number: int) -> curves.Line:
    """The line at these of a number of points, and NaN at others."""

    def place(values: np.ndarray) -> np.ndarray:
        found = np.full(number, np.nan)
        found[at] = values
        return found

    edges = [None if one is None else place(one) for one in (line.low, line.high)]
    return curves.Line(line.label, place(line.mean), *edges)


def _csv(found: _Aggregates) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for (task, method), group in found.compared.groups.items():
        for one in group:
            row = {"quantity": "score", "game": task, "method": method, "seed": one.seed}
            writer.writerow(row | {"trainings": 1, "value": one.scores[found.score]})
    for (task, method), cell in found.cells.items():
        about = {"game": task, "method": method, "trainings": cell.trainings}
        mean = {"value": cell.mean, "standard_error": cell.error}
        writer.writerow(about | {"quantity": "mean", **_known(mean)})
        writer.writerow(about | {"quantity": "interquartile_mean", **_known(cell.middle._asdict())})
    for (method, other), estimate in found.better.items():
        number = sum(len(group) for (_, name), group in found.compared.groups.items() if name == method)
        about = {"quantity": "probability_of_improvement", "game": found.rows[-1] if len(found.rows) > 1 else ""}
        writer.writerow(about | {"method": method, "against": other, "trainings": number, **_known(estimate._asdict())})
    return text.getvalue()


def _known(numbers: dict[str, float]) -> dict[str, float | str]:
    return {name: "" if math.isnan(x) else x for name, x in numbers.items()}


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"


def _bounds(estimate: Estimate) -> str:
    if math.isnan(estimate.low):
        return "none of one training"
    return f"{_number(estimate.low)} to {_number(estimate.high)}"


def _interval(estimate: Estimate) -> str:
    return _number(estimate.value) + ("" if math.isnan(estimate.low) else f" ({_bounds(estimate)})")


def _with_error(cell: Cell) -> str:
    return _number(cell.mean) + ("" if math.isnan(cell.error) else f" ± {_number(cell.error, 2)}")
