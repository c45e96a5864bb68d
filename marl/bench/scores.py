"""Scores of the bench: gain and welfare of a method in each task, and their aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marl.bench.protocol import FASTER, LONGER, SLOWER, TRAINED, WIDER
from marl.bench.tracks import Track, track_of
from meta.runs.reports.aggregates import Estimate, interquartile_mean, probability_of_improvement
from meta.statistics import or_nan, rounded

RESULT = "result.json"  # in a run directory
RESAMPLES = 2_000
MEASURES = ("gain", "welfare")
# Forms of the opponents that are judged together.
GROUPS = {"training": (TRAINED,), "held-out": (SLOWER, FASTER, LONGER, WIDER)}


def scores_of(result: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Scores of a result: of each measure and task `TASK/OPPONENT/FORM`, `[trainings]`, NaN for those left out.

    With R the payoff of the method and O that of the opponent, R0 and O0 those of the opponent's own kind in the
    method's place against the same form, and R1 the payoff that scores 1 against the form of the training:

        gain = (R - R0) / (R1 - R00),    welfare = (O - O0) / (R1 - R00)

    with R00 the R0 of the training's form. So both have one unit: a method with a gain of 1 and a welfare of -0.5 takes
    half of what it gains from its opponent. Trainings in a game with too little room between 0 and 1 are left
    out, and tasks with fewer than two that stay.

    Args:
      result: of the bench.
    """
    track: Track = track_of(result["track"])
    found: dict[str, dict[str, np.ndarray]] = {measure: {} for measure in MEASURES}
    for task, by_opponent in result["tasks"].items():
        for opponent, one in by_opponent.items():
            rows = [track.reference(task, opponent, result["seed"] + i) for i in range(result["trainings"])]
            unit = np.array([row.one - row.zero[TRAINED][0] for row in rows])
            kept = unit > np.array([row.room for row in rows])
            for form in track.forms(task, opponent):
                for side, measure in enumerate(MEASURES):
                    payoffs = np.array(one["payoffs"][form][side], float)
                    zero = np.array([row.zero[form][side] for row in rows])
                    values = (payoffs - zero) / np.where(kept, unit, np.nan)
                    if kept.sum() >= min(2, len(rows)) and np.isfinite(values[kept]).all():
                        found[measure][f"{task}/{opponent}/{form}"] = values
    return found


def aggregate(scores: Mapping[str, np.ndarray], group: str, *, once: bool = False) -> Estimate:
    """The interquartile mean over tasks and trainings, with its stratified bootstrap interval.

    Args:
      scores: of one measure, as of `scores_of`.
      group: one of `GROUPS`.
      once: whether the trainings are those of all tasks.
    """
    names = chosen(scores, group)
    found = [scores[name] for name in names]
    return interquartile_mean(found, trainings=_trainings(names, once), resamples=RESAMPLES)


def chosen(scores: Mapping[str, np.ndarray], group: str) -> list[str]:
    """The names of the scores of a group of forms."""
    return [name for name in scores if name.rpartition("/")[2] in GROUPS[group]]


def _trainings(names: Sequence[str], once: bool) -> list[str]:
    """Names of the trainings in each task: those of a task and opponent are the same in all forms."""
    return ["" if once else name.rpartition("/")[0] for name in names]


def improvement(
    scores: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    group: str,
    *,
    once: tuple[bool, bool] = (False, False),
) -> Estimate:
    """The probability that a training of a method scores higher than one of another, over the tasks of both.

    Args:
      scores: of one measure, as of `scores_of`.
      others: the same of the other method.
      group: one of `GROUPS`.
      once: of either method, as of `aggregate`.
    """
    both = [name for name in chosen(scores, group) if name in others]
    pairs: list[Sequence[np.ndarray]] = [[some[name] for name in both] for some in (scores, others)]
    trainings = _trainings(both, once[0]), _trainings(both, once[1])
    return probability_of_improvement(*pairs, trainings=trainings, resamples=RESAMPLES)


def profile(scores: Mapping[str, np.ndarray], group: str, levels: np.ndarray) -> np.ndarray:
    """The performance profile: the share of trainings with a score above each level, the mean over tasks, `[levels]`.

    Args:
      scores: of one measure, as of `scores_of`.
      group: one of `GROUPS`.
      levels: `[levels]`.

    Source: Agarwal et al. (2021), arXiv:2108.13264, equation of score distributions.
    """
    known = [scores[name][np.isfinite(scores[name])] for name in chosen(scores, group)]
    return np.mean([(values[:, None] > levels).mean(0) for values in known], 0)


def summary_of(result: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Aggregates of a result, by group and measure, as JSON; None for a number that there is not."""
    scores = scores_of(result)

    def numbers(some: Mapping[str, np.ndarray], group: str) -> dict[str, float | None]:
        if not chosen(some, group):
            return dict.fromkeys(Estimate._fields)
        found = aggregate(some, group, once=trains_once(result))._asdict()
        return {name: round(float(x), 6) if np.isfinite(x) else None for name, x in found.items()}

    return {group: {measure: numbers(scores[measure], group) for measure in MEASURES} for group in GROUPS}


def trains_once(result: Mapping[str, Any]) -> bool:
    """True for a result whose trainings are those of all tasks."""
    return bool(result.get("trains_once"))


def shown(estimate: Mapping[str, float | None]) -> str:
    """An estimate as `0.42 [0.40, 0.44]`."""
    value, low, high = (or_nan(estimate[name]) for name in ("value", "low", "high"))
    interval = f" [{low:.2f}, {high:.2f}]" if np.isfinite([low, high]).all() else ""
    return f"{rounded(value)}{interval}"


def missing(result: Mapping[str, Any]) -> list[str]:
    """Tasks of which a result lacks a finite payoff in a form or a training, as `TASK/OPPONENT`."""
    track = track_of(result["track"])
    wanted = [(task, part.opponent) for part in track.parts for task in part.tasks]
    return [f"{task}/{opponent}" for task, opponent in wanted if not whole(result, track, task, opponent)]


def whole(result: Mapping[str, Any], track: Track, task: str, opponent: str, *, finite: bool = True) -> bool:
    """True if a result has a number, a finite one by default, of each form, side and training."""
    forms = track.forms(task, opponent)
    try:
        payoffs = np.array([result["tasks"][task][opponent]["payoffs"][form] for form in forms], float)
    except (KeyError, TypeError, ValueError):
        return False
    return payoffs.shape == (len(forms), 2, result["trainings"]) and bool(not finite or np.isfinite(payoffs).all())
