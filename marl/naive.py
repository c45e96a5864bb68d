"""The naive learner: gradient ascent that takes the other players for part of the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from marl.learn import Learner, Metrics, Trajectory


class PolicyState(NamedTuple):
    """State of a player that is one policy: what a white-box co-player may read."""

    logits: jax.Array  # `[logits]`


def naive(
    payoff: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    learning_rate: float = 1.0,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """Gradient ascent on the exact payoff, blind to the co-player's learning.

        theta <- theta + learning_rate * d payoff(theta, theta') / d theta

    Args:
      payoff: `(own, other) -> scalar`, differentiable; own and other are logits.
      learning_rate: step size; 1.0 in Lu et al. (2022).
      init_scale: standard deviation of the normal initial logits.
      num_logits: length of the policy, 5 for memory one.

    Source: the NL of Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447.
    """

    def init(key: jax.Array) -> PolicyState:
        return PolicyState(init_scale * jax.random.normal(key, (num_logits,)))

    def update(key: jax.Array, state: PolicyState, trajectory: Trajectory) -> tuple[PolicyState, Metrics]:
        del key
        # The policies that the co-player played last: one, or one in each environment.
        others = trajectory.others[0][-1].reshape(-1, trajectory.others[0].shape[-1])
        gradients = jax.vmap(jax.grad(payoff), (None, 0))(state.logits, others)
        return PolicyState(state.logits + learning_rate * gradients.mean(0)), {}

    return Learner(init, play_policy, update)


def play_policy(key: jax.Array, state: PolicyState, obs: jax.Array) -> tuple[jax.Array, PolicyState, tuple]:
    """Acts with the policy in the state, in every environment alike, whatever is seen."""
    del key
    return jnp.broadcast_to(state.logits, (*obs.shape[:-1], *state.logits.shape)), state, ()
