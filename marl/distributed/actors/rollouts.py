"""Rollouts: requests, results and failures, and rollouts of several actors as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from marl.core.learner import Learner, Parameters, Trajectory
from marl.distributed.actors.actor_programs import check_joined


class RolloutRequest(NamedTuple):
    """A rollout that an actor has to play."""

    number: int  # its random numbers depend on it and on the run's key alone
    version: int  # of the policies: how many updates they have seen
    policies: tuple[Parameters, ...]  # one for each agent


class Rollout(NamedTuple):
    """A rollout that an actor has played, `[T, N, ...]`."""

    number: int
    version: int
    experience: tuple[Any, ...]  # each learner's trajectory, or (gradient, metrics)
    rewards: np.ndarray  # [learners], mean over steps and environments, without empty steps
    finished: np.ndarray  # [learners, N], sum of the returns of the episodes that ended
    ended: np.ndarray  # [N], number of episodes that ended
    infos: dict[str, np.ndarray]  # infos of our games, `[agents]` each
    steps: int  # of all environments, with empty ones


class Failure(NamedTuple):
    """The reason why a request was not played."""

    number: int
    message: str


def joined(learner: Learner, policy: Parameters, parts: Sequence[Trajectory]) -> Trajectory:
    """Joins the trajectories of several actors, with their environments side by side.

    Raises:
      ValueError: if a learner's memory has a part without an axis of environments, such as statistics of observations.
    """
    if len(parts) == 1:
        return parts[0]
    check_joined(learner, policy, parts[0].reward.shape[1])

    def side_by_side(axis: int) -> Callable[..., Any]:
        return lambda *x: np.concatenate(x, axis)

    memories = {
        name: jax.tree.map(side_by_side(0), *[getattr(part, name) for part in parts])
        for name in ("first_memory", "last_memory")
    }
    bare = [part._replace(first_memory=(), last_memory=()) for part in parts]
    return jax.tree.map(side_by_side(1), *bare)._replace(**memories)
