"""Networks of learners: from what a player sees to what its policy needs and to a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from configs import shown
from games.core import checks
from games.core.arguments import factory

Activation = Literal["tanh", "relu"]
Init = Literal["orthogonal", "lecun_normal"]
AT_ONCE = 16  # large images
_ACTIVATIONS = {"tanh": jnp.tanh, "relu": nn.relu}


class Network(NamedTuple):
    """A network as pure functions. One without memory has `()` for a carry.

    `apply` takes observations with any leading axes, `[..., *obs_shape]`, and a carry with the same; ours raise an
    `AssertionError` for others.

    Attributes:
      init: (key) -> parameters
      apply: (parameters, obs, carry) -> outputs, values, carry
      initial: (environments) -> carry at the beginning of an episode
      unroll: as `unroll`, faster than step after step
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[..., tuple[jax.Array, jax.Array, Any]]
    initial: Callable[[int], Any]
    unroll: Callable[..., tuple[jax.Array, jax.Array, Any]] | None = None


@factory
def feed_forward(
    obs_shape: Sequence[int],
    num_outputs: int,
    *,
    num_scales: int = 0,
    hidden: Sequence[int] = (64, 64),
    activation: Activation = "tanh",
    shared: bool = False,
    init: Init = "orthogonal",
    head_weights: float | None = None,
) -> Network:
    """Layers for the policy and others for the value, or the same for both, with a linear head each.

    Weights begin orthogonal, scaled by the square root of 2; of the policy's head by 0.01, of the value's by 1. Or
    normal with variance 1 / inputs, of layers and heads alike, which is what flax does unless it is told otherwise: the
    hidden units begin less steep, and the policy decided and not uniform.

    Args:
      obs_shape: of an observation, which is flattened.
      num_outputs: of the policy's head.
      num_scales: numbers that depend on no observation, appended to the outputs; 0 at first.
      hidden: units of each layer.
      activation: after each.
      shared: whether policy and value share the layers.
      init: how weights begin; biases begin at 0.
      head_weights: what all weights of the two heads begin at instead, without biases: 0.5 in the public code of Khan
        et al. (2023), whose policies so begin uniform.

    Raises:
      ValueError: for units that are no whole numbers of at least 1.

    Source: the defaults are PureJaxRL's (Lu et al., 2022), which follow Huang et al., The 37 Implementation Details of
    Proximal Policy Optimization (2022).
    """
    checks.sizes("hidden", hidden, 1)
    if head_weights is not None:
        checks.number("head_weights", head_weights, 0)
    sizes = tuple(obs_shape), num_outputs, num_scales, tuple(hidden)
    return _network(_Layers(*sizes, activation, shared, init_weights=init, head_weights=head_weights))


@factory
def convolutional(
    obs_shape: Sequence[int],
    num_outputs: int,
    *,
    num_scales: int = 0,
    channels: int = 16,
    hidden: Sequence[int] = (128,),
    memory: int = 0,
    activation: Activation = "relu",
) -> Network:
    """A convolution of 3 x 3 over images `[height, width, channels]`, then layers that policy and value share.

    Args:
      obs_shape: of an image.
      num_outputs: of the policy's head.
      num_scales: numbers that depend on no observation, appended to the outputs; 0 at first.
      channels: of the convolution.
      hidden: units of each layer after it.
      memory: size of the carry of a gated recurrent unit behind the layers, as of `recurrent`; 0 is none.
      activation: after each convolution and layer.

    Raises:
      ValueError: for observations that are no images, or units or channels that are no whole numbers of at least 1.

    Source: the network of Young and Tian, MinAtar (2019), arXiv:1903.03176.
    """
    if len(obs_shape) != 3:
        got = shown(tuple(obs_shape))
        raise ValueError(f"network: got observations {got}; images [height, width, channels] are needed")
    checks.sizes("hidden", hidden, 1)
    checks.size("channels", channels, 1)
    checks.size("memory", memory, 0)
    sizes = tuple(obs_shape), num_outputs, num_scales, tuple(hidden)
    return _network(_Layers(*sizes, activation, True, ((channels, 3, 1),), memory=memory))


