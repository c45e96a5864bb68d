"""The outer loop: evolution of whatever a trial depends on, judged by the whole trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meta.scalarize import scalarize
from meta.strategies import Evolution, make_strategy

MAX_GENERATIONS_PER_CALL = 256
SECONDS_PER_CALL = 0.5


class Outcome(NamedTuple):
    """How one trial of one candidate went."""

    fitness: jax.Array  # `[]`, to be maximised
    metrics: dict[str, jax.Array]  # scalars to report


class Evolved(NamedTuple):
    """What `evolve` returns. Leading axes `[K]` where it was given K keys."""

    parameters: Any  # the mean of the search distribution
    metrics: dict[str, np.ndarray]  # `[generations]` or `[generations, K]` each
    seconds_to_compile: float
    seconds_to_run: float
    first_generation: int  # how many were done already when it was called


class Store(Protocol):
    """Where a run is kept: `meta.run.RunDirectory` is one."""

    def restore(self, like: Any) -> tuple[int, Any] | None:
        """The newest whole checkpoint, as (generation, state like `like`); None if there is none."""
        ...

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every generation before the restored one."""
        ...

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Adds the metrics of further generations."""
        ...

    def save(self, generation: int, state: Any) -> None:
        """Saves a checkpoint."""
        ...


def compiler_options() -> dict[str, Any] | None:
    """Options of XLA for this backend.

    The vector units of current server processors are twice as wide as what XLA prefers on them: a third faster.
    """
    return {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None


class NonFiniteFitness(ArithmeticError):
    """Every candidate of a generation had a fitness that is not a number."""


def evolve(
    trial: Callable[[Any, jax.Array], Outcome],
    init: Callable[[jax.Array], Any],
    key: jax.Array,
    evolution: Evolution | None = None,
    *,
    num_trials: int = 8,
    store: Store | None = None,
    report: Callable[[int, dict[str, np.ndarray], float], None] | None = None,
) -> Evolved:
    """Evolves the parameters that do best in a trial, on average over its randomness.

    Each generation draws `num_trials` keys, the same for every candidate (common random numbers), and several
    generations run on the device between two looks of the host. The candidates are spread over all local devices.
    What is drawn depends on the key, the generation and the candidate, never on the devices or the chunks.

    Args:
      trial: `(parameters, key) -> Outcome`, pure; it is batched over candidates and keys and compiled once.
      init: `(key) -> parameters`, where the search begins.
      key: a key, or K of them `[K]` for as many independent runs in one program.
      evolution: the settings; None for the defaults of `Evolution`.
      num_trials: trials for each candidate in each generation.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(generations so far, their last metrics, seconds of running)` by the host.

    Returns:
      `Evolved`: the mean of the search distribution in the end, and the metrics of every generation: over the
      candidates `fitness` (mean), `fitness_deviation`, `fitness_best`, `non_finite` (how many candidates failed; they
      are ranked last), and the mean of each of the trial's own metrics, with its `_deviation`.

    Raises:
      NonFiniteFitness: if a whole generation has no finite fitness. What was saved before stays.
    """
    evolution = evolution or Evolution()
    over_runs = jax.vmap if key.ndim else _as_it_is
    started = time.perf_counter()
    shapes = jax.eval_shape(init, key if key.ndim == 0 else key[0])
    vector, unravel = ravel_pytree(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))
    strategy, params = make_strategy(evolution, vector.size)
    state = jax.jit(over_runs(partial(_first_state, strategy, params, init)))(key)
    evaluate = _evaluate(trial, unravel, evolution, num_trials)
    # An inner jit, so that it is traced once for the several places that need its shapes.
    step = jax.jit(over_runs(partial(_generation, strategy, params, evaluate, num_trials), in_axes=(0, None, 0)))
    program = jax.jit(partial(_generations, step), compiler_options=compiler_options())

    generation, rows = 0, []
    if store and (found := store.restore(state)):
        generation, state = found
        rows = store.metrics()
    if generation < evolution.generations:
        call = program.lower(state, key, jnp.int32(0), jnp.int32(0)).compile()
    seconds_to_compile = time.perf_counter() - started

    seconds, saved_at, per_call, first_generation = 0.0, time.perf_counter(), 1, generation
    try:
        while generation < evolution.generations:
            count = min(per_call, evolution.generations - generation)
            started = time.perf_counter()
            new_state, buffers = call(state, key, jnp.int32(generation), jnp.int32(count))
            buffers = {name: np.asarray(buffer)[:count] for name, buffer in buffers.items()}
            elapsed = time.perf_counter() - started
            _check_finite(buffers["non_finite"], generation, evolution)
            new = [
                {"generation": generation + i + 1} | {name: buffer[i].tolist() for name, buffer in buffers.items()}
                for i in range(count)
            ]
            if store:
                store.append(new)  # before the state moves on: a checkpoint never lacks the metrics up to it
            state, generation, seconds = new_state, generation + count, seconds + elapsed
            rows += new
            per_call = int(np.clip(SECONDS_PER_CALL / max(elapsed / count, 1e-6), 1, MAX_GENERATIONS_PER_CALL))
            if store and time.perf_counter() - saved_at >= evolution.checkpoint_seconds:
                store.save(generation, state)
                saved_at = time.perf_counter()
            if report:
                report(generation, {name: buffer[-1] for name, buffer in buffers.items()}, seconds)
    except KeyboardInterrupt:
        if store and generation:
            store.save(generation, state)
        raise
    if store:
        store.save(generation, state)

    parameters = jax.jit(over_runs(lambda state: unravel(_mean(state))))(state)
    metrics = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "generation"}
    return Evolved(parameters, metrics, seconds_to_compile, seconds, first_generation)


def _as_it_is(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """What stands for `jax.vmap` where there is one run."""
    del in_axes
    return function


def _check_finite(non_finite: np.ndarray, generation: int, evolution: Evolution) -> None:
    for failed in np.flatnonzero((non_finite == evolution.population_size).reshape(len(non_finite), -1).any(1))[:1]:
        raise NonFiniteFitness(
            f"generation {generation + failed + 1}: the fitness of all {evolution.population_size} candidates is not "
            "finite; a smaller evolution.sigma or evolution.learning_rate may help"
        )


def _first_state(strategy: Any, params: Any, init: Callable[[jax.Array], Any], key: jax.Array) -> Any:
    init_key, state_key, _ = jax.random.split(key, 3)  # the third is for the generations
    if hasattr(strategy, "num_populations"):
        keys = jax.random.split(init_key, strategy.num_populations)
        means = jax.vmap(lambda k: ravel_pytree(init(k))[0])(keys)
    else:
        means = ravel_pytree(init(init_key))[0]
    return strategy.init(state_key, means, params)


def _mean(state: Any) -> jax.Array:
    """Mean of the search distribution `[D]`; of several particles, the one that found the best candidate."""
    return state.mean if state.mean.ndim == 1 else state.mean[jnp.argmin(state.best_fitness)]


def _generations(step: Callable[..., Any], state: Any, key: jax.Array, first: jax.Array, count: jax.Array) -> Any:
    """Runs `count` generations, which is traced: one compilation for every number of them."""

    def run(i: jax.Array, carry: Any) -> Any:
        state, buffers = carry
        state, metrics = step(key, first + i, state)
        return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), buffers, metrics)

    _, metrics = jax.eval_shape(step, key, first, state)
    buffers = jax.tree.map(lambda x: jnp.zeros((MAX_GENERATIONS_PER_CALL, *x.shape), x.dtype), metrics)
    return jax.lax.fori_loop(0, count, run, (state, buffers))


def _generation(
    strategy: Any,
    params: Any,
    evaluate: Callable[..., Outcome],
    num_trials: int,
    key: jax.Array,
    generation: jax.Array,
    state: Any,
) -> tuple[Any, dict[str, jax.Array]]:
    run_key = jax.random.split(key, 3)[2]
    drawn = jax.random.split(jax.random.fold_in(run_key, generation), 2 + num_trials)
    ask_key, tell_key, trial_keys = drawn[0], drawn[1], drawn[2:]
    population, state = strategy.ask(ask_key, state, params)
    fitness, metrics = evaluate(population, trial_keys)
    finite = jnp.isfinite(fitness)
    worst = jnp.min(jnp.where(finite, fitness, jnp.inf))
    ranked = jnp.where(finite, fitness, jnp.nextafter(worst, -jnp.inf))  # those without a fitness come last
    state, _ = strategy.tell(tell_key, population, -ranked, state, params)  # evosax minimises

    def mean(x: jax.Array) -> jax.Array:
        return jnp.mean(x, where=finite)

    def deviation(x: jax.Array) -> jax.Array:
        return jnp.std(x, where=finite)

    report = {"fitness": mean(fitness), "fitness_deviation": deviation(fitness)}
    report |= {"fitness_best": jnp.max(ranked), "non_finite": jnp.sum(~finite)}
    for name, values in metrics.items():
        report |= {name: mean(values), f"{name}_deviation": deviation(values)}
    return state, report


def _evaluate(
    trial: Callable[[Any, jax.Array], Outcome],
    unravel: Callable[[jax.Array], Any],
    evolution: Evolution,
    num_trials: int,
) -> Callable[[jax.Array, jax.Array], Outcome]:
    """(candidates `[N, D]`, keys `[trials]`) -> their mean outcomes `[N]`, over devices and in chunks."""
    devices = jax.local_devices()
    members = -(-evolution.population_size // len(devices))
    chunk = min(evolution.chunk_size or members, members)
    chunks = -(-members // chunk)
    one = scalarize(lambda vector, key: trial(unravel(vector), key))

    def evaluate_chunk(vectors: jax.Array, keys: jax.Array) -> Outcome:
        # The wider axis goes last, where the vector units work.
        if num_trials > evolution.population_size:
            outcomes = jax.vmap(lambda vector: jax.vmap(lambda key: one(vector, key))(keys))(vectors)
            return jax.tree.map(lambda x: x.mean(1), outcomes)
        outcomes = jax.vmap(lambda key: jax.vmap(lambda vector: one(vector, key))(vectors))(keys)
        return jax.tree.map(lambda x: x.mean(0), outcomes)

    def evaluate_local(vectors: jax.Array, keys: jax.Array) -> Outcome:
        if chunks == 1:
            return evaluate_chunk(vectors, keys)
        outcomes = jax.lax.map(lambda v: evaluate_chunk(v, keys), vectors.reshape(chunks, chunk, -1))
        return jax.tree.map(lambda x: x.reshape(-1), outcomes)

    def evaluate_share(vectors: jax.Array, keys: jax.Array) -> Outcome:
        # Everybody gets every outcome, so that each device goes on alone, in the same order of sums.
        return jax.tree.map(lambda x: jax.lax.all_gather(x, "members", tiled=True), evaluate_local(vectors, keys))

    evaluate_all = evaluate_local
    if len(devices) > 1:
        mesh = Mesh(np.array(devices), ("members",))
        evaluate_all = jax.shard_map(
            evaluate_share, mesh=mesh, in_specs=(P("members"), P()), out_specs=P(), check_vma=False
        )

    def evaluate(vectors: jax.Array, keys: jax.Array) -> Outcome:
        padding = len(devices) * chunks * chunk - evolution.population_size
        padded = jnp.pad(vectors, ((0, padding), (0, 0)), mode="edge")
        outcomes = evaluate_all(padded, keys)
        return jax.tree.map(lambda x: x[: evolution.population_size], outcomes)

    return evaluate
