"""What is measured from fresh trials in any kind of game: returns with standard errors, pooled over trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from meta.statistics import mean_and_error, or_nan

ALONE = "the opponent's own kind"  # in all seats
UNTRAINED = "an untrained shaper"  # with random parameters, one draw for each training


IN_PLACE = "in the shaper's place"  # the heading of controls


def controls_of(found: dict[str, Any]) -> dict[str, Any]:
    """The controls of a summary, which play in the shaper's place against the opponent of the training."""
    titles = {UNTRAINED: "untrained", ALONE: "naive"}
    return {title: found[name] for title, name in titles.items() if name in found}


class EvaluationResult(NamedTuple):
    """Fresh trials against one opponent, `[trials, steps]` each; a step is a learning step of the opponent."""

    shaper: Any  # average payoff in a round, of those who sit in the shapers' seats
    opponent: Any
    more: Any  # what this kind of game keeps beside them, `[trials, steps, ...]`


def analyse(played: EvaluationResult) -> dict[str, Any]:
    """Mean payoffs over whole trials."""
    return {side: mean_and_error(getattr(played, side).mean(1)) for side in ("shaper", "opponent")}


def pool(runs: Sequence[Any]) -> Any:
    """The results of several trainings as one: means over them, and their standard errors *between* trainings.

    Of what is no mean, such as a policy, the first training's is taken, for a mean of policies is nobody's; of what one
    of them lacks, nothing.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    if any(run is None for run in runs):
        return None
    if isinstance(first, dict) and first.keys() == {"mean", "standard_error"}:
        return mean_and_error(np.array([or_nan(run["mean"]) for run in runs]))
    if isinstance(first, dict):
        return {name: pool([run[name] for run in runs]) for name in first}
    if isinstance(first, list):
        return [pool(each) for each in zip(*runs, strict=True)]
    return first
