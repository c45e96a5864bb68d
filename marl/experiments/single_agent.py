"""A learner alone: trained in a game of one player, evaluated on fresh episodes, and kept in a directory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from configs.specs import first_line
from games import Game
from games.registry import make_game, names
from games.wrappers.cheap_talk import observation_shape
from marl.core.evaluate import evaluate
from marl.core.learn import learning
from marl.core.learner import Learner
from marl.experiments.returns import shown, statistics, with_error
from marl.learners.registry import make_learner
from meta.loop import Iterated, Report, Store, compiler_options, iterate
from meta.run_keys import RunBranch, of_seeds
from meta.runs import array_files
from meta.runs.experiment import Context, Experiment
from meta.runs.formatting import many, say
from meta.runs.plotting import draw_training
from meta.runs.progress import Progress
from meta.xla.devices import claim_cores, spread
from meta.xla.memory import bytes_of, check_bytes

LEARNER_FILE = "learner.safetensors"
SEEDS_IN_CACHE = 4  # that a core trains together: more of them leave its second-level cache, fewer are all dispatch
ENDED = "episodes_ended"  # metric of an update that the host drops
TRAINING, EVALUATION = "training", "evaluation"
LONGEST_EPISODE = 1000  # that is evaluated, where a game does not say when it ends


@dataclasses.dataclass(frozen=True)
class TrainConfig(configs.CommandConfig):
    """A learner trained alone, in a game of one player."""

    environment: str = "CartPole-v1"
    """A game of one player by its name, with parameters in brackets: "CartPole-v1(max_steps_in_episode=200)"."""
    learner: str = "ppo"
    """ppo, a2c, dqn or another learner of sampled games, with settings in brackets: "ppo(hidden=[32, 32])"."""
    total_steps: int = 500_000
    """Environment steps of each seed; what is left over after the last whole update is not taken."""
    num_envs: int = 4
    """Environments that it plays at once."""
    steps_per_update: int = 128
    """Steps of each environment between two updates."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    seeds: int = 1
    """Independent runs in one program, with the seeds seed, seed + 1, ...; fastest where the cores divide them."""
    evaluation_episodes: int = 128
    """Fresh episodes of each seed in the end, without exploration."""
    checkpoint_seconds: float = 15.0
    """Save when the last checkpoint is this old; 0 saves as often as possible."""

    def __post_init__(self) -> None:
        configs.check_least(self, num_envs=1, steps_per_update=1, seeds=1, evaluation_episodes=1)
        configs.check_product(self, "num_envs", "steps_per_update")
        configs.check_seed(self.seed, seeds=self.seeds)
        configs.check(self, "a number of at least 0", lambda x: 0 <= x <= configs.LARGEST, "checkpoint_seconds")
        if not 1 <= self.num_updates <= configs.MOST:
            most = "at least" if self.num_updates < 1 else f"at most {configs.MOST} times"
            raise ValueError(
                f"total_steps: got {configs.shown(self.total_steps)}; {most} num_envs times steps_per_update, "
                f"{self.steps_of_an_update}, is needed"
            )

    @property
    def learner_name(self) -> str:
        """Without its settings."""
        return self.learner.partition("(")[0].strip()

    @property
    def steps_of_an_update(self) -> int:
        """Environment steps that a seed learns from in an update."""
        return self.num_envs * self.steps_per_update

    @property
    def num_updates(self) -> int:
        """Number of updates."""
        return self.total_steps // self.steps_of_an_update

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the training's length, and the fields that fall over it."""
        try:
            make_learner(self.learner, make_game(self.environment))
        except ValueError:  # it needs the number of its updates
            return {"total_steps": ["learner"]}
        return {"total_steps": []}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_episodes",)


class TrainingProgram(NamedTuple):
    """A learner in its game."""

    game: Game
    learner: Learner
    begin: Callable[..., Any]  # as of `learning`
    update: Callable[..., Any]
    longest_episode: int  # in steps
    carry: Any  # shapes of what goes on from update to update


