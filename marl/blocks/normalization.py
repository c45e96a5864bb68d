"""Running statistics of observations."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from games.core.game import Scalar


class Statistics(NamedTuple):
    """Running mean and variance of observations, over all steps and environments so far."""

    mean: jax.Array  # [*obs_shape]
    variance: jax.Array  # [*obs_shape]
    number: jax.Array  # [], how many there were


def first_statistics(shape: tuple[int, ...]) -> Statistics:
    """Statistics before any observation, by which observations stay as they are."""
    return Statistics(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))


def add(statistics: Statistics, obs: jax.Array) -> Statistics:
    """The statistics with further observations `[N, *obs_shape]`; an `AssertionError` for others.

    Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979).
    """
    chex.assert_shape(obs, (None, *statistics.mean.shape))
    total, delta = statistics.number + len(obs), obs.mean(0) - statistics.mean
    share = len(obs) / total
    both = (1 - share) * statistics.variance + share * obs.var(0) + delta**2 * share * (1 - share)
    return Statistics(statistics.mean + share * delta, both, total)


def normalize(statistics: Statistics, obs: jax.Array, epsilon: Scalar = 1e-8) -> jax.Array:
    """Observations `[..., *obs_shape]` less their mean, in standard deviations; an `AssertionError` for others.

    `epsilon` is added to the variance: what varies less than its root is not scaled up to the rest.
    """
    chex.assert_shape(obs, (..., *statistics.mean.shape))
    return (obs - statistics.mean) * jax.lax.rsqrt(statistics.variance + epsilon)