@factory
def nature(
    obs_shape: Sequence[int],
    num_outputs: int,
    *,
    num_scales: int = 0,
    filters: Sequence[int] = (32, 64, 64),
    hidden: Sequence[int] = (512,),
    memory: int = 0,
    activation: Activation = "relu",
) -> Network:
    """Convolutions for large images of bytes, `[height, width, channels]`, then layers that both heads share.

    The first is of 8 x 8 with a stride of 4, the second of 4 x 4 with one of 2, the third of 3 x 3. With
    `filters=[16, 32], hidden=[256]` it is the network of A3C, a quarter as dear; with `memory=512` nearly that of R2D2,
    which has a long short-term memory.

    Args:
      obs_shape: of an image, of 36 x 36 at least, whose entries are 0 to 255.
      num_outputs: of the policy's head.
      num_scales: numbers that depend on no observation, appended to the outputs; 0 at first.
      filters: channels of each convolution, three at most.
      hidden: units of each layer after the convolutions.
      memory: size of the carry of a gated recurrent unit behind the layers, as of `recurrent`; 0 is none.
      activation: after each convolution and layer.

    Raises:
      ValueError: for observations that are no such images, or units that are no whole numbers of at least 1.

    Source: Mnih et al., Human-level control through deep reinforcement learning (2015).
    """
    if len(obs_shape) != 3 or min(obs_shape[:2]) < 36:
        raise ValueError(f"network: got observations {shown(tuple(obs_shape))}; images of 36 x 36 at least are needed")
    checks.sizes("hidden", hidden, 1)
    checks.sizes("filters", filters, 1)
    checks.size("memory", memory, 0)
    if not 1 <= len(filters) <= 3:
        raise ValueError(f"filters: got {len(filters)} numbers; one to three are needed")
    layers = tuple((number, *size) for number, size in zip(filters, ((8, 4), (4, 2), (3, 1)), strict=False))
    sizes = tuple(obs_shape), num_outputs, num_scales, tuple(hidden)
    return _network(_Layers(*sizes, activation, True, layers, largest=255.0, memory=memory))


@factory
def recurrent(
    obs_shape: Sequence[int],
    num_outputs: int,
    *,
    num_scales: int = 0,
    hidden: Sequence[int] = (64,),
    memory: int = 64,
    activation: Activation = "tanh",
    head_weights: float | None = None,
) -> Network:
    """Layers, then a gated recurrent unit, with a linear head each for policy and value.

    Args:
      obs_shape: of an observation, which is flattened.
      num_outputs: of the policy's head.
      num_scales: numbers that depend on no observation, appended to the outputs; 0 at first.
      hidden: units of each layer before the unit.
      memory: size of the carry, which is 0 at the beginning of an episode.
      activation: after each layer.
      head_weights: as of `feed_forward`.

    Raises:
      ValueError: for units or a memory that are no whole numbers of at least 1.
    """
    checks.sizes("hidden", hidden, 1)
    checks.size("memory", memory, 1)
    if head_weights is not None:
        checks.number("head_weights", head_weights, 0)
    sizes = tuple(obs_shape), num_outputs, num_scales, tuple(hidden)
    return _network(_Layers(*sizes, activation, True, head_weights=head_weights, memory=memory))


