"""Networks: the same numbers, however many observations are computed together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl.blocks.networks import _FeedForward, convolutional, feed_forward

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
def test_a_long_batch_gets_in_columns_what_short_ones_get_in_rows(make, shape, settings):
    layers = _FeedForward(shape, 3, 0, settings["hidden"], "tanh", True)
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
