"""Aggregates over trainings, beside values by hand and those of rliable."""

import itertools

import numpy as np
import pytest
from scipy import stats

from meta.runs.reports.aggregates import interquartile_mean, probability_of_improvement, trimmed_mean

# Scores for rliable 1.2.0, with 50,000 and 20,000 draws. It cannot be imported beside pandas 3, so no test does it.
ONE = [[2.041, 0.418, -0.453, -2.02, -0.865, 0.226], [-2.556, -0.568, -0.216, -0.232, 3.323, -0.353]]
OTHER = [[0.219, -0.555, 0.982, 1.458, 0.524, 1.045], [-0.168, 0.109, 0.261, 0.3, 2.046, -0.005]]


def arrays(scores):
    return [np.array(task) for task in scores]


def test_the_middle_half_is_averaged():
    scores = np.array([100.0, 1.0, 2.0, 3.0, 4.0, -100.0, 5.0, 6.0])  # without -100, 1 and 6, 100
    assert interquartile_mean([scores], resamples=10).value == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert trimmed_mean(np.array([1.0, 2.0, 6.0])) == pytest.approx(3)  # no quarter of three
    assert trimmed_mean(np.array([np.nan, 9.0, 1.0, 2.0, np.nan, 4.0])) == pytest.approx(3)  # of four
    assert np.isnan(trimmed_mean(np.full(3, np.nan)))
    assert trimmed_mean(np.array([-np.inf, 1.0, 2.0, np.inf])) == pytest.approx(1.5)
    assert interquartile_mean([scores[:4], scores[4:]], resamples=10).value == pytest.approx(3.5)


def test_estimates_are_those_of_rliable():
    for scores, (value, low, high) in ((ONE, (-0.266, -0.9393, 0.5855)), (OTHER, (0.39917, 0.0750, 0.8998))):
        found = interquartile_mean(arrays(scores), resamples=20_000)
        assert found.value == pytest.approx(value, abs=1e-5)
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.03)
    found = probability_of_improvement(arrays(ONE), arrays(OTHER), resamples=20_000)
    assert found == pytest.approx((0.2361111, 0.0277778, 0.4722222), abs=1e-6)


def test_trainings_are_drawn_again_within_their_game():
    """Two games of constant scores leave nothing to draw, however far they lie apart."""
    found = interquartile_mean([np.full(4, 1.0), np.full(4, 9.0)], resamples=100)
    assert found == (5.0, 5.0, 5.0)


def test_the_same_trainings_in_several_tasks_are_drawn_together():
    """Three copies of one task have its interval, and as many tasks of other trainings a narrower one."""
    one = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    alone = interquartile_mean([one], resamples=5_000)
    together = interquartile_mean([one] * 3, trainings=["a"] * 3, resamples=5_000)
    apart = interquartile_mean([one] * 3, trainings="abc", resamples=5_000)
    assert together == pytest.approx(alone)
    assert apart.high - apart.low < 0.75 * (together.high - together.low)
    assert apart == interquartile_mean([one] * 3, resamples=5_000)
    other = one + 1.5
    pair = probability_of_improvement([one], [other], resamples=5_000)
    three = probability_of_improvement([one] * 3, [other] * 3, trainings=("aaa", "aaa"), resamples=5_000)
    assert three == pytest.approx(pair)


def test_a_training_without_a_score_in_one_task_is_drawn_in_the_others():
    """Two tasks of the same five trainings, one without the fifth: every one of 3,125 draws by hand."""
    one, other = np.array([0.0, 1.0, 2.0, 4.0, 8.0]), np.array([1.0, 3.0, 0.0, 2.0, np.nan])
    pooled = [np.r_[one[list(d)], [x for x in other[list(d)] if x == x]] for d in itertools.product(range(5), repeat=5)]
    draws = [stats.trim_mean(scores, 0.25) for scores in pooled]
    found = interquartile_mean([one, other], trainings="aa", resamples=40_000)
    assert found.value == pytest.approx(stats.trim_mean([0, 1, 2, 4, 8, 1, 3, 0, 2], 0.25))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.03)
    assert interquartile_mean([other], resamples=500) == interquartile_mean([other[:4]], resamples=500)
    assert np.isnan(interquartile_mean([one, np.array([1.0, *[np.nan] * 4])], resamples=10).low)  # one training
    better = probability_of_improvement([one, other], [one, other], trainings=("aa", "bb"), resamples=500)
    assert better.value == 0.5
    assert better.low < 0.5 < better.high


def test_draws_without_a_score_are_left_out():
    """Two tasks, each with scores of two of four trainings: a sixteenth of the draws has none of a task."""
    first, second = np.array([1.0, 2.0, np.nan, np.nan]), np.array([np.nan, np.nan, 1.0, 2.0])
    for found in (
        interquartile_mean([first, second], trainings="aa", resamples=500),
        probability_of_improvement([first, second], [first, second], trainings=("aa", "aa"), resamples=500),
    ):
        assert np.isfinite(found).all()
        assert found.low < found.value < found.high


def test_the_interval_is_that_of_all_draws():
    """Two trainings have four draws, of which a quarter is twice the one and a quarter twice the other."""
    draws = [np.mean(draw) for draw in itertools.product([0.0, 1.0], repeat=2)]
    found = interquartile_mean([np.array([0.0, 1.0])], resamples=20_000)
    assert (found.low, found.high) == tuple(np.quantile(draws * 1000, [0.025, 0.975]))


def test_one_training_has_no_interval():
    found = interquartile_mean([np.array([3.0])], resamples=10)
    assert found.value == 3
    assert np.isnan([found.low, found.high]).all()


def test_pairs_that_tie_count_half():
    scores, others = np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0])  # of six pairs 1 > 0, 2 > 1, 2 > 0, and 1 = 1
    assert probability_of_improvement([scores], [others], resamples=10).value == pytest.approx(3.5 / 6)
    both = probability_of_improvement([scores, scores], [others, scores + 5], resamples=10)
    assert both.value == pytest.approx(3.5 / 12)  # mean over games
    assert probability_of_improvement([others], [scores], resamples=10).value == pytest.approx(2.5 / 6)
