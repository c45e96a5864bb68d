"""Losses of values by hand, and distances that are evolved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from marl.blocks.value_losses import clipped_l2, distance_network, distance_of, expectile, huber, l2

HIDDEN = 5
distance_parameters = st.fixed_dictionaries(
    {name: arrays(np.float32, HIDDEN, elements=st.floats(-5, 5, width=32)) for name in ("w1", "b1", "w2")}
)


def test_distances_of_values_by_hand():
    value, target, before = jnp.array([1.0, 1.0, 4.0]), jnp.array([1.0, 3.0, 1.0]), jnp.array([0.0, 0.0, 4.0])
    np.testing.assert_allclose(l2(value, target, before), [0, 2, 4.5])
    np.testing.assert_allclose(huber(delta=1)(value, target, before), [0, 1.5, 2.5])
    # Moved by 0.5 at most the values are 0.5, 0.5 and 4.
    np.testing.assert_allclose(clipped_l2(clip=0.5)(value, target, before), [0.125, 3.125, 4.5])


def test_an_expectile_weighs_both_sides_and_its_minimum_is_the_expectile_of_the_targets():
    value, target = jnp.array([1.0, -1.0, 3.0]), jnp.array([3.0, -3.0, 3.0])
    np.testing.assert_allclose(expectile(tau=0.25)(value, target, value), [1.0, 3.0, 0.0])
    np.testing.assert_allclose(expectile(tau=0.5)(value, target, value), l2(value, target, value))
    targets = np.array([0.0, 1.0, 5.0])  # tau sum (t - x)+ = (1 - tau) sum (x - t)+ at x = 1: 0.2 * 4 = 0.8 * 1
    slope = jax.grad(lambda x: expectile(tau=0.2)(jnp.full(3, x), targets, targets).sum())
    assert [round(float(slope(x)), 6) for x in (0.9, 1.0, 1.1)] == [-0.24, 0.0, 0.36]


@settings(deadline=None, max_examples=30)
@given(distance_parameters, st.sampled_from(["l2", "zero"]))
def test_every_learned_distance_is_0_at_the_target_and_nowhere_below(parameters, start):
    s = jnp.linspace(-4, 4, 33)
    distance = distance_of(parameters, s, start)
    assert float(distance[16]) == 0.0
    assert (distance >= 0).all()


@pytest.mark.parametrize("start", ["l2", "zero"])
def test_a_learned_distance_has_the_gradient_size_of_l2_whatever_its_scale(start):
    network = distance_network(HIDDEN, start)
    parameters = network.init(jax.random.key(0)) | {"w2": jax.random.normal(jax.random.key(3), (HIDDEN,))}
    value, target, before = jax.random.normal(jax.random.key(1), (3, 64)) * jnp.array([[3.0], [50.0], [4.0]])

    def slope(loss, value, target, before):
        return jax.grad(lambda value: loss(value, target, before).mean())(value)

    own, plain = (slope(loss, value, target, before) for loss in (lambda *x: network.apply(parameters, *x), l2))
    np.testing.assert_allclose(jnp.linalg.norm(own), jnp.linalg.norm(plain), rtol=1e-4)
    assert np.abs(own - plain).max() > 0.01 * np.abs(plain).max()
    # In other units of reward the distance is the same, scaled.
    scaled = slope(lambda *x: network.apply(parameters, *x), 7 * value, 7 * target, 7 * before)
    np.testing.assert_allclose(scaled, 7 * own, rtol=2e-3, atol=1e-4)


def test_the_unevolved_distance_is_l2():
    network = distance_network(HIDDEN)
    x = jax.random.normal(jax.random.key(1), (3, 64))
    np.testing.assert_allclose(network.apply(network.init(jax.random.key(0)), *x), l2(*x), rtol=1e-4, atol=1e-5)
