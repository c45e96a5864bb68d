"""In-context co-player inference: learners with a memory, trained against a pool of policies and against each other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from marl.core.learn import Carry, learning
from marl.core.learner import Learner, LearnerState, Trajectory
from marl.experiments.reproduce.in_context_games import DILEMMAS, IPD, LEARNERS, MIXED, Dilemma
from marl.learners.registry import make_learner
from marl.learners.sampled.ppi import store_play
from meta.loop import Iterated, Report, Store, compiler_options, iterate
from meta.run_keys import RunBranch, of_seeds
from meta.runs.formatting import say
from meta.runs.jobs import Job, finished, open_run
from meta.runs.progress import Progress
from meta.statistics import mean_and_error
from meta.xla.devices import spread

PPI, A2C = "ppi", "a2c"
STORED = 10  # batches of play of drawn policies in the buffer of ppi at the beginning, as in the paper
MEASURED = 2  # updates
ENVS, PRETRAINING = 64, 2_000
A2C_RELATIVE = 5  # updates of a2c for one of ppi
A2C_SPEC = "a2c(network='recurrent', hidden=[], memory=32, learning_rate=0.002, normalize_advantages=True)"


@dataclasses.dataclass(frozen=True)
class Training(configs.CommandConfig):
    """Settings of trainings of two learners in one pool."""

    learner: str
    pool: str
    updates: int
    pretraining: int
    num_envs: int
    rounds: int
    sharpness: float
    seeds: int
    seed: int
    game_name: str

    @property
    def kind(self) -> str:
        """The learner's name."""
        return self.learner.partition("(")[0]

    @property
    def dilemma(self) -> Dilemma:
        """The game and its pools."""
        return DILEMMAS[self.game_name]

    @property
    def game(self) -> Any:
        """The game, of which every pool has the same observations."""
        return self.dilemma.make(self.pool, self.rounds, self.sharpness)

    def drawn_play(self, key: jax.Array) -> Trajectory:
        """Play of drawn policies, an episode in each environment."""
        return self.dilemma.drawn_play(key, self.game, self.pool, self.rounds, self.num_envs)

    def make_learners(self) -> list[Learner]:
        """One for each seat."""
        return [make_learner(self.learner, self.game, seat, num_updates=self.updates) for seat in range(2)]


