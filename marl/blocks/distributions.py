"""Distributions over the actions of a space, as few random bits as they need.

Written here, for distrax brings TensorFlow Probability and seconds of import for two distributions.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from games import Box, Discrete
from games.core import random_bits
from games.core.spaces import MultiDiscrete, Space


class Distribution(NamedTuple):
    """Functions of the numbers that a network puts out, `[..., num_outputs]`, and of actions, `[..., *space.shape]`.

    Actions with other leading axes than the outputs, which would be broadcast, are an `AssertionError` of `log_prob`.
    """

    num_outputs: int  # of the network
    num_scales: int  # further outputs that depend on no observation, last: the logarithms of standard deviations
    sample: Callable[[jax.Array, jax.Array], jax.Array]  # (key, outputs) -> actions
    log_prob: Callable[[jax.Array, jax.Array], jax.Array]  # (outputs, actions) -> [...]
    entropy: Callable[[jax.Array], jax.Array]  # (outputs) -> [...]
    mode: Callable[[jax.Array], jax.Array]  # (outputs) -> actions
    divergence: Callable[[jax.Array, jax.Array], jax.Array]  # (outputs, others) -> [...], of Kullback and Leibler


def distribution(space: Space) -> Distribution:
    """Categorical over a `Discrete` space, with independent entries over a `MultiDiscrete` one, normal over a `Box`.

    Raises:
      ValueError: for any other space, such as a `Box` of integers.
    """
    if isinstance(space, Discrete):
        return categorical(space.n)
    if isinstance(space, MultiDiscrete):
        return multi_categorical(space.nvec)
    if isinstance(space, Box) and jnp.issubdtype(space.dtype, jnp.floating):
        return diagonal_normal(space.shape)
    raise ValueError(f"action space: got {space}; Discrete, MultiDiscrete or a Box of floats is needed")


def categorical(num_actions: int) -> Distribution:
    """Over the integers 0 to num_actions - 1; the outputs are logits."""

    def columns(logits: jax.Array) -> list[jax.Array]:
        """Less the largest of a row. One array an action, for few actions in a row leave the vector units idle."""
        chex.assert_axis_dimension(logits, -1, num_actions)
        each = [logits[..., i] for i in range(num_actions)]
        largest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, each))
        return [x - largest for x in each]

    def log_probs(logits: jax.Array) -> list[jax.Array]:
        each = columns(logits)
        total = jnp.log(_sum(jnp.exp(x) for x in each))
        return [x - total for x in each]

    def sample(key: jax.Array, logits: jax.Array) -> jax.Array:
        # One random word an action, whatever their number: where it falls in the cumulative probabilities.
        uniform = random_bits.uniform(random_bits.array(key, math.prod(logits.shape[:-1]))).reshape(logits.shape[:-1])
        weights = [jnp.exp(x) for x in columns(logits)]
        drawn, below = uniform * _sum(weights), itertools.accumulate(weights[:-1])
        return _sum(((drawn >= x).astype(jnp.int32) for x in below), jnp.zeros(logits.shape[:-1], jnp.int32))

    def log_prob(logits: jax.Array, actions: jax.Array) -> jax.Array:
        chex.assert_shape(actions, logits.shape[:-1])
        return _sum(jnp.where(actions == i, x, 0.0) for i, x in enumerate(log_probs(logits)))

    def entropy(logits: jax.Array) -> jax.Array:
        return -_sum(jnp.exp(x) * x for x in log_probs(logits))

    def divergence(logits: jax.Array, others: jax.Array) -> jax.Array:
        each = zip(log_probs(logits), log_probs(others), strict=True)
        return _sum(jnp.exp(x) * (x - y) for x, y in each)

    def mode(logits: jax.Array) -> jax.Array:
        return jnp.argmax(logits, -1)

    return Distribution(num_actions, 0, sample, log_prob, entropy, mode, divergence)


def multi_categorical(nums_actions: Sequence[int]) -> Distribution:
    """Over vectors of independent integers, entry i from 0 to nums_actions[i] - 1; the outputs are all their logits."""
    entries = [categorical(number) for number in nums_actions]
    ends = list(itertools.accumulate(nums_actions))

    def parts(logits: jax.Array) -> list[tuple[Distribution, jax.Array]]:
        chex.assert_axis_dimension(logits, -1, ends[-1])
        return [(one, logits[..., end - one.num_outputs : end]) for one, end in zip(entries, ends, strict=True)]

    def sample(key: jax.Array, logits: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(entries))
        return jnp.stack([one.sample(k, part) for k, (one, part) in zip(keys, parts(logits), strict=True)], -1)

    def log_prob(logits: jax.Array, actions: jax.Array) -> jax.Array:
        chex.assert_axis_dimension(actions, -1, len(entries))
        return _sum(one.log_prob(part, actions[..., i]) for i, (one, part) in enumerate(parts(logits)))

    def entropy(logits: jax.Array) -> jax.Array:
        return _sum(one.entropy(part) for one, part in parts(logits))

    def mode(logits: jax.Array) -> jax.Array:
        return jnp.stack([one.mode(part) for one, part in parts(logits)], -1)

    def divergence(logits: jax.Array, others: jax.Array) -> jax.Array:
        each = zip(parts(logits), parts(others), strict=True)
        return _sum(one.divergence(part, other) for (one, part), (_, other) in each)

    return Distribution(ends[-1], 0, sample, log_prob, entropy, mode, divergence)


def _sum(arrays: Iterable[jax.Array], *first: jax.Array) -> jax.Array:
    return functools.reduce(jnp.add, arrays, *first)


def diagonal_normal(shape: tuple[int, ...]) -> Distribution:
    """Over arrays of a shape; the outputs are the means and the logarithms of the standard deviations."""
    size = math.prod(shape)

    def parts(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        return outputs[..., :size], outputs[..., size:]

    def arranged(actions: jax.Array) -> jax.Array:
        return actions.reshape(*actions.shape[:-1], *shape)

    def sample(key: jax.Array, outputs: jax.Array) -> jax.Array:
        mean, log_scale = parts(outputs)
        return arranged(mean + jnp.exp(log_scale) * jax.random.normal(random_bits.unrolled(key), mean.shape))

    def log_prob(outputs: jax.Array, actions: jax.Array) -> jax.Array:
        mean, log_scale = parts(outputs)
        chex.assert_shape(actions, (*mean.shape[:-1], *shape))
        deviation = (actions.reshape(mean.shape) - mean) * jnp.exp(-log_scale)
        return (-0.5 * deviation**2 - log_scale - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(outputs: jax.Array) -> jax.Array:
        return (parts(outputs)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def mode(outputs: jax.Array) -> jax.Array:
        return arranged(parts(outputs)[0])

    def divergence(outputs: jax.Array, others: jax.Array) -> jax.Array:
        (mean, log_scale), (other_mean, other_log_scale) = parts(outputs), parts(others)
        ratio, distance = jnp.exp(2 * (log_scale - other_log_scale)), (mean - other_mean) * jnp.exp(-other_log_scale)
        return (0.5 * (ratio + distance**2 - 1) + other_log_scale - log_scale).sum(-1)

    return Distribution(size, size, sample, log_prob, entropy, mode, divergence)
