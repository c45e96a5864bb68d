"""The results of a sweep: one table, printed and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

import configs
from marl.experiments.saved.main_results import agent_in, errors_over, results_of
from marl.experiments.sweep.plan import Point
from meta.atomic_files import write_whole
from meta.runs.formatting import say
from meta.runs.jobs import finished
from meta.statistics import or_nan, rounded

CSV = "sweep.csv"
NAMES = {"shaper": "shaper's payoff", "return": "return"}  # of results, where their own says too little


class Row(NamedTuple):
    """The result of a point.

    Attributes:
      point: the point
      mean: of its main result; NaN if it is not finite
      error: the standard error of that
      name: of the main result
      control: (name, mean, standard error) of its control, where there is one
      over: samples between which the errors are
      seconds: that its own process took
    """

    point: Point
    mean: float
    error: float
    name: str
    control: tuple[str, float, float] | None
    over: str
    seconds: float


def rows_of(out: Path, points: Sequence[Point]) -> list[Row]:
    """The results of those points of a sweep that are finished.

    Args:
      out: directory of the sweep.
      points: all of them.
    """
    found = []
    for point in points:
        summary, agent = finished(out / point.name, point.config), agent_in(out / point.name)
        if summary and agent:
            found.append(_row(point, summary, agent[1]))
    return found


def _row(point: Point, summary: Mapping[str, Any], kind: str) -> Row:
    found = list(results_of(kind, summary).items())
    (name, first), (last, control) = found[0], found[-1]
    controlled = len(found) > 1 and last != "opponent"
    number = getattr(point.config, "seeds", getattr(point.config, "searches", 1))
    return Row(
        point,
        or_nan(first["mean"]),
        or_nan(first["standard_error"]),
        NAMES.get(name, name),
        (last, or_nan(control["mean"]), or_nan(control["standard_error"])) if controlled else None,
        errors_over(kind, configs.plain(point.config), number),
        float(summary.get("wall_seconds", 0.0)),
    )


def write_csv(out: Path, rows: Sequence[Row]) -> Path:
    """Writes the table as CSV, a line for each point, whose numbers are those of the summaries.

    Args:
      out: directory of the sweep.
      rows: at least one.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    more = ["control", "control_mean", "control_standard_error"]
    writer.writerow(["directory", *rows[0].point.values, "result", "mean", "standard_error", *more, "seconds"])
    for row in rows:
        name, *control = row.control or ("", "", "")
        values = [row.name, row.mean, row.error, name, *control, row.seconds]
        writer.writerow([row.point.name, *row.point.values.values(), *values])
    write_whole(out / CSV, text.getvalue().encode())
    return out / CSV


def print_table(console: Console, rows: Sequence[Row]) -> None:
    """Prints the table.

    Args:
      console: where to.
      rows: at least one.
    """
    control = rows[0].control
    names = list(rows[0].point.values)
    table = Table(*names, rows[0].name, *([control[0]] if control else []), box=None)
    for row in rows:
        beside = [_with_error(*row.control[1:])] if control and row.control else []
        table.add_row(*row.point.values.values(), _with_error(row.mean, row.error), *beside)
    console.print(table)
    over = " or ".join(dict.fromkeys(row.over for row in rows))
    has_errors = any(math.isfinite(row.error) for row in rows)
    say(console, f"± one standard error over {over}" if has_errors else f"without standard errors ({over})")


def conclusion(rows: Sequence[Row]) -> str:
    """The points with the highest and the lowest result, in a sentence.

    Args:
      rows: at least one.
    """
    known = sorted((row for row in rows if math.isfinite(row.mean)), key=lambda row: row.mean)
    if not known:
        return f"The {rows[0].name} is finite nowhere."
    low, high = (f"{_with_error(row.mean, row.error)}{_where(row)}" for row in (known[0], known[-1]))
    return f"The {rows[0].name} is {high}." if len(known) == 1 else f"The {rows[0].name} is between {low}, and {high}."


def _where(row: Row) -> str:
    values = ", ".join(f"{name} {value}" for name, value in row.point.values.items())
    return f" with {values}" if values else ""


def _with_error(mean: float, error: float) -> str:
    return rounded(mean, 3) + (f" ± {error:.3f}" if error == error else "")
