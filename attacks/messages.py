"""What an adversary says: functions from an observation to a message."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from configs.specs import Registry
from games.core import checks


class Message(NamedTuple):
    """A message function: where its search begins, and what it says. Where all parameters are 0 so is the message."""

    init: Callable[[jax.Array], Any]  # (key) -> parameters
    # (parameters, observation [*obs_shape]) -> message [size]; an AssertionError for a batch, or another shape
    speak: Callable[[Any, jax.Array], jax.Array]


def mlp(
    obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi, hidden: Sequence[int] = (64, 64)
) -> Message:
    """`scale` tanh of a network with ReLU units; at first its weights are normal with variance 1 / inputs.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      scale: the message lies in [-scale, scale].
      hidden: units of each layer; none makes the message linear in the observation, before the tanh.

    Raises:
      ValueError: for units that are no whole numbers of at least 1.

    Source: Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, appendix.
    """
    checks.sizes("hidden", hidden, 1)
    checks.number("scale", scale, 0, brackets="()")
    widths = [math.prod(obs_shape), *hidden, size]

    def init(key: jax.Array) -> dict[str, jax.Array]:
        parameters: dict[str, jax.Array] = {}
        for i, (inputs, units) in enumerate(itertools.pairwise(widths)):
            weights = jax.random.normal(jax.random.fold_in(key, i), (inputs, units)) / inputs**0.5
            parameters |= {f"w{i}": weights, f"b{i}": jnp.zeros(units)}
        return parameters

    def speak(parameters: dict[str, jax.Array], obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        x = obs.reshape(-1).astype(jnp.float32)
        for i in range(len(widths) - 1):
            x = x @ parameters[f"w{i}"] + parameters[f"b{i}"]
            x = jax.nn.relu(x) if i < len(widths) - 2 else x
        return scale * jnp.tanh(x)

    return Message(init, speak)


def linear(obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi) -> Message:
    """`scale` tanh(W o + b)."""
    return mlp(obs_shape, size, scale=scale, hidden=())


def echo(
    obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi, units: float | Sequence[float] = 1.0
) -> Message:
    """w . (o / units) in every entry: what a victim sees anyway, along one direction, and louder.

    To a victim that normalises what it sees, a copy multiplies the step size along that direction, which makes its
    learning less stable, the more so if it is a wrong one. Weights are at first normal with variance 1 / inputs.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      scale: the message is clipped to [-scale, scale].
      units: of the entries of an observation, of which some may be far smaller than others; a number, or one for each.

    Raises:
      ValueError: unless they are above 0, and as many as the entries.
    """
    checks.number("scale", scale, 0, brackets="()")
    inputs = math.prod(obs_shape)
    try:
        divisors = np.broadcast_to(np.asarray(units, np.float32), (inputs,))
    except ValueError:
        raise ValueError(f"units: got {np.size(units)}; one number, or {inputs} are needed") from None
    if not (np.isfinite(divisors).all() and (divisors > 0).all()):
        raise ValueError(f"units: got {divisors.tolist()}; numbers above 0 are needed")

    def speak(weights: jax.Array, obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        word = weights @ (obs.reshape(-1).astype(jnp.float32) / divisors)
        return jnp.broadcast_to(jnp.clip(word, -scale, scale), (size,))

    return Message(lambda key: jax.random.normal(key, (inputs,)) / inputs**0.5, speak)


def constant(obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi) -> Message:
    """The same words whatever is seen: `scale` tanh of the parameters, at first standard normal."""
    del obs_shape
    checks.number("scale", scale, 0, brackets="()")
    return Message(lambda key: jax.random.normal(key, (size,)), lambda words, obs: scale * jnp.tanh(words))


def table(
    obs_shape: Sequence[int],
    size: int = 2,
    *,
    low: Sequence[float],
    high: Sequence[float],
    scale: float = 2 * math.pi,
    bins: int = 6,
) -> Message:
    """A message for each cell of a grid over small observations; what lies beyond it belongs to its border.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      low: of the grid, one number for each entry of an observation.
      high: of the grid; finite, as is `low`.
      scale: the message lies in [-scale, scale].
      bins: of each entry.

    Raises:
      ValueError: for a grid that is infinite or has more than a million cells, or bins that are no whole number of at
        least 1.
    """
    checks.size("bins", bins, 1, 1_000_000)
    checks.number("scale", scale, 0, brackets="()")
    lows, highs = (np.broadcast_to(np.asarray(x, np.float32).reshape(-1), (math.prod(obs_shape),)) for x in (low, high))
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (highs > lows).all()):
        raise ValueError(f"got the bounds {lows.tolist()} and {highs.tolist()}; finite ones are needed")
    cells = bins ** len(lows)
    if cells > 1_000_000:
        raise ValueError(f"got {cells:,} cells; a million at most, by fewer bins or another message")
    strides = bins ** np.arange(len(lows))

    def speak(words: jax.Array, obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        cell = jnp.floor((obs.reshape(-1) - lows) / (highs - lows) * bins)
        return scale * jnp.tanh(words[(jnp.clip(cell, 0, bins - 1).astype(jnp.int32) * strides).sum()])

    return Message(lambda key: jax.random.normal(key, (cells, size)), speak)


def loudness(message: Message, parameters: Any, observations: jax.Array) -> jax.Array:
    """The root mean square of what is said about observations `[number, *obs_shape]`, over all entries, `[]`."""
    said = jax.vmap(message.speak, (None, 0))(parameters, observations)
    return jnp.sqrt((said**2).mean())


def as_loud(message: Message, observations: jax.Array, volume: jax.Array) -> Message:
    """A message whose random parameters are as loud as said, so that what they do is not a matter of volume.

    Its parameters are (those of `message`, a factor of what it says); those that were evolved have the factor 1.

    Args:
      message: of any kind. What it says may pass its scale when it is made louder.
      observations: what `loudness` is measured on, `[number, *obs_shape]`.
      volume: the root mean square of what random parameters say about these.
    """

    def init(key: jax.Array) -> tuple[Any, jax.Array]:
        words = message.init(key)
        own = loudness(message, words, observations)
        return words, jnp.where(own > 0, volume / jnp.where(own > 0, own, 1.0), 0.0)

    return Message(init, lambda parameters, obs: parameters[1] * message.speak(parameters[0], obs))


MESSAGES: Registry[Message] = Registry("mlp")
for _factory in (mlp, linear, echo, constant, table):
    MESSAGES.register(_factory.__name__, _factory)


def make_message(spec: str, obs_shape: Sequence[int], size: int, *, field: str = "message") -> Message:
    """A message function from its name, or its name with settings: `mlp`, `mlp(hidden=[16], scale=3.14)`.

    Args:
      spec: mlp, linear, echo, constant or table, or one that was registered.
      obs_shape: of what it is about.
      size: entries of a message.
      field: what the spec is of, for messages about errors.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.
    """
    return MESSAGES.make(field, spec, obs_shape, size)
