"""Actors: play rollouts with the policies of all learners in vector environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from marl.core.learner import Memory, Trajectory
from marl.distributed.actors.actor_programs import ActorPrograms
from marl.distributed.actors.rollouts import Rollout, RolloutRequest
from marl.distributed.vector_env import EnvStep, VectorEnv

# (keys [learners, words], policies, memories, done [N], observations) -> actions, memories, extras
Act = Callable[..., Any]


class Actor:
    """Plays rollouts in the environments of one vector.

    Args:
      programs: compiled.
      env: its environments.
      number: of the actor.
      run_key: of the run.
      act: evaluates policies; `programs.act` if None.
    """

    def __init__(
        self, programs: ActorPrograms, env: VectorEnv, number: int, run_key: jax.Array, act: Act | None = None
    ):
        self._programs, self._env, self._number, self._run_key = programs, env, number, run_key
        self._act = act or programs.act
        self._memories: tuple[Memory, ...] | None = None

    def begin(self, seed: int, reset_key: jax.Array) -> None:
        """Begins new episodes in all environments."""
        keys = np.asarray(jax.random.key_data(jax.random.split(reset_key, self._env.num_envs)))
        self._seen = self._env.reset(seed, keys)
        envs, agents = self._env.num_envs, self._env.game.agents
        self._done = np.zeros(envs, bool)
        self._going = np.zeros((len(agents), envs), np.float32)

    def play(self, request: RolloutRequest) -> Rollout:
        """Plays a rollout.

        Raises:
          ValueError: for rewards or observations that are not finite.
        """
        programs, env = self._programs, self._env
        agents, envs = env.game.agents, env.num_envs
        if self._memories is None:
            self._memories = programs.memories(request.policies, self._number)
        keys = jax.tree.map(np.asarray, programs.keys(self._run_key, np.int32(request.number)))
        first, steps = self._memories, []
        finished, ended = np.zeros((len(agents), envs), np.float32), np.zeros(envs, np.float32)
        for t in range(programs.steps):
            observations = tuple(self._seen[agent] for agent in agents)
            actions, self._memories, extras = self._act(
                keys.act[t], request.policies, self._memories, self._done, observations
            )
            actions = tuple(map(np.asarray, actions))
            env.send(dict(zip(agents, actions, strict=True)), (keys.step[t], keys.reset[t]))
            step = env.receive()
            check_finite(step)
            self._going = self._going + np.stack([step.reward[agent] for agent in agents])
            if step.done.any():
                finished += np.where(step.done, self._going, np.float32(0))
                ended += step.done if step.valid is None else step.done & step.valid
                self._going = np.where(step.done, np.float32(0), self._going)
            steps.append((observations, actions, extras, step))
            self._seen, self._done = step.obs, step.done
        self._memories = programs.reset_memory(self._memories, self._done)
        self._done = np.zeros(envs, bool)
        trajectories = _trajectories(agents, steps, first, self._memories)
        infos = {}
        if step.infos:
            each = [one[3].infos or {} for one in steps]
            infos = {name: np.stack([one[name] for one in each]).mean((0, 1)) for name in step.infos}
        rewards = np.array([_mean_reward(t) for t in trajectories], np.float32)
        experience = programs.experience(keys.update, trajectories)
        number, version, taken = request.number, request.version, envs * programs.steps
        return Rollout(number, version, experience, rewards, finished, ended, infos, taken)

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def _mean_reward(trajectory: Trajectory) -> float:
    """The mean over the steps that are not empty; 0 if all are."""
    reward = np.asarray(trajectory.reward)
    if trajectory.valid is not None:
        reward = reward[np.asarray(trajectory.valid)]
    return float(reward.mean()) if reward.size else 0.0


def check_finite(step: EnvStep) -> None:
    """Raises ValueError for rewards or observations that are no finite numbers."""
    parts = (("a reward", step.reward), ("an observation", step.obs), ("an observation", step.last_obs))
    for name, arrays in parts:
        for array in arrays.values():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"it gave {name} that is no finite number")


def _trajectories(
    agents: Sequence[str], steps: list[Any], first: tuple[Memory, ...], last: tuple[Memory, ...]
) -> tuple[Trajectory, ...]:
    def stacked(arrays: Sequence[Any]) -> Any:
        return np.stack(arrays)

    observations, actions, extras, results = zip(*steps, strict=True)
    done: Any = np.stack([one.done for one in results])
    truncated: dict[str, Any] = {agent: np.stack([one.truncated_of(agent) for one in results]) for agent in agents}
    valid: Any = None if results[0].valid is None else np.stack([one.valid for one in results])
    each: dict[str, Any] = {agent: np.stack([one.reward[agent] for one in results]) for agent in agents}
    acted: list[Any] = [np.stack([one[i] for one in actions]) for i in range(len(agents))]
    return tuple(
        Trajectory(
            stacked([one[i] for one in observations]),
            acted[i],
            each[agent],
            done,
            jax.tree.map(lambda *x: stacked(x), *[one[i] for one in extras]),
            tuple(acted[:i] + acted[i + 1 :]),
            truncated[agent],
            stacked([one.last_obs[agent] for one in results]),
            jax.tree.map(np.asarray, first[i]),
            jax.tree.map(np.asarray, last[i]),
            tuple(each[other] for other in agents if other != agent),
            valid,
        )
        for i, agent in enumerate(agents)
    )
