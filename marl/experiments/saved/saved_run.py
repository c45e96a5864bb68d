"""A run directory as an object: config, results, metrics, figures and agents."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from configs import shown
from marl.experiments.saved.load_agent import Adversary, Objective, TrainedAgent, load_agent
from meta.runs.reading import RunFiles

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class SavedRun(RunFiles):
    """Config, results, metrics and agent of a run directory; made by `load_run`.

    Attributes:
      path: the directory.
      command: the command line that began the run, such as `python -m marl.mfos ipd`.
      config: every field by its name, nested as in `config.yaml`.
      summary: the results, as in `summary.json`, or in `crossplay.json` or `report.json`; empty if the run has not
        finished, or if they are outdated.
      is_outdated: True if the results were written before the run was resumed with other settings.
    """

    def __repr__(self) -> str:
        state = "finished" if self.summary else f"stopped after {self.num_rows:,} rows of metrics"
        return f"<run {self.path}: {self.command or 'unknown command'}, {state}>"

    @property
    def num_rows(self) -> int:
        """Rows of metrics, one for each generation or update that was recorded."""
        return len(self.rows)

    def frame(self) -> pandas.DataFrame:
        """The metrics as a table of pandas, which has to be installed: one row for each row, or for each row and seed.

        A metric with further axes, such as those of players, has a column for each entry, `NAME_0`, `NAME_1` and so on.

        Raises:
          ImportError: without pandas.
        """
        import pandas as pd  # here, because the library does not need it

        seeds, metrics = self.by_training()
        table = {name: x.reshape(-1) if x.ndim > 1 else np.repeat(x, seeds) for name, x in metrics.items()}
        return pd.DataFrame(table | ({"seed": np.tile(np.arange(seeds), self.num_rows)} if seeds > 1 else {}))

    def agent(self, number: int | None = None) -> TrainedAgent | Adversary | Objective:
        """The agent that was trained: `load_agent` of this directory.

        Raises:
          ValueError: if the run has left none.
        """
        return load_agent(self.path, number=number)

    def plot(self, names: Sequence[str] = ()) -> Figure:
        """Draws metrics over the run: the mean over seeds, and every seed as a thin line.

        Args:
          names: of metrics, or columns of `frame`; those whose names end in `return`, else the fitness, else all, if
            empty.

        Raises:
          ValueError: for a name that the run has not recorded, or a run without metrics.
        """
        from matplotlib.figure import Figure

        from meta.runs.plotting import GREY
        from meta.runs.reports.curves import is_return

        _, metrics = self.by_training()
        if not metrics:
            raise ValueError(f"names: {self.path} has recorded no metrics")
        usual = [name for name in metrics if is_return(name)] or [name for name in metrics if name == "fitness"]
        entries = {name: [x for x in metrics if re.fullmatch(rf"{re.escape(name)}(_\d+)?", x)] for name in names}
        if unknown := [name for name, found in entries.items() if not found]:
            raise ValueError(f"names: got {shown(unknown[0])}; one of {', '.join(metrics)} is needed")
        chosen = [x for found in entries.values() for x in found] or usual or list(metrics)[1:]
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
    return SavedRun(Path(path))
