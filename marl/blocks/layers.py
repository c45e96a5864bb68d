"""Layers of networks, as modules of flax: dense, convolutional and with a memory, and the heads for policy and value.

The names of the classes are those of the parameters in checkpoints, such as `_Heads_0.Dense_0.kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from marl.blocks.fan_in import is_fan_in, product

Activation = Literal["tanh", "relu"]
Init = Literal["orthogonal", "lecun_normal"]
AT_ONCE = 16  # large images
ACTIVATIONS = {"tanh": jnp.tanh, "relu": nn.relu}


class Layers(nn.Module):
    """Convolutions of an image, if there is one, then dense layers, and an output layer."""

    obs_shape: tuple[int, ...]
    num_outputs: int
    num_scales: int
    hidden: tuple[int, ...]
    activation: Activation
    shared: bool
    convolutions: tuple[tuple[int, int, int], ...] = ()  # (channels, size, stride) of each, which come first
    init_weights: Init = "orthogonal"
    columns: bool = False
    head_weights: float | None = None
    largest: float = 1.0  # entry of an observation
    memory: int = 0  # units behind the layers, which are shared then
    layer_norm: bool = False  # before each activation, over units or channels
    patches: bool = False  # convolutions as products with patches

    def prefers_columns(self, number: int) -> bool:
        """True if a batch of this length is faster in columns."""
        shape = self.obs_shape
        for channels, size, stride in self.convolutions:
            shape = (*((side - size) // stride + 1 for side in shape[:2]), channels)
        inputs = math.prod(shape)
        return not self.memory and number >= 8 * max(inputs, *self.hidden, 1)

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Any, done: jax.Array | None = None) -> tuple[jax.Array, jax.Array, Any]:
        """One step, `[N, ...]`; or T steps in T * N rows, with the carry set to 0 after the steps of `done` `[T, N]`.

        Only the recurrent unit takes the steps one after the other; the layers around it compute all of them at once.
        """
        activation = ACTIVATIONS[self.activation]

        def activate(x: jax.Array, axis: int = -1) -> jax.Array:
            return activation(nn.LayerNorm(reduction_axes=axis, feature_axes=axis)(x) if self.layer_norm else x)

        if self.largest != 1:
            obs = obs / self.largest
        convolution: Any = Patches if self.patches else nn.Conv
        convolutions = [
            convolution(
                channels,
                (size, size),
                (stride, stride),
                padding="VALID",
                kernel_init=orthogonal(2**0.5),
                name=f"Conv_{i}",
            )
            for i, (channels, size, stride) in enumerate(self.convolutions)
        ]
        # Large images a few at a time, unrolled: the output of a convolution is still in the cache for the next one,
        # and the gradient takes a quarter of the time. In a loop XLA's convolutions have one thread.
        few = AT_ONCE if self.largest != 1 and len(obs) <= 64 * AT_ONCE else max(len(obs), 1)
        norms = [nn.LayerNorm() if self.layer_norm else lambda x: x for _ in convolutions]  # the same for all parts
        parts = []
        for first in range(0, max(len(obs), 1), few):
            part = obs[first : first + few]
            for one, norm in zip(convolutions, norms, strict=True):
                part = activation(norm(one(part)))
            parts.append(part)
        obs = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
        flat = obs.reshape(len(obs), -1)

        def layers() -> jax.Array:
            x = flat.T if self.columns else flat
            for units in self.hidden:
                x = activate(_dense(units, init=self.init_weights, columns=self.columns)(x), 0 if self.columns else -1)
            return x

        for_policy = layers()
        if self.memory:
            carry = for_policy = self._remembered(for_policy, carry, done)
        heads = _Heads(self.num_outputs, self.num_scales, self.init_weights, self.columns, self.head_weights)
        return (*heads(for_policy, for_policy if self.shared else layers()), carry)

    def _remembered(self, x: jax.Array, carry: jax.Array, done: jax.Array | None) -> jax.Array:
        """The carry after each step, which is the output of a gated recurrent unit."""
        cell = nn.GRUCell(self.memory, recurrent_kernel_init=orthogonal(1.0))
        if done is None:
            return cell(carry, x)[0]

        def step(cell: nn.GRUCell, carry: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> Any:
            x, done = inputs
            carry, _ = cell(carry, x)
            return where_done(done, jnp.zeros_like(carry), carry), carry

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        return scan(cell, carry, (x.reshape(*done.shape, -1), done))[1].reshape(len(x), -1)


class _Heads(nn.Module):
    num_outputs: int
    num_scales: int
    init_weights: Init = "orthogonal"
    columns: bool = False
    weights: float | None = None

    @nn.compact
    def __call__(self, for_policy: jax.Array, for_value: jax.Array) -> tuple[jax.Array, jax.Array]:
        def head(units: int, scale: float) -> Dense:
            if self.weights is not None:
                return Dense(units, nn.initializers.constant(self.weights), self.columns, biased=False)
            return _dense(units, scale, self.init_weights, self.columns)

        outputs = head(self.num_outputs, 0.01)(for_policy)
        value = head(1, 1.0)(for_value)
        if self.columns:
            outputs, value = outputs.T, value.T
        if self.num_scales:
            scales = self.param("scales", nn.initializers.zeros, (self.num_scales,))
            outputs = jnp.concatenate([outputs, jnp.broadcast_to(scales, (len(value), self.num_scales))], -1)
        return outputs, value[:, 0]


def _dense(units: int, scale: float = 2**0.5, init: Init = "orthogonal", columns: bool = False) -> Dense:
    return Dense(units, orthogonal(scale) if init == "orthogonal" else nn.initializers.lecun_normal(), columns)


class Patches(nn.Module):
    """A convolution of flax as one product of all patches with the kernel, which has the same parameters.

    In a loop on a CPU, XLA's gradient of a convolution has one thread and takes 28 times as long as that of the product
    (1,024 images of 7 x 7 x 6, a kernel of 3 x 3 x 6 x 16, two cores).
    """

    channels: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int]
    padding: str
    kernel_init: Any

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        (rows, columns), (down, right) = self.kernel_size, self.strides
        kernel = self.param("kernel", self.kernel_init, (rows, columns, images.shape[-1], self.channels))
        bias = self.param("bias", nn.initializers.zeros, (self.channels,))
        height, width = (images.shape[1] - rows) // down + 1, (images.shape[2] - columns) // right + 1
        shifted = [
            images[:, i : i + down * (height - 1) + 1 : down, j : j + right * (width - 1) + 1 : right]
            for i in range(rows)
            for j in range(columns)
        ]
        patches = jnp.concatenate(shifted, -1).reshape(len(images) * height * width, -1)
        return (patches @ kernel.reshape(-1, self.channels) + bias).reshape(len(images), height, width, -1)


class Dense(nn.Module):
    """A layer, `[N, inputs] -> [N, units]`, with the parameters of flax's; or in columns, `[inputs, N] -> [units, N]`.

    With a long batch and small layers the elementwise operations bound learning, and not the products. Along the batch
    the vector units are full for any number of units: the epochs of a victim of 32 units and 1,023 steps take less than
    half the time on a processor's core. With short batches and wide layers, rows are faster by a tenth.
    """

    units: int
    kernel_init: Any
    columns: bool = False
    biased: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel: Any = self.get_variable("params", "kernel")
        if is_fan_in(kernel):  # as `sparse(constant_fan_in=True)` makes it
            found = product(kernel, x) if self.columns else product(kernel, x.T).T
        else:
            kernel = self.param("kernel", self.kernel_init, (x.shape[0 if self.columns else 1], self.units))
            found = kernel.T @ x if self.columns else x @ kernel
        if not self.biased:
            return found
        bias = self.param("bias", nn.initializers.zeros, (self.units,))
        return found + bias[:, None] if self.columns else found + bias


def orthogonal(scale: float) -> Callable[..., jax.Array]:
    """Initialiser for flax: `scale` times a uniformly drawn matrix with orthonormal rows or columns.

    By Gram-Schmidt, each column twice, in place of LAPACK's decomposition that flax takes: batched, that one runs its
    parts on the threads that wait for them, and with two threads it can deadlock.
    """

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        long, short = max(rows, columns), min(rows, columns)
        drawn = jax.random.normal(key, (short, long), dtype)

        def add(done: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            vector = drawn[i]
            for _ in range(2):
                vector = vector - (done @ vector) @ done
            return done.at[i].set(vector / jnp.linalg.norm(vector)), None

        basis, _ = jax.lax.scan(add, jnp.zeros_like(drawn), jnp.arange(short))
        return scale * (basis.T if rows >= columns else basis).reshape(shape)

    return init


def where_done(done: jax.Array, new: Any, old: Any) -> Any:
    """Takes `new` where an episode ended and `old` elsewhere, in pytrees of `[N, ...]`; `done` is `[N]`.

    Raises:
      AssertionError: for other shapes, because they would be broadcast.
    """
    chex.assert_rank(done, 1)
    chex.assert_trees_all_equal_shapes(new, old)
    chex.assert_tree_shape_prefix(old, done.shape)
    return jax.tree.map(lambda x, y: jnp.where(done.reshape(-1, *[1] * (x.ndim - 1)), x, y), new, old)
