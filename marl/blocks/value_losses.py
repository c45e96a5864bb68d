"""Losses of values: squares, and distances that can be evolved, as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from games.core import checks
from games.core.arguments import check_arguments
from games.core.game import Scalar
from marl.blocks.objectives import Parametric

# (values, targets, values before the update) -> what is to be minimised, [...]
ValueLoss = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def l2(value: jax.Array, target: jax.Array, before: jax.Array) -> jax.Array:
    """Half the square of the difference of a value from its target.

    Args:
      value: `[...]`.
      target: `[...]`.
      before: the value before the update, unused.
    """
    del before
    return optax.l2_loss(value, target)


@check_arguments
def clipped_l2(*, clip: Scalar = 0.2) -> ValueLoss:
    """Half the larger square: of the difference from the target, or of that after a move of at most `clip`.

    Args:
      clip: largest move of the value in an update, above 0.

    Raises:
      ValueError: for a `clip` that is not above 0.

    Source: the public code of Schulman et al. (2017), arXiv:1707.06347, where the paper says nothing of it.
    """
    checks.number("clip", clip, 0, brackets="()")

    def loss(value: jax.Array, target: jax.Array, before: jax.Array) -> jax.Array:
        clipped = before + jnp.clip(value - before, -clip, clip)
        return 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2)

    return loss


@check_arguments
def huber(*, delta: Scalar = 1.0) -> ValueLoss:
    """Half the square of the difference from the target, and beyond `delta` a straight line.

    Args:
      delta: difference at which the line begins, above 0.

    Raises:
      ValueError: for a `delta` that is not above 0.

    Example:
      >>> import marl, jax.numpy as jnp
      >>> loss = marl.value_losses.huber(delta=1.0)
      >>> loss(jnp.array([0.5, 3.0]), jnp.zeros(2), jnp.zeros(2)).tolist()  # 0.5^2 / 2, and 1 / 2 + 2
      [0.125, 2.5]

    Source: Huber (1964).
    """
    checks.number("delta", delta, 0, brackets="()")

    def loss(value: jax.Array, target: jax.Array, before: jax.Array) -> jax.Array:
        del before
        return optax.huber_loss(value, target, delta=delta)

    return loss


@check_arguments
def expectile(*, tau: Scalar = 0.25) -> ValueLoss:
    """Half the square of the difference from the target, times 2 tau below the target and 2 (1 - tau) above it.

    Its minimum over a distribution of targets is the tau-expectile: the mean for 0.5, and less for a smaller tau.

    Args:
      tau: weight of values that are too low, in (0, 1).

    Raises:
      ValueError: for a `tau` outside (0, 1).

    Example:
      >>> import marl, jax.numpy as jnp
      >>> loss = marl.value_losses.expectile(tau=0.25)
      >>> loss(jnp.array([-1.0, 1.0]), jnp.zeros(2), jnp.zeros(2)).tolist()
      [0.25, 0.75]

    Source: Newey and Powell, Asymmetric Least Squares Estimation and Testing (1987); for values: Kostrikov et al.,
    Implicit Q-Learning (2021), arXiv:2110.06169, equation 4.
    """
    checks.number("tau", tau, 0, 1, brackets="()")

    def loss(value: jax.Array, target: jax.Array, before: jax.Array) -> jax.Array:
        del before
        return 2 * jnp.where(value > target, 1 - tau, tau) * optax.l2_loss(value, target)

    return loss


@check_arguments
def distance_network(hidden: int = 16, start: Literal["l2", "zero"] = "l2") -> Parametric:
    """A value's distance that is evolved: `apply(parameters, values, targets, values before the update)`, `[B]`.

    Of what a value lacks in units of the batch, s = (value - target) / rms(value before - target), it makes

        d(s) = s^2 / 2 exp(f(s)),  with a start at L2, where f is 0;  or  d(s) = |f(s) - f(0)|,  with a start at zero,

    f a layer of tanh units with biases. Both are 0 where the value equals the target, and at least 0. They are free of
    scale: the mean over the batch is multiplied by what makes its gradient at the values as large as that of L2, so
    that no coefficient, clip or step size can hide in it.

    Args:
      hidden: tanh units.
      start: l2 or zero, the distance at parameters of 0.

    Raises:
      ValueError: for a number of hidden units that is none.
    """
    checks.size("hidden", hidden, 1)
    checks.choice("start", start, ("l2", "zero"))

    def init(key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(key, 3)
        last = jnp.zeros(hidden) if start == "l2" else jax.random.normal(keys[2], (hidden,)) / hidden**0.5
        return {"w1": jax.random.normal(keys[0], (hidden,)), "b1": jax.random.normal(keys[1], (hidden,)), "w2": last}

    def apply(parameters: Any, value: jax.Array, target: jax.Array, before: jax.Array) -> jax.Array:
        unit = jax.lax.stop_gradient(_rms(before - target)) + 1e-8
        s, towards = (value - target) / unit, jnp.ones_like(value)
        distance, slope = jax.jvp(lambda s: distance_of(parameters, s, start), (s,), (towards,))
        scale = _rms(value - target) * unit / (_rms(slope) + 1e-8)
        return distance * jax.lax.stop_gradient(scale)

    return Parametric(init, apply)


def distance_of(parameters: Any, s: jax.Array, start: Literal["l2", "zero"] = "l2") -> jax.Array:
    """d(s) of a `distance_network`, without its scale.

    Args:
      parameters: of the network.
      s: differences from the target in units of the batch, `[...]`.
      start: as of the network.
    """

    def f(s: jax.Array) -> jax.Array:
        return jnp.tanh(s[..., None] * parameters["w1"] + parameters["b1"]) @ parameters["w2"]

    return 0.5 * s**2 * jnp.exp(f(s)) if start == "l2" else jnp.abs(f(s) - f(jnp.zeros_like(s)))


def _rms(x: jax.Array) -> jax.Array:
    return jnp.sqrt((x**2).mean())
