"""The outer loop: evolution of whatever a trial depends on, judged by the whole trial."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from configs import MOST, ContractError, plain, shown
from meta.evaluators import EvaluationSpec, Evaluator, GenerationRequest, Outcome, current, on_devices
from meta.loop import Call, Iterated, NonFiniteFitness, Report, Step, Store, iterate
from meta.low_rank import AXES, LowRankES, LowRankNoise
from meta.strategies import TRACEABLE, Evolution, make_strategy, promoting
from meta.trackers.tracked_store import tracked
from meta.trackers.tracker import Tracker
from meta.xla.backend import local_devices
from meta.xla.memory import largest_that_fits


class Evolved(NamedTuple):
    """The result of `evolve`. Leading axes `[K]` where it was given K keys.

    Attributes:
      parameters: the mean of the search distribution
      metrics: `[generations]` or `[generations, K]` each
      seconds_to_compile: seconds of preparation and compilation
      seconds_to_run: seconds of running, without compilation
      first_generation: how many were done already when it was called
    """

    parameters: Any
    metrics: dict[str, np.ndarray]
    seconds_to_compile: float
    seconds_to_run: float
    first_generation: int

    @classmethod
    def of(cls, parameters: Any, found: Iterated, seconds: float) -> Evolved:
        """The result of iterated generations, after `seconds` of preparation."""
        compiling = seconds + found.seconds_to_compile
        return cls(parameters, found.metrics, compiling, found.seconds_to_run, found.first_iteration)


def evolve(
    trial: Callable[..., Outcome],
    init: Callable[[jax.Array], Any],
    key: jax.Array,
    evolution: Evolution | None = None,
    *,
    num_trials: int = 8,
    store: Store | None = None,
    report: Report | None = None,
    context: Callable[[jax.Array, jax.Array, Any], Any] | None = None,
    start: Callable[[jax.Array], Any] | None = None,
    together: Literal["all", "run", "trial"] = "all",
    evaluator: Evaluator | None = None,
    numbers: Mapping[str, Any] | None = None,
    tracker: Tracker | None = None,
) -> Evolved:
    """Evolves the parameters that do best in a trial, on average over its randomness.

    Each generation draws `num_trials` keys, the same for every candidate (common random numbers) or, with
    `shared_trials="pair"`, for the two of each antithetic pair; several generations run on the device between two
    looks of the host. The candidates are spread over all local devices, or over those of a cluster.
    What is drawn depends on the key, the generation and the candidate, never on where it is evaluated, for keys of
    threefry, JAX's default; and with `chunk_size` set no bit of what comes out does either.

    Args:
      trial: `(parameters, key) -> Outcome`, pure; it is batched over candidates and keys and compiled once. One whose
        arrays are all small is faster on CPUs as `scalarize(trial)`.
      init: `(key) -> parameters`, where the search begins.
      key: a key, or K of them `[K]` for as many independent runs in one program.
      evolution: the settings; None for the defaults of `Evolution`.
      num_trials: trials for each candidate in each generation.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(generations so far, their last metrics, seconds of running)` by the host.
      context: `(key, generation, means) -> pytree`, from the key or keys as given and the means of all runs' search
        distributions, in each generation. The trial gets what it returns as a third argument, of K runs each its own
        entry: the leading axis is then `[K]`. So runs can play each other and evolve together.
      start: `(key or keys as given) -> parameters`, of K runs `[K, ...]`, where the search begins in place of `init`;
        called by the host, and not for a run that goes on. `meta.screening.screen` finds some.
      together: what of a generation is played at once: all of it; of K runs one `run` after the other, with the memory
        of one; or one `trial` of all candidates of a run after the other. Only then, and where they share its key, is a
        branch on what it draws one that all of them take, and what is in the others is not computed.
      evaluator: where trials run; None for that of `meta.evaluators.evaluating` around this call, or for all devices of
        this process.
      numbers: settings of the evolution that differ between K runs, `[K]` each, in place of its own: of sigma,
        learning_rate, sigma_end and learning_rate_end. Such runs are one program, and each does what it does alone, but
        for rounding.
      tracker: a `Tracker` gets the metrics of every generation, in a thread beside the evolution.

    Returns:
      `Evolved`: the mean of the search distribution in the end, and the metrics of every generation: over the
      candidates `fitness` (mean), `fitness_deviation`, `fitness_best`, `non_finite` (how many candidates failed; they
      are ranked last), and the mean of each of the trial's own metrics, with its `_deviation`.

    Raises:
      ValueError: if the trial has a metric of a name that is among these, or `generation`; for a number of trials that
        is no whole number of at least 1; for another name in `together`; for `numbers` of other settings, of another
        length, or that `Evolution` refuses.
      NonFiniteFitness: if a whole generation has no finite fitness. What was saved before stays.

    Example:
      >>> import jax, jax.numpy as jnp, meta
      >>> def trial(parameters, key):  # the fitness is largest where both parameters are 3
      ...     return meta.Outcome(-jnp.sum((parameters - 3.0) ** 2), {})
      >>> settings = meta.Evolution(population_size=32, generations=100, sigma=0.5, learning_rate=0.1)
      >>> evolved = meta.evolve(trial, lambda key: jnp.zeros(2), jax.random.key(0), settings, num_trials=1)
      >>> [round(float(x), 1) for x in evolved.parameters]
      [3.0, 3.0]
    """
    check_call(trial, init, key, num_trials=num_trials)
    evolution = Evolution() if evolution is None else evolution
    if not isinstance(evolution, Evolution):
        raise ContractError(f"evolution: got a {type(evolution).__name__}; a meta.Evolution is needed")
    over_runs = jax.vmap if key.ndim else _as_it_is
    started = time.perf_counter()
    shapes = jax.eval_shape(init, key if key.ndim == 0 else key[0])
    for place, leaf in jax.tree.leaves_with_path(shapes):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            at = f" at {jax.tree_util.keystr(place)}" if place else ""
            raise ContractError(f"init: returned {leaf.dtype}{list(leaf.shape)}{at}; floating-point numbers are needed")
    vector, unravel = ravel_pytree(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))
    if together not in ("all", "run", "trial"):
        raise ValueError(f"together: got {shown(together)}; one of all, run, trial is needed")
    own = _numbers_of_runs(evolution, numbers or {}, key)
    made = make_strategy(evolution, vector.size)
    noise: LowRankNoise | None = None

    def strategy_of(own: dict[str, jax.Array]) -> tuple[Any, Any]:
        strategy, params = make_strategy(evolution, vector.size, **own) if own else made
        return (LowRankES(strategy, noise) if noise else strategy), params

    untyped = jax.jit(over_runs(lambda own, key: _first_state(*strategy_of(own), init, key)))(own, key)

    def begin() -> Any:
        def first_state(own: dict[str, jax.Array], key: jax.Array, parameters: Any) -> Any:
            return _first_state(*strategy_of(own), lambda init_key: parameters, key)

        return with_types_of_the_next(jax.jit(over_runs(first_state))(own, key, start(key))) if start else state

    evaluator, one_by_one = evaluator or current(), key.ndim and together != "all"
    pairs, means = evolution.shared_trials == "pair", over_runs(lambda state: unravel(_mean(state)))

    def contexts(key: jax.Array, number: jax.Array, state: Any) -> tuple[Any, ...]:
        """One tuple of further arguments to `trial`, empty where there is no context."""
        return (context(key, number, means(state)),) if context else ()

    def play(parameters: Any, key: jax.Array, context: tuple[Any, ...]) -> Outcome:
        return checked_outcome(trial(parameters, key, *context))

    if evolution.noise == "low_rank":
        of_runs = jax.eval_shape(contexts, key, jnp.int32(0), untyped)
        of_a_run = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[key.ndim :], x.dtype), of_runs)
        noise = LowRankNoise(unravel, vector.size, evolution, play, (key.ravel()[0], of_a_run))

    def ask(key: jax.Array, number: jax.Array, state: Any) -> GenerationRequest:
        def one(own: dict[str, jax.Array], key: jax.Array, number: jax.Array, state: Any) -> Any:
            return _ask(*strategy_of(own), num_trials, pairs, key, number, state)

        vectors, keys, new = over_runs(one, in_axes=(0, 0, None, 0))(own, key, number, state)
        return GenerationRequest(vectors, keys, contexts(key, number, state), number, new)

    def tell(key: jax.Array, number: jax.Array, state: Any, vectors: Any, outcomes: Outcome) -> Any:
        def one(own: dict[str, jax.Array], *told: Any) -> tuple[Any, dict[str, jax.Array]]:
            return _tell(*strategy_of(own), num_trials, evolution.weight_decay, *told)

        return over_runs(one, in_axes=(0, 0, None, 0, 0, 0))(own, key, number, state, vectors, outcomes)

    def one(vector: jax.Array, key: jax.Array, context: tuple[Any, ...]) -> Outcome:
        return play(unravel(vector), key, context)

    over_trials = _one_by_one if one_by_one else over_runs
    spec = EvaluationSpec(one, over_trials, ask, evolution, num_trials, alone=together == "trial")
    if noise:
        spec = spec._replace(trial=partial(noise.call, play), draw=noise.draw, axes=AXES)
    ask_here, tell_here = evaluator.jit(ask), evaluator.jit(tell)

    def step_of(evolution: Evolution) -> Step:
        evaluate = evaluator.evaluate(spec._replace(evolution=evolution))

        def step(key: jax.Array, number: jax.Array, state: Any) -> tuple[Any, dict[str, jax.Array]]:
            asked = ask_here(key, number, state)
            return tell_here(key, number, asked.state, asked.vectors, evaluate(asked, (key, number, state)))

        return step

    def with_types_of_the_next(state: Any) -> Any:
        """With the types that a generation returns: Python's numbers in it, such as infinity, may have 64 bits."""
        if not jax.config.read("jax_enable_x64"):
            return state
        here = on_devices().evaluate(spec)

        def after(key: jax.Array, state: Any) -> Any:
            asked = ask(key, jnp.int32(0), state)
            return tell(key, jnp.int32(0), asked.state, asked.vectors, here(asked, (key, jnp.int32(0), state)))[0]

        return jax.tree.map(
            lambda x, y: x if x.dtype == y.dtype else x.astype(y.dtype), state, jax.eval_shape(after, key, state)
        )

    state = with_types_of_the_next(untyped)
    seconds = time.perf_counter() - started
    described = plain(evolution) | {"num_trials": num_trials}
    with tracked(store, tracker, "evolve", described) as store:
        found = iterate(
            step_of(evolution),
            state,
            key,
            evolution.generations,
            begin=begin if start else None,
            store=store,
            report=report,
            checkpoint_seconds=evolution.checkpoint_seconds,
            process_metrics=partial(_check_finite, evolution),
            run=partial(_run_to_fit, evaluator, step_of, evolution),
            advice="; evolution.chunk_size, the candidates evaluated at once, bounds it",
        )
    return Evolved.of(jax.jit(means)(found.state), found, seconds)


def _run_to_fit(
    evaluator: Evaluator, step_of: Callable[[Evolution], Step], evolution: Evolution, step: Step, *arguments: Any
) -> Call:
    """`Evaluator.run`, on a GPU in chunks where its memory does not hold all candidates at once."""
    share = -(-evolution.population_size // len(local_devices()))

    def run(size: int) -> Call:
        chunked = step if size == share else step_of(dataclasses.replace(evolution, chunk_size=size))
        return evaluator.run(chunked, *arguments)

    return run(share) if evolution.chunk_size or evaluator.cluster else largest_that_fits(run, share)


def _numbers_of_runs(evolution: Evolution, numbers: Mapping[str, Any], key: jax.Array) -> dict[str, jax.Array]:
    """The settings that differ between runs, `[K]` each.

    Raises:
      ValueError: for another setting, another shape, or a number that `evolution` refuses.
    """
    found = {}
    for name, values in numbers.items():
        if name not in TRACEABLE:
            raise ValueError(f"numbers: got {shown(name)}; one of {', '.join(TRACEABLE)} is needed")
        found[name] = jnp.asarray(values, jnp.float32)
        if key.ndim != 1 or found[name].shape != key.shape:
            needed = f"one number for each of {len(key)} keys" if key.ndim else "an array of keys"
            raise ValueError(f"numbers: got {name} of shape {found[name].shape}; {needed} is needed")
        for extreme in (np.min, np.max):  # NaN is both
            changed: dict[str, Any] = {name: float(extreme(found[name]))}
            dataclasses.replace(evolution, **changed)
    return found


def check_call(trial: Any, init: Any, key: Any, **counts: Any) -> None:
    """Checks what a search is given: two functions, a key or several, and counts by their names.

    Raises:
      TypeError: for what is no function.
      ValueError: for what is no key, or no whole number of at least 1.
    """
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
            raise ValueError(f"{name}: got {shown(count)}; a whole number from 1 to {MOST} is needed")
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim < 2):
        got = f"an array {key.dtype}{list(key.shape)}" if hasattr(key, "dtype") else shown(key)
        raise ValueError(f"key: got {got}; a key of jax.random.key(seed), or an array [K] of them, is needed")
    for name, function in (("trial", trial), ("init", init)):
        if not callable(function):
            raise ContractError(f"{name}: got {shown(function)}; a function is needed")


def checked_outcome(outcome: Any) -> Outcome:
    """The outcome of a trial, whose fitness and metrics have to be scalars."""
    if not isinstance(outcome, Outcome):
        needed = "meta.Outcome(fitness, metrics) is needed, such as Outcome(fitness, {})"
        raise ContractError(f"trial: returned a {type(outcome).__name__}; {needed}")
    if not isinstance(outcome.metrics, dict):
        raise ContractError(f"trial: returned a {type(outcome.metrics).__name__} as metrics; a dict is needed")
    for name, value in {"fitness": outcome.fitness, **outcome.metrics}.items():
        if not isinstance(name, str):
            raise ContractError(f"trial: returned a metric named {name!r}; a text is needed")
        if not jax.tree_util.treedef_is_leaf(jax.tree.structure(value)):
            raise ContractError(f"trial: returned a {type(value).__name__} as {name}; a scalar is needed")
        if jnp.shape(value):
            raise ValueError(f"trial: returned {name} of shape {jnp.shape(value)}; a scalar is needed")
    return jax.tree.map(jnp.asarray, outcome)


def _as_it_is(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """A stand-in for `jax.vmap` where there is one run."""
    del in_axes
    return function


def _one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for `jax.vmap` that computes one run after the other, because the memory is for one."""
    return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments)


def _check_finite(evolution: Evolution, metrics: dict[str, np.ndarray], generation: int) -> dict[str, np.ndarray]:
    failed = metrics["non_finite"] == evolution.population_size
    for i in np.flatnonzero(failed.reshape(len(failed), -1).any(1))[:1]:
        raise NonFiniteFitness(
            f"generation {generation + i + 1}: the fitness of all {evolution.population_size} candidates is not "
            "finite; a smaller evolution.sigma or evolution.learning_rate may help"
        )
    return metrics


@promoting
def _first_state(strategy: Any, params: Any, init: Callable[[jax.Array], Any], key: jax.Array) -> Any:
    init_key, state_key, _ = jax.random.split(key, 3)  # the third is for the generations
    if hasattr(strategy, "num_populations"):
        keys = jax.random.split(init_key, strategy.num_populations)
        means = jax.vmap(lambda k: ravel_pytree(init(k))[0])(keys)
    else:
        means = ravel_pytree(init(init_key))[0]
    state = strategy.init(state_key, means, params)
    # It adds the square of sigma to its first covariance, 1. Without that its ratio of deviations is no number, and its
    # step size does not change, until the covariance has full rank.
    if type(strategy).__name__.startswith("iAMaLGaM"):
        state = state.replace(C=0 * state.C)
    # evosax begins with a best candidate of NaN, which `jax_debug_nans` would report; it is replaced by the first one.
    return jax.tree.map(lambda x: jnp.where(jnp.isnan(x), 0, x) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)


def _mean(state: Any) -> jax.Array:
    """Mean of the search distribution `[D]`; of several particles, the one that found the best candidate."""
    return state.mean if state.mean.ndim == 1 else state.mean[jnp.argmin(state.best_fitness)]


def _keys_of(key: jax.Array, generation: jax.Array, number: int) -> jax.Array:
    """Keys of a generation: of its proposals, of the update, and of its trials `[number]`."""
    run_key = jax.random.split(key, 3)[2]
    return jax.random.split(jax.random.fold_in(run_key, generation), number)


@promoting
def _ask(
    strategy: Any, params: Any, num_trials: int, pairs: bool, key: jax.Array, generation: jax.Array, state: Any
) -> tuple[Any, jax.Array, Any]:
    """(candidates, keys `[trials]` of all or, where pairs share them, `[N, trials]`, the state after).

    Candidates are `[N, D]`, or `Proposals` of them.
    """
    drawn = _keys_of(key, generation, 2 + num_trials)
    population, state = strategy.ask(drawn[0], state, params)
    trial_keys = drawn[2:]
    if pairs:
        trial_keys = jax.vmap(lambda key: jax.random.split(key, strategy.population_size // 2), out_axes=1)(trial_keys)
        trial_keys = jnp.concatenate([trial_keys, trial_keys])  # the second half are the mirror images of the first
    return population, trial_keys, state


def failed_last(fitness: jax.Array) -> jax.Array:
    """Fitness `[population]` in which what is not finite is below the lowest that is, by as little as ranks need."""
    finite = jnp.isfinite(fitness)
    worst = jnp.min(jnp.where(finite, fitness, jnp.inf))
    # XLA takes the numbers next to 0 for 0, because they are denormal.
    below = jnp.minimum(jnp.nextafter(worst, -jnp.inf), worst - jnp.finfo(fitness.dtype).tiny)
    return jnp.where(finite, fitness, below)


@promoting
def _tell(
    strategy: Any,
    params: Any,
    num_trials: int,
    weight_decay: float,
    key: jax.Array,
    generation: jax.Array,
    state: Any,
    population: Any,
    outcomes: Outcome,
) -> tuple[Any, dict[str, jax.Array]]:
    """(the next state, the report of a generation)."""
    finite, fitness = jnp.isfinite(outcomes.fitness), outcomes.fitness
    decayed = fitness - weight_decay * jnp.sum(population**2, -1) if weight_decay else fitness
    tell_key = _keys_of(key, generation, 2 + num_trials)[1]
    state, _ = strategy.tell(tell_key, population, -failed_last(decayed), state, params)  # evosax minimises

    def mean(x: jax.Array) -> jax.Array:
        return jnp.mean(x, where=finite)

    def deviation(x: jax.Array) -> jax.Array:
        return jnp.std(x, where=finite)

    report = {"fitness": mean(fitness), "fitness_deviation": deviation(fitness)}
    report |= {"fitness_best": jnp.max(failed_last(fitness)), "non_finite": jnp.sum(~finite)}
    for name, values in outcomes.metrics.items():
        own = {name: mean(values), f"{name}_deviation": deviation(values)}
        if taken := sorted(own.keys() & report.keys()):
            raise ValueError(f"trial: got the metric {name!r}, and evolve itself reports {taken[0]}; another is needed")
        report |= own
    return state, report
