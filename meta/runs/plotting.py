"""Tools of figures: colours by role, axes, lines with a band, titles and legends that cover nothing, whole files."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meta.atomic_files import save_whole
from meta.runs.reports.curves import last, thin

# Okabe and Ito (2008): distinguishable with any colour vision.
ORANGE, BLUE, GREEN, PINK, SKY, GREY = "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#666666"
AMBER, BLACK = "#E69F00", "#000000"

# A role has one colour in every figure.
EVOLVED = ORANGE  # a shaper, a message to harm, an objective
LEARNER = BLUE  # an agent that learns, such as the opponent of a shaper; the tuned rival of an evolved objective
CONTROL = GREY  # two learners alone, silence, an untuned learner
RANDOM = SKY  # random messages, random or untrained shapers
BOUND = BLACK  # a bound, or a reference that nothing should exceed
ROLES = {
    "shaper": EVOLVED,
    "evolved": EVOLVED,
    "mfos": GREEN,
    "opponent": LEARNER,
    "learners alone": CONTROL,
    "learners alone, shaper's seat": CONTROL,
    "learners alone, opponent's seat": CONTROL,
    "PPO": CONTROL,
    "untrained shapers": RANDOM,
}

POINTS = 200  # of a curve of a training, at most
PANELS = 6  # of a figure, at most
SMALL = 8  # points: ticks, legends and notes
WIDEST = 7.5  # inches, so that words are readable where a page shows the figure at half its width
BARS: dict[str, Any] = {"markersize": 4, "capsize": 5, "elinewidth": 1.2, "linestyle": ""}  # caps exceed the points


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """The colour of each name: its role's, or else the next one that no role among the names has."""
    names = list(names)
    taken = {ROLES.get(name) for name in names}
    free = itertools.cycle(one for one in (BLUE, GREEN, PINK, AMBER, SKY, ORANGE, BLACK, GREY) if one not in taken)
    return {name: ROLES.get(name) or next(free) for name in names}


def new_panels(size: tuple[float, float], rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Any, np.ndarray]:
    """(figure, axes `[rows, columns]`): panels in the one style of all pictures.

    Args:
      size: width and height in inches, without the title and the legend, which `save_figure` adds.
      rows: of panels.
      columns: of panels.
      **shared: settings of matplotlib's `Figure.subplots`.
    """
    from matplotlib.figure import Figure  # here, for it costs half a second; and no global state, so no pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.06))
    panels = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.tick_params(labelsize=SMALL)
        axes.xaxis.label.set_size(9)
        axes.yaxis.label.set_size(9)
    return figure, panels


