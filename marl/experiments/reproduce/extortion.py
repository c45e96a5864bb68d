"""Shapers that keep one policy and shapers that change it, over games, learners and time: settings and searches."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console

import configs
from games import InfinitelyRepeated, prisoners_dilemma
from games.exact.matrix import symmetric
from games.exact.zd import MAX_RESIDUAL, feasible_phi, fit, least_chi, observed_policy, zd_policy
from marl.core.learner import Learner
from marl.experiments.reproduce.zd import judge
from marl.learners.exact.fixed import MAX_LOGIT, logits_of
from marl.learners.registry import make_learner
from marl.shapers.registry import make_shaper
from marl.shapers.trial import Trials, play_trial, shaping_trial
from meta import Evolution, Outcome, evolve
from meta.loop import compiler_options
from meta.run_keys import RunBranch, of_seeds
from meta.runs.jobs import Job, open_run
from meta.runs.progress import Progress

FIXED, CHANGING = "good_shepherd", "mfos"
DILEMMA = (-1.0, -3.0, 0.0, -2.0)  # R, S, T, P: the payoffs of the papers, a donation game with a ratio of 2
AXELROD = (1.8, 0.0, 3.0, 0.6)  # 3, 0, 5, 1 in the units of the others: the largest payoff is 3 above the least
DISCOUNT, META_STEPS = 0.96, 100
DISCOUNTS = (0.9, 0.99, 0.999)
RATIOS = (1.2, 5.0)  # of benefit to cost in donation games
LEARNERS = ("lola", "mmaml", "best_response", "reinforce(episodes=8, rounds=25)", "q_learning(episodes=8, rounds=25)")
SAMPLING = ("reinforce", "q_learning")
WITHOUT_GRADIENT = (*SAMPLING, "best_response")  # through their learning
HORIZONS, LEARNING_RATES = (100, 300, 1000, 3000), (0.1, 0.3, 1.0, 3.0)
SEARCHED, STATES, STARTS, ITERATIONS, STEP_SIZE = (24, 8), 64, 16, 200, 0.1
MOST_CHI = 50.0
MAX_ERROR = 4 * MAX_RESIDUAL**2  # sum of squared errors over the four states, of a residual at its limit
RANDOM_POLICIES = 1024  # of which the best is where a search over time begins
ROUNDS = 50  # of each meta-step in a history of play


def donation(ratio: float) -> tuple[float, float, float, float]:
    """R, S, T, P of a donation game with this ratio of benefit to cost; T - S is 3."""
    cost = 3.0 / (1 + ratio)
    benefit = ratio * cost
    return benefit - cost, -cost, benefit, 0.0


@dataclasses.dataclass(frozen=True)
class Study(configs.CommandConfig):
    """Trainings of one kind of shaper against one kind of learner."""

    shaper: str
    opponent: str = "naive"
    payoffs: tuple[float, ...] = DILEMMA
    discount: float = DISCOUNT
    meta_steps: int = META_STEPS
    learning_rates: tuple[float, ...] = ()  # of the opponent; its own if none is given
    seeds: int = 10
    seed: int = 0
    population_size: int = 128
    generations: int = 300
    trials: int = 8
    evaluation_trials: int = 512
    searches: bool = True  # for the best fixed policy, and for the best extortioner

    @property
    def game(self) -> InfinitelyRepeated:
        """The repeated game."""
        reward, sucker, temptation, punishment = self.payoffs
        other = symmetric("dilemma", ((reward, sucker), (temptation, punishment)))
        # M-MAML has learned where to begin in the named game.
        return InfinitelyRepeated(prisoners_dilemma if self.payoffs == DILEMMA else other, self.discount)

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The learning rate of each group of trainings."""
        return self.learning_rates or (None,)

    def make_opponent(self, rate: Any) -> Learner:
        """The learner in the second seat, whose learning rate may be traced."""
        traced = {"learning_rate": rate} if self.learning_rates else {}
        return make_learner(self.opponent, self.game, 1, traced=traced)


