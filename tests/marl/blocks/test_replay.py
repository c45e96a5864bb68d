"""Replay buffers: new steps replace the oldest, and draws are in proportion to priorities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl.blocks.replay import count, draw_prioritized, importance, put


def test_new_entries_replace_the_oldest():
    ring = {"x": jnp.zeros(6), "y": jnp.zeros((6, 2), jnp.int32)}
    for number in range(4):
        new = {"x": jnp.full(2, number + 1.0), "y": jnp.full((2, 2), number + 1)}
        ring = put(ring, jnp.int32(2 * number), new)
    np.testing.assert_array_equal(ring["x"], [4, 4, 2, 2, 3, 3])
    np.testing.assert_array_equal(ring["y"][:, 0], [4, 4, 2, 2, 3, 3])


def test_a_count_does_not_overflow_and_stays_at_its_place_in_the_ring():
    most = 2**31 - 1
    for number in (96, most - 32, most - 31, most):
        after = int(count(jnp.int32(number), 32, 96))
        assert after % 96 == (number + 32) % 96
        assert after == number + 32 if number + 32 <= most else 2**30 - 96 < after <= most


def test_draws_are_in_proportion_to_weights():
    weights = jnp.array([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])
    index, probability = draw_prioritized(jax.random.key(0), weights, 8_000)
    counts = np.bincount(index, minlength=6)
    # One draw from each of 8,000 equal parts: only parts with a border between two weights are left to chance.
    np.testing.assert_allclose(counts, [0, 1000, 3000, 0, 4000, 0], atol=2)
    np.testing.assert_allclose(probability, np.asarray(weights)[index] / 8)


def test_entries_without_a_weight_are_never_drawn():
    weights = jnp.zeros(4096).at[:3000].set(jax.random.uniform(jax.random.key(1), (3000,)) ** 8)
    keys = jax.random.split(jax.random.key(2), 50)
    index, _ = jax.vmap(lambda key: draw_prioritized(key, weights, 512))(keys)
    assert int(index.max()) < 3000


def test_importance_weights_are_the_inverse_of_probabilities():
    probability = jnp.array([0.5, 0.25, 0.125])
    np.testing.assert_allclose(importance(probability, 8, 1.0), [0.25, 0.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(importance(probability, 8, 0.5), np.sqrt([0.25, 0.5, 1.0]), rtol=1e-6)
    np.testing.assert_allclose(importance(probability, 8, 0.0), 1.0)
    assert float((importance(probability, 8, 1.0) * probability).std()) == pytest.approx(0.0, abs=1e-7)
