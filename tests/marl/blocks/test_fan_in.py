"""A constant fan-in: products and their gradients, what grows, and training as with masks."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from games.registry import make_game
from marl import learn
from marl.blocks.fan_in import dense, is_fan_in, largest, product, regrow
from marl.blocks.network_growth import widen
from marl.blocks.networks import feed_forward, recurrent
from marl.blocks.perceptron import perceptron
from marl.blocks.sparse import averaged, kernels, num_weights, sparse
from marl.learners.registry import make_learner
from tests.nightly import MARKS

INPUTS, UNITS, K = 20, 6, 3
NETWORK = perceptron(40, 2, hidden=(64, 64))


def kernel_of(seed, k=K):
    return largest(jax.random.normal(jax.random.key(seed), (INPUTS, UNITS)), k)


def test_the_largest_weights_of_each_unit_stay():
    whole = np.asarray(jax.random.normal(jax.random.key(0), (INPUTS, UNITS)))
    kernel = np.asarray(dense(largest(whole, K)))
    least = np.sort(np.abs(whole), 0)[-K]
    np.testing.assert_array_equal(kernel, np.where(np.abs(whole) >= least, whole, 0))


def test_product_and_gradients_are_those_of_the_dense_kernel():
    kernel = kernel_of(1)
    x, slope = (np.asarray(jax.random.normal(jax.random.key(i), s)) for i, s in ((2, (INPUTS, 5)), (3, (UNITS, 5))))
    found, pull_back = jax.vjp(product, kernel, x)
    whole, x, slope = (np.asarray(a, np.float64) for a in (dense(kernel), x, slope))
    np.testing.assert_allclose(found, whole.T @ x, rtol=1e-5, atol=1e-6)
    of_kernel, of_x = pull_back(jnp.asarray(slope, jnp.float32))
    np.testing.assert_allclose(of_x, whole @ slope, rtol=1e-5, atol=1e-6)
    of_all = slope @ x.T  # [units, inputs]
    expected = np.take_along_axis(of_all, np.asarray(kernel.index, int), 1)
    np.testing.assert_allclose(of_kernel.values, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(of_kernel.index, 0)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.floats(0, 1), st.sampled_from([1, 3, INPUTS // 2]))
def test_small_weights_give_way_to_others_at_random(seed, share, k):
    before = kernel_of(seed, k)
    old = np.asarray(before.index, int)
    new = np.asarray(regrow(jax.random.key(seed), before, jnp.float32(share)), int)
    for unit in range(UNITS):
        gone = old[unit] != new[unit]
        assert min(np.floor(share * k), k - 1) <= gone.sum() <= min(np.floor(share * k + 1), k - 1)
        assert len(set(new[unit])) == k
        assert not set(new[unit][gone]) & set(old[unit])
        sizes = np.abs(before.values[unit])
        assert max(sizes[gone], default=0) <= min(sizes[~gone], default=np.inf)


def test_the_share_that_is_dropped_holds_on_average():
    before = largest(jax.random.normal(jax.random.key(0), (INPUTS, 4000)), 3)
    after = regrow(jax.random.key(1), before, jnp.float32(0.4))
    gone = (before.index != after).mean()  # 1.2 of 3, so 1 or 2 with a variance of 0.16 / 9 for a unit
    assert abs(float(gone) - 0.4) < 4 * (0.16 / 9 / 4000) ** 0.5


def loss(params, x):
    return (NETWORK.apply(params, x) ** 2).mean() - NETWORK.apply(params, x)[:, 0].mean()


def test_training_is_that_of_a_mask_with_the_same_weights():
    """Three steps of Adam, of the same weights as a `FanIn` and as a mask."""
    few = sparse(density=0.05, update="static", constant_fan_in=True)(optax.adam(0.01))
    masked = sparse(density=0.05, update="static")(optax.adam(0.01))
    params = NETWORK.init(jax.random.key(0))
    own, state = few.init(jax.random.key(1), params)
    assert [is_fan_in(kernel) for kernel in kernels(own)] == [True, True, False]  # two outputs have many weights each
    whole = jax.tree.map(lambda x: dense(x) if is_fan_in(x) else x, own, is_leaf=is_fan_in)
    masks = tuple(kernel != 0 for kernel in kernels(whole))
    other = masked.init(jax.random.key(1), params)[1]._replace(masks=masks)
    assert num_weights(own, state) == sum(int(mask.sum()) for mask in masks)
    learn_few, learn_masked = (
        jax.jit(lambda params, state, x, follow=follow: follow.update(jax.grad(loss)(params, x), state, params))
        for follow in (few, masked)
    )
    for i in range(3):
        x = jax.random.normal(jax.random.key(i), (16, 40))
        own, state = learn_few(own, state, x)
        whole, other = learn_masked(whole, other, x)
    for found, expected in zip(kernels(own), kernels(whole), strict=True):
        np.testing.assert_allclose(dense(found) if is_fan_in(found) else found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tau", [0.005, 0.9, 1.0])
def test_a_target_has_the_places_of_the_parameters(tau):
    """An average of old and new weights, where a place is the same; dropped weights leave it at once."""
    follow = sparse(density=0.05, update="set", every=1, until=10, constant_fan_in=True)(optax.adam(0.01))
    params, state = follow.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    gradient = jax.tree.map(jnp.ones_like, params)
    after, changed = follow.update(gradient, state, params)
    after, changed = follow.update(gradient, changed._replace(steps=jnp.int32(10)), after)  # a step without a change
    moments = [kernels(ravel_pytree(params)[1](x)) for x in jax.tree.leaves(changed.inner) if x.ndim and x.size > 1]
    assert len(moments) == 2
    found = averaged(follow, changed, after, params, tau)
    for number, (old, new, one) in enumerate(zip(kernels(params), kernels(after), kernels(found), strict=True)):
        if is_fan_in(new):
            same = np.asarray(old.index == new.index)
            assert 0.2 < 1 - same.mean() < 0.6
            np.testing.assert_array_equal(one.index, new.index)
            expected = tau * new.values + (1 - tau) * np.where(same, old.values, 0)
            np.testing.assert_allclose(one.values, expected, rtol=1e-5, atol=1e-7)
            for moment in moments:  # of one step, in all places
                assert len(np.unique(np.round(moment[number].values, 9))) == 1


@pytest.mark.system
@pytest.mark.parametrize("make", [partial(recurrent, memory=32), feed_forward])
def test_a_network_computes_as_with_dense_kernels_and_units_of_a_memory_have_masks(make):
    network = make((40,), 2, hidden=[32])
    follow = sparse(density=0.05, update="static", constant_fan_in=True)(optax.adam(0.01))
    params, _ = follow.init(jax.random.key(1), network.init(jax.random.key(0)))
    places = {
        jax.tree_util.keystr(path, simple=True)
        for path, x in jax.tree_util.tree_leaves_with_path(params, is_leaf=is_fan_in)
        if is_fan_in(x)
    }
    assert places
    assert not any("GRU" in place for place in places)
    whole = jax.tree.map(lambda x: dense(x) if is_fan_in(x) else x, params, is_leaf=is_fan_in)
    obs = jax.random.normal(jax.random.key(2), (3, 40))
    found, expected = (network.apply(one, obs, network.initial(3)) for one in (params, whole))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), found, expected)


@pytest.mark.system
@pytest.mark.parametrize(
    ("environment", "learner"),
    [
        ("CartPole-v1", "ppo(hidden=[64, 64], epochs=2, minibatches=2, {})"),
        pytest.param(
            "Pendulum-v1", "sac(hidden=[64, 64], buffer_size=64, batch_size=8, learning_starts=8, {})", marks=MARKS
        ),
    ],
)
def test_learners_change_the_places_of_their_weights(environment, learner):
    game = make_game(environment)
    setting = "sparsity='set(density=0.05, every=2, until=40, constant_fan_in=True)'"
    few = make_learner(learner.format(setting), game)
    run = jax.jit(lambda key: learn(key, game, [few], num_updates=8, steps_per_update=4, num_envs=2))
    begun, ended = jax.jit(few.init)(jax.random.key(0)), run(jax.random.key(0)).states[0]
    before, after = few.policy(begun), few.policy(ended)
    pairs = [pair for pair in zip(kernels(before.params), kernels(after.params), strict=True) if is_fan_in(pair[0])]
    assert pairs
    for old, new in pairs:
        assert old.values.shape == new.values.shape
        index = np.asarray(new.index, int)
        assert all(len(set(row)) == len(row) for row in index)
        assert index.min() >= 0
        assert index.max() < new.num_inputs
        assert np.isfinite(new.values).all()
    assert any((old.index != new.index).any() for old, new in pairs)
    if learner.startswith("sac"):  # critics and their targets too
        networks = ended.networks
        for tree in (networks.critics, networks.target_critics):
            few_weights = [kernel for kernel in kernels(tree) if is_fan_in(kernel)]
            indices = [mask for mask in networks.optimizer[1].masks if mask.dtype != bool]
            assert len(few_weights) == len(indices) > 0
            for kernel, index in zip(few_weights, indices, strict=True):
                np.testing.assert_array_equal(kernel.index, index)


def test_side_by_side_and_alone_places_change_alike():
    follow = sparse(density=0.05, update="set", every=2, until=8, constant_fan_in=True)(optax.adam(1e-2))

    def run(key):
        params, state = follow.init(key, NETWORK.init(key))

        def step(carry, key):
            params, state = carry
            return follow.update(jax.grad(loss)(params, jax.random.normal(key, (4, 40))), state, params), None

        return jax.lax.scan(step, (params, state), jax.random.split(key, 5))[0][0]

    keys = jax.random.split(jax.random.key(0), 2)
    together = jax.jit(jax.vmap(run))(keys)
    for i in range(2):
        alone = jax.jit(run)(keys[i])
        jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=1e-4, atol=1e-6), together, alone)


def test_what_needs_dense_kernels_or_masks_says_so():
    follow = sparse(density=0.05, update="static", constant_fan_in=True)(optax.adam(1e-2))
    params, _ = follow.init(jax.random.key(0), NETWORK.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="network: got kernels with a constant fan-in"):
        widen(params, params)
    setting = "sparsity='set(density=0.05, until=9, constant_fan_in=True)'"
    learner = make_learner(f"a3c(hidden=[64, 64], {setting})", make_game("CartPole-v1"))
    with pytest.raises(ValueError, match="sparsity: got a constant fan-in that changes; its gradients are of earlier"):
        learner.init(jax.random.key(0))


def test_a_rounded_place_is_the_place():
    kernel = kernel_of(1)
    near = dataclasses.replace(kernel, index=kernel.index * (1 - 1e-6))
    np.testing.assert_array_equal(product(near, jnp.eye(INPUTS)), product(kernel, jnp.eye(INPUTS)))