def make_studies(*, seeds: int, seed: int, fast: bool) -> dict[str, Study]:
    """The trainings by name: one policy in several games and against several learners, then both kinds over time."""
    one = Study(FIXED, seeds=seeds, seed=seed)
    found = {"naive": one}
    found |= {name.partition("(")[0]: dataclasses.replace(one, opponent=name) for name in LEARNERS}
    for name in SAMPLING:
        found[name] = dataclasses.replace(found[name], generations=250, trials=4, evaluation_trials=256)
    for discount in DISCOUNTS:
        # The value grows with 1 / (1 - discount); the steps along the gradient of the payoff per round stay the same.
        rate = round((1 - discount) / (1 - DISCOUNT), 9)
        found[f"discount-{discount:g}"] = dataclasses.replace(one, discount=discount, learning_rates=(rate,))
    for ratio in RATIOS:
        found[f"donation-{ratio:g}"] = dataclasses.replace(one, payoffs=donation(ratio))
    found["axelrod"] = dataclasses.replace(one, payoffs=AXELROD)
    over_time = {"learning_rates": LEARNING_RATES, "seeds": min(seeds, 3), "evaluation_trials": 128, "searches": False}
    sizes = {FIXED: {"generations": 100, "trials": 4}, CHANGING: {"population_size": 64, "trials": 4}}
    for horizon, (shaper, size) in itertools.product(HORIZONS, sizes.items()):
        changes: dict[str, Any] = {"shaper": shaper, "meta_steps": horizon, **over_time, **size}
        found[f"{shaper}-{horizon}"] = dataclasses.replace(one, **changes)
    if not fast:
        return found
    tiny: dict[str, Any] = {"population_size": 4, "generations": 2, "trials": 1, "evaluation_trials": 4, "seeds": 2}
    kept = ("naive", f"{FIXED}-100", f"{CHANGING}-100")
    return {name: dataclasses.replace(found[name], **tiny, meta_steps=5) for name in kept}


def make_jobs(folder: Path, studies: dict[str, Study], console: Console, *, fast: bool) -> list[Job]:
    """A job for each, with the time that it takes on one core."""
    return [
        Job(folder / name, study, 0.0 if fast else _seconds(study), partial(_run, folder / name, study, console))
        for name, study in studies.items()
    ]


def _seconds(study: Study) -> float:
    steps = study.population_size * study.generations * study.trials * study.meta_steps * study.seeds
    each = 3e-6 if study.opponent.partition("(")[0] in SAMPLING else 1.3e-7
    return 20.0 + 40.0 * study.searches + each * steps * len(study.rates)


