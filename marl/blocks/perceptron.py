"""Multilayer perceptron as pure functions: the network of the actors and critics of TD3 and SAC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from games.core import checks
from marl.blocks.fan_in import has_fan_in
from marl.blocks.layers import ACTIVATIONS, Activation, Dense


class Function(NamedTuple):
    """A network without a value's head and without memory, as pure functions."""

    init: Callable[[jax.Array], Any]  # (key) -> parameters
    apply: Callable[[Any, jax.Array], jax.Array]  # (parameters, [..., num_inputs]) -> [..., num_outputs]


def perceptron(
    num_inputs: int, num_outputs: int, *, hidden: Sequence[int] = (256, 256), activation: Activation = "relu"
) -> Function:
    """Layers, and a linear one. Weights begin uniform with the variance 1 / (3 inputs), and biases at 0.

    Raises:
      ValueError: for units that are no whole numbers of at least 1.
    """
    checks.sizes("hidden", hidden, 1)
    module, in_columns = (_Perceptron(num_outputs, tuple(hidden), activation, columns) for columns in (False, True))

    def init(key: jax.Array) -> Any:
        return module.init(key, jnp.zeros((1, num_inputs)))["params"]

    def apply(params: Any, x: jax.Array) -> jax.Array:
        chex.assert_shape(x, (..., num_inputs))
        rows = x.reshape(-1, num_inputs)
        found: Any
        if has_fan_in(params):  # `product` takes columns
            found = in_columns.apply({"params": params}, rows.T)
            found = found.T
        else:
            found = module.apply({"params": params}, rows)
        return found.reshape(*x.shape[:-1], num_outputs)

    return Function(init, apply)


class _Perceptron(nn.Module):
    num_outputs: int
    hidden: tuple[int, ...]
    activation: Activation
    columns: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        weights = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        for units in self.hidden:
            x = ACTIVATIONS[self.activation](Dense(units, weights, self.columns)(x))
        return Dense(self.num_outputs, weights, self.columns)(x)
