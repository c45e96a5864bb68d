"""Returns of learners: the figures of docs/results/systems.md and learners.md, with errors between seeds.

    python -m benchmarks.learning.returns --only lag,hosts,velocities,minatar,presets [--seeds N]

lag: V-trace and the plain policy gradient with policies of 0 and of 8 updates ago (`learn` and `stale`, CartPole).
hosts: learners on Gymnasium's CartPole, as `python -m marl.distributed CartPole-v1 --learner NAME` trains them.
velocities: learners with and without a memory on Gymnasium's CartPole, whose velocities are hidden.
minatar: learners beside PPO in Breakout and Seaquest of MinAtar (`learn`), as many frames for each.
presets: the systems of docs/results/systems.md, as `python -m marl.distributed` runs them.

Each says beforehand how long it takes, prints the rows of a table as they come, and writes nothing. Final returns are
of fresh episodes without exploration; ± is the standard error between seeds 0, 1, 2, ...
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console

from games.registry import make_game
from marl import impala, learn, stale
from marl.core.evaluate import evaluate
from marl.distributed.config import DistributedConfig, choose_devices, config_of
from marl.distributed.evaluation import play_episodes
from marl.distributed.experiment import DistributedExperiment
from marl.distributed.runtime import train
from marl.experiments.learner_training import SEEDS_IN_CACHE, TrainConfig
from marl.experiments.single_agent import SingleAgent
from meta import RunDirectory
from meta.loop import compiler_options
from meta.run_keys import RunBranch, of_seeds
from meta.runs.experiment import run_experiment
from meta.statistics import standard_error
from meta.xla.devices import spread, use_all_cores

Rows = Iterator[tuple[str, ...]]

SOLVED, BLIND_SOLVED = 475, 450  # of CartPole-v1's 500; where velocities are not seen

LAG, LAG_STEPS, ENVS, STEPS = 8, 768_000, 32, 20
RATES, EPSILONS = (1e-3, 2e-3, 5e-3, 1e-2), (1e-3, 1e-5)  # of Adam

HOSTS = tuple(DistributedConfig(learner=name) for name in ("impala", "a3c", "a2c", "ppo", "dqn", "ape_x", "r2d2"))

_RECURRENT = DistributedConfig(
    learner="ppo(network='recurrent', anneal=True, learning_rate=1e-3)",
    seen=(0, 2),
    num_envs=16,
    steps_per_update=64,
    total_steps=1_200_000,
)
VELOCITIES = (
    DistributedConfig(learner="r2d2(anneal=True)", seen=(0, 2), total_steps=500_000),
    _RECURRENT,
    dataclasses.replace(_RECURRENT, num_envs=8, total_steps=800_000),
    dataclasses.replace(_RECURRENT, learner="ppo(anneal=True, learning_rate=1e-3)"),
)

PRESETS = ("rllib", "a3c", "ape_x", "impala", "seed_rl", "openai_five", "acme")  # Ray's first, before JAX begins


# As many frames for each, and layers of 64 units; environments and steps between updates are what suits the learner.
FRAMES = 500_000
MINATAR = {
    "ppo": TrainConfig(
        learner="ppo(epochs=4, minibatches=8, learning_rate=0.005, anneal=True, activation='relu')",
        num_envs=64,
        steps_per_update=128,
    ),  # as in configs/train/breakout.yaml
    "impala": TrainConfig(
        learner="impala(anneal=True, activation='relu', trace_lambda=0.95)", num_envs=32, steps_per_update=20
    ),
    "ape_x": TrainConfig(
        learner="ape_x(anneal=True, activation='relu', gradient_steps=4)", num_envs=8, steps_per_update=16
    ),
    "r2d2": TrainConfig(learner="r2d2(anneal=True, activation='relu')", num_envs=16, steps_per_update=20),
}
GAMES = ("Breakout-MinAtar", "Seaquest-MinAtar")


def lag(seeds: int) -> Rows:
    """Final returns of V-trace and of the plain gradient, and what is left of them where policies are old."""
    game, updates = make_game("CartPole-v1"), LAG_STEPS // (ENVS * STEPS)
    settings = list(itertools.product(RATES, EPSILONS))
    rates, epsilons = (jnp.repeat(jnp.array(x), seeds) for x in zip(*settings, strict=True))
    keys = jnp.tile(of_seeds(0, seeds), len(settings))

    def final_returns(corrected: bool, behind: int) -> np.ndarray:
        def trial(rate: jax.Array, epsilon: jax.Array, key: jax.Array) -> jax.Array:
            learner = impala(
                game,
                learning_rate=optax.linear_schedule(rate, 0.0, updates),  # type: ignore[arg-type]
                optimizer_epsilon=epsilon,  # type: ignore[arg-type]
                trace_lambda=0.95,
                corrected=corrected,
            )
            sizes = {"num_updates": updates, "steps_per_update": STEPS, "num_envs": ENVS}
            state = learn(key, game, [stale(learner, behind)], **sizes).states[0]
            newest, key = state.own if behind else state, jax.random.fold_in(key, RunBranch.EVALUATION)
            return evaluate(key, game, learner, newest, num_episodes=32, num_steps=500).mean()

        program = jax.jit(spread(trial, len(keys), at_once=SEEDS_IN_CACHE), compiler_options=compiler_options())
        return np.asarray(program(rates, epsilons, keys)).reshape(len(settings), seeds)

    kinds = {"V-trace": True, "plain": False}
    found = {(kind, n): final_returns(corrected, n) for kind, corrected in kinds.items() for n in (0, LAG)}
    columns = [f"{kind}, {what}" for kind in kinds for what in ("lag 0", f"lag {LAG}", "left")]
    yield "Adam's step, epsilon", *columns
    for i, (rate, epsilon) in enumerate(settings):
        cells = []
        for kind in kinds:
            now, old = found[kind, 0][i], found[kind, LAG][i]
            share = old.mean() / now.mean()
            of_share = share * np.hypot(standard_error(now) / now.mean(), standard_error(old) / old.mean())
            cells += [_words(now), _words(old), f"{share:.2f} ± {of_share:.2f}"]
        yield f"{rate:g}, {epsilon:g}", *cells


def on_hosts(config: DistributedConfig, seeds: int) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Final returns `[seeds]` and statistics of as many trainings of `python -m marl.distributed`, compiled once."""
    experiment = DistributedExperiment(config)
    setup = experiment.setup
    returns, statistics = [], []
    for seed in range(seeds):
        key = jax.random.key(seed)
        trained = train(
            setup.learners,
            setup.make_envs,
            key=key,
            num_updates=experiment.num_updates,
            steps_per_update=setup.steps_per_update,
            system=setup.system,
            seed=seed,
        )
        env = experiment.make_env._replace(num_envs=16)()
        key, states = jax.random.fold_in(key, RunBranch.EVALUATION), trained.history.states
        returns.append(play_episodes(key, env, setup.learners, states, config.evaluation_episodes, seed).mean())
        env.close()
        statistics.append(trained.statistics)
    return np.array(returns), statistics


