"""A learner that acts with an old policy, as one does whose actors are elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games.core import checks
from games.core.arguments import factory
from marl.core.learner import Learner, Metrics, Parameters, Trajectory


class StaleState(NamedTuple):
    """The learner's state, and its past policies."""

    own: Any  # the learner's
    policies: Parameters  # `[lag, ...]`, those before now, the oldest first


@factory
def stale(learner: Learner, lag: int) -> Learner:
    """The learner, acting with its policy of `lag` updates ago, and before there is one with its first.

    What it learns with is what it would be: what it makes of an old policy's steps is what one sees. `marl.distributed`
    with the same lag does the same with actors elsewhere.

    Args:
      learner: any; its state is in `state.own`.
      lag: in updates; 0 leaves the learner as it is.

    Raises:
      ValueError: for a lag that is no whole number of at least 0, or a learner that takes over what others learn.
    """
    checks.size("lag", lag, 0)
    if learner.sync:
        raise ValueError("stale: got past selves; past_selves(stale(learner, lag)) is needed")
    if not lag:
        return learner

    def init(key: jax.Array) -> StaleState:
        own = learner.init(key)
        first = learner.policy(own)
        return StaleState(own, jax.tree.map(lambda x: jnp.broadcast_to(x, (lag, *jnp.shape(x))), first))

    def policy(state: StaleState) -> Parameters:
        return jax.tree.map(lambda x: x[0], state.policies)

    def update(key: jax.Array, state: StaleState, trajectory: Trajectory) -> tuple[StaleState, Metrics]:
        own, metrics = learner.update(key, state.own, trajectory)
        now = learner.policy(state.own)
        policies = jax.tree.map(lambda old, new: jnp.append(old[1:], new[None], 0), state.policies, now)
        return StaleState(own, policies), metrics

    return learner._replace(init=init, policy=policy, update=update, gradients=None)
