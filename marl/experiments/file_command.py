"""Base of commands that train one small file for an exact game: the config, and the file's metadata."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console

import configs
from marl.experiments.game_config import GameConfig
from marl.learners.exact.trained import game_metadata
from meta import RunDirectory
from meta.runs import provenance
from meta.runs.array_files import Arrays, replace_arrays
from meta.runs.command import file_of
from meta.runs.reports.ending import print_report
from meta.xla.memory import check_bytes

Training = TypeVar("Training", bound="TrainingConfig")


@dataclasses.dataclass(frozen=True)
class TrainingConfig(GameConfig):
    """A game, and the seed of one training."""

    seed: int = 0
    """Seed of all draws of the run."""
    checkpoint_seconds: float = 15.0
    """Save when the last checkpoint is this old; 0 saves as often as possible."""

    def __post_init__(self) -> None:
        super().__post_init__()
        configs.check_seed(self.seed)
        configs.check(self, "a number of at least 0", lambda x: x >= 0, "checkpoint_seconds")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            whole = isinstance(value, int)
            if field.name in self.positive() and not 0 < value <= (configs.MOST if whole else configs.LARGEST):
                kind = f"whole number from 1 to {configs.MOST}" if whole else "number above 0"
                raise ValueError(f"{field.name}: got {configs.shown(value)}; a {kind} is needed")

    def settings(self, train: Callable[..., Any]) -> dict[str, Any]:
        """The fields that are keywords of a function."""
        parameters = inspect.signature(train).parameters.values()
        names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def needed(self) -> dict[str, float]:
        """Bytes of memory that come with fields, at least."""
        return {}

    def positive(self) -> tuple[str, ...]:
        """Names of the fields that have to be above 0."""
        return ()


def checked(config: Training) -> Training:
    """The config; raises ValueError for a number that no memory can hold."""
    for name, needed in config.needed().items():
        check_bytes(name, getattr(config, name), needed)
    return config


def write(
    run: RunDirectory,
    console: Console,
    method: str,
    config: TrainingConfig,
    arrays: Arrays,
    metadata: dict[str, Any],
    summary: dict[str, Any],
) -> None:
    """Writes what a command has found to its file, and the summary and the report into its run directory.

    Args:
      run: the directory.
      console: prints where the files are.
      method: the command's name.
      config: of the run; the file keeps it, and the game.
      arrays: the content of the file.
      metadata: more about it.
      summary: the conclusion and the numbers of the run.
    """
    about = {"method": method, "game": game_metadata(config.make_game()), "config": configs.plain(config)}
    path = file_of(run.path)
    replace_arrays(path, arrays, about | metadata)
    run.write_summary(summary | provenance.environment())
    print_report(console, run.path)
    console.print(f"written to {path}", soft_wrap=True)