def train_pair(config: Training, *, store: Store | None = None, report: Report | None = None) -> Iterated:
    """Trains two learners, every seed in one program; the last state is a `Carry` `[seeds, ...]`.

    Metrics are `[seeds, 2, 2]`, of each learner apart, with a drawn policy, and together: `cooperation` and `payoff`;
    and `late` of cooperation in the second half of an episode.
    """
    rounds, players = config.rounds, config.make_learners()
    begin, update = learning(
        config.game, players, steps_per_update=rounds, num_envs=config.num_envs, keep_trajectories=True
    )

    def one(key: jax.Array, number: jax.Array, carry: Carry) -> tuple[Carry, dict[str, jax.Array]]:
        carry, found = update(carry, jax.random.fold_in(key, number))
        played = found.trajectories or ()
        apart = found.game_states.apart.astype(jnp.float32)
        which = jnp.stack([apart, 1 - apart])  # `[2, T, N]`

        def mean(values: jax.Array, weights: jax.Array, first: int = 0) -> jax.Array:
            total = (values[:, None, first:] * which[:, first:]).sum((2, 3))
            return total / (weights[:, None, first:] * which[:, first:]).sum((2, 3))  # NaN where nothing was played

        cooperates, chances = map(jnp.stack, zip(*map(config.dilemma.cooperates, played), strict=True))
        payoffs = jnp.stack([one.reward for one in played])
        metrics = {
            "cooperation": mean(cooperates, chances),
            "payoff": mean(payoffs, jnp.ones_like(payoffs)),
            "late": mean(cooperates, chances, rounds // 2),
        }
        return carry, metrics

    every = spread(one, config.seeds)

    def step(keys: jax.Array, number: jax.Array, carry: Carry) -> tuple[Carry, dict[str, jax.Array]]:
        return every(keys, jnp.broadcast_to(number, (config.seeds,)), carry)

    carry, keys = jax.jit(spread(begin, config.seeds))(of_seeds(config.seed, config.seeds))

    def first() -> Carry:
        if not config.pretraining:
            return carry
        states = pretrained(config, carry.states)
        return carry._replace(states=jax.device_put(states, jax.tree.map(lambda x: x.sharding, carry.states)))

    return iterate(step, carry, keys, config.updates, begin=first, store=store, report=report, name="update")


def pretrained(config: Training, states: tuple[LearnerState, ...]) -> tuple[LearnerState, ...]:
    """States `[seeds, ...]` of ppi with the parameters of a model of drawn play, and such play in their buffers.

    The two players of that play are drawn policies; where the pool has none, each of their actions is random. All
    trainings begin with the same model, which predicts nearly as well as Bayes' rule, and with play of their own.

    Args:
      config: of the trainings.
      states: of the two learners.
    """

    def filled(key: jax.Array, state: Any, params: Any) -> Any:
        def add(state: Any, key: jax.Array) -> tuple[Any, None]:
            buffer, stored = store_play(state, config.drawn_play(key), config.dilemma.parts)
            return state._replace(buffer=buffer, stored=stored), None

        return jax.lax.scan(add, state._replace(params=params), jax.random.split(key, STORED))[0]

    own = jax.vmap(partial(jax.random.fold_in, data=RunBranch.PRETRAINING))(of_seeds(config.seed, config.seeds))
    keys = jax.vmap(partial(jax.random.split, num=3))(own)
    params = _pretraining(config)(keys[0, 2])
    fill = jax.jit(jax.vmap(filled, (0, 0, None)))
    return tuple(fill(keys[:, seat], state, params) for seat, state in enumerate(states))


def _pretraining(config: Training) -> Any:
    """`(key) -> parameters` of the model of drawn play, a program."""
    slower = f"learning_rate=5e-3, buffer_size={config.num_envs}, gradient_steps=4"
    model = make_learner(f"{PPI}({_shape(config)}, {slower})", config.game)

    def update(state: Any, key: jax.Array) -> tuple[Any, None]:
        play_key, update_key = jax.random.split(key)
        return model.update(update_key, state, config.drawn_play(play_key))[0], None

    def train(key: jax.Array) -> Any:
        keys = jax.random.split(key, config.pretraining + 1)
        return jax.lax.scan(update, model.init(keys[0]), keys[1:])[0].params

    return jax.jit(train, compiler_options=compiler_options())


def make_configs(
    *, game: str, rounds: int, updates: int, seeds: int, seed: int, sharpness: float, fast: bool
) -> dict[str, Training]:
    """The trainings by name: ppi in each pool, and in the dilemma a2c in two of them."""
    sizes: dict[str, Any] = {"rounds": rounds, "seeds": seeds, "seed": seed, "sharpness": sharpness, "game_name": game}
    pools = (MIXED, LEARNERS) if fast else DILEMMAS[game].pools
    found = {}
    for pool in pools:
        one = Training("", pool, updates, PRETRAINING, ENVS, **sizes)
        if fast:
            one = dataclasses.replace(one, rounds=8, num_envs=4, updates=2, pretraining=2)
        stored = min((STORED + one.updates) * one.num_envs, 2**16)
        rollouts = {"rollouts": 1, "horizon": 2} if fast else {}
        learner = f"{PPI}({_shape(one, **rollouts)}, buffer_size={stored})"
        found[f"{PPI}, {pool}"] = dataclasses.replace(one, learner=learner)
    for pool in () if fast or game != IPD else (MIXED, LEARNERS):
        one = Training(A2C_SPEC, pool, A2C_RELATIVE * updates, 0, ENVS, **sizes)
        found[f"{A2C}, {pool}"] = one
    return found


def _shape(config: Training, **settings: int) -> str:
    """Settings of the model and its rollouts, as in the spec of a learner."""
    settings = {**config.dilemma.settings, **settings}
    told = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"{told}, num_states={list(config.dilemma.parts)}, sequence_length={config.rounds}"


def make_jobs(folder: Path, parts: Mapping[str, Training], console: Console, *, fast: bool) -> dict[str, Job]:
    """The trainings by name, with the seconds that each will take on this machine; one of each learner is measured."""
    paths = {name: folder / name.replace(",", "").replace(" ", "-") for name in parts}
    took: dict[str, float] = {}
    for name, config in parts.items():
        if not fast and config.kind not in took and not finished(paths[name], config):
            say(console, f"measuring the speed of this machine: {config.kind}")
            short = train_pair(dataclasses.replace(config, updates=MEASURED, pretraining=0))
            took[config.kind] = short.seconds_to_compile + short.seconds_to_run / MEASURED * config.updates
            if config.pretraining:
                program = _pretraining(dataclasses.replace(config, pretraining=MEASURED)).lower(jax.random.key(0))
                began = time.perf_counter()
                compiled, started = program.compile(), time.perf_counter()
                jax.block_until_ready(compiled(jax.random.key(0)))
                each = (time.perf_counter() - started) / MEASURED
                took[config.kind] += started - began + each * config.pretraining
    return {
        name: Job(paths[name], config, took.get(config.kind, 0.0), _job(paths[name], config, console))
        for name, config in parts.items()
    }


def _job(path: Path, config: Training, console: Console) -> Callable[[], None]:
    def run() -> None:
        store = open_run(path, config, console)
        steps = config.seeds * config.num_envs * config.rounds
        with Progress(console, config.updates, steps, "environment steps", _describe, name="update") as progress:
            trained = train_pair(config, store=store, report=progress)
        last = {name: x[-max(1, config.updates // 10) :].mean((0, 2)) for name, x in trained.metrics.items()}
        summary: dict[str, Any] = dataclasses.asdict(config)
        for name, values in last.items():  # `[seeds, 2]`, apart and together
            summary[name] = {kind: mean_and_error(values[:, i]) for i, kind in enumerate(("apart", "together"))}
        store.write_summary(summary | {"seconds": trained.seconds_to_run})

    return run


def _describe(metrics: dict[str, np.ndarray]) -> str:
    apart, together = np.reshape(metrics["late"], (-1, 2)).mean(0)
    said = {"with each other": together, "with policies": apart}
    return "cooperation: " + ", ".join(f"{x:.2f} {name}" for name, x in said.items() if np.isfinite(x))
