"""M-MAML: where a naive learner begins, meta-learned in an exact game, compared with naive ones, and kept in a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from games import InfinitelyRepeated
from marl.core.learn import learn
from marl.core.learner import Learner
from marl.experiments.file_command import TrainingConfig, write
from marl.learners.exact.mmaml import MetaLearned, begin_from, num_seats, train_mmaml
from marl.learners.exact.naive import naive
from meta import RunDirectory
from meta.runs.formatting import say
from meta.runs.progress import Progress
from meta.runs.reports.tables import keep_tables

SEATS = ("row", "column")


@dataclasses.dataclass(frozen=True)
class MetaLearningConfig(TrainingConfig):
    """Beginnings and step sizes, learned through the learning of both players."""

    initialisations: int = 10
    """Beginnings per seat, trained independently in one program."""
    opponents: int = 32
    """Naive learners against each beginning in an iteration."""
    meta_steps: int = 100
    """Learning steps of both players."""
    iterations: int = 1000
    """Iterations of Adam."""
    learning_rate: float = 0.01
    """Step size of Adam."""
    opponent_learning_rate: float = 1.0
    """Step size of the naive learners."""
    normalise: bool = True
    """Let every opponent's gradient count with length 1; otherwise those that explode decide the steps."""
    evaluation_trials: int = 1024
    """Fresh trials for the payoffs that are shown in the end."""

    def needed(self) -> dict[str, float]:
        learning = 80.0 * self.meta_steps * self.initialisations * self.opponents  # of both logits, for the way back
        return {"opponents": learning, "evaluation_trials": 8.0 * self.evaluation_trials * self.meta_steps}

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the training's length, and the fields that fall over it."""
        return {"iterations": []}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_trials",)

    def positive(self) -> tuple[str, ...]:
        counts = ("initialisations", "opponents", "meta_steps", "iterations", "evaluation_trials")
        return *counts, "learning_rate", "opponent_learning_rate"


def meta_learn(config: MetaLearningConfig, run: RunDirectory, console: Console) -> None:
    """Learns beginnings and step sizes, says what they get against naive learners, and writes them to a file."""
    game = config.make_game()
    train_key, play_key = jax.random.split(jax.random.key(config.seed))
    steps = 2 * num_seats(game) * config.initialisations * config.opponents * config.meta_steps

    def describe(metrics: dict[str, np.ndarray]) -> str:
        return f"payoff {metrics['payoff'][0].mean():.3f}, {metrics['payoff'][1].mean():.3f} at learned rates"

    with Progress(console, config.iterations, steps, "meta-steps", describe) as progress:
        learned = train_mmaml(train_key, game, **config.settings(train_mmaml), store=run, report=progress)
    results = _play(play_key, game, learned, config)
    summary: dict[str, Any] = {"conclusion": conclusion(results), "payoffs": results}
    say(console, summary["conclusion"])
    table = Table(
        "seat", "step size", "M-MAML", "naive", title=f"{config.game}: payoffs over {config.meta_steps} learning steps"
    )
    for result in results:
        table.add_row(*(f"{x:.3f}" if isinstance(x, float) else x for x in result.values()))
    with keep_tables(console, run.path):
        console.print(table)
        for seat, found in zip(SEATS, np.asarray(learned.learning_rate[1]), strict=False):
            console.print(f"step sizes learned as {seat}: {' '.join(f'{x:.2f}' for x in found)}", highlight=False)
    arrays = {name: np.asarray(x) for name, x in learned._asdict().items()}
    write(run, console, "mmaml", config, arrays, {"payoffs": results}, summary)


def _play(
    key: jax.Array, game: InfinitelyRepeated, learned: MetaLearned, config: MetaLearningConfig
) -> list[dict[str, Any]]:
    """Payoffs against naive learners: `meta_steps` steps after one that is not scored, as everywhere."""
    found = []
    for seat in range(num_seats(game)):
        opponent = naive(
            partial(game.value, 1 - seat), learning_rate=config.opponent_learning_rate, num_logits=game.num_logits
        )
        for rate in (1.0, None):

            def payoffs(
                key: jax.Array, seat: int = seat, rate: float | None = rate, opponent: Learner = opponent
            ) -> Any:
                learners = [begin_from(learned, game, seat, learning_rate=rate), opponent]
                rewards = learn(key, game, learners[:: 1 - 2 * seat], num_updates=config.meta_steps + 1).rewards
                return rewards[seat][1:].mean(), rewards[1 - seat][1:].mean()

            keys = jax.random.split(jax.random.fold_in(key, seat), config.evaluation_trials)
            own, other = (float(x.mean()) for x in jax.jit(jax.vmap(payoffs))(keys))
            step_size = "learned" if rate is None else "1"
            found.append({"seat": SEATS[seat], "step_size": step_size, "payoff": own, "naive_payoff": other})
    return found


def conclusion(results: Sequence[dict[str, Any]]) -> str:
    """The payoffs of M-MAML at its learned step sizes, beside the naive learner's, in one sentence for each seat."""
    return " ".join(
        f"As {found['seat']}, M-MAML gets {found['payoff']:.3f} per round at its learned step sizes, and the naive "
        f"learner against it {found['naive_payoff']:.3f}."
        for found in results
        if found["step_size"] == "learned"
    )
