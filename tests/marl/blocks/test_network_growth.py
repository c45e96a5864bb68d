"""Growth of networks: the outputs stay the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from games import make
from marl import convolutional, feed_forward, learn, make_learner, recurrent
from marl.blocks.network_growth import widen
from tests.nightly import nightly

SMALL, LARGE = jax.random.split(jax.random.key(0))


def grow(small, large):
    """First parameters of the smaller network, and the grown ones of the larger network; in one program."""

    @jax.jit
    def both():
        params = small.init(SMALL)
        return params, widen(params, large.init(LARGE))

    return both()


@pytest.mark.parametrize("shared", [True, False])
def test_a_wider_network_computes_the_same(shared):
    small, large = (feed_forward((5,), 3, hidden=hidden, shared=shared) for hidden in ((8, 6), (20, 9)))
    obs = jax.random.normal(jax.random.key(1), (40, 5))
    outputs = (
        jax.jit(one.apply)(own, obs, ())[:2] for one, own in zip((small, large), grow(small, large), strict=True)
    )
    for before, after in zip(*outputs, strict=True):
        np.testing.assert_allclose(after, before, atol=1e-6)


def test_a_bias_as_long_as_a_whole_layer_stays_in_its_order():
    # The first layer has (3 + 1) 2 = 8 numbers and then (3 + 1) 4 = 16, as the bias of the second has.
    small, large = (feed_forward((3,), 2, hidden=hidden, shared=True) for hidden in ((2, 8), (4, 16)))
    params = small.init(SMALL)
    params["Dense_1"]["bias"] = jnp.arange(8.0)
    grown = widen(params, large.init(LARGE))
    np.testing.assert_array_equal(grown["Dense_1"]["bias"][:8], jnp.arange(8.0))
    obs = jax.random.normal(jax.random.key(1), (5, 3))
    np.testing.assert_allclose(large.apply(grown, obs, ())[0], small.apply(params, obs, ())[0], atol=1e-6)


@pytest.mark.system
def test_a_wider_network_with_a_memory_computes_the_same_over_many_steps():
    sizes = ({"hidden": (8,), "memory": 6}, {"hidden": (12,), "memory": 16})
    small, large = (recurrent((5,), 3, **size) for size in sizes)
    (params, grown), carries = grow(small, large), [small.initial(7), large.initial(7)]
    apply_small, apply_large = jax.jit(small.apply), jax.jit(large.apply)
    for step in range(12):
        obs = jax.random.normal(jax.random.key(step), (7, 5))
        before, value, carries[0] = apply_small(params, obs, carries[0])
        after, wider, carries[1] = apply_large(grown, obs, carries[1])
        np.testing.assert_allclose(after, before, atol=1e-6)
        np.testing.assert_allclose(wider, value, atol=1e-6)
    assert np.abs(carries[1][:, 6:]).max() > 0.01  # the new units are active


def test_new_inputs_change_no_output_and_have_a_gradient():
    small, large = (feed_forward((size,), 2, hidden=(8,)) for size in (4, 7))
    params, grown = grow(small, large)
    obs = jax.random.normal(jax.random.key(1), (20, 7))
    before, after = jax.jit(small.apply)(params, obs[:, :4], ())[0], jax.jit(large.apply)(grown, obs, ())[0]
    np.testing.assert_allclose(after, before, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda params: (large.apply(params, obs, ())[1] ** 2).sum()))(grown)
    assert float(jnp.abs(gradient["Dense_1"]["kernel"][4:]).max()) > 0


@pytest.mark.system
def test_networks_that_cannot_grow_are_refused():
    small, large, deep = (jax.jit(feed_forward((4,), 2, hidden=hidden).init)(SMALL) for hidden in ((8,), (12,), (8, 8)))
    with pytest.raises(ValueError, match="no axis may become smaller"):
        widen(large, small)
    with pytest.raises(ValueError, match="other layers"):
        widen(small, deep)
    images = (jax.jit(convolutional((6, 6, 2), 2, channels=channels).init)(SMALL) for channels in (4, 8))
    with pytest.raises(ValueError, match="convolution"):
        widen(*images)
    normed = (jax.jit(feed_forward((4,), 2, hidden=hidden, layer_norm=True).init)(SMALL) for hidden in ((8,), (12,)))
    with pytest.raises(ValueError, match=r"LayerNorm_0.*a normalised layer cannot be widened"):
        widen(*normed)


@nightly
def test_a_learner_grows_in_the_midst_of_its_training_and_goes_on():
    """PPO on CartPole, with 8 units and then 32; the assertions hold for all of 16 seeds."""
    game = make("CartPole-v1")
    small, large = (make_learner(f"ppo(hidden=[{units}], learning_rate=0.003)", game) for units in (8, 32))

    def run(key, learner, updates):
        found = jax.jit(lambda: learn(key, game, [learner], num_updates=updates, steps_per_update=64, num_envs=8))()
        return found, *(float(np.nanmean(part)) for part in (found.returns[0][:5], found.returns[0][-5:]))

    first, begun, reached = run(SMALL, small, 10)
    old, grown = first.states[0], widen(first.states[0], jax.jit(large.init)(LARGE))
    obs = jax.random.normal(jax.random.key(1), (40, 4))
    small_step, large_step = (
        learner.act(LARGE, learner.policy(state), learner.init_memory(learner.policy(state), 40), obs)
        for learner, state in ((small, old), (large, grown))
    )
    np.testing.assert_array_equal(large_step[0], small_step[0])
    for name in ("log_prob", "value"):  # the probability of one of two actions determines both
        np.testing.assert_allclose(getattr(large_step[2], name), getattr(small_step[2], name), rtol=1e-6, atol=1e-6)
    adam, grown_adam = (state.optimizer[1][0] for state in (old, grown))
    assert grown_adam.count == adam.count == 10 * 16
    weights, grown_weights = (ravel_pytree(state.params)[1] for state in (old, grown))
    for moment, grown_moment in ((adam.mu, grown_adam.mu), (adam.nu, grown_adam.nu)):
        each = map(jax.tree.leaves, (weights(moment), grown_weights(grown_moment)))
        for x, y in zip(*each, strict=True):
            old_part = tuple(slice(size) for size in x.shape)
            np.testing.assert_array_equal(y[old_part], x)
            assert np.asarray(x).any()
            assert not np.asarray(y.at[old_part].set(0.0)).any()
    then, after, ended = run(LARGE, large._replace(init=lambda key: grown), 20)
    assert begun < 40 < reached < after  # steps of an episode: learning goes on and does not restart
    assert ended > 1.5 * reached
    assert then.states[0].optimizer[1][0].count == 30 * 16
