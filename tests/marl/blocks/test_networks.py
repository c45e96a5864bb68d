"""Networks: the same numbers for any number of observations at once, and orthogonal first weights."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl.blocks.layers import Layers, orthogonal
from marl.blocks.networks import check_normalized, convolutional, feed_forward, nature, recurrent, unroll, with_critic

SHORT, LONG = 8, 512


@pytest.mark.parametrize(
    ("make", "shape", "settings"),
    [
        (feed_forward, (5,), {"hidden": (16, 8), "num_scales": 2}),
        (feed_forward, (2, 2), {"hidden": (16,), "shared": True, "init": "lecun_normal", "activation": "relu"}),
        (convolutional, (4, 4, 2), {"hidden": (8,), "channels": 2}),
    ],
    ids=["apart", "shared", "images"],
)
def test_a_long_batch_in_columns_has_the_results_of_short_ones_in_rows(make, shape, settings):
    layers = Layers(shape, 3, 0, settings["hidden"], "tanh", True)
    assert layers.prefers_columns(LONG)
    assert not layers.prefers_columns(SHORT)
    network = make(shape, 3, **settings)
    params = network.init(jax.random.key(0))
    weights = jax.random.normal(jax.random.key(1), (LONG, 4 + settings.get("num_scales", 0)))

    def weighted(params, obs, weights):
        outputs, values, carry = network.apply(params, obs, ())
        assert carry == ()
        return (jnp.concatenate([outputs, values[..., None]], -1) * weights).sum()

    obs = jax.random.normal(jax.random.key(2), (LONG, *shape))
    short = obs.reshape(-1, SHORT, *shape), weights.reshape(LONG // SHORT, SHORT, -1)

    def in_parts(params):
        return jax.lax.map(lambda part: weighted(params, *part), short).sum()

    value, gradient = jax.jit(jax.value_and_grad(weighted))(params, obs, weights)
    expected, expected_gradient = jax.jit(jax.value_and_grad(in_parts))(params)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-3)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-3), gradient, expected_gradient)


@pytest.mark.parametrize("make", [feed_forward, recurrent])
def test_heads_of_one_weight_have_no_bias_and_begin_uniform(make):
    """Heads of the public code of Khan et al. (2023): each output is half the sum of the features."""
    network = make((5,), 3, hidden=(), head_weights=0.5)
    params, obs = network.init(jax.random.key(0)), jnp.eye(5)[None]
    heads = params["_Heads_0"]
    assert {name: list(layer) for name, layer in heads.items()} == {"Dense_0": ["kernel"], "Dense_1": ["kernel"]}
    assert all(np.all(layer["kernel"] == 0.5) for layer in heads.values())
    carry = jax.tree.map(lambda x: x[None], network.initial(5))
    outputs, values, _ = network.apply(params, obs, carry)
    np.testing.assert_allclose(outputs, np.broadcast_to(values[..., None], outputs.shape), atol=1e-6)
    if make is feed_forward:  # for one-hot states
        np.testing.assert_allclose(values, np.full((1, 5), 0.5))


def convolved(images, layer, stride):
    """A convolution of `[N, height, width, channels]` in float64, without padding, and a rectifier."""
    kernel = np.float64(layer["kernel"])
    windows = np.lib.stride_tricks.sliding_window_view(images, kernel.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.maximum(np.einsum("nijcab,abco->nijo", windows, kernel) + layer["bias"], 0)


def gated(unit, x, h):
    """The unit of Cho et al. (2014) in the variant of flax: the reset gate is after the product with the memory."""

    def of(name, x):
        return x @ np.float64(unit[name]["kernel"]) + unit[name].get("bias", 0)

    reset, update = (1 / (1 + np.exp(-of(f"i{gate}", x) - of(f"h{gate}", h))) for gate in "rz")
    return (1 - update) * np.tanh(of("in", x) + reset * of("hn", h)) + update * h


@pytest.mark.system
@pytest.mark.parametrize(
    ("make", "shape", "strides", "settings"),
    [
        (convolutional, (5, 6, 2), (1,), {"channels": 3}),
        (nature, (36, 44, 2), (4, 2), {"filters": (3, 2)}),
    ],
    ids=["small", "large"],
)
def test_images_with_a_memory_are_convolved_and_then_remembered(make, shape, strides, settings):
    steps, envs = 9, 2
    network = make(shape, 3, hidden=(4,), memory=5, **settings)
    params = jax.jit(network.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    largest = 255 if make is nature else 1
    obs = rng.integers(0, largest + 1, (steps, envs, *shape), np.uint8)  # 18 large images are convolved in two groups
    done, first = rng.random((steps, envs)) < 0.3, np.float32(rng.normal(size=(envs, 5)))
    assert done.any()

    x = obs.reshape(-1, *shape) / largest
    for i, stride in enumerate(strides):
        x = convolved(x, params[f"Conv_{i}"], stride)
    x = np.maximum(x.reshape(len(x), -1) @ np.float64(params["Dense_0"]["kernel"]), 0).reshape(steps, envs, -1)
    carries, carry = [], np.float64(first)
    for t in range(steps):
        carries.append(gated(params["GRUCell_0"], x[t], carry))
        carry = np.where(done[t, :, None], 0, carries[-1])
    heads = [np.array(carries) @ np.float64(params["_Heads_0"][f"Dense_{i}"]["kernel"]) for i in range(2)]
    expected = heads[0], heads[1][..., 0], np.array(carries)

    found = jax.jit(unroll, static_argnums=0)(network, params, obs, done, first)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, expected)
    one_step = jax.jit(network.apply)(params, obs[0], first)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y[0], rtol=1e-4, atol=1e-5), one_step, expected)


def test_all_steps_at_once_have_the_outputs_of_single_steps():
    """A whole rollout has the outputs of single steps, also for two networks with memories."""
    network = recurrent((3,), 2, hidden=(4,), memory=5)
    both = with_critic(network, network)
    params, obs = both.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (6, 2, 3))
    done, carry = jax.random.bernoulli(jax.random.key(2), 0.3, (6, 2)), both.initial(2)
    at_once = jax.jit(unroll, static_argnums=0)
    found, expected = (at_once(one, params, obs, done, carry) for one in (both, both._replace(unroll=None)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, expected)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (3, 3, 2, 6)])
def test_weights_begin_orthonormal(shape):
    matrix = np.asarray(orthogonal(2.0)(jax.random.key(0), shape), np.float64).reshape(-1, shape[-1]) / 2
    matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(matrix.shape[1]), atol=1e-6)


def test_orthogonal_matrices_are_drawn_evenly():
    # Half of such 2 x 2 matrices are rotations, and the angle of the first row is uniform.
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda key: orthogonal(1.0)(key, (2, 2))))(jax.random.split(jax.random.key(0), 4000))
    )
    assert abs((np.linalg.det(drawn) > 0).mean() - 0.5) < 4 * 0.5 / 4000**0.5
    angles = np.sort((np.arctan2(drawn[:, 0, 1], drawn[:, 0, 0]) / (2 * np.pi)) % 1)
    # Kolmogorov's statistic: above 1.95 / sqrt(n) in one of a thousand such tests.
    assert abs(angles - np.arange(4000) / 4000).max() < 1.95 / 4000**0.5


def test_no_network_is_initialised_with_a_decomposition_of_lapack():
    """LAPACK's decomposition, batched over a population, can hang on two cores."""
    assert " qr[" in str(jax.make_jaxpr(lambda key: nn.initializers.orthogonal()(key, (3, 3)))(jax.random.key(0)))
    for network in (feed_forward((4,), 2), convolutional((10, 10, 4), 2), recurrent((4,), 2)):
        assert " qr[" not in str(jax.make_jaxpr(network.init)(jax.random.key(0)))


