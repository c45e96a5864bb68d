"""COLA's consistent update functions: trained for an exact game, compared with LOLA's, and written to a file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from games.core import checks
from marl.core.learn import learn
from marl.core.learner import Learner
from marl.experiments.file_command import TrainingConfig, write
from marl.learners.exact import white_box
from marl.learners.exact.cola import ACTIVATIONS, cola, consistency_loss, train_cola, updates, white_box_updates
from meta import RunDirectory
from meta.runs.formatting import say
from meta.runs.progress import Progress
from meta.runs.reports.tables import keep_tables

RIVALS: dict[str, Callable[..., Learner]] = {"LOLA": white_box.lola, "exact LOLA": partial(white_box.hola, order=1)}


@dataclasses.dataclass(frozen=True)
class ConsistencyConfig(TrainingConfig):
    """Two networks, trained until the steps that they give answer to each other."""

    lookahead_rate: float = 1.0
    """Size of the steps that are learned, eta."""
    region: float = 7.0
    """Logits are drawn evenly from minus to plus this; beyond it the networks see its border."""
    hidden: tuple[int, ...] = (32, 32, 32)
    """Units of each hidden layer."""
    activation: str = "tanh"
    """tanh or relu."""
    batch: int = 64
    """Points per iteration."""
    iterations: int = 10_000
    """Iterations of Adam."""
    learning_rate: float = 3e-3
    """Step size of Adam in the beginning; it falls to 0 along a cosine."""
    evaluation_trials: int = 1024
    """Fresh points, and fresh pairs of players, for what is shown in the end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("hidden: got none; whole numbers of at least 1 are needed")
        checks.sizes("hidden", self.hidden, 1)
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation: got {self.activation!r}; {configs.one_of(self.activation, list(ACTIVATIONS))}"
            )

    def needed(self) -> dict[str, float]:
        weights = sum(inputs * outputs for inputs, outputs in itertools.pairwise((10, *self.hidden, 5)))
        points = 8.0 * (sum(self.hidden) + 10)
        trials = self.evaluation_trials * (points + 808)
        return {"hidden": 32.0 * weights, "batch": self.batch * points, "evaluation_trials": trials}

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the training's length, and the fields that fall over it."""
        return {"iterations": ["learning_rate"]}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_trials",)

    def positive(self) -> tuple[str, ...]:
        return "lookahead_rate", "region", "batch", "iterations", "learning_rate", "evaluation_trials"


def make_consistent(config: ConsistencyConfig, run: RunDirectory, console: Console) -> None:
    """Trains the networks, says how consistent they are and how two of them play, and writes them to a file."""
    game = config.make_game()
    payoffs, num_logits = partial(game.values, 0), game.num_logits
    train_key, points_key, play_key = jax.random.split(jax.random.key(config.seed), 3)

    def describe(metrics: dict[str, np.ndarray]) -> str:
        return f"consistency loss {metrics['consistency_loss']:.4g}"

    with Progress(console, config.iterations, config.batch, "points", describe) as progress:
        consistent = train_cola(
            train_key, payoffs, num_logits, **config.settings(train_cola), store=run, report=progress
        )
    rate, shape = config.lookahead_rate, (2, config.evaluation_trials, num_logits)
    points = jax.random.uniform(points_key, shape, minval=-config.region, maxval=config.region)

    losses = {}
    for name, make in {"COLA": None, **RIVALS}.items():
        functions = updates(consistent)
        if make:
            functions = white_box_updates(partial(make, learning_rate=rate, num_logits=num_logits), payoffs)
        measure = jax.jit(partial(consistency_loss, functions, payoffs, lookahead_rate=rate))
        losses[name] = float(measure(points[0], points[1]))
    players = [cola(consistent, seat) for seat in range(2)]
    play = jax.jit(jax.vmap(lambda key: learn(key, game, players, num_updates=101).rewards))
    row, column = (float(r[:, 1:].mean()) for r in play(jax.random.split(play_key, config.evaluation_trials)))
    found = {"consistency_losses": losses, "payoffs": [row, column]}
    summary: dict[str, Any] = {"conclusion": conclusion(losses, (row, column)), **found}
    say(console, summary["conclusion"])
    table = Table("update functions", "consistency loss", title=f"{config.game}, on fresh points")
    for name, loss in losses.items():
        table.add_row(name, f"{loss:.4g}")
    with keep_tables(console, run.path):
        console.print(table)
    arrays = {name: np.asarray(x) for name, x in consistent.networks.items()}
    write(run, console, "cola", config, arrays, found, summary)


def conclusion(losses: Mapping[str, float], payoffs: tuple[float, float]) -> str:
    """The consistency of COLA beside its rivals', and the payoffs of two COLA players, in one sentence."""
    rivals = " and ".join(f"{losses[name]:.4g} of {name}" for name in RIVALS)
    row, column = payoffs
    return (
        f"COLA's update functions have a consistency loss of {losses['COLA']:.4g}, beside {rivals}. Two COLA players "
        f"get {row:.3f} and {column:.3f} per round over 100 learning steps."
    )
