"""Scores of the bench: gain and welfare of a method in each task, and their aggregates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from games import MatrixGame
from marl.bench.protocol import FORMS, HELD_OUT, OPPONENTS, ROOM, TRAINED, VERSION, tasks
from meta.runs.reports.aggregates import Estimate, interquartile_mean, probability_of_improvement
from meta.statistics import or_nan, rounded

RESULT = "result.json"  # in a run directory
RESAMPLES = 2_000
MEASURES = ("gain", "welfare")
GROUPS = {"training": (TRAINED,), "held-out": HELD_OUT}  # forms of the opponents that are judged together


class Reference(NamedTuple):
    """The scale of one game and opponent.

    Attributes:
      zero: payoffs of the opponent's own kind in the place of a method, and of the opponent then, by form.
      one: the payoff that scores 1, against the form of the training.
      source: where that comes from.
    """

    zero: dict[str, tuple[float, float]]
    one: float
    source: str


def references() -> dict[str, dict[str, Reference]]:
    """The scale of every game, by game and opponent."""
    text = resources.files("marl.bench").joinpath("references.json").read_text(encoding="utf-8")
    found = json.loads(text)
    if found["version"] != VERSION:
        raise ValueError(f"references.json: got version {found['version']}; {VERSION} is needed")
    return {
        game: {
            name: Reference({form: (x, y) for form, (x, y) in one["zero"].items()}, one["one"], one["source"])
            for name, one in row.items()
        }
        for game, row in found["games"].items()
    }


def scores_of(result: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Scores of a result: of each measure and task `TASK/OPPONENT/FORM`, `[trainings]`.

    With R the payoff of the method and O that of the opponent, R0 and O0 those of the opponent's own kind in the
    method's place against the same form, and R1 the payoff that scores 1 against the form of the training:

        gain = (R - R0) / (R1 - R00),    welfare = (O - O0) / (R1 - R00)

    with R00 the R0 of the training's form. So both have one unit: a method with a gain of 1 and a welfare of -0.5 takes
    half of what it gains from its opponent. Trainings in a game that leaves less than `ROOM` of its range of payoffs
    between 0 and 1 are left out, and tasks with fewer than two that stay.

    Args:
      result: of the bench.
    """
    scale = references()
    found: dict[str, dict[str, np.ndarray]] = {measure: {} for measure in MEASURES}
    for task, by_opponent in result["tasks"].items():
        for opponent, one in by_opponent.items():
            games = [_game(task, result["seed"] + i) for i in range(result["trainings"])]
            rows = [scale[game.name][opponent] for game in games]
            unit = np.array([row.one - row.zero[TRAINED][0] for row in rows])
            range_of_payoffs = np.array([np.ptp(game.row_payoffs) for game in games])
            kept = unit > ROOM * range_of_payoffs
            for form in FORMS:
                for side, measure in enumerate(MEASURES):
                    payoffs = np.array(one["payoffs"][form][side], float)
                    zero = np.array([row.zero[form][side] for row in rows])
                    values = (payoffs - zero)[kept] / unit[kept]
                    if len(values) >= min(2, len(games)) and np.isfinite(values).all():
                        found[measure][f"{task}/{opponent}/{form}"] = values
    return found


def _game(task: str, training: int) -> MatrixGame:
    return tasks(training=training)[task]


def aggregate(scores: Mapping[str, np.ndarray], group: str) -> Estimate:
    """The interquartile mean over tasks and trainings, with its stratified bootstrap interval.

    Args:
      scores: of one measure, as of `scores_of`.
      group: one of `GROUPS`.
    """
    return interquartile_mean(chosen(scores, group), resamples=RESAMPLES)


def chosen(scores: Mapping[str, np.ndarray], group: str) -> list[np.ndarray]:
    """The scores of a group of forms, of each task."""
    return [x for name, x in scores.items() if name.rpartition("/")[2] in GROUPS[group]]


def improvement(scores: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray], group: str) -> Estimate:
    """The probability that a training of a method scores higher than one of another, over the tasks of both.

    Args:
      scores: of one measure, as of `scores_of`.
      others: the same of the other method.
      group: one of `GROUPS`.
    """
    both = [name for name in scores if name in others and name.rpartition("/")[2] in GROUPS[group]]
    pairs: list[Sequence[np.ndarray]] = [[some[name] for name in both] for some in (scores, others)]
    return probability_of_improvement(*pairs, resamples=RESAMPLES)


def profile(scores: Mapping[str, np.ndarray], group: str, levels: np.ndarray) -> np.ndarray:
    """The performance profile: the share of trainings with a score above each level, the mean over tasks, `[levels]`.

    Args:
      scores: of one measure, as of `scores_of`.
      group: one of `GROUPS`.
      levels: `[levels]`.

    Source: Agarwal et al. (2021), arXiv:2108.13264, equation of score distributions.
    """
    return np.mean([(x[:, None] > levels).mean(0) for x in chosen(scores, group)], 0)


def summary_of(result: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Aggregates of a result, by group and measure, as JSON; None for a number that there is not."""
    scores = scores_of(result)

    def numbers(some: Mapping[str, np.ndarray], group: str) -> dict[str, float | None]:
        if not chosen(some, group):
            return dict.fromkeys(Estimate._fields)
        found = aggregate(some, group)._asdict()
        return {name: round(float(x), 6) if np.isfinite(x) else None for name, x in found.items()}

    return {group: {measure: numbers(scores[measure], group) for measure in MEASURES} for group in GROUPS}


def shown(estimate: Mapping[str, float | None]) -> str:
    """An estimate as `0.42 [0.40, 0.44]`."""
    value, low, high = (or_nan(estimate[name]) for name in ("value", "low", "high"))
    interval = f" [{low:.2f}, {high:.2f}]" if np.isfinite([low, high]).all() else ""
    return f"{rounded(value)}{interval}"


def missing(result: Mapping[str, Any]) -> list[str]:
    """Tasks that a result lacks, as `TASK/OPPONENT`."""
    found, trainings = result["tasks"], result["trainings"]
    wanted = ((task, opponent) for opponent in OPPONENTS for task in tasks(opponent))
    return [f"{task}/{opponent}" for task, opponent in wanted if not _whole(found, task, opponent, trainings)]


def _whole(found: Mapping[str, Any], task: str, opponent: str, trainings: int) -> bool:
    """True if there is a finite number of each form, side and training."""
    try:
        payoffs = np.array([found[task][opponent]["payoffs"][form] for form in FORMS], float)
    except (KeyError, TypeError, ValueError):
        return False
    return payoffs.shape == (len(FORMS), 2, trainings) and bool(np.isfinite(payoffs).all())
