"""Tools of figures: axes, lines with a band, files that appear whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from meta.runs.atomic_files import save_whole

# Okabe and Ito (2008): distinguishable with any colour vision.
ORANGE, BLUE, GREEN, PINK, SKY, GREY = "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#666666"

POINTS = 200  # of a curve of a training, at most
BELOW: dict[str, Any] = {  # a legend that stands below the axes
    "frameon": False,
    "fontsize": 8,
    "ncols": 2,
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.18),
}


def new_panels(size: tuple[float, float], rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Any, np.ndarray]:
    """(figure, axes `[rows, columns]`): panels in the one style of all pictures; the size is in inches.

    `shared` is of matplotlib's `Figure.subplots`. Labels are larger than ticks.
    """
    from matplotlib.figure import Figure  # here, for it costs half a second; and no global state, so no pyplot

    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_size(9)
        axes.yaxis.label.set_size(9)
    return figure, panels


def new_axes(xlabel: str, ylabel: str, size: tuple[float, float] = (5.0, 3.5)) -> tuple[Any, Any]:
    """(figure, axes) of one panel."""
    figure, ((axes,),) = new_panels(size)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def draw_line(
    axes: Any,
    x: np.ndarray,
    y: np.ndarray,
    spread: np.ndarray,
    color: str,
    label: str,
    style: str = "-",
    within: tuple[float, float] = (-np.inf, np.inf),
) -> None:
    """A line with a band of `spread` on either side, but not beyond what `y` can be; all are `[points]`."""
    axes.plot(x, y, style if len(x) > 1 else "o", color=color, label=label, linewidth=1.6)  # one point is no line
    low, high = np.clip(y - spread, *within), np.clip(y + spread, *within)
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def draw_training(path: Path, title: str, returns: np.ndarray, steps_of_an_update: int, label: str) -> Path:
    """The training return over environment steps: mean and standard deviation of several curves.

    Args:
      path: of the picture.
      title: above it.
      returns: `[updates, curves]`, NaN where no episode has ended.
      steps_of_an_update: environment steps of each curve.
      label: of the line.
    """
    parts = np.array_split(np.arange(len(returns)), min(POINTS, len(returns)))
    ended = [part for part in parts if np.isfinite(returns[part]).any(0).all()]
    figure, axes = new_axes("environment steps", "return of the episodes that ended")
    if ended:
        x = np.array([(part[-1] + 1) * steps_of_an_update for part in ended])
        y = np.array([np.nanmean(returns[part], 0) for part in ended])
        draw_line(axes, x, y.mean(1), y.std(1), BLUE, label)
    axes.set_title(title, fontsize=8, color=GREY)
    return save_figure(figure, path)


def draw_scale(figure: Any, image: Any, axes: Any, label: str) -> None:
    """Draws the scale of an image's colours beside its axes."""
    scale = figure.colorbar(image, ax=axes, shrink=0.8)
    scale.set_label(label, fontsize=9)
    scale.ax.tick_params(labelsize=8)


def save_figure(figure: Any, path: Path) -> Path:
    """Writes a picture whole, in place of an older one."""
    return save_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:], dpi=200))
