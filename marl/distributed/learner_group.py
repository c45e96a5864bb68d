"""The learners of all seats: their states, their policies, and updates from rollouts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marl.core.learn import Episodes, adopted
from marl.core.learner import Learner, LearnerState, Trajectory
from marl.distributed.actors.actor_programs import alike
from marl.distributed.actors.rollouts import Rollout, counted, joined


class LearnerGroup:
    """The learners of all seats.

    Args:
      learners: one for each agent.
      travels: whether policies go to other processes, and so have to be arrays of NumPy.
    """

    def __init__(self, learners: tuple[Learner, ...], travels: bool):
        self._travels, self.learners = travels, learners
        self._adopt = jax.jit(functools.partial(adopted, learners)) if any(one.sync for one in learners) else None

    def init(self, keys: Sequence[jax.Array]) -> tuple[LearnerState, ...]:
        """The first states."""
        each = zip(self.learners, keys, strict=True)
        return self._adopted(tuple(_programs_of(alike(learner)).init(key) for learner, key in each))

    def policies(self, states: Sequence[LearnerState]) -> tuple[Any, ...]:
        """The parameters with which actors act."""
        each = zip(self.learners, states, strict=True)
        found = tuple(_programs_of(alike(learner)).policy(state) for learner, state in each)
        return jax.tree.map(np.asarray, found) if self._travels else found

    def update(
        self, run_key: jax.Array, number: int, states: tuple[LearnerState, ...], rollouts: list[Rollout]
    ) -> tuple[tuple[LearnerState, ...], dict[str, np.ndarray]]:
        """The states after an update, and its metrics; the arrays of the states before it are gone."""
        experience = rollouts[0].experience[: len(self.learners)]
        if len(rollouts) > 1:
            policies = self.policies(states)
            experience = tuple(
                joined(learner, policy, [rollout.experience[i] for rollout in rollouts])
                for i, (learner, policy) in enumerate(zip(self.learners, policies, strict=True))
            )
        keys = _update_keys(run_key, np.int32(number), len(self.learners))
        updated: list[LearnerState] = []
        found: dict[str, Any] = {}
        for i, (learner, state, one) in enumerate(zip(self.learners, states, experience, strict=True)):
            programs = _programs_of(alike(learner))
            if isinstance(one, Trajectory):
                state, metrics = programs.update(keys[i], state, one)
            else:
                state, metrics = programs.apply(state, one[0]), one[1]
            updated.append(state)
            found |= {f"{name}_{i}": x for name, x in metrics.items()}
        states = self._adopted(tuple(updated))
        returns, number_ended = _returns(counted(rollouts))
        for i, one in enumerate(experience):
            reward = _mean(one.reward) if isinstance(one, Trajectory) else rollouts[0].rewards[i]
            found |= {f"reward_{i}": reward, f"return_{i}": returns[i], f"ended_{i}": number_ended}
        infos = rollouts[0].infos
        found |= {f"info_{name}": np.mean([rollout.infos[name] for rollout in rollouts], 0) for name in infos}
        return states, jax.tree.map(np.asarray, found)

    def _adopted(self, states: tuple[LearnerState, ...]) -> tuple[LearnerState, ...]:
        found: tuple[LearnerState, ...] = self._adopt(states) if self._adopt else states
        return found


class _LearnerPrograms(NamedTuple):
    """Compiled programs of a learner, shared by all seats and trainings in which it learns."""

    init: Callable[..., Any]
    policy: Callable[..., Any]
    update: Callable[..., Any]
    apply: Callable[..., Any]


@functools.lru_cache(maxsize=64)
def _programs_of(learner: Learner) -> _LearnerPrograms:
    # The states take the place of those before them, because a buffer is too large to be copied with every update.
    update = jax.jit(learner.update, donate_argnums=1)
    apply = jax.jit(learner.gradients.apply, donate_argnums=0) if learner.gradients else update
    # Policies outlast the states.
    policy = jax.jit(lambda state: jax.tree.map(jnp.copy, learner.policy(state)))
    return _LearnerPrograms(jax.jit(learner.init), policy, update, apply)


@functools.partial(jax.jit, static_argnums=2)
def _update_keys(run_key: jax.Array, number: jax.Array, count: int) -> tuple[jax.Array, ...]:
    update_key = jax.random.split(jax.random.fold_in(run_key, number))[1]
    return tuple(jax.random.split(update_key, count))


# As `learn` does, to the last bit.
_mean = jax.jit(jnp.mean)


def _returns(episodes: Episodes) -> tuple[np.ndarray, jax.Array]:
    """The mean return of each learner's episodes that ended, NaN if none, and their number."""
    means, ended = _mean_returns(episodes)
    return np.where(np.asarray(ended) > 0, np.asarray(means), np.float32(np.nan)), ended


@jax.jit
def _mean_returns(episodes: Episodes) -> tuple[jax.Array, jax.Array]:
    ended = episodes.ended.sum()
    return episodes.finished.sum(1) / jnp.maximum(ended, 1), ended
