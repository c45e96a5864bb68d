"""A run directory as an object: config, results, metrics, figures and agents."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import configs
from configs import shown
from marl.experiments.saved.load_agent import Adversary, Objective, TrainedAgent, load_agent
from meta.runs.directory import CONFIG, read_record

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

METRICS, SUMMARY = "metrics.jsonl", "summary.json"


class SavedRun:
    """Config, results, metrics and agent of a run directory; made by `load_run`.

    Attributes:
      path: the directory.
      command: the command line that began the run, such as `python -m marl.mfos ipd`.
      config: every field by its name, nested as in `config.yaml`.
      summary: the results, as in `summary.json`; empty if the run has not finished.
    """

    def __init__(self, path: Path, command: str, config: dict[str, Any], summary: dict[str, Any]):
        """Use `load_run`."""
        self.path, self.command, self.config, self.summary = path, command, config, summary

    def __repr__(self) -> str:
        state = "finished" if self.summary else f"stopped after {self.num_rows:,} rows of metrics"
        return f"<run {self.path}: {self.command or 'unknown command'}, {state}>"

    @property
    def num_rows(self) -> int:
        """Rows of metrics, one for each generation or update that was recorded."""
        return len(self.rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, as far as they are whole.

        Raises:
          ValueError: for a row that is damaged, other than a last one that a stopped process did not finish.
        """
        file = self.path / METRICS
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(json.loads(line))
            except ValueError:
                if number < len(lines):
                    raise ValueError(f"{file}: line {number} is damaged") from None
        return rows

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Each metric over the run, `[rows]`, or `[rows, seeds]` for a run of several seeds; NaN where a row lacks it.

        Nested metrics have names with dots.
        """
        rows = [configs.full_names(row) for row in self.rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        shapes = {name: next(np.shape(row[name]) for row in rows if row.get(name) is not None) for name in names}
        return {
            name: np.array([_number(row.get(name), shapes[name]) for row in rows])
            for name in names
            if all(_is_numeric(row.get(name)) for row in rows)
        }

    def frame(self) -> pandas.DataFrame:
        """The metrics as a table of pandas, which has to be installed: one row for each row, or for each row and seed.

        Raises:
          ImportError: without pandas.
        """
        import pandas as pd  # here, because the library does not need it

        metrics = self.metrics
        several = {name: values for name, values in metrics.items() if values.ndim == 2}
        if not several:
            return pd.DataFrame({name: values for name, values in metrics.items() if values.ndim == 1})
        seeds = next(iter(several.values())).shape[1]
        shared = {name: np.repeat(values, seeds) for name, values in metrics.items() if values.ndim == 1}
        table = shared | {name: values.reshape(-1) for name, values in several.items()}
        return pd.DataFrame(table | {"seed": np.tile(np.arange(seeds), self.num_rows)})

    @property
    def figures(self) -> dict[str, Path]:
        """The files of the figures and films, by their names without the ending."""
        files = sorted((self.path / "figures").glob("*.*")) if (self.path / "figures").is_dir() else []
        return {file.stem: file for file in files if file.suffix in (".png", ".gif")}

    def agent(self, number: int | None = None) -> TrainedAgent | Adversary | Objective:
        """The agent that was trained: `load_agent` of this directory.

        Raises:
          ValueError: if the run has left none.
        """
        return load_agent(self.path, number=number)

    def plot(self, names: Sequence[str] = ()) -> Figure:
        """Draws metrics over the run: the mean over seeds, and every seed as a thin line.

        Args:
          names: of metrics; those whose names end in `return`, else the fitness, if empty.

        Raises:
          ValueError: for a name that the run has not recorded.
        """
        from matplotlib.figure import Figure

        from meta.runs.plotting import GREY

        metrics = self.metrics
        chosen = list(names) or [name for name in metrics if name.endswith("return")] or ["fitness"]
        if unknown := [name for name in chosen if name not in metrics]:
            raise ValueError(f"names: got {shown(unknown[0])}; one of {', '.join(metrics)} is needed")
        figure = Figure(figsize=(6.0, 3.6), layout="constrained")
        axes = figure.add_subplot()
        first = next(iter(metrics))  # what counts the rows: generations or updates
        for i, name in enumerate(chosen):
            values = metrics[name].reshape(len(metrics[name]), -1)
            if values.shape[1] > 1:
                axes.plot(metrics[first], values, color=f"C{i}", linewidth=0.5, alpha=0.5)
            axes.plot(metrics[first], values.mean(1), color=f"C{i}", label=name.replace("_", " "))
        axes.set_xlabel(first.replace("_", " "))
        axes.grid(color=GREY, alpha=0.2)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.suptitle(self.command)
        return figure


def load_run(path: Path | str) -> SavedRun:
    """A run of any command from its directory, finished or not.

    Args:
      path: the run directory, such as `runs/ipd-naive-0`.

    Raises:
      ValueError: if it is no run directory, or if its files are damaged; one line that names the file.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path: got {shown(path)}; the directory of a run is needed")
    folder = Path(path)
    record = read_record(folder) if folder.is_dir() else None
    if not record and not (folder / CONFIG).is_file():
        raise ValueError(f"path: got {shown(str(path))}; the directory of a run (with {CONFIG}) is needed")
    config = record.config if record else configs.values(configs.read_text(folder / CONFIG), CONFIG)
    return SavedRun(folder, record.line if record else "", config, _read_summary(folder / SUMMARY))


def _read_summary(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: cannot be read ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file}: got {shown(found)}; the results of a run are needed")
    return found


def _is_numeric(value: Any) -> bool:
    return value is None or np.asarray(value).dtype.kind in "biuf"


def _number(value: Any, shape: tuple[int, ...]) -> Any:
    return np.full(shape, np.nan) if value is None else np.asarray(value, float)
