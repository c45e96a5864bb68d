"""Metrics of a run as curves for a page: thinned, with the mean over trainings and a band."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

POINTS = 600  # of a curve, at most
DIGITS = 5  # of a number in a page


class Line(NamedTuple):
    """A curve over the rows of a run."""

    label: str
    mean: np.ndarray  # [points]
    low: np.ndarray | None = None  # [points], the lower edge of its band
    high: np.ndarray | None = None


def thin(values: np.ndarray, most: int = POINTS) -> np.ndarray:
    """Means of equal parts of rows, so that few enough stay.

    Args:
      values: `[rows, ...]`; NaN is left out.
      most: rows that stay, at most.

    Returns:
      `[parts, ...]`, NaN where a part has no number.
    """
    parts = np.array_split(values, min(most, len(values))) if len(values) else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
        return np.array([np.nanmean(np.where(np.isfinite(part), part, np.nan), 0) for part in parts])


def is_return(name: str) -> bool:
    """True for the name of a return, also of one of two players."""
    return re.fullmatch(r".*return(_[01])?", name) is not None


def of_run(metrics: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """The charts of a run: returns and the fitness together, then a chart for each other metric.

    Args:
      metrics: by name, `[rows]`, or `[rows, trainings]`; the first counts the rows.

    Returns:
      Charts as of `page.curves`; none for fewer than two rows.
    """
    label, first = next(iter(metrics.items()), ("", np.array([])))
    if len(first) < 2 or first.ndim > 1:
        return []
    numbers = {name: x for name, x in metrics.items() if name != label and x.ndim <= 2 and np.isfinite(x).any()}
    together = [name for name in numbers if is_return(name)]
    fitness = numbers.get("fitness", np.array([]))
    if fitness.size and not any(np.array_equal(fitness, numbers[name], equal_nan=True) for name in together):
        together.append("fitness")
    together.sort(key=lambda name: not name.startswith("shaper"))  # whose colour is the first, as in figures
    groups = [together, *([name] for name in numbers if name not in (*together, "fitness"))]
    seeds = max((x.shape[1] for x in numbers.values() if x.ndim == 2), default=1)
    note = f"Mean of {seeds} runs; band: one standard deviation between them." if seeds > 1 else "One run."
    if (rows := -(-len(first) // POINTS)) > 1:
        note += f" Each point is the mean of about {rows:,} rows of metrics."
    title = "Return" if all(map(is_return, together)) else "Return and fitness"
    charts = []
    for group in filter(None, groups):
        lines = [_line(name, numbers[name]) for name in group]
        charts.append(chart(title if group is together else words(group[0]), words(label), last(first), lines, note))
    return charts


def chart(title: str, x: str, values: np.ndarray, lines: Iterable[Line], note: str) -> dict[str, Any]:
    """A chart as `page.curves` takes it.

    Args:
      title: above the caption.
      x: the label of the horizontal axis.
      values: of it, `[points]`.
      lines: the curves.
      note: over what a mean and its band are.
    """
    found = [
        {"label": line.label, "mean": _numbers(line.mean)}
        | {name: None if edge is None else _numbers(edge) for name, edge in (("low", line.low), ("high", line.high))}
        for line in lines
    ]
    return {"title": title, "x": x, "values": _numbers(values), "lines": found, "note": note}


def words(name: str) -> str:
    """The name of a field or a metric as words.

    Args:
      name: such as `shaper_return`.
    """
    return name.replace("_", " ")


def _line(name: str, values: np.ndarray) -> Line:
    points = thin(values)
    if points.ndim == 1:
        return Line(words(name), points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where no seed has a number
        mean, spread = np.nanmean(points, 1), np.nanstd(points, 1)
    return Line(words(name), mean, mean - spread, mean + spread) if points.shape[1] > 1 else Line(words(name), mean)


def last(values: np.ndarray, most: int = POINTS) -> np.ndarray:
    """The last of each part that `thin` makes one point of.

    Args:
      values: `[rows]`.
      most: parts, at most.
    """
    return np.array([part[-1] for part in np.array_split(values, min(most, len(values)))] if len(values) else [])


def _numbers(values: Sequence[float] | np.ndarray) -> list[float | None]:
    """Numbers of a few digits; None for what is not finite, because JSON has no other word for it."""
    return [float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None for x in map(float, values)]
