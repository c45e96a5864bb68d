"""Learners in all seats of a game of several players: trained together, and evaluated on fresh episodes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from marl.core.evaluate import TeamEvaluation, evaluate_team
from marl.experiments.learner_training import RETURN_OF, TrainConfig, Trained
from marl.experiments.returns import shown, statistics, with_error
from marl.experiments.single_agent import SingleAgent
from meta.runs.experiment import Experiment
from meta.runs.formatting import many, say


class Team(SingleAgent):
    """A learner in all seats of a game; its evaluation finds a `TeamEvaluation` of `[seeds, episodes, players]`.

    Returns in tables and figures are collective: the sum over the players.

    Args:
      config: the experiment's settings.

    Raises:
      ValueError: if there is no such game, if the learner does not fit it, or for what no memory can hold.
    """

    title = "Collective return"

    def print_header(self, console: Console) -> None:
        super().print_header(console)
        say(console, f"{many(self.program.game.num_agents, 'player')}, {self._networks}")

    @property
    def _networks(self) -> str:
        return "one network for all" if len(self.program.learners) == 1 else "one network for each"

    def _play(self, key: jax.Array, states: tuple[Any, ...], **sizes: Any) -> TeamEvaluation:
        return evaluate_team(key, self.program.game, self.program.learners, states, **sizes)

    def summarize(self, trained: Trained, found: TeamEvaluation) -> dict[str, Any]:
        returns, counts = np.asarray(found.returns), {name: np.asarray(x) for name, x in found.infos.items()}
        seed, players = self.config.seed, self.program.game.num_agents
        last = self.config.num_updates * 9 // 10
        shape = self.config.num_updates, self.config.seeds
        in_training = {
            name: statistics(seed, trained.loop.metrics[name].reshape(shape)[last:].T)
            for name in (*(f"{RETURN_OF}{seat}" for seat in range(players)), *counts)
        }
        return super().summarize(trained, returns.sum(-1)) | {
            "players": players,
            "share": self.config.share,
            "returns_by_seat": [statistics(seed, returns[..., seat]) for seat in range(players)],
            "counts": {name: statistics(seed, count.mean(-1)) for name, count in counts.items()},
            "social": {
                name: statistics(seed, np.asarray(x))
                for name, x in found.social._asdict().items()
                if name != "counts" and x is not None
            },
            "training": in_training,
        }

    def conclusion(self, summary: dict[str, Any]) -> str:
        found, training = summary["returns"], summary["training_return"]
        config, players = self.config, self.program.game.num_agents
        over = f"{many(config.seeds, 'seed')}, {many(config.evaluation_episodes, 'fresh episode')} each"
        return (
            f"{players} players of {config.learner_name} with {self._networks} get a collective return of "
            f"{with_error(found)} in {config.environment} ({over}, without exploration; {shown(training['mean'])} in "
            "the last tenth of the training, with exploration)."
        )

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        super().print_result(console, summary)
        table = Table("in an episode, of a player", "mean")
        for seat, found in enumerate(summary["returns_by_seat"]):
            table.add_row(f"return of seat {seat}", with_error(found))
        for name, found in summary["counts"].items():
            table.add_row(name.replace("_", " "), with_error(found))
        for name, found in summary["social"].items():
            table.add_row(f"{name} of all", with_error(found))
        console.print(table)


def make_experiment(config: TrainConfig) -> Experiment[Trained, Any]:
    """The experiment of a config: of one player, or of several."""
    alone = SingleAgent(config)
    return alone if alone.program.game.num_agents == 1 else Team(config, alone.program)
