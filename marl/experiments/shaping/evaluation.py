"""Fresh trials of trained shapers: payoffs with standard errors, pooled over trainings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from meta.statistics import mean_and_error, or_nan

OWN_KIND = "the opponent's own kind"  # in all seats
UNTRAINED = "an untrained shaper"  # with random parameters, one draw for each training
IN_PLACE = "in the shaper's place"  # the heading of controls


class EvaluationResult(NamedTuple):
    """Fresh trials against one opponent, `[trials, steps]` each; a step is a learning step of the opponent."""

    shaper: Any  # average payoff in a round, in the shapers' seats
    opponent: Any
    more: Any  # results that only one kind of game has, `[trials, steps, ...]`


Trial = Callable[[jax.Array, Any], EvaluationResult]  # (key, parameters) -> result [steps]


def controls_of(summary: dict[str, Any]) -> dict[str, Any]:
    """The controls of a summary, which play in the shaper's place against the opponent of the training."""
    titles = {UNTRAINED: "untrained", OWN_KIND: "own_kind"}
    return {title: summary[name] for title, name in titles.items() if name in summary}


def mean_payoffs(played: EvaluationResult) -> dict[str, Any]:
    """Mean payoffs over whole trials."""
    return {side: mean_and_error(getattr(played, side).mean(1)) for side in ("shaper", "opponent")}


def pool_seeds(runs: Sequence[Any]) -> Any:
    """The results of several trainings as one: means over them, and their standard errors *between* trainings.

    A value that is no mean, such as a policy, is that of the first training, because a mean of policies is no policy.
    A value that one training lacks is None.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    if any(run is None for run in runs):
        return None
    if isinstance(first, dict) and first.keys() == {"mean", "standard_error"}:
        return mean_and_error(np.array([or_nan(run["mean"]) for run in runs]))
    if isinstance(first, dict):
        return {name: pool_seeds([run[name] for run in runs]) for name in first}
    if isinstance(first, list):
        return [pool_seeds(each) for each in zip(*runs, strict=True)]
    return first
