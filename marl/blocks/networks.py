"""Networks of learners: from an observation to the parameters of an action distribution and to a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from configs import shown
from games.core import checks
from games.core.arguments import factory
from marl.blocks.fan_in import has_fan_in
from marl.blocks.layers import Activation, Init, Layers, where_done


class Network(NamedTuple):
    """A network as pure functions. One without memory has `()` for a carry.

    `apply` takes observations with any leading axes, `[..., *obs_shape]`, and a carry with the same; ours raise an
    `AssertionError` for others.

    Attributes:
      init: (key) -> parameters
      apply: (parameters, obs, carry) -> outputs, values, carry
      initial: (environments) -> carry at the beginning of an episode
      unroll: as `unroll`, faster than step after step
      of_bytes: whether observations are 0 to 255, so that they may not be normalised before
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[..., tuple[jax.Array, jax.Array, Any]]
    initial: Callable[[int], Any] = lambda environments: ()
    unroll: Callable[..., tuple[jax.Array, jax.Array, Any]] | None = None
    of_bytes: bool = False


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
    layer_norm: bool = False,
) -> Network:
    """Layers for the policy and others for the value, or the same for both, with a linear head each.

    Weights begin orthogonal, scaled by the square root of 2; of the policy's head by 0.01, of the value's by 1. Or
    normal with variance 1 / inputs, of layers and heads alike, the default of flax: the
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
      layer_norm: layer normalisation before each activation.

    Raises:
      ValueError: for units that are no whole numbers of at least 1.

    Source: the defaults are PureJaxRL's (Lu et al., 2022), which follow Huang et al., The 37 Implementation Details of
    Proximal Policy Optimization (2022).
    """
    checks.sizes("hidden", hidden, 1)
    if head_weights is not None:
        checks.number("head_weights", head_weights, 0)
    sizes = tuple(obs_shape), num_outputs, num_scales, tuple(hidden)
    weights: dict[str, Any] = {"init_weights": init, "head_weights": head_weights}
    return _network(Layers(*sizes, activation, shared, layer_norm=layer_norm, **weights))


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
    layer_norm: bool = False,
    patches: bool = False,
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
      layer_norm: layer normalisation before each activation, over the channels of a pixel or the units of a layer.
      patches: whether the convolution is one product of all patches with the kernel: the same up to rounding, and on a
        CPU many times faster to learn.

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
    layers = Layers(*sizes, activation, True, ((channels, 3, 1),), memory=memory, layer_norm=layer_norm)
    return _network(layers.clone(patches=patches))


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
    layer_norm: bool = False,
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
      layer_norm: as of `convolutional`.

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
    return _network(Layers(*sizes, activation, True, layers, largest=255.0, memory=memory, layer_norm=layer_norm))


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
    return _network(Layers(*sizes, activation, True, head_weights=head_weights, memory=memory))


def _network(module: Layers) -> Network:
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
        columns = module.prefers_columns(number) or (not module.memory and has_fan_in(params))
        own = module.clone(columns=columns)
        found: Any = own.apply({"params": params}, one_row[0].astype(jnp.float32), one_row[1])
        return jax.tree.map(lambda x: x.reshape(*leading, *x.shape[1:]), found)

    def over_time(params: Any, obs: jax.Array, done: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        chex.assert_shape(obs, (*done.shape, *module.obs_shape))
        rows = obs.reshape(-1, *module.obs_shape).astype(jnp.float32)
        found: Any = module.apply({"params": params}, rows, carry, done)
        return jax.tree.map(lambda x: x.reshape(*done.shape, *x.shape[1:]), found)

    return Network(init, apply, initial, over_time if module.memory else None, module.largest != 1)


def check_normalized(network: Network, normalize_observations: bool) -> None:
    """Raises ValueError for normalised observations before a network of bytes, which would divide them once more."""
    if network.of_bytes and normalize_observations:
        raise ValueError("normalize_observations: got True with nature, which divides bytes by 255; False is needed")


def with_critic(network: Network, critic: Network, own: int | None = None) -> Network:
    """Two networks side by side: the outputs of the first, and the values of both, `[..., 2]`.

    Args:
      network: the first.
      critic: the second.
      own: entries of the last axis of an observation that the first one sees; None for all.
    """

    def beside(first: Any, second: Any) -> tuple[jax.Array, jax.Array, Any]:
        return first[0], jnp.stack([first[1], second[1]], -1), (first[2], second[2])

    def apply(params: Any, obs: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        return beside(network.apply(params[0], obs[..., :own], carry[0]), critic.apply(params[1], obs, carry[1]))

    def over_time(params: Any, obs: jax.Array, done: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        first = unroll(network, params[0], obs[..., :own], done, carry[0])
        return beside(first, unroll(critic, params[1], obs, done, carry[1]))

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key)
        return network.init(keys[0]), critic.init(keys[1])

    of_bytes = network.of_bytes or critic.of_bytes
    return Network(
        init, apply, lambda num_envs: (network.initial(num_envs), critic.initial(num_envs)), over_time, of_bytes
    )


def central_critic(network: Network, critic: Network, own: int) -> Network:
    """Outputs of a network of the first `own` entries of an observation's last axis, and values of a critic of all.

    Args:
      network: the policy's; its value is not used.
      critic: the value's; its outputs are not used.
      own: entries of the last axis that the policy sees.
    """
    both = with_critic(network, critic, own)

    def central(found: Any) -> tuple[jax.Array, jax.Array, Any]:
        outputs, values, carry = found
        return outputs, values[..., 1], carry

    def apply(params: Any, obs: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        return central(both.apply(params, obs, carry))

    def over_time(params: Any, obs: jax.Array, done: jax.Array, carry: Any) -> tuple[jax.Array, jax.Array, Any]:
        return central(unroll(both, params, obs, done, carry))

    return both._replace(apply=apply, unroll=over_time)


def unroll(
    network: Network, params: Any, obs: jax.Array, done: jax.Array, carry: Any
) -> tuple[jax.Array, jax.Array, Any]:
    """Outputs, values and the carry after each step of a network over the steps `[T, N, ...]` of a rollout.

    Args:
      network: the network; its carry is reset where an episode ended.
      params: its parameters.
      obs: `[T, N, *obs_shape]`.
      done: `[T, N]`, whether the episode ended with the step.
      carry: before the first step, `[N, ...]`. Without a carry all steps go through the network at once.
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