def new_axes(xlabel: str, ylabel: str, size: tuple[float, float] = (5.0, 3.0)) -> tuple[Any, Any]:
    """(figure, axes) of one panel."""
    figure, ((axes,),) = new_panels(size)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def new_curves(number: int) -> tuple[Any, list[Any]]:
    """(figure, axes) of so many panels, two in a row."""
    columns = min(number, 2)
    rows = -(-number // columns)
    figure, panels = new_panels((3.3 * columns if number > 1 else 5.0, 2.3 * rows if rows > 1 else 3.0), rows, columns)
    for axes in panels.flat[number:]:
        axes.remove()
    return figure, list(panels.flat[:number])


def count_whole(axes: Any, label: str) -> None:
    """Labels the horizontal axis, with ticks at whole numbers."""
    axes.set_xlabel(label)
    axes.xaxis.get_major_locator().set_params(integer=True)


def count_steps(axes: Any, label: str = "environment steps") -> None:
    """Labels the horizontal axis, with ticks such as 20k and 3M."""
    from matplotlib.ticker import EngFormatter

    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.get_major_locator().set_params(nbins=6)


def draw_line(
    axes: Any,
    x: np.ndarray,
    y: np.ndarray,
    spread: np.ndarray,
    color: str,
    label: str,
    style: str = "-",
    within: tuple[Any, Any] = (-np.inf, np.inf),
) -> None:
    """Draws a line with a band of `spread` on either side, but not beyond what `y` can be; all are `[points]`."""
    axes.plot(x, y, style if len(x) > 1 else "o", color=color, label=label, linewidth=1.6)  # one point is no line
    low, high = np.clip(y - spread, *within), np.clip(y + spread, *within)
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def draw_mean(axes: Any, x: np.ndarray, values: np.ndarray, color: str, label: str, style: str = "-") -> None:
    """Draws the mean of `values [samples, points]` with a band of one standard deviation, within their range."""
    range_of_all = values.min(0), values.max(0)
    draw_line(axes, x, values.mean(0), values.std(0), color, label, style, within=range_of_all)


def draw_mean_and_error(
    axes: Any, x: np.ndarray, values: np.ndarray, color: str, label: str, style: str = "-", least: float = 0.0
) -> None:
    """Draws the mean of `values [samples, points]` with a band of two standard errors.

    NaN is left out, and so are points where the share of samples with a number is not above `least`.
    """
    known = np.isfinite(values)
    number = np.maximum(known.sum(0), 1)
    mean = np.where(known, values, 0).sum(0) / number
    variance = np.where(known, (values - mean) ** 2, 0).sum(0) / np.maximum(number - 1, 1)
    shown = known.mean(0) > least
    draw_line(axes, x[shown], mean[shown], 2 * np.sqrt(variance / number)[shown], color, label, style)


def in_parts(returns: np.ndarray, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """(rows up to the end of each part, means `[curves, parts]`) of at most `most` parts of `returns [rows, curves]`.

    Parts in which a curve has no number are left out.
    """
    means = thin(returns, most)
    known = np.isfinite(means).all(1)
    return last(np.arange(1, len(returns) + 1), most)[known], means[known].T


def draw_rows(
    axes: Any, places: Sequence[str], series: Mapping[str, Sequence[Mapping[str, Any]]], colors: Mapping[str, str]
) -> None:
    """Draws `{mean, standard_error}` of each series in each place, from the top, with bars of two standard errors."""
    for i, (name, marker) in enumerate(zip(series, itertools.cycle("os^Dv<>P"), strict=False)):
        y = np.arange(len(places)) + 0.7 * ((i + 0.5) / len(series) - 0.5)
        mean, error = (np.array([one[key] for one in series[name]], float) for key in ("mean", "standard_error"))
        axes.errorbar(mean, y, xerr=2 * error, marker=marker, color=colors[name], label=name, **BARS)
    name_rows(axes, places, 36)


def name_rows(axes: Any, names: Sequence[str], width: int = 30) -> None:
    """Names rows from the top to the bottom, in two lines of `width` letters at most."""
    axes.set_yticks(range(len(names)), [two_lines(name, width) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def two_lines(name: str, width: int) -> str:
    """The name in lines of `width` letters, cut where it needs more than two."""
    return "\n".join(textwrap.wrap(name, width, max_lines=2, placeholder="…"))


def name_panel(axes: Any, name: str, more: str = "") -> None:
    """Writes a name above a panel, in two lines at most, and more below it."""
    axes.set_title("\n".join(filter(None, (two_lines(name, 30), more))), fontsize=SMALL)


def shorten(name: str, most: int) -> str:
    """The name, cut where it has more letters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def write_cells(axes: Any, image: Any, texts: dict[tuple[int, int], str], width: float, size: int) -> None:
    """Writes texts into the cells (row, column) of an image that are `width` inches wide, where they have room."""
    values = image.get_array()
    for (row, column), text in texts.items():
        if max(map(len, text.split("\n"))) * 0.55 * size <= 72 * width:
            color = "white" if image.norm(values[row, column]) < 0.55 else "black"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=size)


def draw_training(path: Path, title: str, note: str, returns: np.ndarray, steps_of_an_update: int) -> Path:
    """The training return over environment steps: mean and standard deviation of several curves.

    Args:
      path: of the picture.
      title: above it.
      note: below the title.
      returns: `[updates, curves]`, NaN where no episode has ended.
      steps_of_an_update: environment steps of each curve.
    """
    figure, axes = new_axes("", "return of an episode")
    count_steps(axes)
    ends, means = in_parts(returns, POINTS)
    if len(ends):
        draw_mean(axes, ends * steps_of_an_update, means, LEARNER, "")
    return save_figure(figure, path, title, note)


def draw_scale(figure: Any, image: Any, axes: Any, label: str) -> None:
    """Draws the scale of an image's colours beside its axes."""
    scale = figure.colorbar(image, ax=axes, shrink=0.8)
    scale.set_label(label, fontsize=9)
    scale.ax.tick_params(labelsize=SMALL)


def save_figure(figure: Any, path: Path, title: str, note: str = "") -> Path:
    """Writes a picture whole, in place of an older one.

    The title, the note and one legend of all panels stand outside of them, and the figure grows by their lines.

    Args:
      figure: the panels, with a label for each line that the legend names.
      path: of the picture.
      title: one sentence that says what is seen.
      note: direction of the axes, number of samples, and meaning of bands and bars.
    """
    width, height = figure.get_size_inches()
    lines = [line for text in (title, note) for line in textwrap.wrap(text, int(13.5 * width))]
    figure.suptitle("\n".join(lines), fontsize=9)
    entries = {
        textwrap.fill(shorten(label, 120), int(12 * width)): handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    rows = 0
    if len(entries) > 1:
        longest = max(len(line) for label in entries for line in label.split("\n"))
        columns = min(max(int(width / (0.058 * longest + 0.53)), 1), len(entries), 4)
        rows = -(-len(entries) // columns) * (1 + max(label.count("\n") for label in entries))
        place = {"loc": "outside lower center", "ncols": columns}
        figure.legend(entries.values(), entries.keys(), frameon=False, fontsize=SMALL, **place)
    figure.set_figheight(height + 0.16 * len(lines) + 0.18 * rows)
    told = {"metadata": {"Title": title, "Description": note}} if path.suffix == ".png" else {}  # a report reads them
    return save_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:], dpi=200, **told))
