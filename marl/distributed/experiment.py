"""Training by actors as an experiment: learners are trained, evaluated on fresh episodes, and kept in a directory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from configs.specs import first_line
from games import Game
from marl.core.learner import Learner
from marl.distributed.actors.actor_pools import error_line
from marl.distributed.adapters.maker import make_env
from marl.distributed.config import DistributedConfig, annealed
from marl.distributed.evaluation import film_episode, play_episodes
from marl.distributed.fitting import fit
from marl.distributed.runtime import Trained, run
from marl.distributed.seat_learners import make_learners
from marl.distributed.system import System
from meta.run_keys import RunBranch
from meta.runs import array_files
from meta.runs.experiment import Context, Experiment
from meta.runs.formatting import amount, many, say
from meta.runs.plotting import draw_training
from meta.runs.progress import Progress
from meta.statistics import standard_error
from meta.xla.memory import bytes_of, check_bytes

LEARNER_FILE = "learner.safetensors"
TRAINING = "training"
SETTINGS = ("learner", "learners", "where", "inference", "path", "lag")  # that errors of `fit` name


class Found(NamedTuple):
    """Results of the evaluation."""

    returns: np.ndarray  # [episodes, agents]
    film: Path | None  # of an episode


class DistributedExperiment(Experiment[Trained, Found]):
    """Learners trained by actors, in environments of other libraries.

    Args:
      config: the experiment's settings.

    Raises:
      ValueError: if there is no such environment, if the learners do not fit it, or for arrays that exceed the memory.
    """

    agent_file = LEARNER_FILE

    def __init__(self, config: DistributedConfig):
        self.config = config
        self.num_updates, self.steps = config.num_updates, config.steps_of_an_update
        self.make_env = make_env(
            config.environment, config.num_envs, seen=config.seen, processes=config.processes, images=config.images
        )
        places: dict[str, Any] = {"where": config.where, "inference": config.inference, "path": config.data_path}
        system = System(**places, lag=config.lag, patience=config.patience, address=config.address)
        make_envs: list[Any] = [self.make_env] * config.actors
        env = self.make_env()
        try:
            learners = make_learners(annealed(config.learner), env.game, self.num_updates, config.past_selves)
            try:
                self.setup = fit(learners, make_envs, env, config.rollout_steps, system)
            except ValueError as error:
                message = first_line(error)
                known = message.partition(":")[0] in SETTINGS
                raise ValueError(message if known else f"learner: {config.learner}: {message}") from None
            _check_memory(config, learners, env.game, self.setup.steps_per_update)
        finally:
            env.close()
        # In self-play all seats have the first learner, with its latest or an earlier policy.
        self.num_trained = len(learners) if config.past_selves is None else 1
        self.players = learners[: self.num_trained] * (len(learners) // self.num_trained)
        self._fresh = many(config.evaluation_episodes, "fresh episode")

    def print_header(self, console: Console) -> None:
        config, system = self.config, self.setup.system
        say(
            console,
            f"{config.environment}, {annealed(config.learner)}: {many(self.num_updates, 'update')} of "
            f"{many(self.steps, 'environment step')}; {many(config.actors, 'actor')} "
            f"({system.where}, inference {system.inference}, path {system.path}) of "
            f"{many(config.num_envs, 'environment')}",
        )

    def work(self) -> dict[str, float]:
        return {TRAINING: self.num_updates * self.steps, self._fresh: 0.0}  # the length of an episode is not known

    def train(self, context: Context) -> Trained:
        last = ["no episode has ended"]  # not in every update one ends

        def describe(metrics: dict[str, np.ndarray]) -> str:
            return f"{last[0]}  lag {float(metrics['lag']):.1f}"

        def remember(metrics: dict[str, np.ndarray]) -> None:
            returns = np.array([float(metrics[f"return_{i}"]) for i in range(self.num_trained)])
            if np.isfinite(returns).all():
                last[0] = f"return {returns.mean():.1f}"

        context.stages.begin(TRAINING)
        console, unit = context.console, "environment steps"
        progress = Progress(console, self.num_updates, self.steps, unit, describe, name="update", stages=context.stages)
        with progress:
            return run(
                self.setup,
                key=jax.random.key(self.config.seed),
                num_updates=self.num_updates,
                seed=self.config.seed,
                store=context.run,
                checkpoint_seconds=self.config.checkpoint_seconds,
                report=progress,
                look=remember,
                say=lambda line: say(console, line),
            )

    def evaluate(self, context: Context, trained: Trained) -> Found:
        context.stages.begin(self._fresh)
        episodes, seed = self.config.evaluation_episodes, self.config.seed
        states = trained.history.states[: self.num_trained] * (len(self.players) // self.num_trained)
        key = jax.random.key(seed)
        env = self.make_env._replace(num_envs=min(episodes, 16))()
        try:
            evaluation_key = jax.random.fold_in(key, RunBranch.EVALUATION)
            returns = play_episodes(evaluation_key, env, self.players, states, episodes, seed)
        except Exception as error:  # of an environment
            line = error_line(error)
            raise ValueError(f"environment: {line}, in the fresh episodes; --resume plays them again") from None
        finally:
            env.close()
        film = None
        try:
            env = self.make_env._replace(num_envs=1, processes=False)(render=True)
            try:
                film_key, path = jax.random.fold_in(key, RunBranch.FILM), context.run.figures / "episode.gif"
                film = film_episode(film_key, env, self.players, states, seed, path)
            finally:
                env.close()
        except Exception as error:  # of a library that draws
            say(context.console, f"no pictures of an episode: {first_line(error)}")
        each = enumerate(zip(self.players, states, strict=True))
        policies = {str(i): learner.policy(state) for i, (learner, state) in each}
        metadata = {"method": "distributed", "config": configs.plain(self.config)}
        array_files.replace_arrays(context.run.path / LEARNER_FILE, policies, metadata)
        return Found(returns, film)

    def draw(self, folder: Path, trained: Trained, found: Found) -> list[Path]:
        config, number = self.config, self.num_trained
        over = f"mean of {number} agents; band: one standard deviation between them" if number > 1 else "one training"
        title = f"Return of {config.learner_name} in {config.environment} during training"
        note, returns = f"higher is better; {over}", np.stack(trained.history.returns[:number], 1)
        curve = draw_training(folder / "training_return.png", title, note, returns, self.steps)
        return [curve, found.film] if found.film else [curve]

    def summarize(self, trained: Trained, found: Found) -> dict[str, Any]:
        config, system = self.config, self.setup.system
        return {
            "environment": config.environment,
            "learner": config.learner,
            "where": system.where,
            "inference": system.inference,
            "path": system.path,
            "num_actors": config.actors,
            "num_envs": config.num_envs,
            "steps_per_update": self.setup.steps_per_update,
            "lag": system.lag,
            "total_steps": self.num_updates * self.steps,
            "seed": config.seed,
            "evaluation_return": _over_episodes(found.returns.mean(1)),
            "evaluation_episodes": config.evaluation_episodes,
            "agents": [_over_episodes(x) for x in found.returns.T],
            **{name: x for name, x in trained.statistics.items() if name != "steps"},
        }

    def conclusion(self, summary: dict[str, Any]) -> str:
        found, name = summary["evaluation_return"], self.config.learner_name
        error = f" ± {found['standard_error']:.2f}" if found["standard_error"] is not None else ""
        agents = f", mean of {len(summary['agents'])} agents" if len(summary["agents"]) > 1 else ""
        return (
            f"{name} gets a return of {found['mean']:.2f}{error} in {self.config.environment} ({self._fresh}{agents})."
        )

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        table = Table("", "return")
        rows = {self._fresh: summary["evaluation_return"]}
        if len(summary["agents"]) > 1:
            rows |= {f"  agent {i}": one for i, one in enumerate(summary["agents"])}
        for name, found in rows.items():
            error = found["standard_error"]
            between = f" ± {error:.2f} between episodes" if error is not None else ""
            table.add_row(name, f"{found['mean']:.2f}{between}")
        console.print(table)

    def print_speed(self, console: Console, summary: dict[str, Any]) -> None:
        """Prints the speed of actors and of this process, and the age of policies."""
        if summary["steps_per_second"]:
            say(
                console,
                f"{amount(summary['steps_per_second'])} environment steps/s, "
                f"{amount(summary['learner_steps_per_cpu_second'])} for each second of this process; policies "
                f"{summary['mean_lag']:.1f} updates old; {many(summary['actors_restarted'], 'actor')} restarted",
            )


def _check_memory(config: DistributedConfig, learners: list[Learner], game: Game, steps: int) -> None:
    """Raises ValueError for learners, or rollouts of `steps` steps, that exceed the memory."""
    kept = 0
    for learner in learners:
        state = jax.eval_shape(learner.init, jax.random.key(0))
        kept += bytes_of(state) + 2 * bytes_of(jax.eval_shape(learner.policy, state))  # a new one, and one in use
    check_bytes("learner", config.learner, kept)
    spaces: list[Any] = [game.observation_space(agent) for agent in game.agents]
    one = sum(math.prod(space.shape) * np.dtype(space.dtype).itemsize for space in spaces)
    rollouts = 2 * config.actors * config.num_envs * steps * one  # before a step and after it
    check_bytes("num_envs", config.num_envs, kept + rollouts)


def _over_episodes(values: np.ndarray) -> dict[str, float | None]:
    error = float(standard_error(values)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "standard_error": error}
