"""MeVa's meta-values: trained for an exact game, played against other learners, and written to a file."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from games.core import checks
from marl.core.learn import learn
from marl.experiments.file_command import TrainingConfig, write
from marl.learners.exact.meta_value import bellman_error, meva, train_meva
from marl.learners.registry import make_learner
from meta import RunDirectory
from meta.runs.formatting import say
from meta.runs.progress import Progress
from meta.runs.reports.tables import keep_tables

OTHERS = ("naive", "lola")


@dataclasses.dataclass(frozen=True)
class MetaValueConfig(TrainingConfig):
    """Two networks, trained along learning runs of two players that climb them."""

    meta_discount: float = 0.9
    """Weight of later learning steps, gamma, in [0, 1)."""
    step_size: float = 1.0
    """Size of the players' steps, alpha."""
    trace: float = 0.9
    """Weight of later errors, lambda, in [0, 1]; 0 bootstraps after one learning step."""
    start_scale: float = 2.0
    """Standard deviation of the logits where learning runs begin."""
    length: int = 50
    """Learning steps of a run, on average."""
    rollout: int = 8
    """Learning steps of an iteration."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of each hidden layer."""
    batch: int = 128
    """Learning runs at once."""
    iterations: int = 5_000
    """Iterations of Adam."""
    learning_rate: float = 1e-3
    """Step size of Adam in the beginning; it falls to 0 along a cosine."""
    evaluation_trials: int = 1024
    """Fresh points, and fresh pairs of players, for what is shown in the end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("hidden: got none; whole numbers of at least 1 are needed")
        checks.sizes("hidden", self.hidden, 1)
        checks.number("meta_discount", self.meta_discount, 0, 1, brackets="[)")
        checks.number("trace", self.trace, 0, 1)

    def needed(self) -> dict[str, float]:
        weights = sum(inputs * outputs for inputs, outputs in itertools.pairwise((10, *self.hidden, 1)))
        points = 8.0 * (sum(self.hidden) + 20)
        trials = self.evaluation_trials * (points + 808)
        batch = self.batch * points * self.rollout
        return {"hidden": 32.0 * weights, "batch": batch, "rollout": batch, "evaluation_trials": trials}

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the training's length, and the fields that fall over it."""
        return {"iterations": ["learning_rate"]}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_trials",)

    def positive(self) -> tuple[str, ...]:
        return (
            *("step_size", "start_scale", "length", "rollout", "batch", "iterations"),
            *("learning_rate", "evaluation_trials"),
        )


def make_meta_values(config: MetaValueConfig, run: RunDirectory, console: Console) -> None:
    """Trains the networks, says how consistent they are and how they play, and writes them to a file."""
    game = config.make_game()
    payoffs, num_logits = partial(game.values, 0), game.num_logits
    train_key, points_key, play_key = jax.random.split(jax.random.key(config.seed), 3)

    def describe(metrics: dict[str, np.ndarray]) -> str:
        return f"loss {metrics['meta_value_loss']:.4g}"

    steps = config.batch * config.rollout
    with Progress(console, config.iterations, steps, "learning steps", describe) as progress:
        meta = train_meva(train_key, payoffs, num_logits, **config.settings(train_meva), store=run, report=progress)
    points = jax.random.normal(points_key, (2, config.evaluation_trials, num_logits))
    error = float(jax.jit(partial(bellman_error, meta, payoffs))(*points)) ** 0.5

    def play(name: str) -> list[float]:
        players = [meva(meta, payoffs), meva(meta, payoffs, 1) if name == "meva" else make_learner(name, game, 1)]
        rewards = jax.jit(jax.vmap(lambda key: learn(key, game, players, num_updates=101).rewards))
        return [float(r[:, 1:].mean()) for r in rewards(jax.random.split(play_key, config.evaluation_trials))]

    results = {name: play(name) for name in ("meva", *OTHERS)}
    found: dict[str, Any] = {"bellman_error": error, "payoffs": results}
    own = " and ".join(f"{x:.3f}" for x in results["meva"])
    against = ", ".join(f"{results[name][0]:.3f} beside {name}" for name in OTHERS)
    summary = {
        "conclusion": f"Two MeVa players get {own} per round over 100 learning steps, and one gets {against}. "
        f"Their meta-values miss those of the next step by {error * (1 - game.discount):.3g} per round.",
        **found,
    }
    say(console, summary["conclusion"])
    table = Table("beside", "MeVa", "the other", title=f"{config.game}, per round")
    for name, rewards in results.items():
        table.add_row(name, *(f"{x:.3f}" for x in rewards))
    with keep_tables(console, run.path):
        console.print(table)
    arrays = {name: np.asarray(x) for name, x in meta.networks.items()}
    write(run, console, "meva", config, arrays, found, summary)
