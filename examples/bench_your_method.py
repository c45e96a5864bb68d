"""A method of your own in Shaping Bench: `python -m marl.bench bench_your_method:train`, in this directory.

The method evolves one memory-one policy, which stays as it is while its opponent learns.
"""

from collections.abc import Callable
from typing import Any

import jax

import marl
from games import Game, InfinitelyRepeated, prisoners_dilemma
from marl.bench import Budget
from meta import Evolution, evolve


def train(
    game: Game, opponent: marl.Learner | list[marl.Learner], budget: Budget, key: jax.Array
) -> tuple[Callable[[Any], marl.Learner], Any]:
    """The learner as a function of parameters, and the parameters: what the bench plays in the first seat."""
    policy = marl.make_shaper("good_shepherd", game)
    trial = marl.shaping_trial(game, policy, opponent, **budget.lengths)
    search = Evolution(population_size=budget.population, generations=budget.generations)
    return policy.learner, evolve(trial, policy.init, key, search, num_trials=budget.trials).parameters


def main(generations: int = 60, population_size: int = 64, num_trials: int = 64) -> tuple[float, float]:
    """Mean payoffs a round (policy's, learner's) against a naive learner in the prisoner's dilemma."""
    game = InfinitelyRepeated(prisoners_dilemma)
    opponent = marl.naive(game, seat=1)
    _, parameters = train(game, opponent, Budget("small", generations, population_size, 4), jax.random.key(0))
    shaper = marl.shapers.good_shepherd(game)
    trials = marl.play_trials(
        jax.random.key(1), game, shaper, parameters, opponent, meta_steps=100, num_trials=num_trials
    )
    found = float(trials.shaper_payoffs.mean()), float(trials.opponent_payoffs.mean())
    print(f"the policy gets {found[0]:.3f} and the learner {found[1]:.3f} ({num_trials} fresh trials)")

    return found


if __name__ == "__main__":
    main()
