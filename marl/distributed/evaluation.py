"""How well learners play by now in environments of a host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marl.core.evaluate import act_best
from marl.core.learner import Learner, LearnerState
from marl.distributed.actor import alike, check_finite
from marl.distributed.vector_env import VectorEnv, seed_of
from meta.run_keys import RunBranch

LONGEST = 27_000  # steps of an episode, those of half an hour of a game of Atari


def play_episodes(
    key: jax.Array,
    host: VectorEnv,
    learners: Sequence[Learner],
    states: Sequence[LearnerState],
    episodes: int,
    seed: int,
) -> np.ndarray:
    """Returns of fresh episodes without exploration, `[episodes, agents]`.

    Each environment plays as many as another, so that short ones do not count more. They begin with other seeds than
    the training with this `seed` did.

    Raises:
      ValueError: if a reward or an observation is no finite number.
    """
    policies = tuple(learner.policy(state) for learner, state in zip(learners, states, strict=True))
    envs, agents = host.num_envs, host.game.agents
    reset_key, key = jax.random.split(key)
    memories = tuple(learner.init_memory(p, envs) for learner, p in zip(learners, policies, strict=True))
    each = -(-episodes // envs)
    seen = host.reset(
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
        host.send({agent: np.asarray(x) for agent, x in zip(agents, actions, strict=True)}, (keys[0], keys[1]))
        told = host.receive()
        check_finite(told)
        going += np.stack([told.reward[agent] for agent in agents], 1)
        ended = told.done if told.valid is None else told.done & told.valid
        steps, lengths = steps + 1, lengths + 1
        cut = lengths >= LONGEST  # as far as they went; what is left of such an episode counts no more
        for i in np.flatnonzero(cut | (ended & ~rest)):
            found[i].append(going[i].copy())
        going[told.done | cut] = lengths[told.done | cut] = 0
        rest = (rest | cut) & ~told.done
        memories = tuple(
            learner.reset_memory(memory, jnp.asarray(told.done)) if learner.reset_memory else memory
            for learner, memory in zip(learners, memories, strict=True)
        )
        seen = told.obs
    return np.stack([one[k] for k in range(each) for one in found])[:episodes]


@functools.lru_cache(maxsize=64)  # compiled once for all seats
def _best_of(learner: Learner) -> Callable[..., Any]:
    return jax.jit(functools.partial(act_best, learner))