def _run(path: Path, study: Study, console: Console) -> None:
    store, rates = open_run(path, study, console), np.repeat(np.array(study.rates, float), study.seeds)
    keys, shaper = jnp.concatenate([of_seeds(study.seed, study.seeds)] * len(study.rates)), _make_shaper(study)

    def trial(parameters: Any, key: jax.Array, rate: jax.Array) -> Outcome:
        opponent = study.make_opponent(rate)
        return shaping_trial(study.game, shaper, opponent, meta_steps=study.meta_steps)(parameters, key)

    evolution = Evolution(population_size=study.population_size, generations=study.generations)
    steps = study.population_size * study.trials * study.meta_steps * len(rates)
    with Progress(console, study.generations, steps, "meta-steps", _describe) as progress:
        found = evolve(
            trial, shaper.init, keys, evolution, num_trials=study.trials, store=store, report=progress,
            context=lambda *_: jnp.asarray(rates), start=_best_of_random(study, rates),
        )  # fmt: skip
    play = _player(study)
    runs = []
    for i, rate in enumerate(rates):
        parameters = jax.tree.map(lambda x, i=i: x[i], found.parameters)
        seed = study.seed + i % study.seeds
        runs.append(
            {"learning_rate": study.rates[i // study.seeds], "seed": seed} | describe(study, play(parameters, rate))
        )
    summary: dict[str, Any] = {"runs": runs}
    if study.searches:
        summary |= {"gradient": _ascend(study), "family": _search_family(study)}
    store.write_summary(summary)


def _best_of_random(study: Study, rates: np.ndarray) -> Callable[[jax.Array], jax.Array] | None:
    """The start of searches for a kept policy: the best of random ones, where most of them gain nothing.

    None where the search begins at random parameters.
    """
    if study.shaper != FIXED or (study.searches and study.opponent.partition("(")[0] not in WITHOUT_GRADIENT):
        return None
    number, trials = (RANDOM_POLICIES if study.generations > 10 else 8), 8

    def best(keys: tuple[jax.Array, jax.Array]) -> jax.Array:
        (draw, play), rate = jax.random.split(keys[0]), keys[1]
        policies = 2.0 * jax.random.normal(draw, (number, 5))
        trial = shaping_trial(study.game, _make_shaper(study), study.make_opponent(rate), meta_steps=study.meta_steps)
        over_trials = jax.vmap(lambda logits, key: trial(logits, key).fitness, (None, 0))
        payoffs = jax.vmap(lambda logits: over_trials(logits, jax.random.split(play, trials)).mean())(policies)
        return policies[jnp.argmax(jnp.nan_to_num(payoffs, nan=-jnp.inf))]

    def start(keys: jax.Array) -> jax.Array:
        branch = jax.vmap(lambda key: jax.random.fold_in(key, RunBranch.SCREENING))(keys)
        return jax.jit(lambda *each: jax.lax.map(best, each), compiler_options=compiler_options())(
            branch, jnp.asarray(rates)
        )

    return start


def _make_shaper(study: Study) -> Any:
    return make_shaper(study.shaper, study.game)


def _describe(metrics: dict[str, np.ndarray]) -> str:
    return "  ".join(f"{side} {np.mean(metrics[f'{side}_return']):.3f}" for side in ("shaper", "opponent"))


def _player(study: Study) -> Callable[[Any, Any], Trials]:
    """Plays fresh trials of the shaper, the same opponents for all: `(parameters, learning rate) -> Trials`."""
    make = _make_shaper(study).learner
    key = jax.random.fold_in(jax.random.key(study.seed), RunBranch.ANALYSIS)
    keys = jax.random.split(key, study.evaluation_trials)

    @partial(jax.jit, compiler_options=compiler_options())
    def play(parameters: Any, rate: Any) -> Trials:
        def one(key: jax.Array) -> Trials:
            players = make(parameters), study.make_opponent(rate)
            return play_trial(key, study.game, *players, meta_steps=study.meta_steps)._replace(opponents=())

        return jax.vmap(one)(keys)

    return lambda parameters, rate: jax.tree.map(lambda x: np.asarray(x, np.float64), play(parameters, rate))


def describe(study: Study, trials: Trials) -> dict[str, Any]:
    """Payoffs, shares of extortion, the mean policy of the last meta-step, and what play alone shows."""
    found = judge(study.game.payoffs, trials, discount=study.discount)
    found["policy"] = np.asarray(trials.shaper_policies)[:, -1].mean(0).tolist()
    if study.meta_steps <= META_STEPS:
        found["play"] = from_play(study.game, trials, np.random.default_rng(study.seed))
    return found


def from_play(game: InfinitelyRepeated, trials: Trials, generator: np.random.Generator) -> dict[str, float]:
    """The extortion that histories of play show: one history for each trial, of all its meta-steps.

    Args:
      game: that is repeated; a history has `ROUNDS` rounds of each meta-step, which are a game without a discount.
      trials: with the policies of both players.
      generator: of the actions.
    """
    own, other = (np.asarray(x, float) for x in (trials.shaper_policies, trials.opponent_policies))
    number, meta_steps = own.shape[:2]
    actions = np.zeros((2, number, meta_steps, ROUNDS), bool)
    rows = np.arange(number)[:, None], np.arange(meta_steps)
    for i in range(ROUNDS):
        if i:
            mine, theirs = actions[..., i - 1]
            states = 1 + 2 * ~mine + ~theirs, 1 + 2 * ~theirs + ~mine  # CC, CD, DC, DD in each player's own view
        else:
            states = (np.zeros((number, meta_steps), int),) * 2
        for actor, (policies, state) in enumerate(zip((own, other), states, strict=True)):
            actions[actor, ..., i] = generator.random((number, meta_steps)) < policies[(*rows, state)]
    fits = fit(game.payoffs, observed_policy(*actions), discount=1.0)
    errors = 4 * fits.residual**2
    extortionate = (fits.chi > 1) & (fits.phi > 0)
    return {
        "error": float(np.median(errors)),
        "chi": float(np.median(fits.chi)),
        "share": float(np.mean(extortionate & (errors <= MAX_ERROR))),
        "rising": float(np.mean(extortionate)),
    }


def _mean_payoffs(study: Study, number: int) -> Callable[[jax.Array], jax.Array]:
    """Mean payoff of fixed policies, as logits `[5]`, over the same trials of training."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(study.seed), RunBranch.EVALUATION), number)
    rate, shaper = study.rates[0], _make_shaper(study)
    trial = shaping_trial(study.game, shaper, study.make_opponent(rate), meta_steps=study.meta_steps)
    return lambda logits: jax.vmap(lambda key: trial(logits, key).fitness)(keys).mean()


def _ascend(study: Study) -> dict[str, Any] | None:
    """The best fixed policy by gradient through the whole learning of the opponent; None where there is none."""
    if study.opponent.partition("(")[0] in WITHOUT_GRADIENT:
        return None
    few = study.generations < 10
    starts, iterations, states = (2, 2, 2) if few else (STARTS, ITERATIONS, STATES)
    payoff = _mean_payoffs(study, states)
    optimiser = optax.adam(optax.cosine_decay_schedule(STEP_SIZE, iterations))

    @partial(jax.jit, compiler_options=compiler_options())
    def ascend(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            logits, state = carry
            gradient = jnp.clip(jnp.nan_to_num(jax.vmap(jax.grad(payoff))(logits), posinf=0, neginf=0), -1, 1)
            updates, state = optimiser.update(-gradient, state)
            return (jnp.clip(logits + updates, -MAX_LOGIT / 2, MAX_LOGIT / 2), state), None

        (logits, _), _ = jax.lax.scan(step, (logits, optimiser.init(logits)), None, iterations)
        return logits, jax.vmap(payoff)(logits)

    key = jax.random.fold_in(jax.random.key(study.seed), 1)
    logits, payoffs = ascend(2.0 * jax.random.normal(key, (starts, 5)))
    best = int(np.nanargmax(np.asarray(payoffs)))
    return describe(study, _player(study)(logits[best], study.rates[0]))


def _search_family(study: Study) -> dict[str, Any]:
    """The best extortioner: a grid over chi and phi, then a finer one around the best; judged in fresh trials."""
    payoff = jax.jit(jax.vmap(_mean_payoffs(study, STATES)), compiler_options=compiler_options())
    matrix, discount = study.game.payoffs, study.discount
    least = least_chi(matrix, discount=discount)
    number, scales = (3, 2) if study.generations < 10 else SEARCHED
    low, high, most = least, MOST_CHI, -np.inf
    for _ in range(2):
        grid = []
        for chi in np.geomspace(low, high, number):
            bottom, top = feasible_phi(matrix, chi, discount=discount)
            if 0 <= bottom <= top and top > 0:
                grid += [(chi, bottom + share * (top - bottom)) for share in np.linspace(0.02, 1, scales)]
        policies = np.stack([zd_policy(matrix, chi, phi, discount=discount) for chi, phi in grid])
        payoffs = np.asarray(payoff(jnp.asarray(logits_of(policies))))
        best = int(np.nanargmax(payoffs))
        if payoffs[best] > most:  # the finer grid need not have the best of the first
            most, chosen, policy = payoffs[best], grid[best], policies[best]
        step = (high / low) ** (1 / (number - 1))
        low, high = max(least, chosen[0] / step), min(MOST_CHI, chosen[0] * step)
    trials = _player(study)(jnp.asarray(logits_of(policy)), study.rates[0])
    return describe(study, trials) | {"chi": chosen[0], "phi": chosen[1]}
