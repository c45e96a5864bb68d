"""What pictures of results have in common: axes, lines with a band, files that appear whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

# Okabe and Ito (2008): told apart by readers with any colour vision.
ORANGE, BLUE, GREEN, PINK, SKY, GREY = "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#666666"

BELOW: dict[str, Any] = {  # a legend that stands below the axes
    "frameon": False,
    "fontsize": 8,
    "ncols": 2,
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.18),
}


def new_axes(xlabel: str, ylabel: str, size: tuple[float, float] = (5.0, 3.5)) -> tuple[Any, Any]:
    """(figure, axes) of one panel; the size is in inches."""
    from matplotlib.figure import Figure  # here, for it costs half a second; and no global state, so no pyplot

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot(xlabel=xlabel, ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    return figure, axes


def draw_line(
    axes: Any, x: np.ndarray, y: np.ndarray, spread: np.ndarray, color: str, label: str, style: str = "-"
) -> None:
    """A line with a band of `spread` on either side; all are `[points]`."""
    axes.plot(x, y, style, color=color, label=label, linewidth=1.6)
    axes.fill_between(x, y - spread, y + spread, color=color, alpha=0.2, linewidth=0)


def save_figure(figure: Any, path: Path) -> Path:
    """Writes a picture whole, in place of an older one."""
    scratch = path.with_name(f".{path.name}")
    figure.savefig(scratch, dpi=200)
    scratch.replace(path)
    return path
