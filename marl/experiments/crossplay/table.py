"""The table of a cross-play: as CSV and JSON, as figures, and on a console of any width."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from marl.experiments.shaping import figures
from meta import RunDirectory
from meta.runs import provenance
from meta.runs.formatting import say
from meta.runs.reports.ending import print_report
from meta.runs.reports.tables import keep_tables
from meta.statistics import rounded, with_error

COLUMNS = """row column row_return row_standard_error column_return column_standard_error num_trials error_over
    num_trainings""".split()  # noqa: SIM905
OWN_COINS = "own_coin_share"  # where a game has coins of one's own
LONGEST_LABEL = 24


def write_table(config: Any, game: str, names: list[str], cells: list[dict[str, Any]], run: RunDirectory) -> None:
    """Writes crossplay.csv, crossplay.json and a figure for each number that is shown.

    Args:
      config: the `CrossplayConfig`.
      game: its name, for titles.
      names: of the agents.
      cells: row by row.
      run: the directory.
    """
    text = io.StringIO()
    more = [name for name in cells[0] if name not in COLUMNS]
    writer = csv.DictWriter(text, COLUMNS + more, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    run.write("crossplay.csv", text.getvalue())
    labels, about = list(_labels(names).values()), _about_errors(cells)
    found = {
        "conclusion": conclusion(labels, cells),
        "config": configs.plain(config),
        "agents": names,
        **provenance.environment(),
        "errors": about,
        "pairs": cells,
    }
    run.write_summary(found, "crossplay.json")
    for name, file, words in _shown(cells):
        table = np.array([[cell[f"row_{name}"], cell[_error_name(name)]] for cell in cells], float)  # None is NaN
        values, errors = np.moveaxis(table.reshape(len(names), -1, 2), -1, 0)
        figures.draw_crossplay(run.figures, game, labels, values, errors, label=words, caption=about, file=file)


def _shown(cells: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The numbers of the row that are shown: the name in a cell, the file of the figure, and the label of the axis."""
    found = [("return", "crossplay.png", f"row's {figures.PAYOFF}")]
    if f"row_{OWN_COINS}" in cells[0]:
        found.append((OWN_COINS, "own_coins.png", "own coins of those that the row takes"))
    return found


def _error_name(name: str) -> str:
    return "row_standard_error" if name == "return" else f"row_{name}_standard_error"


def _labels(names: Sequence[str]) -> dict[str, str]:
    """The agents' labels in tables: a long spec without its settings, numbered where several have that name."""
    short = [figures.short_name(name) if len(name) > LONGEST_LABEL else name for name in names]
    numbered = [f"{label} {short[: i + 1].count(label)}" for i, label in enumerate(short)]
    return {name: two if short.count(one) > 1 else one for name, one, two in zip(names, short, numbered, strict=True)}


def _tables(title: str, labels: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[Table]:
    """A square table of texts in parts that fit into the width, each with all rows and at least one column."""
    widths = [max(map(len, [label, *column])) for label, column in zip(labels, zip(*rows, strict=True), strict=True)]
    room, parts = width - max(map(len, labels)) - 4, [list[int]()]  # every text has three characters around it
    for i, one in enumerate(widths):
        if parts[-1] and sum(widths[j] + 3 for j in parts[-1]) + one + 3 > room:
            parts.append([])
        parts[-1].append(i)
    tables = list[Table]()
    for part in parts:
        table = Table(title=None if tables else title, title_justify="left")
        table.add_column("", no_wrap=True, min_width=max(map(len, labels)))
        for i in part:
            table.add_column(labels[i], justify="right", no_wrap=True)
        for label, row in zip(labels, rows, strict=True):
            table.add_row(label, *(row[i] for i in part))
        tables.append(table)
    return tables


def print_table(console: Console, game: str, names: list[str], cells: list[dict[str, Any]], run: RunDirectory) -> None:
    """Prints the conclusion and the row's returns, in as many tables as the width of the terminal asks for."""
    labels = _labels(names)
    say(console, conclusion(list(labels.values()), cells))
    with keep_tables(console, run.path):
        _print_cells(console, game, labels, cells)
    print_report(console, run.path)
    drawn = ", ".join(f"figures/{file}" for _, file, _ in _shown(cells))
    say(console, f"written to {run.path}: crossplay.csv, crossplay.json, config.yaml, {drawn}")


def _print_cells(console: Console, game: str, labels: dict[str, str], cells: list[dict[str, Any]]) -> None:
    for name, label in labels.items():
        if name != label:
            say(console, f"{label}: {name}")
    titles = {"return": f"{game}: the row's average payoff per round against the column"}
    for kind, _, words in _shown(cells):
        found = [with_error({"mean": cell[f"row_{kind}"], "standard_error": cell[_error_name(kind)]}) for cell in cells]
        rows = [found[i : i + len(labels)] for i in range(0, len(found), len(labels))]
        for table in _tables(titles.get(kind, words), list(labels.values()), rows, console.width):
            console.print(table)
    say(console, _about_errors(cells))


def conclusion(names: Sequence[str], cells: Sequence[dict[str, Any]]) -> str:
    """The agents with the largest and the smallest payoff as row, over all columns, in one sentence."""
    payoffs = np.array([cell["row_return"] for cell in cells], float).reshape(len(names), -1)  # None is NaN
    means = payoffs.mean(1)
    if len(names) == 1:
        return f"{names[0]} gets {rounded(means[0], 3)} per round as row against itself."
    if not np.isfinite(means).any():
        return "No agent has a finite payoff against every column."

    def of(i: int) -> str:
        return f"{rounded(means[i], 3)} per round ({rounded(payoffs[i, i], 3)} against itself)"

    most, least = int(np.nanargmax(means)), int(np.nanargmin(means))
    return (
        f"As row, averaged over the {len(names)} columns, {names[most]} gets most, {of(most)}, and {names[least]} "
        f"least, {of(least)}."
    )


def _about_errors(cells: Sequence[dict[str, Any]]) -> str:
    """The samples that the standard errors of a table are over, in words."""
    pairs = "over pairs of initial draws; of a trained agent it says nothing of how another training would have ended"
    several = sorted({cell["num_trainings"] for cell in cells if cell["error_over"] == "trainings"})
    if not several:
        return f"± one standard error {pairs}"
    words = f"± one standard error over trainings, {' or '.join(map(str, several))} of each pair"
    if all(cell["error_over"] == "trainings" for cell in cells):
        return words
    return f"{words}; without a learner or with a shaper of one training, {pairs}"