def make_program(config: TrainConfig) -> TrainingProgram:
    """The game and the learner of a config, whose update is traced once.

    Raises:
      ValueError: if there is no such game of one player, or if the learner does not fit it.
    """
    try:
        game = make_game(config.environment)
        if game.num_agents != 1:
            raise ValueError(
                f"environment: got {config.environment!r}, of {game.num_agents} players; a game of one player is needed"
            )
        observation_shape(game)
    except (NotImplementedError, RuntimeError) as error:  # an unknown space; data that cannot be downloaded
        raise ValueError(f"environment: got {config.environment!r}; {first_line(error)}") from None
    learner = make_learner(config.learner, game, num_updates=config.num_updates)
    begin, update = learning(game, [learner], steps_per_update=config.steps_per_update, num_envs=config.num_envs)
    update = jax.jit(update)  # what is traced here need not be traced again
    try:
        carry, key = jax.eval_shape(begin, jax.random.key(0))
        jax.eval_shape(update, carry, key)
    except ValueError as error:
        raise ValueError(f"learner: {config.learner}: {first_line(error)}") from None
    return TrainingProgram(game, learner, begin, update, longest_episode(game), carry)


def program_with(config: TrainConfig, program: TrainingProgram, settings: Mapping[str, Any]) -> TrainingProgram:
    """The program of a learner with other settings, which may be traced numbers."""
    if not settings:
        return program
    learner = make_learner(config.learner, program.game, num_updates=config.num_updates, traced=settings)
    sizes = (config.steps_per_update, config.num_envs)
    begin, update = learning(program.game, [learner], steps_per_update=sizes[0], num_envs=sizes[1])
    return program._replace(learner=learner, begin=begin, update=update)


def longest_episode(game: Game) -> int:
    """Steps after which an episode is over, or counts as over where the game has no time limit."""
    limit = getattr(game, "episode_length", getattr(getattr(game, "params", None), "max_steps_in_episode", None))
    return int(LONGEST_EPISODE if limit is None else limit)


class Trained(NamedTuple):
    """The result of `train`. `S` is the number of seeds."""

    states: Any  # of the learners in the end, `[S, ...]`
    returns: np.ndarray  # `[updates, S]`: mean return of the episodes that ended before an update, NaN if none
    loop: Iterated


