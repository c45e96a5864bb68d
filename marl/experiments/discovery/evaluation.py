"""Fresh trainings by several objectives on the same seeds, and the differences between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from marl.experiments.discovery.trial import FreshTrial, TrainingResult
from meta.batched_trials import compile_trials, run_trials, with_nan
from meta.statistics import mean_and_error

AT_ONCE = 16  # fresh trainings on a device
IN_SUMMARY = {"tuned": "tuned_baseline", "plain": "plain_baseline"}


def fresh_trainings(
    keys: Sequence[jax.Array], trial: FreshTrial, several: Sequence[Any]
) -> tuple[list[TrainingResult], float, float]:
    """Trainings with each of several parameters, and the seconds to compile and to run.

    Args:
      keys: for each of the parameters those of its trainings `[seeds]`.
      trial: of `fresh_trial`.
      several: the parameters.
    """
    started = time.perf_counter()
    several = jax.tree.map(np.asarray, list(several))
    program = compile_trials(trial, several[0], len(keys[0]), AT_ONCE)
    compiled = time.perf_counter()
    found = [with_nan(run_trials(program, *one)) for one in zip(keys, several, strict=True)]
    return found, compiled - started, time.perf_counter() - compiled


def compare(
    trainings: dict[str, dict[str, list[TrainingResult]]],
    environments: Sequence[str],
    units: Sequence[tuple[float, float]],
) -> dict[str, Any]:
    """Entries of the summary: fitness and scores under each objective, and the differences from the evolved one.

    Args:
      trainings: by place and objective, those of each search.
      environments: the places of the search.
      units: as of `discovery_trial`.
    """
    seen = [trainings[name] for name in environments]
    fitness = {
        arm: [
            sum((one.score - zero) / unit for one, (zero, unit) in zip(each, units, strict=True)) / len(units)
            for each in zip(*(place[arm] for place in seen), strict=True)
        ]
        for arm in seen[0]
    }
    places = {name: _of_place(of_arms) for name, of_arms in trainings.items()}
    return {
        **{IN_SUMMARY.get(arm, arm): _over(values) for arm, values in fitness.items()},
        **_differences(fitness),
        "environments": {name: places[name] for name in environments},
        "transfer": {name: found for name, found in places.items() if name not in environments},
    }


def compare_seats(trainings: Sequence[TrainingResult]) -> dict[str, Any]:
    """Rewards of an evolved learner and of the tuned one beside it, and the difference."""
    own, other = ([one.rewards[:, seat] for one in trainings] for seat in range(2))
    return {"evolved": _over(own), "tuned": _over(other), "difference": _difference(own, other)}


def _of_place(of_arms: dict[str, list[TrainingResult]]) -> dict[str, Any]:
    scores = {arm: [one.score for one in each] for arm, each in of_arms.items()}
    late = {arm: _over([one.late for one in each]) for arm, each in of_arms.items()}
    return {arm: _over(values) for arm, values in scores.items()} | _differences(scores) | {"last_quarter": late}


def _differences(of_arms: dict[str, list[Any]]) -> dict[str, Any]:
    """Differences of the evolved objective from all others."""
    evolved = of_arms["evolved"]
    return {f"difference_from_{arm}": _difference(evolved, x) for arm, x in of_arms.items() if arm != "evolved"}


def _over(values: Sequence[Any]) -> dict[str, float | None]:
    """Mean and standard error: between searches if there are several, otherwise between seeds."""
    return mean_and_error(np.array([x.mean() for x in values]) if len(values) > 1 else values[0])


def _difference(own: Sequence[Any], other: Sequence[Any]) -> dict[str, Any]:
    """The difference between the same trainings, and that of `each` search between its own."""
    apart = [x - y for x, y in zip(own, other, strict=True)]
    return _over(apart) | {"each": [mean_and_error(x) for x in apart]}