def test_normalised_convolutions_of_many_images_are_those_of_a_few():
    """Batches of more than 16 large images are convolved in parts, which share the normalisation."""
    network = nature((36, 36, 1), 2, layer_norm=True, filters=[4], hidden=[8])
    images = jax.random.uniform(jax.random.key(1), (20, 36, 36, 1), maxval=255.0)
    params = network.init(jax.random.key(0))
    whole, parts = network.apply(params, images, ()), [network.apply(params, images[i : i + 10], ()) for i in (0, 10)]
    for found, each in zip(whole[:2], zip(*(part[:2] for part in parts), strict=True), strict=True):
        np.testing.assert_allclose(found, jnp.concatenate(each), rtol=1e-4, atol=1e-5)


def test_convolutions_by_patches_are_those_of_flax():
    shape = (9, 12, 2)
    images = jax.random.uniform(jax.random.key(0), (3, *shape))
    plain = Layers(shape, 2, 0, (8,), "relu", True, ((4, 3, 1), (5, 2, 2)))
    by_patches = plain.clone(patches=True)
    variables = plain.init(jax.random.key(1), images, ())
    ours = by_patches.init(jax.random.key(1), images, ())
    jax.tree.map(np.testing.assert_array_equal, variables, ours)
    for one, other in zip(plain.apply(variables, images, ())[:2], by_patches.apply(ours, images, ())[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_network_of_bytes_takes_no_normalised_observations():
    network, other = nature((36, 36, 1), 2), feed_forward((36, 36, 1), 2)
    for one in (network, with_critic(network, other), with_critic(other, network)):
        check_normalized(one, False)
        with pytest.raises(ValueError, match="normalize_observations: got True with nature"):
            check_normalized(one, True)
    check_normalized(other, True)
