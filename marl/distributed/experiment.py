"""Learners in environments of hosts: trained by actors, evaluated on fresh episodes, and kept in a directory."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from configs.specs import change, first_line, read
from games import Game
from games.core import checks
from games.toolbox.drawing import save_gif
from marl.core.league import past_selves
from marl.core.learner import Learner
from marl.distributed.actor_pools import words_of
from marl.distributed.evaluation import play_episodes
from marl.distributed.runtime import INFERENCE, PATHS, WHERE, check, train
from marl.distributed.vector_env_adapters import EnvMaker, maker
from marl.learners.registry import SAMPLED, make_learner, terms
from meta import RunDirectory
from meta.run_keys import RunBranch
from meta.runs import array_files, command, provenance
from meta.runs.atomic_files import save_whole
from meta.runs.formatting import amount, many, say
from meta.runs.plotting import draw_training
from meta.runs.progress import Progress, Stages
from meta.statistics import standard_error
from meta.xla.devices import claim_cores
from meta.xla.memory import bytes_of, check_bytes

LEARNER_FILE = "learner.safetensors"
# Steps of each environment in a rollout, of learners that know what suits them.
STEPS = {"ppo": 128, "a2c": 5, "a3c": 5, "dqn": 8, "ape_x": 8, "r2d2": 20, "impala": 5, "td3": 8, "sac": 8}
LARGE = 36  # images of which a side is at least this get the network of large images
MEMORY = 512  # of that network, of a learner that needs one; R2D2's size
FILMED = 500  # steps at most


@dataclasses.dataclass(frozen=True)
class DistributedConfig(configs.CommandConfig):
    """Learners trained by actors, in environments of hosts."""

    environment: str = "CartPole-v1"
    """An environment of Gymnasium, PettingZoo or ours by its name; envpool(NAME) and games(NAME) say whose."""
    learner: str = "impala(anneal=True)"
    """impala, a3c, ape_x, r2d2, ppo, a2c, dqn, td3, sac or another learner of sampled games, with settings in brackets.
    In a game of several players all have one like it, or each its own, with a plus between them."""
    where: str = "here"
    """Where actors are: here takes them in turn, threads gives each one, ray a process of a Ray cluster."""
    inference: str = "actor"
    """Who evaluates policies: each actor, or central: one thread for all actors of a process, in batches."""
    path: str = ""
    """What learners take: queue, one rollout after the other as they come; barrier, one of all actors at once; or
    gradients, which actors take. Empty: gradients for a3c, and queue for others."""
    actors: int = 1
    """Actors, each with environments of its own."""
    num_envs: int = 8
    """Environments of each actor, played at once."""
    steps_per_update: int = 0
    """Steps of each environment in a rollout; 0 is what suits the learner."""
    lag: int | None = None
    """How many updates old the policies are that act: what comes of it is then determined. None: as old as they get."""
    past_selves: float | None = None
    """Self-play: one learner, in the first seat, against its latest policy in the others, and in this share of the
    updates against one of its past. None: all agents learn, each for itself."""
    seen: tuple[int, ...] = ()
    """Entries of the observation that are seen; all if empty. CartPole without velocities is 0 2."""
    processes: bool = False
    """Whether each environment of Gymnasium is a process of its own, which shares memory with the actor."""
    images: int | None = None
    """Side of the grey squares that images become, of which the last four are seen; 0 leaves images as they are. None:
    84, where they have a side of more than 100."""
    total_steps: int = 400_000
    """Environment steps of all actors; what is left over after the last whole update is not taken."""
    seed: int = 0
    """What is drawn here depends on it alone, and what environments draw that have seeds."""
    evaluation_episodes: int = 32
    """Fresh episodes in the end, without exploration."""
    patience: float = 60.0
    """Seconds in which a rollout has to come; then the actor begins anew."""
    address: str = ""
    """Of a Ray cluster: ray://HOST:PORT, or auto; one is begun on this machine if empty."""
    checkpoint_seconds: float = 15.0
    """Save when the last checkpoint is this old; 0 saves as often as possible."""

    def __post_init__(self) -> None:
        configs.check_least(self, actors=1, num_envs=1, evaluation_episodes=1)
        configs.check_seed(self.seed)
        configs.check(self, "a number of at least 0", lambda x: 0 <= x <= configs.LARGEST, "checkpoint_seconds")
        configs.check(self, "a number above 0", lambda x: 0 < x <= configs.LARGEST, "patience")
        if self.past_selves is not None:
            checks.number("past_selves", self.past_selves, 0, 1)
        for name, allowed in (("where", WHERE), ("inference", INFERENCE), ("path", ("", *PATHS))):
            checks.choice(name, getattr(self, name), allowed)
        checks.whole("steps_per_update", self.steps_per_update, 0)
        if self.images is not None:
            checks.size("images", self.images, 0, 1000)
        if self.lag is not None:
            checks.whole("lag", self.lag, 0)
        if not 1 <= self.num_updates <= configs.MOST:
            most = "at least" if self.num_updates < 1 else f"at most {configs.MOST} times"
            raise ValueError(
                f"total_steps: got {configs.shown(self.total_steps)}; {most} the {self.steps_of_an_update} steps of an "
                "update are needed"
            )

    @property
    def learner_name(self) -> str:
        """Without its settings; of several the first one's."""
        return terms(self.learner)[0].partition("(")[0].strip()

    @property
    def data_path(self) -> str:
        """What learners take."""
        return self.path or ("gradients" if self.learner_name == "a3c" else "queue")

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a rollout."""
        if self.steps_per_update:
            return self.steps_per_update
        if self.learner_name == "r2d2":
            given = read("learner", terms(self.learner)[0].strip(), "r2d2")[1].get("sequence_length")
            return given if isinstance(given, int) and given > 0 else STEPS["r2d2"]
        return STEPS.get(self.learner_name, 20)

    @property
    def steps_of_an_update(self) -> int:
        """Environment steps that are learned from in an update."""
        return self.num_envs * self.rollout_steps * (self.actors if self.data_path == "barrier" else 1)

    @property
    def num_updates(self) -> int:
        """How often everybody learns."""
        return self.total_steps // self.steps_of_an_update

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """How long the training is, and what falls over it."""
        timed = "anneal" in self.learner or ".safetensors" in self.learner  # an objective may know how much is over
        return {"total_steps": ["learner"] if timed else []}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation, and where it runs."""
        return ("evaluation_episodes", "address", "patience")

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are, and why."""
        idle = {} if self.where == "ray" else {"address": f"with where {self.where}"}
        if self.maker.kind != "gymnasium":
            idle["processes"] = f"with {self.environment}; it is for environments of Gymnasium"
        return idle

    @property
    def system(self) -> dict[str, Any]:
        """Who plays and evaluates, what is taken, and how old policies are: arguments of `train` and `check`."""
        return {"where": self.where, "inference": self.inference, "path": self.data_path, "lag": self.lag}

    @property
    def maker(self) -> EnvMaker:
        """Makes what an actor plays."""
        return maker(self.environment, self.num_envs, seen=self.seen, processes=self.processes, images=self.images)

    def make_learners(self, game: Game) -> list[Learner]:
        """One for each agent.

        Raises:
          ValueError: if there are not as many as agents, or if one does not fit the environment.
        """
        specs = [spec.strip() for spec in terms(self.learner)]
        if self.past_selves is not None:
            spaces = {str((game.observation_space(agent), game.action_space(agent))) for agent in game.agents}
            if len(specs) > 1 or game.num_agents < 2 or len(spaces) > 1:
                raise ValueError(
                    "past_selves: got one learner for seats that are not alike; a game in which all see and "
                    "do the same, of two players at least, is needed"
                )
            learner = make_learner(suited(specs[0], game, 0), game, num_updates=self.num_updates)
            return [learner, *[past_selves(learner, self.past_selves)] * (game.num_agents - 1)]
        specs = specs * game.num_agents if len(specs) == 1 else specs
        if len(specs) != game.num_agents:
            raise ValueError(f"learner: got {len(specs)}; one, or {game.num_agents}, one for each agent, are needed")
        learners: list[Learner] = []
        made: dict[Any, Learner] = {}  # those of seats that are alike are one, which is traced and compiled once
        for seat, (spec, agent) in enumerate(zip(specs, game.agents, strict=True)):
            learns_from_its_own = read("learner", spec, "ppo")[0] in STEPS
            both = str((game.observation_space(agent), game.action_space(agent)))
            alike = (spec, both if learns_from_its_own else seat)
            if alike not in made:
                made[alike] = make_learner(suited(spec, game, seat), game, seat, num_updates=self.num_updates)
            learners.append(made[alike]._replace(seat=seat))
        return learners


def suited(spec: str, game: Game, seat: int) -> str:
    """A learner's spec, with the network of large images where these are seen and no network is named."""
    space: Any = game.observation_space(game.agents[seat])
    name, given = read("learner", spec, "ppo")
    large = getattr(space, "image", False) and min(space.shape[:2]) >= LARGE
    if not large or "network" in given or name not in STEPS or "network" not in SAMPLED.settings(name):
        return spec
    memory = {"memory": MEMORY} if name == "r2d2" else {}
    return change(spec, **{"network": "nature", **memory, **given})


