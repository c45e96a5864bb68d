"""Messages that harm or help: fresh victims that hear them, silence, and random messages as large."""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attacks.defences import learned_steps
from attacks.experiments import figures
from attacks.experiments.attack import Attack
from attacks.experiments.attack_experiment import AttackExperiment, Evaluated
from attacks.experiments.evaluation import VictimTrainings, compare, controlled, fresh_victims
from attacks.experiments.search import SearchResult
from attacks.random_play import observations_of_play
from meta.atomic_files import save_whole
from meta.process import check_stop
from meta.runs.evaluation_cache import EvaluationCache
from meta.runs.experiment import Context
from meta.runs.formatting import many
from meta.statistics import rounded

VICTIMS_FILE = "victims.npz"
CART_POLE = ["x", "velocity", "angle", "angular velocity"]


class MessageExperiment(AttackExperiment):
    """Messages that harm or help a victim's learning."""

    def __init__(self, attack: Attack):
        names = filter(None, ["evolved", "silent", "random", attack.config.start_name])
        super().__init__(attack, dict.fromkeys(names, 1))

    @functools.cached_property
    def _play(self) -> np.ndarray:
        """Observations of random play, on which the magnitude of messages is measured."""
        return observations_of_play(self.attack.game)

    def evaluate(self, context: Context, trained: SearchResult) -> Evaluated:
        """Trains fresh victims under every message, and keeps their returns for figures that join several runs."""
        attack, config, start = self.attack, self.config, trained.start
        steps = learned_steps(attack.schedule, config.defence)
        spoken, speakers = controlled(attack.message, trained.parameters, self._play, steps)
        has_improved = start is not trained.parameters
        if start is not None and has_improved:
            speakers[config.start_name] = start, np.float32(1)
        run_trainings = fresh_victims(attack, spoken, config.evaluation_trials)
        groups, cache = dict[str, VictimTrainings](), EvaluationCache(context.run.path, config)
        for name, own in speakers.items():
            words = f"{many(config.evaluation_trials, 'fresh victim')} under {name} messages"
            context.stages.begin(f"fresh {name}", words)
            check_stop()
            parts = trained.parameters, own  # random messages are as large as the evolved one
            train = partial(run_trainings, self.evaluation_key(), own)
            groups[name] = cache.result(name, parts, lambda: VictimTrainings(*[np.zeros(0)] * 5), train)
        if start is not None and not has_improved:
            groups[config.start_name] = groups["evolved"]
        arrays = {f"{name}_{k}": x for name, group in groups.items() for k, x in group._asdict().items()}
        save_whole(context.run.path / VICTIMS_FILE, partial(np.savez, **arrays))
        return Evaluated(compare(groups), groups)

    def conclusion(self, summary: dict[str, Any]) -> str:
        evolved, silent, random = (rounded(summary[name]["mean"], 1) for name in ("evolved", "silent", "random"))
        return (
            f"A victim's final return is {silent} in silence and {evolved} under the evolved messages; under random "
            f"messages that are as large it is {random}."
        )

    def draw(self, folder: Path, trained: SearchResult, found: Evaluated) -> list[Path]:
        game, message, schedule = self.attack.game, self.attack.message, self.attack.schedule
        goal = self.config.goal
        files = [
            *super().draw(folder, trained, found),
            figures.draw_curves(folder, found.groups, schedule.steps_per_update * schedule.num_envs, goal),
            figures.draw_final_returns(folder, found.groups, goal),
        ]
        play = self._play
        if play.ndim == 2:  # observations whose entries are the axes of maps
            names = CART_POLE if game.name == "CartPole-v1" else None
            drawn = figures.draw_message(folder, message, trained.parameters, play, schedule.steps, names)
            files += [drawn] if drawn else []
        return files
