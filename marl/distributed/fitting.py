"""Checks that learners, an environment and a system fit each other, by tracing an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from games import Game
from games.core import checks
from marl.core.learner import Learner, LearnerState, Trajectory, learns
from marl.distributed.actors.actor_programs import ActorPrograms, check_joined
from marl.distributed.system import INFERENCE, PATHS, WHERE, Setup, System
from marl.distributed.vector_env import MakeVectorEnv, VectorEnv


def fit(
    learners: Sequence[Learner],
    make_envs: Sequence[MakeVectorEnv],
    env: VectorEnv,
    steps_per_update: int,
    system: System,
) -> Setup:
    """Puts a training together, and traces an update so that errors come before anything runs.

    Args:
      learners: one for each agent.
      make_envs: functions that make an actor's environments, one for each actor.
      env: what one of them makes.
      steps_per_update: of each environment in a rollout.
      system: how actors and learners work together.

    Raises:
      ValueError: if settings do not fit each other, if there are not as many learners as agents, or from a learner.
    """
    where, inference, path, lag = system[:4]
    for name, value, allowed in (("where", where, WHERE), ("inference", inference, INFERENCE), ("path", path, PATHS)):
        checks.choice(name, value, allowed)
    if lag is not None:
        checks.size("lag", lag, 0)
    if inference == "central" and (lag is not None or where == "here" or path == "barrier"):
        raise ValueError(
            "inference: got central, which evaluates with the newest policies; where: threads or ray, without a lag or "
            "a barrier, is needed"
        )
    if inference == "central" and path == "gradients":
        raise ValueError("inference: got central; actor is needed with path gradients, which are those of what acts")
    if path == "gradients" and not any(learner.gradients for learner in learners):
        raise ValueError("path: got gradients, which no learner here takes where it acts; a3c does")
    joined = len(make_envs) if path == "barrier" else 1
    game, programs = env.game, ActorPrograms(learners, env.num_envs * joined, 1, steps_per_update)
    if len(learners) != game.num_agents:
        raise ValueError(f"learners: got {len(learners)}; {game.num_agents} are needed, one for each agent")
    for learner in learners:
        state = jax.eval_shape(learner.init, jax.random.key(0))
        if env.has_empty_steps and learns(learner) and not reads_valid(learner, programs, state, game):
            raise ValueError(
                "learner: learns from steps in which nothing happened, which this environment has; one such as ppo, "
                "dqn, impala or td3, or an environment that resets at once, is needed"
            )
        jax.eval_shape(learner.update, jax.random.key(0), state, programs.shapes(learner, state, game))
        if joined > 1:
            check_joined(learner, jax.eval_shape(learner.policy, state), env.num_envs)
    return Setup(tuple(learners), tuple(make_envs), env.num_envs, steps_per_update, system)


def reads_valid(learner: Learner, programs: ActorPrograms, state: LearnerState, game: Game) -> bool:
    """True if a learner's update reads `Trajectory.valid`, by its trace."""
    trajectory = programs.shapes(learner, state, game)

    def update(valid: jax.Array, key: jax.Array, state: Any, rest: Trajectory) -> Any:
        return learner.update(key, state, rest._replace(valid=valid))

    valid = jax.ShapeDtypeStruct(trajectory.done.shape, bool)
    traced = jax.make_jaxpr(update)(valid, jax.random.key(0), state, trajectory)
    first = traced.jaxpr.invars[0]
    return any(first is x for equation in traced.jaxpr.eqns for x in equation.invars)
