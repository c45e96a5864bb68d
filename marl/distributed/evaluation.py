"""Evaluation of learners in vector environments: returns of fresh episodes, and a film of one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from games.toolbox.drawing import save_gif
from marl.core.evaluate import act_best
from marl.core.learner import Learner, LearnerState
from marl.distributed.actors.actor import check_finite
from marl.distributed.actors.actor_programs import alike
from marl.distributed.vector_env import EnvStep, VectorEnv, seed_of
from meta.atomic_files import save_whole
from meta.run_keys import RunBranch

LONGEST = 27_000  # steps of an episode, as half an hour of a game of Atari has
FILMED = 500  # steps at most


def play_episodes(
    key: jax.Array,
    env: VectorEnv,
    learners: Sequence[Learner],
    states: Sequence[LearnerState],
    episodes: int,
    seed: int,
) -> np.ndarray:
    """Returns of fresh episodes without exploration, `[episodes, agents]`.

    All environments play the same number of episodes, so that short ones do not count more. Their seeds differ from
    those of a training with this `seed`.

    Raises:
      ValueError: if a reward or an observation is no finite number.
    """
    policies = tuple(learner.policy(state) for learner, state in zip(learners, states, strict=True))
    envs, agents = env.num_envs, env.game.agents
    reset_key, key = jax.random.split(key)
    memories = tuple(learner.init_memory(p, envs) for learner, p in zip(learners, policies, strict=True))
    each = -(-episodes // envs)
    seen = env.reset(
        seed_of(seed, RunBranch.EVALUATION), np.asarray(jax.random.key_data(jax.random.split(reset_key, envs)))
    )
    going, found = np.zeros((envs, len(agents))), [list[np.ndarray]() for _ in range(envs)]
    steps, lengths, rest = 0, np.zeros(envs, int), np.zeros(envs, bool)
    while any(len(one) < each for one in found):
        step_key, other_key, own_key = jax.random.split(jax.random.fold_in(key, steps), 3)
        own_keys = jax.random.split(own_key, len(learners))
        acted = [
            _best_of(alike(learner))(k, policy, memory, seen[agent])
            for k, learner, policy, memory, agent in zip(own_keys, learners, policies, memories, agents, strict=True)
        ]
        actions, memories = zip(*acted, strict=True)
        keys = [np.asarray(jax.random.key_data(jax.random.split(k, envs))) for k in (step_key, other_key)]
        env.send({agent: np.asarray(x) for agent, x in zip(agents, actions, strict=True)}, (keys[0], keys[1]))
        step = env.receive()
        check_finite(step)
        going += np.stack([step.reward[agent] for agent in agents], 1)
        ended = step.done if step.valid is None else step.done & step.valid
        steps, lengths = steps + 1, lengths + 1
        cut = lengths >= LONGEST  # Some never end: each stretch of this length counts as an episode.
        for i in np.flatnonzero(cut | (ended & ~rest)):
            found[i].append(going[i].copy())
        going[step.done | cut] = lengths[step.done | cut] = 0
        rest = (rest | cut) & ~step.done
        memories = tuple(
            learner.reset_memory(memory, jnp.asarray(step.done)) if learner.reset_memory else memory
            for learner, memory in zip(learners, memories, strict=True)
        )
        seen = step.obs
    return np.stack([one[k] for k in range(each) for one in found])[:episodes]


def film_episode(
    key: jax.Array,
    env: VectorEnv,
    learners: Sequence[Learner],
    states: Sequence[LearnerState],
    seed: int,
    path: Path,
) -> Path | None:
    """Saves a film of one episode, and returns its path; None if the environment draws no pictures.

    Args:
      key: random numbers of the episode.
      env: a single environment that draws pictures.
      learners: one for each agent.
      states: of the learners.
      seed: of the run.
      path: of the GIF.
    """
    frames: list[np.ndarray] = []
    receive: Callable[[], EnvStep] = env.receive

    def receive_and_draw() -> EnvStep:
        step = receive()
        over = bool(frames) and step.done.any()  # the picture may already be of the next episode
        picture = env.picture() if len(frames) < FILMED and not over else None
        if picture is not None:
            frames.append(np.asarray(picture))
        return step

    env.receive = receive_and_draw  # type: ignore[method-assign]
    play_episodes(key, env, learners, states, 1, seed)
    if not frames:
        return None
    return save_whole(path, functools.partial(save_gif, frames[:: max(len(frames) // 200, 1)], frames_per_second=25.0))


@functools.lru_cache(maxsize=64)  # compiled once for all seats
def _best_of(learner: Learner) -> Callable[..., Any]:
    return jax.jit(functools.partial(act_best, learner))
