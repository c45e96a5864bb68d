"""A learner alone: trained in a game of one player, evaluated on fresh episodes, and kept in a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from games.registry import names
from marl.core.evaluate import evaluate
from marl.experiments.learner_training import TrainConfig, Trained, TrainingProgram, make_program, train
from marl.experiments.returns import shown, statistics, with_error
from meta.loop import compiler_options
from meta.run_keys import RunBranch, of_seeds
from meta.runs import array_files
from meta.runs.experiment import Context, Experiment
from meta.runs.formatting import many, say
from meta.runs.plotting import draw_training
from meta.runs.progress import Progress
from meta.xla.memory import bytes_of, check_bytes

LEARNER_FILE = "learner.safetensors"
SEAT = "seat_"  # begins the names of arrays where each seat has a network of its own
TRAINING, EVALUATION = "training", "evaluation"
EVALUATION_COST = 0.01  # a step of the evaluation in steps of the training: of PPO in CartPole, of TD3 and SAC less


class SingleAgent(Experiment[Trained, Any]):
    """A learner in a game of one player; its evaluation finds returns `[seeds, episodes]`.

    Args:
      config: the experiment's settings.
      program: `make_program(config)`, if it is there already.

    Raises:
      ValueError: if there is no such game, if the learner does not fit it, or for what no memory can hold.
    """

    agent_file, counted, title = LEARNER_FILE, "steps", "Return"

    def __init__(self, config: TrainConfig, program: TrainingProgram | None = None):
        name, presets = config.environment.partition("(")[0], configs.presets("train")
        if name not in names() and configs.one_of(name, presets, " ") != " ":  # a preset may have been meant
            meant = configs.one_of(name, sorted({*presets, *names()}))
            raise ValueError(f"environment: got {configs.shown(config.environment)}; {meant}")
        self.config, self.program = config, program or make_program(config)
        carry, length = self.program.carry, self.program.longest_episode
        check_bytes("learner", config.learner, config.seeds * bytes_of(carry.states))
        check_bytes("num_envs", config.num_envs, config.seeds * bytes_of(carry))
        # The evaluation has the keys of all its steps at once, and twice an observation and a state for each episode.
        each = 16 * length + 2 * bytes_of((carry.observations, carry.game_state)) // config.num_envs
        check_bytes("evaluation_episodes", config.evaluation_episodes, config.evaluation_episodes * config.seeds * each)
        self._fresh = f"{many(config.evaluation_episodes, 'fresh episode')} of each seed"
        self._steps = config.seeds * config.steps_of_an_update

    def print_header(self, console: Console) -> None:
        config = self.config
        steps = config.num_updates * config.steps_of_an_update
        several = f"each of {config.seeds} seeds, " if config.seeds > 1 else ""
        say(
            console,
            f"{config.environment}, {config.learner}: {many(steps, 'environment step')}, {several}"
            f"{many(config.num_updates, 'update')} of {many(config.num_envs, 'environment')} x "
            f"{many(config.steps_per_update, 'step')}",
        )

    def work(self) -> dict[str, float]:
        longest = self.config.seeds * self.config.evaluation_episodes * self.program.longest_episode
        return {TRAINING: self.config.num_updates * self._steps, self._fresh: EVALUATION_COST * longest}

    def compilers(self) -> dict[str, Callable[[], Any]]:
        return {EVALUATION: self._compile_evaluation}

    def _compile_evaluation(self) -> Any:
        config, program = self.config, self.program

        def evaluate_one(key: jax.Array, states: tuple[Any, ...]) -> Any:
            # A learner with a memory has one for each environment of its training.
            envs = config.num_envs if any(learner.reset_memory for learner in program.learners) else 1
            found = self._play(
                jax.random.fold_in(key, RunBranch.EVALUATION),
                states,
                num_episodes=-(-config.evaluation_episodes // envs) * envs,
                num_steps=program.longest_episode,
                num_envs=envs if envs > 1 else None,
            )
            return jax.tree.map(lambda x: x[: config.evaluation_episodes], found)

        def init(key: jax.Array) -> tuple[Any, ...]:
            return tuple(learner.init(key) for learner in program.learners)

        keys = of_seeds(config.seed, config.seeds)
        states = jax.eval_shape(jax.vmap(init), keys)
        return jax.jit(jax.vmap(evaluate_one)).lower(keys, states).compile(compiler_options())

    def _play(self, key: jax.Array, states: tuple[Any, ...], **sizes: Any) -> Any:
        """Fresh episodes of one seed, `[episodes, ...]`."""
        return evaluate(key, self.program.game, self.program.learners[0], states[0], **sizes)

    def train(self, context: Context) -> Trained:
        last = ["no episode has ended"]  # not in every update one ends

        def describe(metrics: dict[str, np.ndarray]) -> str:
            known = metrics["training_return"][np.isfinite(metrics["training_return"])]
            if known.size:
                last[0] = f"return {known.mean():.1f}"
            return last[0]

        context.stages.begin(TRAINING)
        number, unit = self.config.num_updates, "environment steps"
        progress = Progress(context.console, number, self._steps, unit, describe, name="update", stages=context.stages)

        def show(update: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
            context.programs.begin()
            progress(update, metrics, seconds)

        with progress:
            return train(self.config, self.program, store=context.run, report=show)

    def evaluate(self, context: Context, trained: Trained) -> Any:
        context.stages.begin(self._fresh)
        states = jax.device_put(trained.states, jax.local_devices()[0])
        keys = of_seeds(self.config.seed, self.config.seeds)
        found = context.programs.get(EVALUATION)(keys, states)
        metadata = {"method": "train", "config": configs.plain(self.config)}
        every = zip(self.program.learners, states, strict=True)
        policies = [jax.vmap(one.policy, axis_size=self.config.seeds)(state) for one, state in every]
        arrays = policies[0] if len(policies) == 1 else {f"{SEAT}{i}": policy for i, policy in enumerate(policies)}
        array_files.replace_arrays(context.run.path / self.agent_file, arrays, metadata)
        return jax.tree.map(lambda x: np.asarray(x, np.float64), found)

    def draw(self, folder: Path, trained: Trained, found: Any) -> list[Path]:
        config = self.config
        over = f"mean of {config.seeds} seeds; band: one standard deviation between them"
        title = f"{self.title} of {config.learner_name} in {config.environment} during training"
        note = f"higher is better; {over if config.seeds > 1 else 'one seed'}"
        return [draw_training(folder / "training_return.png", title, note, trained.returns, config.steps_of_an_update)]

    def summarize(self, trained: Trained, found: Any) -> dict[str, Any]:
        config, loop = self.config, trained.loop
        done = config.num_updates - loop.first_iteration
        return {
            "environment": config.environment,
            "learner": config.learner,
            "seed": config.seed,
            "seeds": config.seeds,
            "total_steps": config.num_updates * config.steps_of_an_update,
            "returns": statistics(config.seed, found),
            "training_return": statistics(config.seed, trained.returns[config.num_updates * 9 // 10 :].T),
            "evaluation_episodes": config.evaluation_episodes,
            "seconds_to_compile": loop.seconds_to_compile,
            "steps_per_second": self._steps * done / loop.seconds_to_run if done else None,
        }

    def conclusion(self, summary: dict[str, Any]) -> str:
        found, training = summary["returns"], summary["training_return"]
        over = f"{many(self.config.seeds, 'seed')}, {many(self.config.evaluation_episodes, 'fresh episode')} each"
        return (
            f"{self.config.learner_name} gets a return of {with_error(found)} in {self.config.environment} ({over}; "
            f"{shown(training['mean'])} in the last tenth of the training, with exploration)."
        )

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        table = Table("", "return")
        fresh, last = many(self.config.evaluation_episodes, "fresh episode"), "last tenth of the training"
        for title, found in ((fresh, summary["returns"]), (last, summary["training_return"])):
            table.add_row(f"[bold]{title}", with_error(found))
            if self.config.seeds > 1:
                for one in found["seeds"]:
                    table.add_row(f"  seed {one['seed']}", shown(one["mean"]))
        console.print(table)
