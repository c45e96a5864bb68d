"""Weights & Biases and Trackio, which have the same calls."""

from __future__ import annotations

import abc
import contextlib
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meta.trackers.tracker import MetricsRow, TrackedRun, named

PROJECT = "marl-shaping"


class WandbLike(abc.ABC):
    """Tracks by `init`, `log` and `finish` of a module; metrics have the part of the run before their names.

    Args:
      module: its name.
    """

    place = ""

    def __init__(self, module: str):
        self.name = module
        self._library: Any = importlib.import_module(module)

    def begin(self, run: TrackedRun) -> None:
        """Begins the run in its project, or goes on with it."""
        self._run = self._library.init(name=run.name, config=run.config, resume="allow", **self._settings(run))

    @abc.abstractmethod
    def log(self, row: MetricsRow) -> None:
        """Logs the metrics."""

    def finish(self, summary: Mapping[str, Any] | None, files: Sequence[Path]) -> None:
        """Attaches summary, figures, films and files, and ends the run."""
        media = {f"figures/{file.stem}": self._media(file) for file in files if file.suffix in (".png", ".gif")}
        self._attach(summary, media, [file for file in files if file.suffix not in (".png", ".gif")])
        self._end(stopped=summary is None)

    @abc.abstractmethod
    def _settings(self, run: TrackedRun) -> dict[str, Any]:
        """Arguments of `init` for a run."""

    def _media(self, file: Path) -> Any:
        if file.suffix == ".gif":
            return self._library.Video(str(file), format="gif")
        return self._library.Image(str(file))

    @abc.abstractmethod
    def _attach(self, summary: Mapping[str, Any] | None, media: dict[str, Any], files: Sequence[Path]) -> None:
        """Attaches the summary, pictures by their names, and other files."""

    @abc.abstractmethod
    def _end(self, *, stopped: bool) -> None:
        """Ends the run."""


class Wandb(WandbLike):
    """Tracks in Weights & Biases, as its environment variables say: `WANDB_MODE=offline` writes to `./wandb` only.

    A step of W&B is a row of the run, so that W&B itself drops a row that it gets twice.
    """

    def __init__(self) -> None:
        super().__init__("wandb")

    def begin(self, run: TrackedRun) -> None:
        """Begins the run in its project, or goes on with it."""
        self._total = sum(run.rows.values())
        super().begin(run)
        for name in ("PIL.Image", "pandas"):  # which W&B imports for the first picture: now, and not after the run
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def log(self, row: MetricsRow) -> None:
        """Logs the metrics, with the step of the part as their axis."""
        if row.part and row.part not in self._parts:
            self._parts.add(row.part)
            axis = named(row.part, next(iter(row.metrics)))
            self._run.define_metric(axis)
            self._run.define_metric(named(row.part, "*"), step_metric=axis)
        self._total += 1
        self._run.log(row.named, step=self._total, commit=True)

    def _settings(self, run: TrackedRun) -> dict[str, Any]:
        self._parts = set[str]()
        settings = self._library.Settings(console="off")
        return {"project": os.environ.get("WANDB_PROJECT", PROJECT), "id": run.id, "settings": settings}

    def _attach(self, summary: Mapping[str, Any] | None, media: dict[str, Any], files: Sequence[Path]) -> None:
        self._run.summary.update({**(summary or {}), **media})  # not as a row: the next one has the next step
        for file in files:
            # In a folder of the run's name, because W&B has a config.yaml of its own.
            self._run.save(str(file.resolve()), base_path=str(file.resolve().parents[1]), policy="now")

    def _end(self, *, stopped: bool) -> None:
        offline = self._run.settings.mode == "offline"
        self.place = f"wandb sync {Path(self._run.dir).parent}" if offline else self._run.url or ""
        self._run.finish(exit_code=int(stopped))


class Trackio(WandbLike):
    """Tracks in Trackio, as its environment variables say, in a database of this machine by default.

    Trackio writes rows after half a second. A name identifies a run there, and therefore ends in digits of the id.
    """

    def __init__(self) -> None:
        super().__init__("trackio")

    def begin(self, run: TrackedRun) -> None:
        """Begins the run in its project, or goes on with it."""
        super().begin(run._replace(name=f"{run.name}-{run.id[:8]}"))

    def _settings(self, run: TrackedRun) -> dict[str, Any]:
        self._project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self.place = f"trackio show --project {self._project}"
        return {"project": self._project, "embed": False}

    def log(self, row: MetricsRow) -> None:
        """Logs the metrics under the step of the part."""
        self._run.log(row.named, step=row.step)

    def _attach(self, summary: Mapping[str, Any] | None, media: dict[str, Any], files: Sequence[Path]) -> None:
        if media:
            self._run.log(media)
        for file in files:
            self._library.log_artifact(file, name=f"{self._run.name}-{file.name}", type="result")

    def _end(self, *, stopped: bool) -> None:
        self._run.finish()
