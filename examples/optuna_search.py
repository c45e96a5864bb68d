"""Search the settings of an evolution with Optuna: the sigma and the learning rate with which M-FOS is evolved.

Optuna draws several pairs at once, and `evolve` tries all of them in one program, because both are traced numbers:
`numbers={"sigma": [...], "learning_rate": [...]}`. It needs `pip install optuna`.
"""

import jax
import jax.numpy as jnp

import marl
from games import InfinitelyRepeated, prisoners_dilemma
from meta import Evolution, evolve


def main(rounds=4, at_once=8, generations=60, population_size=64, num_trials=8, meta_steps=50, seed=0):
    """Returns the study, and prints the best settings."""
    import optuna

    game = InfinitelyRepeated(prisoners_dilemma)
    shaper = marl.make_shaper("mfos", game, hidden_units=16)
    trial = marl.shaping_trial(game, shaper, marl.make_learner("naive", game, seat=1), meta_steps=meta_steps)
    evolution = Evolution(population_size=population_size, generations=generations)
    keys = jnp.stack([jax.random.key(seed)] * at_once)  # the same draws, so that the settings alone differ
    fresh = jax.random.split(jax.random.key(seed + 1), 256)

    @jax.jit
    def payoffs(parameters):
        """The mean payoff of each shaper in fresh trials."""
        return jax.vmap(lambda own: jax.vmap(lambda key: trial(own, key).fitness)(fresh).mean())(parameters)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    for _ in range(rounds):
        asked = [study.ask() for _ in range(at_once)]
        numbers = {
            "sigma": [one.suggest_float("sigma", 0.01, 1.0, log=True) for one in asked],
            "learning_rate": [one.suggest_float("learning_rate", 0.005, 0.5, log=True) for one in asked],
        }
        evolved = evolve(trial, shaper.init, keys, evolution, num_trials=num_trials, numbers=numbers)
        for one, payoff in zip(asked, payoffs(evolved.parameters).tolist(), strict=True):
            study.tell(one, payoff)
        print(f"{len(study.trials)} settings: best payoff {study.best_value:.3f} with {study.best_params}")
    return study


if __name__ == "__main__":
    main()
