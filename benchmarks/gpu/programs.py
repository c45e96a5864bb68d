"""Main programs of the library by name: a generation, an iteration or an update of a preset, or fresh trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import configs
import games
import marl
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from attacks.experiments.evaluation import fresh_victims
from benchmarks.gpu.one_kernel import trials_in_one_kernel
from benchmarks.speed.games import build
from marl.experiments import learner_training
from marl.experiments.learner_training import TrainConfig
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.jobs import make_shaping
from meta import evolve
from meta.loop import compile_program, compiling_with
from meta.runs.gpu_defaults import with_gpu_defaults

Program = Callable[[], Any]
FRESH_VICTIMS = 1024
SOCIAL = ("harvest", "cleanup", "coop_mining", "coins")  # 390 updates of 256,000 steps
GAMES = ("coin_game", "ipd", "CartPole-v1", "ipd_in_the_matrix", "cleanup")


class Caught(Exception):
    """Raised in place of a run, with what the compiler made of its program."""

    def __init__(self, program: Any):
        self.program = program


def caught(program: Program, compiler: Callable[[Any, tuple[Any, ...]], Any]) -> Any:
    """The result of `compiler(jitted function, arguments)` for the main program of a run, which ends there."""

    def stop(jitted: Any, arguments: tuple[Any, ...]) -> Any:
        raise Caught(compiler(jitted, arguments))

    try:
        with compiling_with(stop):
            program()
    except Caught as found:
        return found.program
    raise AssertionError("the run has no main program")


def shaping(preset: str, **changes: Any) -> Program:
    """A generation of `python -m marl.mfos PRESET`, or an iteration of meta-PPO."""

    def run() -> Any:
        experiment = make_shaping(_changed(configs.load(ShapingConfig, "mfos", preset), {"start": "random"} | changes))
        return experiment.train_shapers(experiment.keys)

    return run


def fresh_trials(preset: str, **changes: Any) -> Program:
    """The fresh trials of `python -m marl.mfos PRESET` against the opponent of its training."""

    def run() -> Any:
        experiment = make_shaping(_changed(configs.load(ShapingConfig, "mfos", preset), changes))
        return experiment.compilers()[experiment.config.opponent]()

    return run


def attack(preset: str, **changes: Any) -> Program:
    """A generation of `python -m attacks.act PRESET`, on whole training runs."""

    def run() -> Any:
        made = resolve(_changed(configs.load(AttackConfig, "act", preset), changes))
        config = made.config
        return evolve(made.trial, made.init, jax.random.key(0), config.evolution, num_trials=config.victims_each)

    return run


def victims(preset: str, **changes: Any) -> Program:
    """Fresh victims of `python -m attacks.act PRESET`, under one message."""

    def run() -> Any:
        made = resolve(_changed(configs.load(AttackConfig, "act", preset), changes))
        trainings = fresh_victims(made, made.message, made.config.evaluation_trials)
        return trainings(jax.random.key(0), made.message.init(jax.random.key(1)))

    return run


def training(preset: str, **changes: Any) -> Program:
    """An update of `python -m marl.train PRESET`."""
    return lambda: learner_training.train(_changed(configs.load(TrainConfig, "train", preset), changes))


def game(name: str, instances: int, steps: int = 64) -> Program:
    """Steps of many instances of a game with random actions."""
    return lambda: build(games.make(name), instances, steps)


def one_kernel(candidates: int, trials: int, at_once: int) -> Program:
    """The trials of a generation of `python -m marl.mfos ipd`, without the generation around them."""

    def run() -> Any:
        game = games.InfinitelyRepeated(games.prisoners_dilemma)
        init = jax.vmap(marl.shapers.mfos(game).init)
        parameters = jax.eval_shape(lambda: init(jax.random.split(jax.random.key(0), candidates)))
        drawn = jax.ShapeDtypeStruct((trials, game.num_logits), jnp.float32)
        play = trials_in_one_kernel(game, candidates=candidates, trials=trials, at_once=at_once)
        return compile_program(play, parameters, drawn, drawn)

    return run


# Programs for several GPUs, and their topologies: nodes, processes of a node, GPUs of a process.
SEVERAL = {"ipd, 8 GPUs in a process": "1x1x8", "ipd, 8 processes with a GPU each": "1x8x1"}

PROGRAMS: dict[str, Program] = {
    "ipd": shaping("ipd"),
    **dict.fromkeys(SEVERAL, shaping("ipd")),
    "ipd in one kernel": one_kernel(256, 8, at_once=8),
    "ipd 8192 x 64": shaping("ipd", evolution={"population_size": 8192}, trials=64),
    "ipd 8192 x 64 in one kernel": one_kernel(8192, 64, at_once=32),
    "ipd lola": shaping("ipd", opponent="lola"),
    "ipd reinforce": shaping("ipd", opponent="reinforce(episodes=8, rounds=25)"),
    "ipd meta-PPO": shaping("ipd", meta_learner="ppo"),
    "coin_game": shaping("coin_game"),
    "coin_game fresh trials": fresh_trials("coin_game"),
    "coin_game_paper": shaping("coin_game_paper"),
    "coin_game_mfos_paper": shaping("coin_game_mfos_paper"),
    "ipd_sampled_paper": shaping("ipd_sampled_paper"),
    "ipd_in_the_matrix_paper": shaping("ipd_in_the_matrix_paper"),
    "act cartpole": attack("cartpole"),
    "act cartpole 1024 fresh victims": victims("cartpole", evaluation_trials=FRESH_VICTIMS),
    "act cartpole 4096 candidates": attack("cartpole", evolution={"population_size": 4096}),
    "act cartpole_paper": attack("cartpole_paper"),
    "train cartpole ppo": training("cartpole"),
    "train pendulum td3": training("pendulum", learner="td3"),
    "train cartpole rigl": training("cartpole", learner="ppo(sparsity='rigl(density=0.2, every=100, until=1000)')"),
    **{f"train {name}_socialjax": training(f"{name}_socialjax") for name in SOCIAL},
    **{f"games {name} {n}": game(name, n) for name in GAMES for n in (4096, 65536)},
}


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    """A config with the defaults of the backend that is traced for, and changes, those of a part as a dict."""
    config = with_gpu_defaults(config)
    parts = {
        name: dataclasses.replace(getattr(config, name), **value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(config, **parts)
