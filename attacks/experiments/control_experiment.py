"""Control: a shaper and a controller that are evolved together, beside their baselines on fresh victims."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from attacks import control
from attacks.control import control_trial
from attacks.experiments import figures
from attacks.experiments.attack import Attack
from attacks.experiments.attack_experiment import AttackExperiment, Evaluated
from attacks.experiments.distillation import compiled
from attacks.experiments.evaluation import magnitude, with_magnitude
from attacks.experiments.search import ControllerStage, SearchResult, SearchStage
from attacks.messages import SPEAKER, Message
from attacks.random_play import observations_of_play
from games import animate
from meta import Outcome
from meta.atomic_files import save_whole
from meta.batched_trials import compile_trials, run_trials
from meta.runs.evaluation_cache import EvaluationCache
from meta.runs.experiment import Context
from meta.runs.formatting import many
from meta.runs.progress import Line
from meta.statistics import mean_and_error, rounded

NUM_GOALS = 4  # in the GIF of a victim that is steered


class ControlExperiment(AttackExperiment):
    """Control of a victim after its training run."""

    first_name = "controllers"
    value = ("fitness", "goal reward")
    titles = ("controller alone", "with its shaper")

    def __init__(self, attack: Attack):
        assert attack.controller
        self.controller = attack.controller
        # Every fresh victim learns under five shapers, and two of these have an oracle that learns.
        super().__init__(attack, {"all": control.NUM_TRAININGS + 2}, self._controller_stages)

    def fresh_victims(self, console: Console, key: jax.Array, shaper: Message, parameters: Any) -> control.Comparison:
        """The value of control on fresh victims, `[trials]` each; which these are depends on the key alone."""
        attack, config, line = self.attack, self.config, Line(console)

        def compared(key: jax.Array, parameters: Any) -> control.Comparison:
            return control.compare(
                key,
                attack.game,
                shaper,
                self.controller,
                parameters,
                attack.make_victim,
                attack.schedule,
                num_updates=config.oracle_updates,
                steps_per_update=config.steps_per_update,
                num_envs=config.num_envs,
                size=config.message_size,
            )

        def report(part: int, parts: int) -> None:
            line.show(part / parts, f"part {part} of {parts}")

        keys = jax.random.split(key, config.evaluation_trials)
        program = compile_trials(compared, parameters, config.evaluation_trials, config.at_once)
        found: control.Comparison = run_trials(program, keys, parameters, report)
        line.end()
        return found

    def evaluate(self, context: Context, trained: SearchResult) -> Evaluated:
        """Compares the evolved pair with its baselines on fresh victims."""
        number = many(self.config.evaluation_trials, "fresh victim")
        context.stages.begin("fresh all", f"{number}, each under five shapers and two oracles")
        shaper, own = self.shapers_like(trained.start), trained.parameters
        if trained.start is not None:
            own = own | {"shaper": (own["shaper"], np.float32(1))}
        parameters = {"evolved": own, **trained.others}
        found: control.Comparison = EvaluationCache(context.run.path, self.config).result(
            "all",
            parameters,
            lambda: control.Comparison(
                *(dict.fromkeys(names, jnp.zeros(0)) for names in (control.ROWS, control.SHAPERS))
            ),
            partial(self.fresh_victims, context.console, self.evaluation_key(), shaper, parameters),
        )
        # In their order, because a compiled function gives dicts back sorted.
        rewards = {name: np.asarray(found.goal_rewards[name]) for name in control.ROWS}
        returns = {name: np.asarray(found.victim_returns[name]) for name in control.SHAPERS}
        best = max(control.BASELINES, key=lambda name: rewards[name].mean())
        ratio = float(rewards["evolved"].mean() / rewards[best].mean())
        summary: dict[str, Any] = {name: mean_and_error(values) for name, values in returns.items()}
        summary["goal_reward"] = {name: mean_and_error(values) for name, values in rewards.items()}
        over_random = float(rewards["evolved"].mean() / rewards[control.BEST].mean())
        summary["goal_reward"] |= {"ratio": ratio, "best_baseline": best, "ratio_to_best_random_shaper": over_random}
        return Evaluated(summary, rewards)

    def conclusion(self, summary: dict[str, Any]) -> str:
        rewards = summary["goal_reward"]
        best = rewards["best_baseline"]
        return (
            f"A controlled victim gets a goal reward of {rounded(rewards['evolved']['mean'])} with the evolved shaper "
            f"and controller, and {rounded(rewards[best]['mean'])} with the best baseline ({best.replace('_', ' ')})."
        )

    def draw(self, folder: Path, trained: SearchResult, found: Evaluated) -> list[Path]:
        attack, size, speaker = self.attack, self.config.message_size, control.speaker(self.controller)

        @jax.jit
        def steered(key: jax.Array, parameters: Any) -> Any:
            training_key, goal_key, play_key = jax.random.split(key, 3)
            make_victim, schedule, shaper = attack.make_victim, attack.schedule, parameters["shaper"]
            puppet, _ = control.train_puppet(
                training_key, attack.game, attack.message, shaper, make_victim, schedule, size=size
            )
            goals = jax.vmap(puppet.reset)(jax.random.split(goal_key, NUM_GOALS))[1].goal
            return control.steer(play_key, puppet, speaker, parameters["controller"], goals)

        played = steered(self.evaluation_key(), trained.parameters)
        gif = save_whole(folder / "steered.gif", partial(animate, played, frames_per_second=20.0))
        rewards = {name: found.summary["goal_reward"][name] for name in found.groups}
        picture = figures.draw_goal_rewards(folder, rewards, self.config.evaluation_trials)
        return [*super().draw(folder, trained, found), picture, gif]

    def shapers_like(self, start: Any) -> Message:
        """The message of all shapers: random ones speak with the magnitude of the shaper with which a search begins.

        Args:
          start: parameters of an expert, whose messages are small; or None, for shapers as they are drawn.
        """
        message = self.attack.message
        if start is None:
            return message
        play = jnp.asarray(observations_of_play(self.attack.game))
        volume = compiled(lambda shaper: magnitude(message, shaper, play))(start["shaper"])
        return with_magnitude(message, play, volume)

    def _controller_stages(self, start: Any) -> list[ControllerStage]:
        """The evolutions of controllers for the victims of silence and of random shapers."""
        message = self.shapers_like(start)
        return [
            self._controller_stage("silent_shaper", 1, message),
            self._controller_stage("random_shaper", self.config.shapers, message),
        ]

    def _controller_stage(self, name: str, number: int, message: Message) -> ControllerStage:
        attack, config = self.attack, self.config
        paired = control_trial(
            attack.game, message, self.controller, attack.make_victim, attack.schedule, size=config.message_size
        )

        def trial(controller: Any, key: jax.Array, shaper: Any) -> Outcome:
            return paired({"shaper": shaper, "controller": controller}, key)

        def draw(keys: jax.Array) -> Any:
            parameters = jax.vmap(lambda key: message.init(jax.random.fold_in(key, SPEAKER)))(keys)
            return jax.tree.map(jnp.zeros_like, parameters) if name == "silent_shaper" else parameters

        words = f"controllers for the victims of {many(number, name.replace('_', ' '))}"
        judged = config.judged_steps * config.warm_up.population_size
        steps = number * config.victims_each * (config.steps_of_a_training + judged)
        # Chunks would each repeat the same training runs, and pairs would have others.
        evolution = dataclasses.replace(config.warm_up, chunk_size=0, shared_trials="generation")
        stage = SearchStage(name, words, evolution, trial, steps, name)
        return ControllerStage(stage, number, self.controller.init, draw)
