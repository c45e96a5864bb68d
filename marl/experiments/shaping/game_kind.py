"""What differs between a shaper in a game that is a formula and one in a sampled game; all else is in `experiment`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
from rich.console import Console

from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.experiments.shaping.evaluation_result import EvaluationResult
from marl.experiments.shaping.exact_kind import ExactKind
from marl.experiments.shaping.sampled_kind import SampledKind
from meta import Evolved
from meta.loop import Report, Store


class GameKind(Protocol):
    """How a config's kind of game is trained in, measured, drawn and told."""

    config: Any
    unit: str  # what is counted
    steps: int  # of them in a trial, by one shaper or pair
    at_once: int  # fresh trials that are played together on a device
    seconds_to_draw: float
    measured: str  # unit of the speed that `runtime_estimate.measure` finds; configs with the same unit share it
    fresh: float  # what the evaluation takes, in that against the opponent alone
    costs: tuple[float, float]  # of a step and of compiling, relative to those that `runtime_estimate.measure` found

    def check(self) -> None:
        """Makes and traces everything, so that what does not fit is said now; raises ValueError in one line."""

    def train(
        self,
        keys: jax.Array,
        *,
        store: Store | None = None,
        report: Report | None = None,
        screening: Report | None = None,
    ) -> Evolved:
        """Trains a shaper for each key `[K]`, all in one program.

        Args:
          keys: of as many independent trainings.
          store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
          report: called as `report(generations so far, their last metrics, seconds of running)` by the host.
          screening: the same of what is tried before the first generation, where `start` asks for it.

        Returns:
          `Evolved`, with parameters `[K, ...]`, of pairs `[K, 2, ...]`, row seat first; with metrics
          `[generations, K]`, or `[generations]` where K is 1.

        Raises:
          NonFiniteFitness: if nothing that was tried in a generation had a finite return.
        """

    def init(self, key: jax.Array) -> Any:
        """Parameters as `train` has them for one key, before any training."""

    def groups(self) -> dict[str, Callable[[jax.Array, Any], EvaluationResult]]:
        """One fresh trial, `(key, parameters) -> EvaluationResult [steps]`, against each opponent."""

    def analyse(self, played: EvaluationResult) -> dict[str, Any]:
        """What is measured in a group beside the returns."""

    def find(self, groups: dict[str, EvaluationResult], number: int = 0) -> dict[str, Any]:
        """What is found in one training's fresh trials beside what is measured in each group."""

    def summarize(self, found: dict[str, Any]) -> dict[str, Any]:
        """What a training, or all of them pooled, came to, as the first lines of a summary."""

    def about(self) -> dict[str, Any]:
        """What was played by whom, for the summary."""

    def agents(self, parameters: Any) -> dict[str, tuple[ShapingConfig, Any]]:
        """By what is before the file's name, the shapers that are kept: how trained, and the parameters `[K, ...]`."""

    def draw(self, folder: Path, groups: dict[str, EvaluationResult], first: dict[str, Any]) -> list[Path]:
        """Draws what this kind of game has beside the common figures, of all trainings' trials and the first result."""

    def animate(self, parameters: Any, path: Path) -> list[Path]:
        """Writes a film of a fresh trial of one training's parameters, where the game can be drawn."""

    def header(self) -> dict[str, str]:
        """What is played, and how long a trial is, in words."""

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        """Tables that only this kind of game has."""

    def shortened(self, generations: int) -> ShapingConfig:
        """The same config in so few generations that they take seconds, to measure the speed."""


def make_kind(config: ShapingConfig) -> GameKind:
    """The kind of game of a config."""
    if isinstance(config, SampledShapingConfig):
        return SampledKind(config)
    assert isinstance(config, ExactShapingConfig)
    return ExactKind(config)
