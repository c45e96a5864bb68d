"""Compiled programs of acting: one for each kind of learner, shared by seats, actors and trainings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Game
from games.core.spaces import Space
from marl.core.learner import Learner, Memory, Parameters, Trajectory


class Keys(NamedTuple):
    """Random keys of an update as arrays of numbers; the keys are those of `learn`."""

    act: Any  # [T, learners, words]
    step: Any  # [T, N, words]
    reset: Any  # [T, N, words]
    update: Any  # [learners, words]


class ActorPrograms:
    """Compiled programs of acting, shared by all actors of a process.

    Args:
      learners: one for each agent.
      num_envs: of an actor.
      num_actors: of the whole run; a memory may depend on the number of an environment among those of all actors.
      steps: of each environment in a rollout.
      gradients: whether actors take the gradients.
    """

    def __init__(
        self, learners: Sequence[Learner], num_envs: int, num_actors: int, steps: int, gradients: bool = False
    ):
        self.learners, self.num_envs, self.steps, self.gradients = tuple(learners), num_envs, steps, gradients
        self.num_actors = num_actors
        self.keys = jax.jit(self._keys)

    def _keys(self, run_key: jax.Array, number: jax.Array) -> Keys:
        play_key, update_key = jax.random.split(jax.random.fold_in(run_key, number))

        def of_step(key: jax.Array) -> tuple[jax.Array, ...]:
            act_key, step_key, reset_key = jax.random.split(key, 3)
            envs = (jax.random.split(k, self.num_envs) for k in (step_key, reset_key))
            return jax.random.split(act_key, len(self.learners)), *envs

        act, step, reset = jax.vmap(of_step)(jax.random.split(play_key, self.steps))
        found = act, step, reset, jax.random.split(update_key, len(self.learners))
        return Keys(*map(jax.random.key_data, found))

    def act(
        self,
        keys: Any,
        policies: Sequence[Parameters],
        memories: Sequence[Memory],
        done: Any,
        observations: Sequence[Any],
        together: bool = False,
    ) -> tuple[tuple[Any, ...], tuple[Memory, ...], tuple[Any, ...]]:
        """Actions, memories and extras of all learners; memories of ended episodes are reset first.

        Each learner has a program of its own, shared by learners that are alike.

        Args:
          keys: [..., learners, words], as numbers.
          policies: one of each learner.
          memories: likewise.
          done: [N].
          observations: of each learner, [N, ...].
          together: whether all but the policies have an axis of actors in front.
        """
        acted = [
            acting(alike(learner), together)(keys[..., i, :], policies[i], memories[i], done, observations[i])
            for i, learner in enumerate(self.learners)
        ]
        actions, memories, extras = zip(*acted, strict=True)
        return actions, memories, extras

    def reset_memory(self, memories: Sequence[Memory], done: Any) -> tuple[Memory, ...]:
        """Memories, reset where episodes have ended."""
        return tuple(forgetting(alike(one))(memory, done) for one, memory in zip(self.learners, memories, strict=True))

    def shapes(self, learner: Learner, state: Any, game: Game) -> Trajectory:
        """Shapes of a trajectory of a learner."""
        number = next(i for i, one in enumerate(self.learners) if one is learner)
        agents, length = game.agents, (self.steps, self.num_envs)

        def of(space: Space, *shape: int) -> Any:
            return jax.ShapeDtypeStruct((*shape, *space.shape), space.dtype)

        policy = jax.eval_shape(learner.policy, state)
        memory = jax.eval_shape(lambda policy: learner.init_memory(policy, self.num_envs), policy)
        obs = game.observation_space(agents[number])
        _, _, extras = jax.eval_shape(learner.act, jax.random.key(0), policy, memory, of(obs, self.num_envs))
        number_of: Any = jax.ShapeDtypeStruct(length, jnp.float32)
        flag: Any = jax.ShapeDtypeStruct(length, bool)
        others = [of(game.action_space(agent), *length) for agent in agents]
        return Trajectory(
            of(obs, *length),
            others.pop(number),
            number_of,
            flag,
            jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.steps, *x.shape), x.dtype), extras),
            tuple(others),
            flag,
            of(obs, *length),
            memory,
            memory,
            tuple(number_of for _ in others),
        )

    def memories(self, policies: Sequence[Parameters], actor: int) -> tuple[Memory, ...]:
        """Initial memories of an actor: its part of the memories for all environments of the run."""
        first, last = actor * self.num_envs, (actor + 1) * self.num_envs
        found = []
        for learner, policy in zip(self.learners, policies, strict=True):
            of_all = learner.init_memory(policy, self.num_envs * self.num_actors)
            own = by_environment(learner, policy, self.num_envs)
            found.append(jax.tree.map(lambda x, mine: x[first:last] if mine else x, of_all, own))
        return tuple(found)

    def experience(self, keys: np.ndarray, trajectories: tuple[Trajectory, ...]) -> tuple[Any, ...]:
        """Trajectories, or gradients where these travel to the learners."""
        if not self.gradients:
            return trajectories
        taken = [
            gradient(alike(learner))(keys[i], trajectory) if learner.gradients else trajectory
            for i, (learner, trajectory) in enumerate(zip(self.learners, trajectories, strict=True))
        ]
        return jax.tree.map(np.asarray, tuple(taken))


def alike(learner: Learner) -> Learner:
    """The learner without its seat, so that seats that are alike share their programs."""
    return learner._replace(seat=None)


@functools.lru_cache(maxsize=64)
def acting(learner: Learner, together: bool) -> Callable[..., Any]:
    """The program of `ActorPrograms.act` for one learner."""

    def act(key: jax.Array, policy: Parameters, memory: Memory, done: jax.Array, obs: jax.Array) -> Any:
        memory = learner.reset_memory(memory, done) if learner.reset_memory else memory
        return learner.act(jax.random.wrap_key_data(key), policy, memory, obs)

    return jax.jit(jax.vmap(act, in_axes=(0, None, 0, 0, 0)) if together else act)


@functools.lru_cache(maxsize=64)
def forgetting(learner: Learner) -> Callable[..., Any]:
    """The program of `ActorPrograms.reset_memory` for one learner."""
    return jax.jit(learner.reset_memory) if learner.reset_memory else lambda memory, done: memory


@functools.lru_cache(maxsize=64)
def gradient(learner: Learner) -> Callable[..., Any]:
    """The program of the gradient that an actor takes for a learner."""
    assert learner.gradients is not None
    of = learner.gradients.of
    return jax.jit(lambda key, trajectory: of(jax.random.wrap_key_data(key), trajectory))


programs_of = functools.lru_cache(maxsize=8)(ActorPrograms)  # shared by several trainings


def check_joined(learner: Learner, policy: Parameters, num_envs: int) -> None:
    """Raises ValueError for a learner whose actors' trajectories cannot be joined."""
    if not all(jax.tree.leaves(by_environment(learner, policy, num_envs))):
        raise ValueError(
            "path: got barrier; what this learner remembers, such as statistics of observations, is of one actor, and "
            "queue, or one actor, is needed"
        )


def by_environment(learner: Learner, policy: Parameters, num_envs: int) -> Any:
    """True for each array of a memory that has an axis of environments, which then is the first."""
    one, other = (
        jax.eval_shape(lambda policy, n=n: learner.init_memory(policy, n), policy) for n in (num_envs, num_envs + 1)
    )
    return jax.tree.map(lambda x, y: x.shape != y.shape, one, other)
