"""Aggregates over trainings: interquartile means and probabilities of improvement, with bootstrap intervals.

Agarwal et al. (2021), Deep Reinforcement Learning at the Edge of the Statistical Precipice, arXiv:2108.13264. Their
library, rliable, asks for pandas, seaborn, arch and statsmodels, and for as many runs of every task.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95  # of an interval
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)  # its quantiles
TRIMMED = 0.25  # at either end, of an interquartile mean


class Estimate(NamedTuple):
    """A number with the bounds of its 95 % interval, which are NaN where one training of a task leaves none."""

    value: float
    low: float
    high: float


def interquartile_mean(
    scores: Sequence[np.ndarray], *, trainings: Sequence[Hashable] | None = None, resamples: int, seed: int = 0
) -> Estimate:
    """The mean of the middle half of all scores, with its stratified bootstrap interval.

    Fewer than four scores have no quarter to leave out, and then it is their mean.

    Args:
      scores: of each task, `[trainings]`, NaN where a training has none; trainings are drawn again within their task.
      trainings: a name for the trainings of each task; those of one name are the same, and drawn together. None if no
        two tasks have the same.
      resamples: how often they are drawn.
      seed: of the draws.
    """
    draws = np.concatenate(_drawn(scores, trainings, resamples, seed), 1)
    return _estimate(float(trimmed_mean(np.concatenate(scores))), trimmed_mean(draws), scores)


def probability_of_improvement(
    scores: Sequence[np.ndarray],
    others: Sequence[np.ndarray],
    *,
    trainings: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    resamples: int,
    seed: int = 0,
) -> Estimate:
    """The probability that a training scores higher than one of another method, a tie counting half: mean over tasks.

    It is the statistic of Mann and Whitney, divided by the number of pairs, and its interval is as of
    `interquartile_mean`.

    Args:
      scores: of each task, `[trainings]`, NaN where a training has none.
      others: the same of the other method, with the tasks in the same order.
      trainings: of either method, as of `interquartile_mean`.
      resamples: how often trainings of both are drawn again.
      seed: of the draws.
    """
    both = [*scores, *others]
    named = [(method, name) for method, names in enumerate(trainings) for name in names] if trainings else None
    drawn, half = _drawn(both, named, resamples, seed), len(scores)
    values = [_higher(x, y) for x, y in zip(drawn[:half], drawn[half:], strict=True)]
    value = np.mean([_higher(x, y) for x, y in zip(scores, others, strict=True)])
    with np.errstate(invalid="ignore"):
        draws = np.nansum(values, 0) / (~np.isnan(values)).sum(0)
    return _estimate(float(value), draws, both)


def trimmed_mean(scores: np.ndarray) -> np.ndarray:
    """The mean without a quarter of the scores at either end, over the last axis; NaN if there are none.

    Args:
      scores: `[..., n]`; NaN is no score.
    """
    ordered, ranks = np.sort(scores, axis=-1), np.arange(scores.shape[-1])  # NaN last
    number = (~np.isnan(scores)).sum(-1, keepdims=True)
    cut = (TRIMMED * number).astype(int)
    kept = (cut <= ranks) & (ranks < number - cut)
    with np.errstate(invalid="ignore"):
        return np.sum(ordered, -1, where=kept) / kept.sum(-1)


def _drawn(
    scores: Sequence[np.ndarray], trainings: Sequence[Hashable] | None, resamples: int, seed: int
) -> list[np.ndarray]:
    """Each task's scores as they are drawn again, of the trainings with a score in any task of their name."""
    generator, chosen = np.random.default_rng(seed), dict[Hashable, np.ndarray]()
    names = range(len(scores)) if trainings is None else trainings
    for name in dict.fromkeys(names):
        known = [~np.isnan(task) for other, task in zip(names, scores, strict=True) if other == name]
        every = np.flatnonzero(np.any(known, axis=0))
        chosen[name] = every[generator.integers(len(every), size=(resamples, len(every)))]
    return [task[chosen[name]] for name, task in zip(names, scores, strict=True)]


def _higher(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The share of pairs in which x is higher, `[..., n]` and `[..., m]` -> `[...]`; NaN if there are none."""
    first, second = x[..., :, None], y[..., None, :]
    pairs = (~np.isnan(first) & ~np.isnan(second)).sum((-2, -1))
    with np.errstate(invalid="ignore"):
        return np.sum((first > second) + 0.5 * (first == second), axis=(-2, -1)) / pairs


def _estimate(value: float, draws: np.ndarray, scores: Sequence[np.ndarray]) -> Estimate:
    if min((~np.isnan(task)).sum() for task in scores) < 2:
        return Estimate(value, np.nan, np.nan)
    low, high = np.nanquantile(draws, TAILS)  # a draw may have trainings without a score alone
    return Estimate(value, float(low), float(high))