def _network(module: _Layers) -> Network:
    def initial(num_envs: int) -> Any:
        return jnp.zeros((num_envs, module.memory)) if module.memory else ()

    def init(key: jax.Array) -> Any:
        return module.init(key, jnp.zeros((1, *module.obs_shape)), initial(1))["params"]

    def apply(params: Any, obs: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        chex.assert_shape(obs, (..., *module.obs_shape))
        leading = obs.shape[: obs.ndim - len(module.obs_shape)]
        chex.assert_tree_shape_prefix(carry, leading)
        number = math.prod(leading)
        one_row = jax.tree.map(lambda x: x.reshape(number, *x.shape[len(leading) :]), (obs, carry))
        own = module.clone(columns=module.prefers_columns(number))
        found: Any = own.apply({"params": params}, one_row[0].astype(jnp.float32), one_row[1])
        return jax.tree.map(lambda x: x.reshape(*leading, *x.shape[1:]), found)

    def over_time(params: Any, obs: jax.Array, done: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        chex.assert_shape(obs, (*done.shape, *module.obs_shape))
        rows = obs.reshape(-1, *module.obs_shape).astype(jnp.float32)
        found: Any = module.apply({"params": params}, rows, carry, done)
        return jax.tree.map(lambda x: x.reshape(*done.shape, *x.shape[1:]), found)

    return Network(init, apply, initial, over_time if module.memory else None)


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
    module = _Perceptron(num_outputs, tuple(hidden), activation)

    def init(key: jax.Array) -> Any:
        return module.init(key, jnp.zeros((1, num_inputs)))["params"]

    def apply(params: Any, x: jax.Array) -> jax.Array:
        chex.assert_shape(x, (..., num_inputs))
        found: Any = module.apply({"params": params}, x.reshape(-1, num_inputs))
        return found.reshape(*x.shape[:-1], num_outputs)

    return Function(init, apply)


def with_critic(network: Network, critic: Network) -> Network:
    """Both side by side: the outputs of the first, and the values of both, `[..., 2]`; its other outputs are unused."""

    def beside(own: Any, other: Any) -> tuple[jax.Array, jax.Array, Any]:
        return own[0], jnp.stack([own[1], other[1]], -1), (own[2], other[2])

    def apply(params: Any, obs: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        return beside(network.apply(params[0], obs, carry[0]), critic.apply(params[1], obs, carry[1]))

    def over_time(params: Any, obs: jax.Array, done: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        own = unroll(network, params[0], obs, done, carry[0])
        return beside(own, unroll(critic, params[1], obs, done, carry[1]))

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key)
        return network.init(keys[0]), critic.init(keys[1])

    return Network(init, apply, lambda num_envs: (network.initial(num_envs), critic.initial(num_envs)), over_time)


def unroll(
    network: Network, params: Any, obs: jax.Array, done: jax.Array, carry: Any
) -> tuple[jax.Array, jax.Array, Any]:
    """What a network makes of steps `[T, N, ...]` one after the other: outputs, values, and the carry after each step.

    Args:
      network: whose carry begins anew where an episode ended.
      params: of it.
      obs: `[T, N, *obs_shape]`.
      done: `[T, N]`, whether the episode ended with the step.
      carry: before the first of them, `[N, ...]`. Where there is none, all steps go through the network at once.
    """
    if not jax.tree.leaves(carry):
        return network.apply(params, obs, carry)
    if network.unroll:
        return network.unroll(params, obs, done, carry)

    def step(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> Any:
        obs, done = inputs
        outputs, value, carry = network.apply(params, obs, carry)
        return where_done(done, network.initial(len(done)), carry), (outputs, value, carry)

    return jax.lax.scan(step, carry, (obs, done))[1]


def orthogonal(scale: float) -> Callable[..., jax.Array]:
    """An initialiser of flax: `scale` times a matrix with orthonormal rows or columns, evenly among all of them.

    Gram and Schmidt's, each column twice, where flax takes LAPACK's decomposition: of a batch that one runs its parts
    on the threads that wait for them, and where there are two it can wait for ever.
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


class Dense(nn.Module):
    """A layer, `[N, inputs] -> [N, units]`, with the parameters of flax's; or in columns, `[inputs, N] -> [units, N]`.

    Where a batch is long and layers are small, what bounds learning is not the products but what is done to each of
    their numbers, and along the batch the vector units work evenly, whatever the number of units: the epochs of a
    victim of 32 units and 1,023 steps take less than half the time on a processor's core. For short batches
    and wide layers it is the other way round, by a tenth.
    """

    units: int
    kernel_init: Any
    columns: bool = False
    biased: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", self.kernel_init, (x.shape[0 if self.columns else 1], self.units))
        if not self.biased:
            return kernel.T @ x if self.columns else x @ kernel
        bias = self.param("bias", nn.initializers.zeros, (self.units,))
        return kernel.T @ x + bias[:, None] if self.columns else x @ kernel + bias


def _dense(units: int, scale: float = 2**0.5, init: Init = "orthogonal", columns: bool = False) -> Dense:
    return Dense(units, orthogonal(scale) if init == "orthogonal" else nn.initializers.lecun_normal(), columns)


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


class _Layers(nn.Module):
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

    def prefers_columns(self, number: int) -> bool:
        """Whether a batch of so many is faster in columns."""
        shape = self.obs_shape
        for channels, size, stride in self.convolutions:
            shape = (*((side - size) // stride + 1 for side in shape[:2]), channels)
        inputs = math.prod(shape)
        return not self.memory and number >= 8 * max(inputs, *self.hidden, 1)

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Any, done: jax.Array | None = None) -> tuple[jax.Array, jax.Array, Any]:
        """One step, `[N, ...]`; or T steps in T * N rows, after some of which, `done` `[T, N]`, the carry is 0 again.

        Only the unit takes them one after the other: what comes before and behind it computes all of them at once.
        """
        activate = _ACTIVATIONS[self.activation]
        if self.largest != 1:
            obs = obs / self.largest
        convolutions = [
            nn.Conv(channels, (size, size), (stride, stride), padding="VALID", kernel_init=orthogonal(2**0.5))
            for channels, size, stride in self.convolutions
        ]
        # Large images a few at a time, one after the other in the program: what one convolution leaves is in the cache
        # for the next one, and its gradient takes a quarter of the time. In a loop XLA's convolutions have one thread.
        few = AT_ONCE if self.largest != 1 and len(obs) <= 64 * AT_ONCE else max(len(obs), 1)
        parts = []
        for first in range(0, max(len(obs), 1), few):
            part = obs[first : first + few]
            for one in convolutions:
                part = activate(one(part))
            parts.append(part)
        obs = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
        flat = obs.reshape(len(obs), -1)

        def layers() -> jax.Array:
            x = flat.T if self.columns else flat
            for units in self.hidden:
                x = activate(_dense(units, init=self.init_weights, columns=self.columns)(x))
            return x

        for_policy = layers()
        if self.memory:
            carry = for_policy = self._remembered(for_policy, carry, done)
        heads = _Heads(self.num_outputs, self.num_scales, self.init_weights, self.columns, self.head_weights)
        return (*heads(for_policy, for_policy if self.shared else layers()), carry)

    def _remembered(self, x: jax.Array, carry: jax.Array, done: jax.Array | None) -> jax.Array:
        """The carry after each step, which is what a gated recurrent unit puts out."""
        cell = nn.GRUCell(self.memory, recurrent_kernel_init=orthogonal(1.0))
        if done is None:
            return cell(carry, x)[0]

        def step(cell: nn.GRUCell, carry: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> Any:
            x, done = inputs
            carry, _ = cell(carry, x)
            return where_done(done, jnp.zeros_like(carry), carry), carry

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        return scan(cell, carry, (x.reshape(*done.shape, -1), done))[1].reshape(len(x), -1)


class _Perceptron(nn.Module):
    num_outputs: int
    hidden: tuple[int, ...]
    activation: Activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        weights = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        for units in self.hidden:
            x = _ACTIVATIONS[self.activation](Dense(units, weights)(x))
        return Dense(self.num_outputs, weights)(x)


def where_done(done: jax.Array, new: Any, old: Any) -> Any:
    """`new` where an episode ended, of pytrees with `[N, ...]`; `done` is `[N]`.

    Raises:
      AssertionError: for other shapes, which would be broadcast.
    """
    chex.assert_rank(done, 1)
    chex.assert_trees_all_equal_shapes(new, old)
    chex.assert_tree_shape_prefix(old, done.shape)
    return jax.tree.map(lambda x, y: jnp.where(done.reshape(-1, *[1] * (x.ndim - 1)), x, y), new, old)
