"""Starts of an evolution at the best of many random parameters, judged by their best trials or by the mean of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from configs import LARGEST, shown
from meta.evolution import Outcome, check_call, checked_outcome
from meta.loop import NonFiniteFitness, Report, compiler_options, iterate
from meta.run_keys import RunBranch
from meta.xla.backend import local_devices, platform
from meta.xla.devices import in_chunks

NOISE = 2**32 - 2  # branch of a trial's key: what is added to the parameters
BATCH = 512  # candidates of an iteration
# Candidates that a core computes together, of finalists an eighth: no slower than all of its share, and the same on any
# number of cores, so that no bit depends on it.
CORES = 8
AT_ONCE = BATCH // CORES


class Screened(NamedTuple):
    """Result of `screen`. Leading axes are `[K]` for K keys.

    Attributes:
      parameters: of the best candidate
      best_third: `[]`, the mean fitness of the best third of its trials, or of all if it was judged by them
      mean: `[]`, the mean fitness of all of them
    """

    parameters: Any
    best_third: np.ndarray
    mean: np.ndarray


def screen(
    trial: Callable[..., Outcome],
    init: Callable[[jax.Array], Any],
    key: jax.Array,
    *,
    context: Any = None,
    candidates: int = 65_536,
    trials: int = 8,
    finalists: int = 128,
    final_trials: int = 128,
    sigma: float = 0.0,
    largest_factor: float = 20.0,
    judged_by: Literal["best", "mean"] = "best",
    report: Report | None = None,
) -> Screened:
    """The best of many random parameters: not on average, but in the trials in which they do best.

    What is worth most may be what hardly any parameters do, and those seldom: an average hides it, and so does the
    neighbourhood of parameters that do something else well. Evolution can make frequent what is rare, but only
    after a first success. So every candidate is judged by the best of a few trials, and the best candidates by the best
    third of many more, with the noise that evolution will add: what it would lose at once is no place to begin.

    Candidates are drawn as `init` draws them, times a factor for each array, log-uniform in [1, largest_factor]; what
    `init` leaves at zero is normal with a deviation of a third. Of a trial, only the fitness counts; one without a
    number is the worst.

    Args:
      trial: as of `evolve`.
      init: `(key) -> parameters`.
      key: a key, or K of them `[K]` for as many independent searches in one program.
      context: third argument of all trials of a search, a pytree; `[K, ...]` of K searches. None for trials without.
      candidates: how many are tried; a multiple of 512 if they are more.
      trials: of each of them, of which the best or the mean counts.
      finalists: how many of them are tried again, 512 at most.
      final_trials: of each of these, of which the best third or the mean counts.
      sigma: standard deviation of the noise that is added to the parameters in these, other noise in each.
      largest_factor: upper bound of the random factors.
      judged_by: `best` trials, as above, or the `mean` of all trials of a candidate, for parameters that are to do well
        in most of them.
      report: called as `report(iterations so far, metrics, seconds of running)` by the host, with the metrics `best`,
        the highest score of a candidate so far, `tried`, candidates so far, and `number`, of all candidates.

    Returns:
      `Screened`: the best parameters, and how they did in their last trials.

    Raises:
      TypeError: for a `trial` or an `init` that is no function, or a trial that returns no `Outcome`.
      ValueError: for more finalists than candidates, candidates that are no such multiple, a context of another length
        than the keys, another name in `judged_by`, or numbers that are none or out of range.
      NonFiniteFitness: if no finalist has a finite fitness.

    Example:
      >>> import jax, jax.numpy as jnp, meta
      >>> def trial(parameters, key):
      ...     return meta.Outcome(-jnp.abs(parameters - 1.0), {})
      >>> counts = {"candidates": 64, "trials": 1, "finalists": 2, "final_trials": 1}
      >>> screened = meta.screen(trial, lambda key: jax.random.normal(key), jax.random.key(0), **counts)
      >>> round(float(screened.parameters))
      1
    """
    counts = {"candidates": candidates, "trials": trials, "finalists": finalists, "final_trials": final_trials}
    check_call(trial, init, key, **counts)
    for name, value, least in (("sigma", sigma, 0), ("largest_factor", largest_factor, 1)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
            raise ValueError(f"{name}: got {shown(value)}; a number of at least {least} is needed")
    if context is not None and any(jnp.shape(x)[: key.ndim] != key.shape for x in jax.tree.leaves(context)):
        raise ValueError(f"context: got leaves of another length; {key.shape[0]}, one for each key, are needed")
    if judged_by not in ("best", "mean"):
        raise ValueError(f"judged_by: got {shown(judged_by)}; best or mean is needed")
    batch = min(BATCH, candidates)
    if finalists > batch:
        raise ValueError(f"finalists: got {finalists}; at most {batch} of {candidates} candidates are needed")
    if candidates % batch:
        raise ValueError(f"candidates: got {candidates}; a multiple of {BATCH}, or fewer, are needed")

    if jax.random.key_impl(key) != "threefry2x32":  # what others draw depends on the batch, and finalists have another
        key = jax.random.wrap_key_data(_bits(key), impl="threefry2x32")
    told = () if context is None else (context,)

    def score(key: jax.Array, told: tuple[Any, ...], stage: int, number: int, best: int) -> tuple[jax.Array, jax.Array]:
        """(the mean over the best trials of a candidate, over all); the second stage draws other trials, with noise."""
        own, *of_stages = jax.random.split(key, 3)
        vector, unravel = ravel_pytree(rescaled(init, own, largest_factor))

        def play(key: jax.Array) -> jax.Array:
            noise = sigma * jax.random.normal(jax.random.fold_in(key, NOISE), vector.shape) if stage else 0.0
            return checked_outcome(trial(unravel(vector + noise), key, *told)).fitness

        fitness = jax.vmap(play)(jax.random.split(of_stages[stage], number))
        counted = jnp.where(jnp.isnan(fitness), -jnp.inf, fitness)  # `top_k` takes NaN for the largest number
        return jax.lax.top_k(counted, best)[0].mean(), jnp.nanmean(fitness)

    counted = (1, math.ceil(final_trials / 3)) if judged_by == "best" else (trials, final_trials)
    first = in_chunks(lambda key, *told: score(key, told, 0, trials, counted[0])[0], batch, _width(batch, AT_ONCE))
    again = in_chunks(
        lambda key, *told: score(key, told, 1, final_trials, counted[1]),
        finalists,
        _width(finalists, AT_ONCE // 8),
    )
    over_runs: Callable[..., Any] = _one_by_one if key.ndim else _alone

    def for_each(number: int, told: tuple[Any, ...]) -> tuple[Any, ...]:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *jnp.shape(x))), told)

    def one(key: jax.Array, number: jax.Array, state: Any, *told: Any) -> Any:
        numbers = number * batch + jnp.arange(batch)
        scores = first(_keys(key, numbers), *for_each(batch, told))
        scores = jnp.concatenate([state[0], jnp.where(jnp.isfinite(scores), scores, -jnp.inf)])
        scores, taken = jax.lax.top_k(scores, finalists)
        return scores, jnp.concatenate([state[1], numbers])[taken]

    def step(key: jax.Array, number: jax.Array, state: Any) -> tuple[Any, dict[str, jax.Array]]:
        state = over_runs(lambda key, state, *told: one(key, number, state, *told), key, state, *told)
        return state, {"best": state[0][..., 0], "tried": (number + 1) * batch, "number": jnp.int32(candidates)}

    def choose(key: jax.Array, state: Any, *told: Any) -> Screened:
        best, mean = again(_keys(key, state[1]), *for_each(finalists, told))
        i = jnp.argmax(jnp.where(jnp.isfinite(best), best, -jnp.inf))
        own = jax.random.split(_keys(key, state[1][i]), 3)[0]
        return Screened(rescaled(init, own, largest_factor), best[i], mean[i])

    none_yet = jnp.full((*key.shape, finalists), -jnp.inf), jnp.zeros((*key.shape, finalists), int)
    advice = "; fewer candidates or trials are needed"
    found = iterate(step, none_yet, key, candidates // batch, report=report, advice=advice)
    last = jax.jit(lambda key, state: over_runs(choose, key, state, *told), compiler_options=compiler_options())
    # Through the host, because the two programs and the caller may have the members on other devices.
    chosen: Screened = jax.tree.map(np.asarray, last(key, jax.tree.map(np.asarray, found.state)))
    if not np.isfinite(chosen.best_third).all():
        raise NonFiniteFitness("screening: the fitness of all finalists is not finite; another trial or init is needed")
    return chosen


def num_together(candidates: int, finalists: int) -> tuple[int, int]:
    """The largest numbers of candidates, and of finalists, that are computed together on all devices."""
    most, cores = min(candidates, BATCH), len(local_devices())
    if platform() != "cpu":
        return most, finalists
    return min(most, cores * _width(most, AT_ONCE)), min(finalists, cores * _width(finalists, AT_ONCE // 8))


def _bits(key: jax.Array) -> jax.Array:
    draw = partial(jax.random.bits, shape=(2,), dtype=jnp.uint32)
    return jnp.stack([*map(draw, key)]) if key.ndim else draw(key)


def _width(number: int, most: int) -> int:
    """Number of candidates that a core computes together."""
    return min(most, max(1, number // CORES))


def rescaled(init: Callable[[jax.Array], Any], key: jax.Array, largest_factor: float) -> Any:
    """Random parameters, each array times a factor of its own, as `screen` draws them."""
    init_key, key = jax.random.split(key)
    leaves, structure = jax.tree.flatten(init(init_key))

    def rescale(key: jax.Array, x: jax.Array) -> jax.Array:
        factor_key, noise_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, x.shape, x.dtype) / 3
        return jnp.where(jnp.any(x != 0), x, noise) * largest_factor ** jax.random.uniform(factor_key, (), x.dtype)

    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [rescale(key, x) for key, x in zip(keys, leaves, strict=True)])


def _keys(key: jax.Array, numbers: jax.Array) -> jax.Array:
    """The key of each candidate, by its number."""
    key = jax.random.fold_in(key, RunBranch.SCREENING)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers) if numbers.ndim else jax.random.fold_in(key, numbers)


def _one_by_one(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.lax.map(lambda one: function(*one), arguments)


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)