def checked(config: DistributedConfig) -> DistributedConfig:
    """The config, of which the learners are known to fit the environment.

    Raises:
      ValueError: if they do not, or if there is no such environment.
    """
    host = config.maker()
    try:
        learners = config.make_learners(host.game)
        try:
            check(learners, host, config.rollout_steps, config.actors, **config.system)
        except ValueError as error:
            words = first_line(error)
            known = words.partition(":")[0] in ("learner", "learners", "where", "inference", "path", "lag")
            raise ValueError(words if known else f"learner: {config.learner}: {words}") from None
        kept = 0
        for learner in learners:
            state = jax.eval_shape(learner.init, jax.random.key(0))
            kept += bytes_of(state) + 2 * bytes_of(jax.eval_shape(learner.policy, state))  # a new one, and one in use
        check_bytes("learner", config.learner, kept)
        seen: list[Any] = [host.game.observation_space(agent) for agent in host.game.agents]
        one = sum(math.prod(space.shape) * np.dtype(space.dtype).itemsize for space in seen)
        rollouts = 2 * config.actors * config.num_envs * config.rollout_steps * one  # before a step and after it
        check_bytes("num_envs", config.num_envs, kept + rollouts)
    finally:
        host.close()
    return config


def choose_devices(config: DistributedConfig) -> None:
    """One device, for learners are one program; Ray, whose processes should not be forks of JAX's, comes first."""
    claim_cores(1)
    if config.where == "ray":
        from marl.distributed.ray_pool import connect

        connect(config.address, 1 if config.inference == "central" else config.actors)


