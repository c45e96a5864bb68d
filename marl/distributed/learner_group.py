"""The learners of all seats: their states, their policies, and updates from rollouts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marl.blocks.advantages import mean
from marl.core.learn import adopted
from marl.core.learner import Learner, LearnerState, Metrics, Trajectory
from marl.distributed.actors.actor_programs import alike
from marl.distributed.actors.rollouts import Rollout, joined


class LearnerGroup:
    """The learners of all seats.

    Args:
      learners: one for each agent.
      travels: whether policies go to other processes, and so have to be arrays of NumPy.
    """

    def __init__(self, learners: tuple[Learner, ...], travels: bool):
        self._travels, self.learners = travels, learners
        self._programs = [_programs_of(alike(learner), len(learners)) for learner in learners]
        self._adopt = jax.jit(functools.partial(adopted, learners)) if any(one.sync for one in learners) else None

    def init(self, keys: Sequence[jax.Array]) -> tuple[LearnerState, ...]:
        """The first states."""
        each = zip(self._programs, keys, strict=True)
        states = tuple(programs.init(key) for programs, key in each)
        return self._adopt(states) if self._adopt else states

    def policies(self, states: Sequence[LearnerState]) -> tuple[Any, ...]:
        """The parameters with which actors act."""
        each = zip(self._programs, states, strict=True)
        return self._sent(tuple(programs.policy(state) for programs, state in each))

    def update(
        self, run_key: jax.Array, number: int, states: tuple[LearnerState, ...], rollouts: list[Rollout]
    ) -> tuple[tuple[LearnerState, ...], tuple[Any, ...], dict[str, np.ndarray]]:
        """The states after an update, their policies, and its metrics; the arrays of the states before it are gone."""
        experience = rollouts[0].experience[: len(self.learners)]
        if len(rollouts) > 1:
            each = zip(self.learners, self.policies(states), strict=True)
            experience = tuple(
                joined(learner, policy, [rollout.experience[i] for rollout in rollouts])
                for i, (learner, policy) in enumerate(each)
            )
        finished = np.concatenate([rollout.finished for rollout in rollouts], 1)
        ended = np.concatenate([rollout.ended for rollout in rollouts])
        updated: list[LearnerState] = []
        policies: list[Any] = []
        found: dict[str, Any] = {}
        for i, (programs, state, one) in enumerate(zip(self._programs, states, experience, strict=True)):
            if isinstance(one, Trajectory):
                state, policy, metrics = programs.update(
                    run_key, np.int32(number), np.int32(i), state, one, finished[i], ended
                )
            else:
                state, policy, metrics = programs.apply(state, one[0], finished[i], ended)
                metrics |= one[1] | {"reward": rollouts[0].rewards[i]}
            updated.append(state)
            policies.append(policy)
            found |= {f"{name}_{i}": x for name, x in metrics.items()}
        infos = rollouts[0].infos
        found |= {f"info_{name}": np.mean([rollout.infos[name] for rollout in rollouts], 0) for name in infos}
        found = jax.tree.map(np.asarray, found)
        if self._adopt:
            states = self._adopt(tuple(updated))
            return states, self.policies(states), found
        return tuple(updated), self._sent(tuple(policies)), found

    def _sent(self, policies: tuple[Any, ...]) -> tuple[Any, ...]:
        return jax.tree.map(np.asarray, policies) if self._travels else policies


class _LearnerPrograms(NamedTuple):
    """Compiled programs of a learner, shared by all seats and trainings in which it learns."""

    init: Callable[..., Any]
    policy: Callable[..., Any]
    update: Callable[..., Any]  # (run key, number, seat, state, trajectory, finished, ended) -> state, policy, metrics
    apply: Callable[..., Any]  # (state, gradient, finished, ended) -> likewise


@functools.lru_cache(maxsize=64)
def _programs_of(learner: Learner, num_learners: int) -> _LearnerPrograms:
    """The programs; all of an update is one of them, because with small networks each call costs more than its work."""

    def policy(state: LearnerState) -> Any:
        return jax.tree.map(jnp.copy, learner.policy(state))  # policies outlast the states

    def episodes(finished: jax.Array, ended: jax.Array) -> dict[str, jax.Array]:
        number = ended.sum()
        average = finished.sum() / jnp.maximum(number, 1)
        return {"return": jnp.where(number > 0, average, jnp.nan), "ended": number}

    def update(
        run_key: jax.Array,
        number: jax.Array,
        seat: jax.Array,
        state: LearnerState,
        trajectory: Trajectory,
        finished: jax.Array,
        ended: jax.Array,
    ) -> tuple[LearnerState, Any, Metrics]:
        update_key = jax.random.split(jax.random.fold_in(run_key, number))[1]
        state, metrics = learner.update(jax.random.split(update_key, num_learners)[seat], state, trajectory)
        metrics = metrics | {"reward": mean(trajectory.reward, trajectory.valid)} | episodes(finished, ended)
        return state, policy(state), metrics

    def apply(
        state: LearnerState, gradient: Any, finished: jax.Array, ended: jax.Array
    ) -> tuple[LearnerState, Any, Metrics]:
        assert learner.gradients is not None
        state = learner.gradients.apply(state, gradient)
        return state, policy(state), episodes(finished, ended)

    # The states take the place of those before them, because a buffer is too large to be copied with every update.
    programs = jax.jit(update, donate_argnums=3), jax.jit(apply, donate_argnums=0)
    return _LearnerPrograms(jax.jit(learner.init), jax.jit(policy), *programs)
