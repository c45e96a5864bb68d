"""A search by a surrogate model, for what evolution is compared with: the harm of an echo, which is four numbers.

A Gaussian process of the mean final return of 32 victims, with the direction and the magnitude of an echo as inputs,
proposes the next echo (expected improvement). The echo with the best predicted mean is then tried on fresh victims,
beside silence and random echoes as large.

    pip install bayesian-optimization
    python -m benchmarks.learning.surrogate [--evaluations 100] [--victims 32] [--fresh 1024] [--seed 0]
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import jax
import numpy as np
from bayes_opt import BayesianOptimization
from bayes_opt.acquisition import ExpectedImprovement
from scipy.stats import norm

import configs
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from attacks.experiments.evaluation import compare, controlled, make_trainings
from attacks.messages import Message
from attacks.random_play import observations_of_play, units_of_play
from games.registry import make_game
from meta.statistics import with_error
from meta.xla.devices import use_all_cores

MAGNITUDE = (0.003, 3.0)  # the root mean square of the echo, in standard deviations of random play


def weights(numbers: dict[str, float]) -> np.ndarray:
    """The weights of the echo: a direction, even over the sphere, and a magnitude."""
    direction = norm.ppf(np.clip([numbers[f"w{i}"] for i in range(4)], 1e-6, 1 - 1e-6))
    return np.asarray(np.exp(numbers["magnitude"]) * direction / np.linalg.norm(direction), np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--victims", type=int, default=32)
    parser.add_argument("--fresh", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    use_all_cores()
    config = configs.load(AttackConfig, "act", "cartpole")
    units = units_of_play(make_game(config.environment))
    attack = resolve(dataclasses.replace(config, message=f"echo(units={units})"))
    game, message, key = attack.game, attack.message, jax.random.key(options.seed)

    def trainings_of(talk: Message, number: int) -> Any:
        return make_trainings(
            game, talk, attack.make_victim, attack.schedule, size=config.message_size, num_trials=number
        )

    some = trainings_of(message, options.victims)
    bounds = {f"w{i}": (0.0, 1.0) for i in range(4)} | {"magnitude": tuple(np.log(MAGNITUDE))}
    search = BayesianOptimization(
        None, bounds, acquisition_function=ExpectedImprovement(xi=1.0), random_state=options.seed, verbose=0
    )
    # What is measured is noisy: 33 between victims.
    search.set_gp_params(alpha=(33.0**2 / options.victims) / 10.0**2, normalize_y=True)
    rng = np.random.default_rng(options.seed)
    tried = []
    for i in range(options.evaluations):
        first = {name: rng.uniform(*bound) for name, bound in bounds.items()}
        numbers = first if i < 20 else search.suggest()
        harm = -float(some(jax.random.fold_in(key, i), weights(numbers)).final_returns.mean())
        search.register(params=numbers, target=harm)
        tried.append(numbers)
        print(f"{i + 1:4} {np.round(weights(numbers), 3)} final return {-harm:.1f}", flush=True)
    search._gp.fit(search.space.params, search.space.target)
    believed = search._gp.predict(search.space.params)
    best = tried[int(np.argmax(believed))]
    print(f"predicted best: {np.round(weights(best), 3)}, {-believed.max():.1f}")
    spoken, speakers = controlled(message, weights(best), observations_of_play(game), attack.schedule.steps)
    fresh = trainings_of(spoken, options.fresh)
    found = compare({name: fresh(jax.random.fold_in(key, 10_000), parameters) for name, parameters in speakers.items()})
    for name in speakers:
        apart = found[name].get("difference_from_silent")
        print(f"{name}: {with_error(found[name])}" + (f", less silence {with_error(apart)}" if apart else ""))


if __name__ == "__main__":
    main()