def config_of(first: str) -> DistributedConfig:
    """The config from a preset, a file, or an environment by its name; a preset comes before an environment."""
    if first in configs.presets("distributed") or first.endswith((".yaml", ".yml")) or os.path.isfile(first):
        return configs.load(DistributedConfig, "distributed", first)
    return configs.build(DistributedConfig, {"environment": first}, "environment")


def film(config: DistributedConfig, learners: list[Learner], states: Any, path: Path) -> Path | None:
    """One episode of the final policies as pictures; None where nobody can draw it."""
    host = config.maker._replace(num_envs=1, processes=False)(render=True)
    frames: list[np.ndarray] = []
    try:
        receive: Callable[[], Any] = host.receive

        def watched() -> Any:
            told = receive()
            picture = host.picture() if len(frames) < FILMED else None
            if picture is not None:
                frames.append(np.asarray(picture))
            return told

        host.receive = watched  # type: ignore[method-assign]
        key = jax.random.fold_in(jax.random.key(config.seed), RunBranch.FILM)
        play_episodes(key, host, learners, states, 1, config.seed)
    finally:
        host.close()
    if not frames:
        return None
    return save_whole(path, partial(save_gif, frames[:: max(len(frames) // 200, 1)], frames_per_second=25.0))


def train_on_hosts(config: DistributedConfig, run: RunDirectory, console: Console) -> None:
    """Trains and evaluates, and says what came of it."""
    host = config.maker()
    game = host.game
    host.close()
    learners = config.make_learners(game)
    learn = len(learners) if config.past_selves is None else 1  # the others are what the first one is, or was
    say(
        console,
        f"{config.environment}, {config.learner}: {many(config.num_updates, 'update')} of "
        f"{many(config.steps_of_an_update, 'environment step')}; {many(config.actors, 'actor')} "
        f"({config.where}, inference {config.inference}, path {config.data_path}) of "
        f"{many(config.num_envs, 'environment')}",
    )

    hosts: list[Any] = [config.maker] * config.actors
    trained_so_far = ["no episode has ended"]

    def describe(metrics: dict[str, np.ndarray]) -> str:
        return f"{trained_so_far[0]}  lag {float(metrics['lag']):.1f}"

    def remember(metrics: dict[str, np.ndarray]) -> None:
        returns = np.array([float(metrics[f"return_{i}"]) for i in range(learn)])
        if np.isfinite(returns).all():
            trained_so_far[0] = f"return {returns.mean():.1f}"

    fresh = many(config.evaluation_episodes, "fresh episode")
    # The length of an episode is not known here.
    stages = Stages(console, {"training": config.num_updates * config.steps_of_an_update, fresh: 0.0})
    stages.begin("training")
    progress = Progress(
        console,
        config.num_updates,
        config.steps_of_an_update,
        "environment steps",
        describe,
        name="update",
        stages=stages,
    )
    with progress:
        trained = train(
            learners,
            hosts,
            key=jax.random.key(config.seed),
            num_updates=config.num_updates,
            steps_per_update=config.rollout_steps,
            **config.system,
            store=run,
            look=remember,
            seed=config.seed,
            patience=config.patience,
            report=progress,
            checkpoint_seconds=config.checkpoint_seconds,
            say=lambda words: say(console, words),
            address=config.address,
        )
    history, statistics = trained
    seats = game.num_agents // learn
    players, states = learners[:learn] * seats, history.states[:learn] * seats
    stages.begin(fresh)
    key = jax.random.fold_in(jax.random.key(config.seed), RunBranch.EVALUATION)
    host = config.maker._replace(num_envs=min(config.evaluation_episodes, 16))()
    try:
        returns = play_episodes(key, host, players, states, config.evaluation_episodes, config.seed)
    except Exception as error:  # of somebody else's environment
        raise ValueError(f"environment: {words_of(error)}, in the fresh episodes; --resume plays them anew") from None
    finally:
        host.close()
    statistics = {name: statistics[name] for name in statistics if name != "steps"}
    summary = {
        "environment": config.environment,
        "learner": config.learner,
        "where": config.where,
        "inference": config.inference,
        "path": config.data_path,
        "num_actors": config.actors,
        "num_envs": config.num_envs,
        "steps_per_update": config.rollout_steps,
        "lag": config.lag,
        "total_steps": config.num_updates * config.steps_of_an_update,
        "seed": config.seed,
        "evaluation_return": _over_episodes(returns.mean(1)),
        "evaluation_episodes": config.evaluation_episodes,
        "agents": [_over_episodes(x) for x in returns.T],
        **statistics,
        "wall_seconds": time.perf_counter() - command.STARTED,
        "versions": provenance.versions(),
        "devices": provenance.devices(),
    }
    files = [_draw(run.figures, config, np.stack(history.returns[:learn], 1))]
    try:
        found = film(config, players, states, run.figures / "episode.gif")
        files += [found] if found else []
    except Exception as error:  # of somebody else's drawing
        say(console, f"no pictures of an episode: {first_line(error)}")
    policies = {str(i): learner.policy(state) for i, (learner, state) in enumerate(zip(players, states, strict=True))}
    array_files.replace(run.path / LEARNER_FILE, policies, {"method": "distributed", "config": configs.plain(config)})
    run.write_summary(summary)
    _show(summary, files, run, console)


def _over_episodes(values: np.ndarray) -> dict[str, float | None]:
    error = float(standard_error(values)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "standard_error": error}


def _show(summary: dict[str, Any], files: list[Path], run: RunDirectory, console: Console) -> None:
    table = Table("", "return")
    words = many(summary["evaluation_episodes"], "fresh episode")
    rows = {words: summary["evaluation_return"]}
    if len(summary["agents"]) > 1:
        rows |= {f"  agent {i}": one for i, one in enumerate(summary["agents"])}
    for name, found in rows.items():
        error = found["standard_error"]
        table.add_row(name, f"{found['mean']:.2f}" + (f" ± {error:.2f} between episodes" if error is not None else ""))
    console.print(table)
    if summary["steps_per_second"]:
        say(
            console,
            f"{amount(summary['steps_per_second'])} environment steps/s, "
            f"{amount(summary['learner_steps_per_cpu_second'])} for each second of this process; policies "
            f"{summary['mean_lag']:.1f} updates old; {many(summary['actors_restarted'], 'actor')} begun anew",
        )
    say(console, f"written to {run.path}: summary.json, {LEARNER_FILE}, metrics.jsonl, config.yaml, checkpoints")
    for file in files:
        say(console, f"  {file}")


def _draw(folder: Path, config: DistributedConfig, returns: np.ndarray) -> Path:
    """The training return `[updates, learners]` over environment steps."""
    learners = returns.shape[1]
    words = f"mean of {learners} agents; band: one standard deviation between them" if learners > 1 else "one training"
    title = f"{config.environment}, {config.learner_name}, {config.where}\n{words}"
    return draw_training(folder / "training_return.png", title, returns, config.steps_of_an_update, config.learner_name)