def solved(configs: tuple[DistributedConfig, ...], goal: float, seeds: int) -> Rows:
    """The number of trainings that reach the goal, for each learner."""
    each_second = "steps for each CPU-second"
    yield "learner", "environments x steps", "steps", f"reach {goal:g}", "final return", "of each seed", each_second
    for config in configs:
        returns, statistics = on_hosts(config, seeds)
        speed = np.mean([one["learner_steps_per_cpu_second"] for one in statistics])
        size = f"{config.num_envs} x {config.rollout_steps}"
        reach = f"{(returns >= goal).sum()} of {seeds}"
        yield config.learner, size, f"{config.total_steps:,}", reach, _words(returns), _each(returns), f"{speed:,.0f}"


def minatar(seeds: int) -> Rows:
    """Returns while learning, and final ones."""
    yield "game", "learner", "environments x steps", "last tenth of training", "final return", "s for a seed"
    for game, config in itertools.product(GAMES, MINATAR.values()):
        # No run is resumed, and a checkpoint of a replay buffer of images takes seconds.
        own: dict[str, Any] = {"environment": game, "total_steps": FRAMES, "seeds": seeds, "checkpoint_seconds": 1e6}
        config = dataclasses.replace(config, **own)
        with tempfile.TemporaryDirectory() as folder:
            run = RunDirectory.create(Path(folder) / "run", config)
            summary, _ = run_experiment(SingleAgent(config), run, Console(quiet=True))
        shown = [
            f"{summary[name]['mean']:.2f} ± {summary[name]['standard_error']:.2f}"
            for name in ("training_return", "returns")
        ]
        size = f"{config.num_envs} x {config.steps_per_update}"
        yield game, config.learner_name, size, *shown, f"{summary['wall_seconds'] / seeds:.0f}"


def presets(seeds: int) -> Rows:
    """Return and speed of each system of the literature."""
    yield "preset", "final return", "of each seed", "steps/s", "for each CPU-second of the process", "updates old"
    for name in PRESETS:
        config = config_of(name)
        if config.where == "ray" and not importlib.util.find_spec("ray"):
            yield name, "needs Ray: the extra systems"
            continue
        choose_devices(config)
        returns, statistics = on_hosts(config, seeds)
        if config.where == "ray":
            import ray

            ray.shutdown()
        steps, of_cpu, old = (
            f"{np.mean([one[what] for one in statistics]):,.{digits}f}"
            for what, digits in (("steps_per_second", 0), ("learner_steps_per_cpu_second", 0), ("mean_lag", 1))
        )
        yield name, _words(returns), _each(returns), steps, of_cpu, old


def _words(values: np.ndarray) -> str:
    return f"{values.mean():.0f} ± {standard_error(values):.0f}"


def _each(values: np.ndarray) -> str:
    return " ".join(f"{x:.0f}" for x in values)


class Part(NamedTuple):
    """A part of the benchmark, its number of seeds, and its duration."""

    run: Callable[[int], Rows]
    seeds: int
    minutes: float  # of one core, for each seed


PARTS = {
    "lag": Part(lag, 32, 0.45),
    "hosts": Part(partial(solved, HOSTS, SOLVED), 8, 4.0),
    "velocities": Part(partial(solved, VELOCITIES, BLIND_SOLVED), 8, 8.0),
    "minatar": Part(minatar, 3, 10.0),
    "presets": Part(presets, 3, 5.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="lag,hosts,velocities,minatar,presets")
    parser.add_argument("--seeds", type=int, help="of each training; by default what docs/results/systems.md has")
    options = parser.parse_args()
    only = options.only.split(",")
    if unknown := set(only) - PARTS.keys():
        parser.error(f"--only: got {', '.join(sorted(unknown))}; some of {', '.join(PARTS)} are needed")
    if options.seeds is not None and options.seeds < 2:
        parser.error(f"--seeds: got {options.seeds}; at least 2 are needed, for an error between them")
    if only[0] != "presets":  # whose Ray comes before JAX
        use_all_cores(None if {"lag", "minatar"} & set(only) else 1)
    for name in only:
        part = PARTS[name]
        seeds = options.seeds or part.seeds
        print(f"{name}: {seeds} seeds, about {seeds * part.minutes:.0f} minutes of one core", flush=True)
        for row in part.run(seeds):
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
