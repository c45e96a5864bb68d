"""Files of a run directory as data: record, results, metrics and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import configs
from configs import files, short, shown
from meta.runs.directory import CONFIG, own_record, read_record

METRICS = "metrics.jsonl"
RESULTS = ("summary.json", "crossplay.json", "report.json")  # a run has one of them, when it has finished
LARGEST = 2**29  # bytes of a file that is read
PICTURES = (".png", ".gif")


class RunFiles:
    """Config, results, metrics and figures of a run directory.

    Attributes:
      path: the directory.
      record: what the run is; None where no file has it whole.
      command: the command line that began the run, such as `python -m marl.mfos ipd`.
      config: every field by its name, nested as in `config.yaml`.
      summary: the results, as in `summary.json`, or in `crossplay.json` or `report.json`; empty if the run has not
        finished, or if they are outdated.
      is_outdated: True if the results were written before the run was resumed with other settings.

    Args:
      path: the directory.
      field: the setting that names it, in errors.

    Raises:
      ValueError: if it is no run directory, or if its files are damaged; one line that names the file.
    """

    def __init__(self, path: Path, field: str = "path"):
        self.path, self.record = path, read_record(path) if path.is_dir() else None
        if (path / "sweep.yaml").is_file():
            raise ValueError(f"{field}: got {shown(str(path))}, a sweep; its runs, {short(str(path))}/*/, are needed")
        if not self.record and not (path / CONFIG).is_file():
            raise ValueError(f"{field}: got {shown(str(path))}; the directory of a run (with {CONFIG}) is needed")
        self.command = self.record.line if self.record else ""
        read: Any = self.record.config if self.record else configs.values(configs.read_text(path / CONFIG), CONFIG)
        if not isinstance(read, dict):
            raise ValueError(f"{path / CONFIG}: got {shown(read)}; fields with values are needed")
        self.config: dict[str, Any] = read
        summary, latest = _read_summary(path), own_record(path)  # a checkpoint may be of earlier settings
        self.is_outdated = latest is not None and summary.get("config_digest", latest.digest) != latest.digest
        self.summary = {} if self.is_outdated else summary

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`, as far as they are whole.

        Raises:
          ValueError: for a row that is damaged, other than a last one that a stopped process did not finish.
        """
        file = self.path / METRICS
        lines = _read(file).decode("utf-8", "replace").splitlines() if file.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(row)
            elif number < len(lines):
                raise ValueError(f"{file}: line {number} is damaged")
        return rows

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Each metric over the run, `[rows]`, or `[rows, seeds]` for a run of several seeds; NaN where a row lacks it.

        Nested metrics have names with dots.

        Raises:
          ValueError: as `rows` does, and for a metric whose rows have several shapes.
        """
        rows = [configs.full_names(row) for row in self.rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        found = {}
        for name in names:
            values = [value for row in rows if (value := _numbers(row.get(name))) is not None]
            if len(values) < len(rows):
                continue
            shape = next((value.shape for value in values if value.shape), ())
            try:
                found[name] = np.array([np.broadcast_to(value, shape) for value in values])
            except ValueError:
                raise ValueError(f"{self.path / METRICS}: {shown(name)} has several shapes") from None
        return found

    def by_training(self) -> tuple[int, dict[str, np.ndarray]]:
        """The number of trainings, and each metric `[rows, trainings]`, or `[rows]` where all have the same.

        A metric with further axes, such as those of players, is one for each entry: `NAME_0`, `NAME_1` and so on.

        Raises:
          ValueError: as `metrics` does.
        """
        metrics, found = self.metrics, dict[str, np.ndarray]()
        widths = {values.shape[1] for values in metrics.values() if values.ndim > 1}
        given = self.config.get("seeds", int("marl.distributed" in self.command))  # which has one
        known = given if isinstance(given, int) else 0  # a stranger's may be anything
        alike = widths.pop() if len(widths) == 1 else 1  # of a run whose config counts its trainings otherwise
        seats = 2 if "self_play" in str(self.config.get("opponent")) else 1  # of each training
        number = int(known) if known == 1 or known in {alike, *widths} or alike == seats * known else alike
        for name, values in metrics.items():
            each = number > 1 and values.shape[1:2] in {(number,), (seats * number,)}
            parts = values.reshape(len(values), number if each else 1, -1)
            names = [name] if parts.shape[2] == 1 else [f"{name}_{i}" for i in range(parts.shape[2])]
            found |= {one: parts[:, :, i] if each else parts[:, 0, i] for i, one in enumerate(names)}
        return number, found

    @property
    def figures(self) -> dict[str, Path]:
        """The files of the figures and films, by their names without the ending."""
        folder = self.path / "figures"
        found = sorted(folder.glob("*.*")) if folder.is_dir() else []
        return {file.stem: file for file in found if file.suffix in PICTURES}


def _read_summary(path: Path) -> dict[str, Any]:
    file = next((path / name for name in RESULTS if (path / name).exists()), None)
    return read_object(file) if file else {}


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
      file: the path.

    Raises:
      ValueError: if it cannot be read, or holds no object; one line that names the file.
    """
    found: dict[str, Any] = _of_kind(file, dict)
    return found


def read_list(file: Path) -> list[Any]:
    """The list in a JSON file.

    Args:
      file: the path.

    Raises:
      ValueError: if it cannot be read, or holds no list; one line that names the file.
    """
    return _of_kind(file, list)


def _of_kind(file: Path, kind: type) -> Any:
    try:
        found = json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: cannot be read ({' '.join(str(error).split())})") from None
    if not isinstance(found, kind):
        raise ValueError(f"{file}: got {shown(found)}; a JSON {'object' if kind is dict else 'list'} is needed")
    return found


def _read(file: Path) -> bytes:
    try:
        return files.read(file, most=LARGEST)
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror or error})") from None


def _numbers(value: Any) -> np.ndarray | None:
    """An array of what a row has, NaN for null; None for what is no number."""
    try:
        found = np.asarray(value)
    except ValueError:  # lists of several lengths
        return None
    known = [x for x in found.flat if x is not None] if found.dtype.kind == "O" else []
    if found.dtype.kind not in "biufO" or not all(isinstance(x, int | float) for x in known):
        return None
    return found.astype(float)
