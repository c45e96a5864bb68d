"""Distributions against their definitions in float64, and against the frequencies of draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import Box, Discrete, MultiDiscrete
from marl.blocks.distributions import categorical, diagonal_normal, distribution, multi_categorical

DRAWS = 100_000


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def test_a_categorical_is_the_softmax_of_its_logits():
    logits = np.array([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0], [80.0, -80.0, 0.0]])
    p = softmax(logits)
    one = categorical(3)
    for action in range(3):
        expected = logits[:, action] - np.log(np.exp(logits - 80).sum(-1)) - 80
        np.testing.assert_allclose(one.log_prob(jnp.float32(logits), jnp.full(3, action)), expected, atol=1e-5)
    expected = -(p * np.log(np.maximum(p, 1e-300))).sum(-1)
    np.testing.assert_allclose(one.entropy(jnp.float32(logits)), expected, atol=1e-5)
    assert float(one.entropy(jnp.zeros(3))) == pytest.approx(np.log(3))
    with pytest.raises(AssertionError):
        one.entropy(jnp.zeros(4))
    np.testing.assert_array_equal(one.mode(jnp.float32(logits)), [1, 0, 0])


def test_actions_are_drawn_with_their_probabilities():
    logits = jnp.array([0.5, -1.0, 2.0, 0.0])
    p = softmax(np.asarray(logits, np.float64))
    actions = categorical(4).sample(jax.random.key(0), jnp.broadcast_to(logits, (DRAWS, 4)))
    counts = np.bincount(actions, minlength=4)
    # Pearson's statistic, with three degrees of freedom: above 16.3 in one of a thousand such tests.
    assert ((counts - DRAWS * p) ** 2 / (DRAWS * p)).sum() < 16.3
    certain = categorical(3).sample(jax.random.key(1), jnp.tile(jnp.array([-1e9, 0.0, -1e9]), (1000, 1)))
    np.testing.assert_array_equal(certain, 1)


def test_entries_of_a_vector_are_independent_categoricals():
    one, logits = multi_categorical((2, 3)), np.array([0.5, -1.0, 2.0, 0.0, 0.3])
    p = np.outer(softmax(logits[:2]), softmax(logits[2:]))
    each = np.stack(np.meshgrid(range(2), range(3), indexing="ij"), -1).reshape(-1, 2)
    found = one.log_prob(jnp.broadcast_to(jnp.float32(logits), (6, 5)), jnp.asarray(each))
    np.testing.assert_allclose(found, np.log(p).ravel(), rtol=1e-5)
    np.testing.assert_allclose(one.entropy(jnp.float32(logits)), -(p * np.log(p)).sum(), rtol=1e-5)
    np.testing.assert_array_equal(one.mode(jnp.float32(logits)), [0, 0])
    drawn = np.asarray(one.sample(jax.random.key(0), jnp.broadcast_to(jnp.float32(logits), (DRAWS, 5))))
    counts = np.bincount(drawn @ [3, 1], minlength=6)
    # Pearson's statistic, with five degrees of freedom: above 20.5 in one of a thousand such tests.
    assert ((counts - DRAWS * p.ravel()) ** 2 / (DRAWS * p.ravel())).sum() < 20.5


def test_a_normal_has_the_density_and_the_entropy_of_its_formula():
    mean, log_scale = np.array([[0.3, -1.0], [2.0, 0.0]]), np.array([0.5, -0.7])
    actions = np.array([[0.0, -1.2], [5.0, 0.1]])
    outputs = jnp.float32(np.concatenate([mean, np.broadcast_to(log_scale, (2, 2))], -1))
    scale = np.exp(log_scale)
    density = np.exp(-0.5 * ((actions - mean) / scale) ** 2) / (scale * np.sqrt(2 * np.pi))
    one = diagonal_normal((2,))
    assert (one.num_outputs, one.num_scales) == (2, 2)
    np.testing.assert_allclose(one.log_prob(outputs, jnp.float32(actions)), np.log(density).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(one.entropy(outputs), (np.log(scale) + 0.5 + 0.5 * np.log(2 * np.pi)).sum(), rtol=1e-5)
    np.testing.assert_array_equal(one.mode(outputs), outputs[:, :2])


def test_normal_actions_have_the_shape_of_the_space_and_its_moments():
    mean, log_scale = jnp.arange(6.0) - 2, jnp.linspace(-1, 1, 6)
    outputs = jnp.broadcast_to(jnp.concatenate([mean, log_scale]), (DRAWS, 12))
    actions = np.asarray(diagonal_normal((2, 3)).sample(jax.random.key(2), outputs))
    assert actions.shape == (DRAWS, 2, 3)
    drawn, scale = actions.reshape(DRAWS, 6), np.exp(log_scale)
    assert (abs(drawn.mean(0) - mean) < 4.5 * scale / DRAWS**0.5).all()
    assert (abs(drawn.std(0) / scale - 1) < 4.5 / (2 * DRAWS) ** 0.5).all()
    assert abs(np.corrcoef(drawn.T) - np.eye(6)).max() < 4.5 / DRAWS**0.5


def test_other_action_spaces_are_refused():
    assert distribution(Discrete(5)).num_outputs == 5
    assert distribution(Box(-1.0, 1.0, (2, 3))).num_outputs == 6
    assert distribution(MultiDiscrete((2, 3))).num_outputs == 5
    with pytest.raises(ValueError, match=r"action space: got .*; Discrete, MultiDiscrete or a Box of floats is needed"):
        distribution(Box(0, 3, (2,), jnp.int32))


def test_the_divergence_is_the_mean_log_ratio():
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(2, 7, 5))
    p, q = (np.einsum("ni,nj->nij", softmax(x[:, :2]), softmax(x[:, 2:])) for x in (first, second))
    found = multi_categorical((2, 3)).divergence(jnp.float32(first), jnp.float32(second))
    np.testing.assert_allclose(found, (p * np.log(p / q)).sum((1, 2)), rtol=1e-4, atol=1e-6)
    # Of two normal distributions by quadrature over each entry.
    first, second = first[:, :4], second[:, :4]
    x = np.linspace(-40, 40, 80_001)[:, None, None]
    logs = [
        -0.5 * ((x - y[:, :2]) * np.exp(-y[:, 2:])) ** 2 - y[:, 2:] - np.log(2 * np.pi) / 2 for y in (first, second)
    ]
    expected = (np.exp(logs[0]) * (logs[0] - logs[1])).sum((0, 2)) * 1e-3
    found = diagonal_normal((2,)).divergence(jnp.float32(first), jnp.float32(second))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
