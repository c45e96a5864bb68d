"""Who acts: learners' policies in the environments of one host, a rollout at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Game
from games.core.spaces import Space
from marl.core.learn import Episodes
from marl.core.learner import Learner, Memory, Parameters, Trajectory
from marl.distributed.vector_env import EnvStep, VectorEnv


class RolloutRequest(NamedTuple):
    """A rollout that is asked for."""

    number: int  # what is drawn depends on it and on the run's key alone
    version: int  # of the policies: how many updates they have seen
    policies: tuple[Parameters, ...]  # one for each agent


class Rollout(NamedTuple):
    """What came of an order, `[T, N, ...]`."""

    number: int
    version: int
    experience: tuple[Any, ...]  # of each learner its trajectory, or (gradient, metrics)
    rewards: np.ndarray  # [learners], mean over steps and environments
    finished: np.ndarray  # [learners, N], sum of the returns of the episodes that ended
    ended: np.ndarray  # [N], how many did
    infos: dict[str, np.ndarray]  # what our games count, `[agents]` each
    steps: int  # that were taken


class Failure(NamedTuple):
    """Why an order was not done."""

    number: int
    words: str


class Keys(NamedTuple):
    """What an update draws from, as numbers; the keys are those of `learn`."""

    act: Any  # [T, learners, words]
    step: Any  # [T, N, words]
    reset: Any  # [T, N, words]
    update: Any  # [learners, words]


class ActorPrograms:
    """What is compiled, once for all actors of a process.

    Args:
      learners: one for each agent.
      num_envs: of a host.
      num_actors: of the whole run, whose environments are numbered through where memory depends on the number.
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
        """Actions, memories and extras of all learners; before, what ends with an episode is forgotten.

        Each learner has a program of its own, which those that are alike share.

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
        """What is left of memories where episodes have ended."""
        return tuple(forgetting(alike(one))(memory, done) for one, memory in zip(self.learners, memories, strict=True))

    def shapes(self, learner: Learner, state: Any, game: Game) -> Trajectory:
        """What a trajectory of a learner looks like."""
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
        """With which an actor begins: its part of what all environments of the run would begin with."""
        first, last = actor * self.num_envs, (actor + 1) * self.num_envs
        found = []
        for learner, policy in zip(self.learners, policies, strict=True):
            everybody = learner.init_memory(policy, self.num_envs * self.num_actors)
            own = by_environment(learner, policy, self.num_envs)
            found.append(jax.tree.map(lambda x, mine: x[first:last] if mine else x, everybody, own))
        return tuple(found)

    def experience(self, keys: np.ndarray, trajectories: tuple[Trajectory, ...]) -> tuple[Any, ...]:
        """What a rollout is to learners: trajectories, or gradients where these travel."""
        if not self.gradients:
            return trajectories
        taken = [
            gradient(alike(learner))(keys[i], trajectory) if learner.gradients else trajectory
            for i, (learner, trajectory) in enumerate(zip(self.learners, trajectories, strict=True))
        ]
        return jax.tree.map(np.asarray, tuple(taken))


# The programs of a learner, compiled once for all seats and trainings that it plays in.


def alike(learner: Learner) -> Learner:
    """The learner without its seat, which no program depends on: those of seats that are alike have the same ones."""
    return learner._replace(seat=None)


@functools.lru_cache(maxsize=64)
def acting(learner: Learner, together: bool) -> Callable[..., Any]:
    """The program of `Programs.act` for one learner."""

    def act(key: jax.Array, policy: Parameters, memory: Memory, done: jax.Array, obs: jax.Array) -> Any:
        memory = learner.reset_memory(memory, done) if learner.reset_memory else memory
        return learner.act(jax.random.wrap_key_data(key), policy, memory, obs)

    return jax.jit(jax.vmap(act, in_axes=(0, None, 0, 0, 0)) if together else act)


@functools.lru_cache(maxsize=64)
def forgetting(learner: Learner) -> Callable[..., Any]:
    """The program of `Programs.reset_memory` for one learner."""
    return jax.jit(learner.reset_memory) if learner.reset_memory else lambda memory, done: memory


@functools.lru_cache(maxsize=64)
def gradient(learner: Learner) -> Callable[..., Any]:
    """The program of the gradient that a learner takes where it acts."""
    assert learner.gradients is not None
    of = learner.gradients.of
    return jax.jit(lambda key, trajectory: of(jax.random.wrap_key_data(key), trajectory))


programs_of = functools.lru_cache(maxsize=8)(ActorPrograms)  # for several trainings


def by_environment(learner: Learner, policy: Parameters, num_envs: int) -> Any:
    """Of each array of a memory, whether it has an axis of environments, which then is the first."""
    one, other = (
        jax.eval_shape(lambda policy, n=n: learner.init_memory(policy, n), policy) for n in (num_envs, num_envs + 1)
    )
    return jax.tree.map(lambda x, y: x.shape != y.shape, one, other)


# (keys [learners, words], policies, memories, done [N], observations) -> actions, memories, extras
Act = Callable[..., Any]


class Actor:
    """Plays one host's environments.

    Args:
      programs: compiled.
      host: its environments.
      number: of the actor.
      run_key: of the run.
      act: who evaluates policies; here, if None.
    """

    def __init__(
        self, programs: ActorPrograms, host: VectorEnv, number: int, run_key: jax.Array, act: Act | None = None
    ):
        self._programs, self._host, self._number, self._run_key = programs, host, number, run_key
        self._act = act or programs.act
        self._memories: tuple[Memory, ...] | None = None

    def begin(self, seed: int, reset_key: jax.Array) -> None:
        """New episodes everywhere."""
        keys = np.asarray(jax.random.key_data(jax.random.split(reset_key, self._host.num_envs)))
        self._seen = self._host.reset(seed, keys)
        envs, agents = self._host.num_envs, self._host.game.agents
        self._done = np.zeros(envs, bool)
        self._going = np.zeros((len(agents), envs), np.float32)

    def play(self, order: RolloutRequest) -> Rollout:
        """One rollout.

        Raises:
          ValueError: if the environment pays or shows what is no number.
        """
        programs, host = self._programs, self._host
        agents, envs = host.game.agents, host.num_envs
        if self._memories is None:
            self._memories = programs.memories(order.policies, self._number)
        keys = jax.tree.map(np.asarray, programs.keys(self._run_key, np.int32(order.number)))
        first, steps = self._memories, []
        finished, ended = np.zeros((len(agents), envs), np.float32), np.zeros(envs, np.float32)
        for t in range(programs.steps):
            observations = tuple(self._seen[agent] for agent in agents)
            actions, self._memories, extras = self._act(
                keys.act[t], order.policies, self._memories, self._done, observations
            )
            actions = tuple(map(np.asarray, actions))
            host.send(dict(zip(agents, actions, strict=True)), (keys.step[t], keys.reset[t]))
            told = host.receive()
            check_finite(told)
            reward = np.stack([told.reward[agent] for agent in agents])
            self._going = self._going + reward
            finished += np.where(told.done, self._going, np.float32(0))
            valid = told.done if told.valid is None else told.done & told.valid
            ended += valid
            self._going = np.where(told.done, np.float32(0), self._going)
            steps.append((observations, actions, extras, told))
            self._seen, self._done = told.obs, told.done
        self._memories = programs.reset_memory(self._memories, self._done)
        self._done = np.zeros(envs, bool)
        trajectories = _trajectories(agents, steps, first, self._memories)
        infos = {}
        if told.infos:
            each = [step[3].infos or {} for step in steps]
            infos = {name: np.stack([one[name] for one in each]).mean((0, 1)) for name in told.infos}
        rewards = np.array([t.reward.mean() for t in trajectories])
        experience = programs.experience(keys.update, trajectories)
        return Rollout(order.number, order.version, experience, rewards, finished, ended, infos, envs * programs.steps)

    def close(self) -> None:
        """Lets go of the environments."""
        self._host.close()


def check_finite(told: EnvStep) -> None:
    """Raises ValueError for rewards or observations that are no finite numbers."""
    for name, arrays in (("reward", told.reward), ("observation", told.obs)):
        for array in arrays.values():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"it gave a {name} that is no finite number")


def _trajectories(
    agents: Sequence[str], steps: list[Any], first: tuple[Memory, ...], last: tuple[Memory, ...]
) -> tuple[Trajectory, ...]:
    def stacked(arrays: Sequence[Any]) -> Any:
        return np.stack(arrays)

    observations, actions, extras, told = zip(*steps, strict=True)
    done: Any = np.stack([one.done for one in told])
    truncated: Any = np.stack([one.truncated for one in told])
    valid: Any = None if told[0].valid is None else np.stack([one.valid for one in told])
    each: dict[str, Any] = {agent: np.stack([one.reward[agent] for one in told]) for agent in agents}
    acted: list[Any] = [np.stack([one[i] for one in actions]) for i in range(len(agents))]
    return tuple(
        Trajectory(
            stacked([one[i] for one in observations]),
            acted[i],
            each[agent],
            done,
            jax.tree.map(lambda *x: stacked(x), *[one[i] for one in extras]),
            tuple(acted[:i] + acted[i + 1 :]),
            truncated,
            stacked([one.last_obs[agent] for one in told]),
            jax.tree.map(np.asarray, first[i]),
            jax.tree.map(np.asarray, last[i]),
            tuple(each[other] for other in agents if other != agent),
            valid,
        )
        for i, agent in enumerate(agents)
    )


def check_joined(learner: Learner, policy: Parameters, num_envs: int) -> None:
    """Raises ValueError for a learner whose actors' trajectories cannot become one."""
    if not all(jax.tree.leaves(by_environment(learner, policy, num_envs))):
        raise ValueError(
            "path: got barrier; what this learner remembers, such as statistics of observations, is of one actor, and "
            "queue, or one actor, is needed"
        )


def joined(learner: Learner, policy: Parameters, parts: Sequence[Trajectory]) -> Trajectory:
    """One trajectory of the environments of several, next to each other.

    Raises:
      ValueError: if a learner remembers something that is of no environment, as statistics of observations are.
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


def counted(rollouts: Sequence[Rollout]) -> Episodes:
    """Of all environments: what ended in these."""
    finished: Any = np.concatenate([rollout.finished for rollout in rollouts], 1)
    ended: Any = np.concatenate([rollout.ended for rollout in rollouts])
    return Episodes(jnp.zeros(()), finished, ended)
