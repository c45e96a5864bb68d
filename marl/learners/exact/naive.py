"""The naive learner: gradient ascent that takes the other players for part of the world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games.core import checks
from games.core.arguments import check_arguments
from marl.core.learner import Learner, Metrics, Trajectory


class PolicyState(NamedTuple):
    """State of a player that is one policy: what a white-box co-player may read."""

    logits: jax.Array  # `[logits]`


@check_arguments
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
    return follow(jax.grad(payoff), normal_logits(init_scale, num_logits), learning_rate=learning_rate)


@check_arguments
def follow(
    direction: Callable[[jax.Array, jax.Array], jax.Array],
    init: Callable[[jax.Array], jax.Array],
    *,
    learning_rate: float = 1.0,
) -> Learner:
    """A player that is one policy, and moves it by any function of both policies: what all white-box learners are.

        theta <- theta + learning_rate * direction(theta, theta')

    Args:
      direction: `(own, other) -> [logits]`; averaged over environments where the co-player plays several policies.
      init: `(key) -> logits`.
      learning_rate: step size.

    Raises:
      ValueError: for a learning rate below 0.
    """
    checks.number("learning_rate", learning_rate, 0)

    def update(key: jax.Array, state: PolicyState, trajectory: Trajectory) -> tuple[PolicyState, Metrics]:
        del key
        # The policies that the co-player played last: one, or one in each environment.
        others = trajectory.others[0][-1].reshape(-1, trajectory.others[0].shape[-1])
        directions = jax.vmap(direction, (None, 0))(state.logits, others)
        return PolicyState(state.logits + learning_rate * directions.mean(0)), {}

    return one_policy(lambda key: PolicyState(init(key)), update)


def normal_logits(scale: float, num_logits: int) -> Callable[[jax.Array], jax.Array]:
    """Initial logits from N(0, scale^2), as a function of a key; raises ValueError for a scale below 0."""
    checks.number("init_scale", scale, 0)
    return partial(_normal, scale=scale, num_logits=num_logits)


def _normal(key: jax.Array, *, scale: float, num_logits: int) -> jax.Array:
    return scale * jax.random.normal(key, (num_logits,))


@check_arguments
def one_policy(init: Callable[[jax.Array], Any], update: Callable[..., tuple[Any, Metrics]]) -> Learner:
    """A player that is one policy, the `logits` of its state, in every environment alike and whatever it sees.

    Args:
      init: `(key) -> state`, with `logits`.
      update: as of `Learner`.
    """
    return Learner(init=init, act=_play, update=update, policy=lambda state: state.logits)


def _play(key: jax.Array, logits: jax.Array, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
    del key
    return jnp.broadcast_to(logits, (*obs.shape[:-1], *logits.shape)), memory, ()
