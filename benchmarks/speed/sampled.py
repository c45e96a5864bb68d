"""Environment steps per second of shaping learners that sample, and where they go.

Two settings: the sampled prisoner's dilemma, a recurrent shaper against a table (population 32, 4 opponents each, 2
environments, 100 episodes of 10 steps), and the coin game, against PPO (16, 1, 16, 16 of 20). Each is timed whole, with
an opponent that does not learn, and with random players on both sides: what learning, the shaper and the game cost.

    python -m benchmarks.speed.sampled [--repeats 3] [--scale 1]

`--scale` multiplies the populations, for devices that are wider.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.timing import in_turn, machine
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.sampled import SampledShaping
from marl.shapers.trial import play_sampled, shaping_trial
from meta import Evolution, Outcome, evolve
from meta.xla.devices import use_all_cores


def settings() -> dict[str, SampledShapingConfig]:
    """The two, made here and not above, because checking a config starts JAX with the devices that it finds."""
    return {
        "ipd, a table": SampledShapingConfig(
            environment="ipd(episode_length=10)",
            opponent="tabular_ppo",
            meta_steps=100,
            episode_length=10,
            num_envs=2,
            trials=4,
            evolution=Evolution(population_size=32, generations=1),
        ),
        "coin game, PPO": SampledShapingConfig(
            environment="coin_game(episode_length=20)",
            opponent="ppo(hidden=[16], learning_rate=0.005, epochs=2, minibatches=8, discount=0.96)",
            meta_steps=16,
            episode_length=20,
            num_envs=16,
            trials=1,
            evolution=Evolution(population_size=16, generations=1),
        ),
    }


class Timed(NamedTuple):
    """Times of one program."""

    seconds_to_compile: float
    seconds: float  # for a generation


def run(config: SampledShapingConfig, generations: int, *, shaper: bool = True) -> Timed:
    """Some generations of an evolution; without a shaper all seats are the opponent's."""
    config = dataclasses.replace(config, evolution=dataclasses.replace(config.evolution, generations=generations))
    shaping = SampledShaping(config)
    game, policy, lengths = shaping.game, shaping.shaper, shaping.lengths
    steps = {name: lengths[name] for name in ("episode_length", "num_envs")}
    trial, init = shaping_trial(game, policy, shaping.opponents, meta_steps=config.meta_steps, **steps), policy.init
    if not shaper:
        learners = shaping.own_kind

        def trial(parameters: Any, key: jax.Array) -> Outcome:
            rewards = play_sampled(key, game, policy, parameters, learners, **lengths).rewards
            return Outcome(rewards[0].mean() + parameters.sum(), {})

        init = lambda key: jnp.zeros(2)  # noqa: E731
    found = evolve(trial, init, jax.random.key(0), config.evolution, num_trials=config.trials)
    return Timed(found.seconds_to_compile, found.seconds_to_run / generations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=int, default=1)
    options = parser.parse_args()
    use_all_cores()
    print(machine())
    print("setting         | part              | M steps/s (best) | compile s")
    for name, setting in settings().items():
        size = setting.evolution.population_size * options.scale
        config = dataclasses.replace(setting, evolution=dataclasses.replace(setting.evolution, population_size=size))
        steps = config.steps_of_a_generation
        parts: dict[str, tuple[SampledShapingConfig, Any]] = {
            "whole": (config, True),
            "no learning": (dataclasses.replace(config, opponent="random"), True),
            "the game alone": (dataclasses.replace(config, opponent="random"), False),
        }
        calls = {part: partial(run, one, 20, shaper=shaper) for part, (one, shaper) in parts.items()}
        for part, found in in_turn(calls, options.repeats).items():
            speed = steps / statistics.median(one.seconds for one in found) / 1e6
            best = steps / min(one.seconds for one in found) / 1e6
            compiled = min(one.seconds_to_compile for one in found)
            print(f"{name:15} | {part:17} | {speed:8.2f} ({best:5.2f}) | {compiled:8.1f}")


if __name__ == "__main__":
    main()
