"""The exact track: trained players against every form of their opponent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marl.bench.methods import Method, Trained
from marl.bench.protocol import (
    FORMS,
    LONGER,
    META_STEPS,
    RATES,
    TRAINED,
    TRIALS,
    Budget,
    Games,
    Payoffs,
    games_of,
    make_opponent,
    root_key,
    tasks,
)
from marl.core.learner import Learner
from marl.shapers.trial import play
from meta.loop import Report, Store, compiler_options
from meta.run_keys import RunBranch


def play_track(
    method: Method,
    opponent: str,
    chosen: Sequence[str],
    budget: Budget,
    *,
    seed: int,
    seeds: int,
    store: Store | None = None,
    report: Report | None = None,
) -> Payoffs:
    """Trains a method against one opponent in some games, and plays fresh trials.

    Args:
      method: as of `make_method`.
      opponent: one of `OPPONENTS`.
      chosen: names of tasks.
      budget: of each training.
      seed: of the first training.
      seeds: trainings in each game.
      store: as of `evolve`.
      report: as of `evolve`.

    Returns:
      Payoffs `[tasks, trainings]`.
    """
    places = [(name, i) for name in chosen for i in range(seeds)]
    matrices = [tasks(training=seed + i)[name] for name, i in places]
    keys = jnp.stack([root_key(seed + i, name, opponent) for name, i in places])
    games = games_of(matrices)
    found = np.full((len(FORMS), 2, len(places)), np.nan)
    numbers = [seed + i for _, i in places]
    for trained in method.train(opponent, matrices, games, budget, keys, store, report, numbers):
        runs = np.asarray(trained.runs, int)
        if len(runs):
            found[..., runs] = play_forms(trained, opponent, jax.tree.map(lambda x, at=runs: x[at], games), keys[runs])
    shaped = found.reshape(len(FORMS), 2, len(chosen), seeds)
    return Payoffs(*({form: shaped[i, side] for i, form in enumerate(FORMS)} for side in range(2)))


def play_forms(trained: Trained, opponent: str, games: Games, keys: jax.Array) -> np.ndarray:
    """Mean payoffs of player and opponent in every form, `[forms, 2, K]`.

    One program plays them all: a trial of twice the length begins as a trial of the usual length.

    Args:
      trained: `K` trainings.
      opponent: one of `OPPONENTS`.
      games: of the trainings, `[K, ...]`.
      keys: `[K]`.
    """

    def trial(parameters: Any, games: Games, rate: jax.Array, key: jax.Array) -> jax.Array:
        players = trained.learner(parameters, games), make_opponent(opponent, games, rate=rate)
        rewards = play(key, games.game, *players, meta_steps=2 * META_STEPS).rewards
        return jnp.stack([reward[1:] for reward in rewards])

    def run(parameters: Any, games: Games, key: jax.Array, rate: jax.Array) -> jax.Array:
        trial_keys = jax.random.split(jax.random.fold_in(key, RunBranch.EVALUATION), TRIALS)
        steps = jax.vmap(trial, (None, None, None, 0))(parameters, games, rate, trial_keys).mean(0)
        return jnp.stack([steps[:, :META_STEPS].mean(1), steps.mean(1)])

    over_runs = jax.jit(jax.vmap(run, (0, 0, 0, None)), compiler_options=compiler_options())
    played = {form: np.asarray(over_runs(trained.parameters, games, keys, rate)) for form, rate in RATES.items()}
    by_form = {form: both[:, 0] for form, both in played.items()} | {LONGER: played[TRAINED][:, 1]}
    return np.stack([by_form[form].T for form in FORMS])


def own_kind(opponent: str) -> Trained:
    """The opponent's own kind in the place of a method: what scores 0.

    Args:
      opponent: one of `OPPONENTS`.
    """

    def learner(parameters: Any, games: Games) -> Learner:
        del parameters
        return make_opponent(opponent, games, 0)

    return Trained(learner, (), ())