def train(
    config: TrainConfig,
    program: TrainingProgram | None = None,
    *,
    store: Store | None = None,
    report: Report | None = None,
    keys: jax.Array | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Trained:
    """Trains a learner, every seed in one program, spread over the local devices.

    What a seed learns is what `learn` with the key `jax.random.key(seed)` makes of it.

    Args:
      config: the training's settings.
      program: `make_program(config)`, if it is there already.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(updates so far, their last metrics, seconds of running)` by the host.
      keys: `[seeds]`, in place of those of the seeds of the config.
      settings: settings of the learner that differ between the seeds, `[seeds]` each.
    """
    program, seeds, own = program or make_program(config), config.seeds, dict(settings or {})
    keys = of_seeds(config.seed, seeds) if keys is None else keys

    def begin(key: jax.Array, own: dict[str, jax.Array]) -> Any:
        return program_with(config, program, own).begin(key)

    def update(
        key: jax.Array, number: jax.Array, carry: Any, own: dict[str, jax.Array]
    ) -> tuple[Any, dict[str, jax.Array]]:
        # `fold_in` makes the key with that number of `jax.random.split`.
        carry, found = program_with(config, program, own).update(carry, jax.random.fold_in(key, number))
        returns = {"training_return": found.mean_returns[0], ENDED: found.ended[0]}
        return carry, {**returns, "reward": found.rewards[0], **found.metrics[0]}

    update_all = spread(update, seeds, at_once=SEEDS_IN_CACHE)

    def step(keys: jax.Array, number: jax.Array, carry: Any) -> tuple[Any, dict[str, jax.Array]]:
        carry, metrics = update_all(keys, jnp.broadcast_to(number, (seeds,)), carry, own)
        return carry, metrics if seeds > 1 else jax.tree.map(lambda x: x[0], metrics)

    carry, keys = jax.jit(spread(begin, seeds))(keys, own)
    found = iterate(
        step,
        carry,
        keys,
        config.num_updates,
        store=store,
        report=report,
        checkpoint_seconds=config.checkpoint_seconds,
        name="update",
        process_metrics=_with_missing,
    )
    returns = found.metrics["training_return"].reshape(-1, seeds)
    return Trained(found.state.states[0], returns, found)


def _with_missing(metrics: dict[str, np.ndarray], first: int) -> dict[str, np.ndarray]:
    """NaN as the return of no episode, which a program that `jax_debug_nans` watches may not give."""
    del first
    ended = metrics.pop(ENDED)
    return metrics | {"training_return": np.where(ended > 0, metrics["training_return"], np.float32(np.nan))}


class SingleAgent(Experiment[Trained, np.ndarray]):
    """A learner in a game of one player; its evaluation finds returns `[seeds, episodes]`.

    Args:
      config: the experiment's settings.

    Raises:
      ValueError: if there is no such game of one player, if the learner does not fit it, or for what no memory can
        hold.
    """

    agent_file, counted = LEARNER_FILE, "steps"

    def __init__(self, config: TrainConfig):
        name, presets = config.environment.partition("(")[0], configs.presets("train")
        if name not in names() and configs.one_of(name, presets, " ") != " ":  # a preset may have been meant
            meant = configs.one_of(name, sorted({*presets, *names()}))
            raise ValueError(f"environment: got {configs.shown(config.environment)}; {meant}")
        self.config, self.program = config, make_program(config)
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
        return {TRAINING: self.config.num_updates * self._steps, self._fresh: longest}

    def compilers(self) -> dict[str, Callable[[], Any]]:
        return {EVALUATION: self._compile_evaluation}

    def _compile_evaluation(self) -> Any:
        config, program = self.config, self.program

        @jax.jit
        @jax.vmap
        def evaluate_all(key: jax.Array, state: Any) -> jax.Array:
            # A learner with a memory has one for each environment of its training.
            envs = config.num_envs if program.learner.reset_memory else 1
            returns = evaluate(
                jax.random.fold_in(key, RunBranch.EVALUATION),
                program.game,
                program.learner,
                state,
                num_episodes=-(-config.evaluation_episodes // envs) * envs,
                num_steps=program.longest_episode,
                num_envs=envs if envs > 1 else None,
            )
            return returns[: config.evaluation_episodes]

        keys = of_seeds(config.seed, config.seeds)
        states = jax.eval_shape(jax.vmap(program.learner.init), keys)
        return evaluate_all.lower(keys, states).compile(compiler_options())

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

    def evaluate(self, context: Context, trained: Trained) -> np.ndarray:
        context.stages.begin(self._fresh)
        states = jax.device_put(trained.states, jax.local_devices()[0])
        keys = of_seeds(self.config.seed, self.config.seeds)
        returns = np.asarray(context.programs.get(EVALUATION)(keys, states), np.float64)
        metadata = {"method": "train", "config": configs.plain(self.config)}
        array_files.replace_arrays(context.run.path / LEARNER_FILE, _policy(states), metadata)
        return returns

    def draw(self, folder: Path, trained: Trained, found: np.ndarray) -> list[Path]:
        config = self.config
        over = f"mean of {config.seeds} seeds; band: one standard deviation between them"
        title = f"Return of {config.learner_name} in {config.environment} during training"
        note = f"higher is better; {over if config.seeds > 1 else 'one seed'}"
        return [draw_training(folder / "training_return.png", title, note, trained.returns, config.steps_of_an_update)]

    def summarize(self, trained: Trained, found: np.ndarray) -> dict[str, Any]:
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


def _policy(states: Any) -> dict[str, Any]:
    """The parts of a state that acting needs, without those of further learning."""
    return {name: getattr(states, name) for name in ("params", "statistics") if hasattr(states, name)}


def choose_devices(config: TrainConfig) -> None:
    """One core for one seed; has to come before whatever makes JAX begin, as the names of games do."""
    claim_cores(config.seeds)


def config_of(first: str) -> TrainConfig:
    """The config from a preset, a file, or a game by its name; a preset comes before a game of its name."""
    presets = configs.presets("train")
    if first in presets or first.endswith((".yaml", ".yml")) or os.path.isfile(first):
        return configs.load(TrainConfig, "train", first)
    return configs.build(TrainConfig, {"environment": first}, "environment")
