"""Environment steps per second of whole training runs of victims in Adversarial Cheap Talk, and what bounds them.

The paper's CartPole victim (32 updates of 256 steps in 4 environments, 16 epochs of the full batch, two shared layers
of 32 tanh units), one training run for each of a population of adversaries, judged by its training return. Beside
them, in the same run: their epochs alone, on observations that lie ready; and the larger matrix products of these
epochs alone, in the size that one victim's batch makes them.

    python -m benchmarks.speed.cheap_talk [--population 128] [--updates 32] [--repeats 3]
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

import jax

import configs
from attacks.experiments.attack import Attack, resolve
from attacks.experiments.config import AttackConfig
from benchmarks.timing import compiled, machine, seconds_in_turn
from marl.core.learn import learning
from marl.core.learner import Trajectory
from meta.xla.devices import spread, use_all_cores

AT_ONCE = 16  # members of a population that are computed together, as in the preset
FLOPS_OF_A_SAMPLE = 2 * 3 * (6 * 32 + 32 * 32 + 32 * 3)  # of an epoch, forward and backward


def training_runs(attack: Attack, size: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Whole training runs, and their arguments."""
    keys = jax.random.split(jax.random.key(0), size)
    return spread(lambda parameters: attack.trial(parameters, jax.random.key(1)).fitness, size, at_once=AT_ONCE), (
        jax.vmap(attack.init)(keys),
    )


def epochs(attack: Attack, size: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The learning alone: every update on the same trajectory."""
    config, message = attack.config, attack.message
    talk = message.talk(attack.game, message.init(jax.random.key(0)), config.message_size)
    victim = attack.make_victim(talk)
    begin, update = learning(
        talk, [victim], steps_per_update=config.steps_per_update, num_envs=config.num_envs, keep_trajectories=True
    )
    carry, key = begin(jax.random.key(2))
    trajectory = jax.jit(update)(carry, key)[1].trajectories[0]

    def learn_again(state: Any, reward: jax.Array) -> jax.Array:
        again = Trajectory(*trajectory)._replace(reward=reward)

        def step(state: Any, key: jax.Array) -> Any:
            return victim.update(key, state, again)[0], None

        state, _ = jax.lax.scan(step, state, jax.random.split(key, config.num_updates))
        return sum(x.sum() for x in jax.tree.leaves(state.params))

    states = jax.vmap(victim.init)(jax.random.split(jax.random.key(3), size))
    rewards = jax.random.normal(jax.random.key(4), (size, config.steps_per_update, config.num_envs))
    return spread(learn_again, size, at_once=AT_ONCE), (states, rewards)


def products(attack: Attack, size: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The largest matrix products of the epochs alone, of [1024, 32] and [32, 32]: forward, and twice backward."""
    config = attack.config
    batch, number = config.steps_per_update * config.num_envs, 16 * config.num_updates

    def multiply(x: jax.Array, w: jax.Array) -> jax.Array:
        def step(w: jax.Array, _: None) -> Any:
            y = x @ w
            return 1e-3 * (x.T @ y) / batch + 1e-9 * (y @ w.T)[:32], None

        return jax.lax.scan(step, w, None, number)[0].sum()

    drawn = jax.random.normal(jax.random.key(0), (size, batch + 32, 32))
    return spread(multiply, size, at_once=AT_ONCE), (drawn[:, :batch], drawn[:, batch:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", type=int, default=128)
    parser.add_argument("--updates", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    use_all_cores()
    config = dataclasses.replace(
        configs.load(AttackConfig, "act", "cartpole"), num_updates=options.updates, fitness="training"
    )
    attack, steps = resolve(config), options.population * config.steps_of_a_training
    print(machine())
    print(f"{options.population} victims of {config.steps_of_a_training:,} steps each")
    programs = {}
    for name, make in (("training runs", training_runs), ("their epochs", epochs), ("products of 32 x 32", products)):
        function, arguments = make(attack, options.population)
        programs[name] = compiled(function, *arguments)
    times = seconds_in_turn(programs, options.repeats)
    print("part                 |  k steps/s (best) | compile s | GFLOP/s")
    for name, program in programs.items():
        speed, best = steps / statistics.median(times[name]), steps / min(times[name])
        flops = 2 * 3 * 32 * 32 if name.startswith("products") else FLOPS_OF_A_SAMPLE
        rate = 16 * flops * speed / 1e9
        print(f"{name:20} | {speed / 1e3:8.0f} ({best / 1e3:5.0f}) | {program.seconds_to_compile:9.1f} | {rate:7.1f}")


if __name__ == "__main__":
    main()
