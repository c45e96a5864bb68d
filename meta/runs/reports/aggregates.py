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
      scores: of each task, `[trainings]`; trainings are drawn again within their task.
      trainings: a name for the trainings of each task; those of one name and number are the same, and drawn together.
        None if no two tasks have the same.
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
      scores: of each task, `[trainings]`.
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
    return _estimate(float(value), np.mean(values, 0), both)


def trimmed_mean(scores: np.ndarray) -> np.ndarray:
    """The mean without a quarter of the scores at either end, over the last axis.

    Args:
      scores: `[..., n]`.
    """
    from scipy import stats  # here, because a command that is only listed needs none of it

    return np.asarray(stats.trim_mean(scores, TRIMMED, axis=-1))


def _drawn(
    scores: Sequence[np.ndarray], trainings: Sequence[Hashable] | None, resamples: int, seed: int
) -> list[np.ndarray]:
    """Each task's scores as they are drawn again, `[resamples, trainings]`."""
    generator, chosen, drawn = np.random.default_rng(seed), dict[Hashable, np.ndarray](), []
    for name, task in zip(range(len(scores)) if trainings is None else trainings, scores, strict=True):
        size = len(task)
        if (name, size) not in chosen:
            chosen[name, size] = generator.integers(size, size=(resamples, size))
        drawn.append(task[chosen[name, size]])
    return drawn


def _higher(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The share of pairs in which x is higher, `[..., n]` and `[..., m]` -> `[...]`."""
    first, second = x[..., :, None], y[..., None, :]
    return np.mean((first > second) + 0.5 * (first == second), axis=(-2, -1))


def _estimate(value: float, draws: np.ndarray, scores: Sequence[np.ndarray]) -> Estimate:
    if min(map(len, scores)) < 2:
        return Estimate(value, np.nan, np.nan)
    low, high = np.quantile(draws, TAILS)
    return Estimate(value, float(low), float(high))
