"""Methods of the exact track that search in another way than by one shaper for each task."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from games import InfinitelyRepeated, MatrixGame
from games.exact.zd import zd_policy
from marl.bench import methods
from marl.bench.methods import Method, Preparation, Trained
from marl.bench.protocol import (
    DISCOUNT,
    META_STEPS,
    OPPONENTS,
    Budget,
    Games,
    budget_of,
    games_of,
    make_opponent,
    tasks,
)
from marl.core.learner import Learner, keep_state
from marl.experiments.shaping.config import ExactShapingConfig
from marl.learners.exact.fixed import logits_of
from marl.learners.exact.meta_value import meva, train_meva
from marl.learners.exact.naive import PolicyState, one_policy
from marl.shapers.exact_ppo import gaussian_mfos, meta_ppo
from marl.shapers.meta_ppo_config import ExactMetaPPO
from marl.shapers.registry import make_shaper
from marl.shapers.trial import play, shaping_trial
from meta import Outcome, evolve
from meta.loop import Report, Store, compiler_options
from meta.strategies import Evolution

BEST_ZD, MEVA = "best_zd", "meva"
SLOPES = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0)  # of zero-determinant strategies
PURE = np.array(list(np.ndindex(*(2,) * 5)), float)  # all deterministic memory-one strategies
MOST_TRIALS = 16  # of each strategy
ROLLOUT = 8  # learning steps of a run of MeVa in an iteration
META_VALUES = Preparation("meta-values", iterations=5_000, steps=128 * ROLLOUT, seconds=40.0)


def make_method(spec: str) -> Method:
    """A method of the exact track from its spec: one of this file, or as of `methods.make_method`.

    Args:
      spec: `generalist(SHAPER)`, one shaper for all tasks; `screened(SHAPER)`, which begins at the best of random ones;
        `ppo(mfos)` and `coala_pg(mfos)`, which are trained by policy gradients; `best_zd`, the best zero-determinant
        strategy in each task, or the best deterministic one in games without any; `meva`, whose meta-values are
        trained for each game; or as of `methods.make_method`.

    Raises:
      ValueError: if there is no such method, or if it does not fit; one line.
    """
    if found := re.fullmatch(r"\s*generalist\((.*)\)\s*", spec):
        make_shaper(found[1], InfinitelyRepeated(tasks()["chicken"]), field="method")
        train = partial(_train_generalist, found[1], {})
        return Method(
            "shaper",
            train,
            lambda size, *_: budget_of(size, "naive").training_trials,
            lambda budget: budget_of(budget.size, "naive").generations,
            trains_once=True,
        )
    if found := re.fullmatch(r"\s*screened\((.*)\)\s*", spec):
        method = methods.make_method(found[1])
        if method.kind != "shaper":
            raise ValueError(f"method: got {spec!r}; screened(SHAPER) is needed")
        train = partial(methods.train_shaper, found[1], is_screened=True)
        return Method("shaper", train, _trials_of_screened, lambda budget: methods.screening_of(budget)[1])
    if found := re.fullmatch(r"\s*(ppo|coala_pg)\((.*)\)\s*", spec):
        if found[2].strip() != "mfos":
            raise ValueError(f"method: got {spec!r}; {found[1]}(mfos) is needed")
        return Method("shaper", partial(_train_by_ppo, "coala" if found[1] == "coala_pg" else "critic"))
    if spec == BEST_ZD:
        return Method("function", _choose_strategy, _trials_of_strategies)
    if spec == MEVA:
        return Method("learner", partial(_train_meva, {}), preparation=META_VALUES, trains_once=True)
    return methods.make_method(spec)


def _trials_of_screened(size: str, opponent: str, tasks: int) -> int:
    budget = budget_of(size, opponent)
    sizes, generations = methods.screening_of(budget)
    return tasks * (sizes.num_trials + generations * budget.population * budget.trials)


def _train_by_ppo(
    advantages: Literal["critic", "coala"],
    opponent: str,
    chosen: list[MatrixGame],
    games: Games,
    budget: Budget,
    keys: jax.Array,
    store: Store | None,
    report: Report | None,
    *_: Any,
) -> list[Trained]:
    """M-FOS by policy gradients, with networks as wide as those that are evolved."""
    settings = ExactMetaPPO(
        iterations=budget.generations,
        batch_size=budget.population * budget.trials,
        hidden_units=ExactShapingConfig.hidden_units,
        advantages=advantages,
    )

    def match(games: Games) -> tuple[InfinitelyRepeated, Learner]:
        return games.game, make_opponent(opponent, games)

    found = meta_ppo(
        match, 5, keys, settings, meta_steps=META_STEPS, store=store, report=report, context=lambda *_: games
    )
    policy = gaussian_mfos(hidden_units=settings.hidden_units)
    return [Trained(lambda parameters, games: policy.learner(parameters), found.parameters, range(len(chosen)))]


def _train_generalist(
    spec: str,
    trained: dict[tuple[int, ...], Any],
    opponent: str,
    chosen: list[MatrixGame],
    games: Games,
    budget: Budget,
    keys: jax.Array,
    store: Store | None,
    report: Report | None,
    numbers: list[int],
) -> list[Trained]:
    """The shapers of all trainings, which are trained at the first call; later calls find them in `trained`."""

    def shaper_of(game: InfinitelyRepeated) -> Any:
        return make_shaper(spec, game, hidden_units=ExactShapingConfig.hidden_units)

    seeds = tuple(dict.fromkeys(numbers))
    if seeds not in trained:
        trained[seeds] = _evolve_generalist(shaper_of, budget.size, seeds, store, report)
    places = jnp.array([seeds.index(number) for number in numbers])
    own = jax.tree.map(lambda x: x[places], trained[seeds])
    return [Trained(lambda parameters, games: shaper_of(games.game).learner(parameters), own, range(len(chosen)))]


def _evolve_generalist(
    shaper_of: Callable[[InfinitelyRepeated], Any],
    size: str,
    seeds: tuple[int, ...],
    store: Store | None,
    report: Report | None,
) -> Any:
    """Parameters `[seeds, ...]`: a trial is one of each opponent in a game that is drawn; payoffs count by range.

    It has the trials of one task against each opponent.
    """
    met = games_of([game for seed in seeds for game in tasks(training=seed).values()])
    met = jax.tree.map(lambda x: x.reshape(len(seeds), -1, *x.shape[1:]), met)
    budget = budget_of(size, "naive")

    def trial(parameters: Any, key: jax.Array, games: Games) -> Outcome:
        found = []
        for i, opponent in enumerate(OPPONENTS):
            game_key, trial_key = jax.random.split(jax.random.fold_in(key, i))
            which = jax.random.randint(game_key, (), 0, len(tasks(opponent)))  # the random game is the last one
            one = jax.tree.map(lambda x, which=which: x[which], games)
            players = shaper_of(one.game), make_opponent(opponent, one)
            outcome = shaping_trial(one.game, *players, meta_steps=META_STEPS)(parameters, trial_key)
            found.append((outcome.fitness / jnp.ptp(one.payoffs[0]), outcome.metrics))
        metrics = jax.tree.map(lambda *x: jnp.stack(x).mean(), *(metrics for _, metrics in found))
        return Outcome(jnp.stack([fitness for fitness, _ in found]).mean(), metrics)

    found = evolve(
        trial,
        shaper_of(InfinitelyRepeated(tasks()["chicken"])).init,
        jnp.stack([_key_of_all_tasks(seed) for seed in seeds]),
        Evolution(population_size=budget.population, generations=budget.generations),
        num_trials=budget.trials,
        store=store,
        report=report,
        context=lambda *_: met,
    )
    return found.parameters


def _train_meva(
    trained: dict[tuple[int, ...], Any],
    opponent: str,
    chosen: list[MatrixGame],
    games: Games,
    budget: Budget,
    keys: jax.Array,
    store: Store | None,
    report: Report | None,
    numbers: list[int],
) -> list[Trained]:
    """Learners with meta-values of all games, which are trained at the first call and found in `trained` later."""
    seeds = tuple(dict.fromkeys(numbers))
    places = [(seed, game) for seed in seeds for game in tasks(training=seed).values()]
    if seeds not in trained:
        root_keys = jnp.stack([_key_of_all_tasks(seed) for seed, _ in places])
        trained[seeds] = train_meva(
            jax.vmap(jax.random.fold_in)(root_keys, jnp.arange(len(places)) % len(tasks())),
            lambda games, x, y: games.game.values(0, x, y),
            5,
            context=games_of([game for _, game in places]),
            batch=META_VALUES.steps // ROLLOUT,
            rollout=ROLLOUT,
            iterations=META_VALUES.iterations,
            store=store,
            report=report,
        )
    meta = trained[seeds]
    wanted = jnp.array([places.index(place) for place in zip(numbers, chosen, strict=True)])

    def learner(networks: Any, games: Games) -> Learner:
        return meva(meta._replace(networks=networks), partial(games.game.values, 0))

    return [Trained(learner, jax.tree.map(lambda x: x[wanted], meta.networks), range(len(chosen)))]


def _key_of_all_tasks(seed: int) -> jax.Array:
    """The key of one training of all tasks, in a branch that `root_key` does not use."""
    return jax.random.fold_in(jax.random.key(seed), 2**31)


def candidates_of(game: MatrixGame) -> np.ndarray:
    """Strategies `[32, 5]` as probabilities: zero-determinant ones, or all deterministic ones if the game has none.

    A shorter list is repeated to 32.

    Args:
      game: that is repeated.
    """
    found = []
    for generous in (False, True):
        for slope in SLOPES:
            with contextlib.suppress(ValueError):
                found.append(zd_policy(game, slope, discount=DISCOUNT, generous=generous))
    return np.resize(found, PURE.shape) if found else PURE


def _trials_of_each(budget: Budget) -> int:
    return max(1, min(MOST_TRIALS, budget.training_trials // len(PURE)))


def _trials_of_strategies(size: str, opponent: str, tasks: int) -> int:
    return _trials_of_each(budget_of(size, opponent)) * len(PURE) * tasks


def _choose_strategy(
    opponent: str, chosen: list[MatrixGame], games: Games, budget: Budget, keys: jax.Array, *_: Any
) -> list[Trained]:
    """The strategy with the highest mean payoff against the opponent, of those of `candidates_of`."""
    logits = jnp.asarray(logits_of([candidates_of(game) for game in chosen]))
    number = _trials_of_each(budget)

    def learner(logits: jax.Array, games: Games) -> Learner:
        del games
        return one_policy(lambda key: PolicyState(logits), keep_state)

    def payoff(logits: jax.Array, games: Games, key: jax.Array) -> jax.Array:
        players = learner(logits, games), make_opponent(opponent, games)
        return play(key, games.game, *players, meta_steps=META_STEPS).rewards[0][1:].mean()

    def best(logits: jax.Array, games: Games, key: jax.Array) -> jax.Array:
        over_trials = jax.vmap(payoff, (None, None, 0))
        payoffs = jax.vmap(over_trials, (0, None, None))(logits, games, jax.random.split(key, number))
        return logits[jnp.argmax(payoffs.mean(1))]

    found = jax.jit(jax.vmap(best), compiler_options=compiler_options())(logits, games, keys)
    return [Trained(learner, found, range(len(chosen)))]
