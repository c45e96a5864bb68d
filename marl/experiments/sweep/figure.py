"""The figure of a sweep: the result over the values that were swept, with error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from marl.experiments.sweep.results import Row
from meta.runs.plotting import (
    BARS,
    CONTROL,
    EVOLVED,
    LEARNER,
    colors_of,
    draw_scale,
    name_rows,
    new_axes,
    save_figure,
    write_cells,
)

FIGURE = "sweep.png"
SPREAD = 20.0  # largest value over the smallest, above which an axis is logarithmic
MOST_LINES = 8


def draw(out: Path, rows: Sequence[Row], command: str) -> Path:
    """Draws the result of each point.

    Over one number that was swept it is a curve, with a colour for each combination of the other values; over two
    numbers a map, or coloured points where they are no grid; and otherwise a row for each point.

    Args:
      out: directory of the sweep.
      rows: at least one.
      command: the command that is swept, with its first argument.
    """
    values = rows[0].point.values
    numbers = [name for name in values if all(_number(row.point.values[name]) is not None for row in rows)]
    others = {tuple(_without(row, numbers[:1])) for row in rows} if numbers else set[tuple[str, ...]]()
    if len(numbers) == 2 == len(values):
        return (_map if _is_grid(rows, numbers) else _scatter)(out, rows, command, numbers)
    if len(numbers) == 1 and len(others) <= MOST_LINES:
        return _curves(out, rows, command, numbers[0])
    return _rows(out, rows, command)


def _curves(out: Path, rows: Sequence[Row], command: str, name: str) -> Path:
    figure, axes = new_axes(name, rows[0].name)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(", ".join(_without(row, [name])), []).append(row)
    colors = colors_of(groups) if len(groups) > 1 else dict.fromkeys(groups, _color(rows))
    for label, group in groups.items():
        group = sorted(group, key=lambda row: _at(row, name))
        x, y = [_at(row, name) for row in group], [row.mean for row in group]
        shown = label or rows[0].name
        axes.plot(x, y, color=colors[label], linewidth=1.2)
        axes.errorbar(x, y, _errors(group), fmt="o", color=colors[label], label=shown, **BARS)
        controls = [row.control[1] if row.control else np.nan for row in group]
        if np.isfinite(controls).any():
            control = rows[0].control[0] if rows[0].control else ""
            words = f"{label}: {control}" if label else control
            color = CONTROL if len(groups) == 1 else colors[label]
            axes.plot(x, controls, "--", color=color, linewidth=1.0, label=words)
    if _is_spread([_at(row, name) for row in rows]):
        axes.set_xscale("log")
    return _save(figure, out, rows, command)


def _map(out: Path, rows: Sequence[Row], command: str, names: Sequence[str]) -> Path:
    x, y = (sorted({_at(row, name) for row in rows}) for name in names)
    means = np.full((len(y), len(x)), np.nan)
    texts = {}
    for row in rows:
        at = y.index(_at(row, names[1])), x.index(_at(row, names[0]))
        means[at] = row.mean
        texts[at] = f"{row.mean:.3g}" + (f"\n± {row.error:.3g}" if np.isfinite(row.error) else "")
    figure, axes = new_axes(names[0], names[1])
    image = axes.imshow(means, aspect="auto", origin="lower", cmap="viridis")
    axes.grid(visible=False)
    axes.set_xticks(range(len(x)), [f"{value:g}" for value in x])
    axes.set_yticks(range(len(y)), [f"{value:g}" for value in y])
    write_cells(axes, image, texts, 4.0 / len(x), 8)
    draw_scale(figure, image, axes, rows[0].name)
    return _save(figure, out, rows, command)


def _scatter(out: Path, rows: Sequence[Row], command: str, names: Sequence[str]) -> Path:
    x, y = ([_at(row, name) for row in rows] for name in names)
    figure, axes = new_axes(names[0], names[1])
    image = axes.scatter(x, y, c=[row.mean for row in rows], cmap="viridis", s=40)
    axes.set_xscale("log" if _is_spread(x) else "linear")
    axes.set_yscale("log" if _is_spread(y) else "linear")
    draw_scale(figure, image, axes, rows[0].name)
    return _save(figure, out, rows, command, errors=False)


def _rows(out: Path, rows: Sequence[Row], command: str) -> Path:
    figure, axes = new_axes(rows[0].name, "", (5.0, 1.0 + 0.3 * len(rows)))
    at = range(len(rows))
    means = [row.mean for row in rows]
    axes.errorbar(means, at, xerr=_errors(rows), fmt="o", color=_color(rows), label=rows[0].name, **BARS)
    controls = [row.control[1] if row.control else np.nan for row in rows]
    if np.isfinite(controls).any() and rows[0].control:
        axes.plot(controls, at, "|", color=CONTROL, markersize=10, label=rows[0].control[0])
    name_rows(axes, [", ".join(f"{name} {x}" for name, x in row.point.values.items()) for row in rows])
    return _save(figure, out, rows, command)


def _save(figure: object, out: Path, rows: Sequence[Row], command: str, *, errors: bool = True) -> Path:
    title = f"Results of {command} over {' and '.join(rows[0].point.values) or 'one point'}"
    over = " or ".join(dict.fromkeys(row.over for row in rows))
    drawn = errors and any(math.isfinite(row.error) for row in rows)
    note = f"errors: one standard error over {over}" if drawn else f"without standard errors ({over})"
    return save_figure(figure, out / FIGURE, title, note)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _at(row: Row, name: str) -> float:
    return float(row.point.values[name])


def _without(row: Row, names: Sequence[str]) -> list[str]:
    return [f"{name} {x}" for name, x in row.point.values.items() if name not in names]


def _is_grid(rows: Sequence[Row], names: Sequence[str]) -> bool:
    """True if two numbers make few columns and lines, as in a grid, and not as many as there are points."""
    x, y = (len({_at(row, name) for row in rows}) for name in names)
    return x * y < 2 * len(rows)


def _is_spread(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > SPREAD


def _errors(rows: Sequence[Row]) -> list[float]:
    """Standard errors; nothing is drawn where there is none."""
    return [row.error if np.isfinite(row.error) else 0.0 for row in rows]


def _color(rows: Sequence[Row]) -> str:
    return LEARNER if rows[0].name == "return" else EVOLVED
