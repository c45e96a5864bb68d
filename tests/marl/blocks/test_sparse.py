"""Sparsity: the number of weights, the changes of the mask, and all other parameters as they were."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from games.registry import make_game
from marl import learn
from marl.blocks.networks import convolutional, feed_forward, recurrent
from marl.blocks.perceptron import perceptron
from marl.blocks.sparse import SparseState, allocate, descent, kernels, make_sparsity, num_weights, sparse
from marl.learners.registry import make_learner
from tests.nightly import MARKS

NETWORK = perceptron(6, 3, hidden=(20, 20))


def count(params):
    """Number of weights of each kernel that are not 0."""
    return [int((kernel != 0).sum()) for kernel in kernels(params)]


@pytest.mark.system
def test_kernels_are_those_of_layers_convolutions_and_memories():
    shapes = [
        (NETWORK, {(6, 20), (20, 20), (20, 3)}),
        (feed_forward((4,), 2, hidden=[8], shared=True), {(4, 8), (8, 2), (8, 1)}),
        (convolutional((10, 10, 4), 3, channels=5, hidden=[7]), {(3, 3, 4, 5), (320, 7), (7, 3), (7, 1)}),
        (recurrent((4,), 2, hidden=[8], memory=6), {(4, 8), (8, 6), (6, 6), (6, 2), (6, 1)}),
    ]
    for network, expected in shapes:
        params = network.init(jax.random.key(0))
        assert {kernel.shape for kernel in kernels(params)} == expected
        assert num_weights(params, None) == sum(kernel.size for kernel in kernels(params))


def test_the_allocation_of_erdos_and_renyi_by_hand():
    # Sides that add up to 26, 40 and 23; 0.2 of 580 weights are 116, of which 116 / 89 go to each of them: 33.9, 52.1
    # and 30.0 of 120, 400 and 60.
    assert allocate([(6, 20), (20, 20), (20, 3)], 0.2, "erdos_renyi_kernel") == [34, 52, 30]
    # At 0.6, 348 / 89 each would be 101.7, 156.4 and 89.9: the last has 60 only, the others share 288 as 26 to 40,
    # which is 113.5 and 174.5.
    assert allocate([(6, 20), (20, 20), (20, 3)], 0.6, "erdos_renyi_kernel") in ([113, 175, 60], [114, 174, 60])
    assert allocate([(6, 20), (20, 20), (20, 3)], 0.2, "uniform") == [24, 80, 12]


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=2, max_size=4), min_size=1, max_size=6),
    st.floats(0.001, 1),
    st.sampled_from(["erdos_renyi_kernel", "uniform"]),
)
def test_an_allocation_fits_and_adds_up(shapes, density, allocation):
    sizes = np.array([np.prod(shape) for shape in shapes])
    counts = np.array(allocate([tuple(shape) for shape in shapes], density, allocation))
    assert (counts >= 1).all()
    assert (counts <= sizes).all()
    total = max(round(density * sizes.sum()), len(sizes))
    assert total <= counts.sum() <= total + len(sizes)  # every kernel keeps at least one weight
    if (density * sizes > 2).all():
        assert counts.sum() == total


def by_hand(params, gradient, masks, density_steps):
    """RigL's change of one kernel in NumPy: `(weights, mask)` after it."""
    drop = density_steps
    weights, slope, mask = (np.asarray(x, np.float64).ravel() for x in (params, gradient, masks))
    there = np.flatnonzero(mask)
    dropped = int(np.floor(drop * len(there)))
    kept = there[np.argsort(-np.abs(weights[there]), kind="stable")[: len(there) - dropped]]
    others = np.setdiff1d(np.arange(len(weights)), kept)
    grown = others[np.argsort(-np.abs(slope[others]), kind="stable")[:dropped]]
    new = np.zeros(len(weights), bool)
    new[[*kept, *grown]] = True
    return np.where(new & (mask > 0), weights, 0), new


@pytest.mark.system
@pytest.mark.parametrize("update", ["rigl", "set", "static"])
def test_steps_and_changes(update):
    follow = sparse(density=0.2, update=update, every=3, until=10)(optax.adam(1e-2))
    dense = optax.adam(1e-2)
    params, state = follow.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))
    assert isinstance(state, SparseState)
    expected = [34, 52, 30]
    assert count(params) == expected
    changes = 0
    step = jax.jit(follow.update)
    for i in range(1, 15):
        gradient = jax.tree.map(lambda x, i=i: jax.random.normal(jax.random.key(i), x.shape), params)
        new, after = step(gradient, state, params)
        assert [int(mask.sum()) for mask in after.masks] == expected
        for kernel, mask in zip(kernels(new), after.masks, strict=True):
            np.testing.assert_array_equal(np.where(mask, 0, kernel), 0)
        flat = ravel_pytree(params)[0]
        moments = [x for x in jax.tree.leaves(after.inner) if x.shape == flat.shape]
        assert len(moments) == 2
        if update != "static" and i in (3, 6, 9):
            changes += 1
            share = 0.5 * 0.5 * (1 + np.cos(np.pi * i / 10))
            biases = [[x["bias"] for x in of.values()] for of in (params, new)]
            jax.tree.map(np.testing.assert_array_equal, *biases)  # a change takes the place of a step
            parts = [kernels(ravel_pytree(params)[1](moment)) for moment in moments]
            grown = sum(int((new & ~old).sum()) for new, old in zip(after.masks, state.masks, strict=True))
            dropped = sum(int(share * number) for number in expected)
            assert min(dropped, 1) <= grown <= dropped  # dropped weights may grow at once
            for number, mask in enumerate(after.masks):
                one = kernels(params)[number], kernels(gradient)[number], state.masks[number]
                if update == "rigl":
                    weights, there = by_hand(*one, share)
                    np.testing.assert_allclose(kernels(new)[number].ravel(), weights, rtol=1e-6)
                    np.testing.assert_array_equal(mask.ravel(), there)
                for moment in parts:
                    np.testing.assert_array_equal(moment[number][~(mask & one[2])], 0)
        else:  # Adam's step of the weights in the mask
            masked = follow.mask(state, gradient)
            updates, _ = dense.update(ravel_pytree(masked)[0], state.inner, flat)
            np.testing.assert_allclose(ravel_pytree(new)[0], flat + updates, rtol=1e-5, atol=1e-7)
            jax.tree.map(np.testing.assert_array_equal, after.masks, state.masks)
        params, state = new, after
    assert changes == (0 if update == "static" else 3)
    assert num_weights(params, state) == sum(expected)
    other = NETWORK.init(jax.random.key(9))  # as for the average of a target network
    assert count(follow.mask(state, other)) == expected


@pytest.mark.system
def test_runs_side_by_side_change_as_one_alone():
    follow = sparse(density=0.3, every=2, until=8)(optax.adam(1e-2))

    def run(key):
        params, state = follow.init(key, NETWORK.init(key))

        def step(carry, key):
            params, state = carry
            gradient = jax.tree.map(lambda x: jax.random.normal(key, x.shape), params)
            return follow.update(gradient, state, params), None

        return jax.lax.scan(step, (params, state), jax.random.split(key, 6))[0]

    keys = jax.random.split(jax.random.key(0), 3)
    together, state = jax.jit(jax.vmap(run))(keys)
    assert "sort" in str(jax.make_jaxpr(jax.vmap(run))(keys))
    for i in range(3):
        alone, own = jax.jit(run)(keys[i])
        jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=1e-5, atol=1e-7), together, alone)
        jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), state.masks, own.masks)


def test_a_schedule_counts_the_steps_that_move_weights():
    rate = optax.linear_schedule(1e-3, 0.0, 20)
    steps = sparse(density=0.5, every=2, until=20)(optax.adam(rate))
    params, state = steps.init(jax.random.key(0), NETWORK.init(jax.random.key(1)))
    gradient = jax.tree.map(jnp.ones_like, params)

    def one(carry, _):
        return steps.update(gradient, carry[1], carry[0]), None

    (_, state), _ = jax.lax.scan(one, (params, state), length=20)
    assert int(optax.tree_utils.tree_get(state, "ScaleByScheduleState").count) == 20


def test_all_weights_are_there_where_that_is_said():
    params, gradient = (NETWORK.init(jax.random.key(i)) for i in range(2))
    plain = descent(optax.sgd(0.1))
    for sparsity in (sparse(density=1.0, update="static"), sparse(density=0.1, update="dense")):
        follow = descent(optax.sgd(0.1), sparsity)
        begun, state = follow.init(jax.random.key(0), params)
        jax.tree.map(np.testing.assert_array_equal, begun, params)
        found, _ = follow.update(gradient, state, begun)
        expected, _ = plain.update(gradient, plain.init(jax.random.key(0), params)[1], params)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), found, expected)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("rigl(density=0, until=9)", "density: got 0; a number in (0, 1] is needed"),
        ("rigl(density=1.5, until=9)", "density: got 1.5; a number in (0, 1] is needed"),
        ("rigl(density=0.1)", "until: got None; the step after which rigl changes nothing, a whole number, is needed"),
        ("set(density=0.1, until=0)", "until: got 0"),
        ("static(density=0.1, every=0)", "every: got 0"),
        ("rigl(density=0.1, until=9, drop_fraction=2)", "drop_fraction: got 2; a number in [0, 1] is needed"),
        ("rigl(until=9)", "density: not given"),
        ("rigged(density=0.1)", "sparsity: got 'rigged'; did you mean"),
        ("static(density=0.1, allocation='even')", "allocation: got 'even'"),
        ("rigl(density=0.1, until=9, constant_fan_in=True)", "constant_fan_in: got True with rigl; static or set"),
    ],
)
def test_bad_sparsity_is_one_line(spec, words):
    with pytest.raises(ValueError, match=r"^sparsity: ") as error:
        make_sparsity(spec)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_parameters_without_kernels_are_refused():
    with pytest.raises(ValueError, match="sparsity: got parameters without a kernel"):
        sparse(density=0.1, update="static")(optax.sgd(0.1)).init(jax.random.key(0), {"logits": jnp.zeros((3, 2))})


@pytest.mark.system
@pytest.mark.parametrize(
    "learner",
    [
        pytest.param("ppo(hidden=[8], epochs=1, minibatches=2", id="ppo"),
        pytest.param("dqn(hidden=[8], buffer_size=64, batch_size=8, learning_starts=8", marks=MARKS, id="dqn"),
        pytest.param(
            "r2d2(hidden=[8], memory=4, sequence_length=4, burn_in=0, buffer_size=8, batch_size=4, learning_starts=1",
            marks=MARKS,
            id="r2d2",
        ),
    ],
)
def test_learners_keep_as_many_weights_as_they_began_with(learner):
    """The same setting in all specs: learning changes the mask, and weights outside it are always 0."""
    game = make_game("CartPole-v1")
    few = make_learner(f"{learner}, sparsity='rigl(density=0.25, every=2, until=40)')", game)
    run = jax.jit(lambda key: learn(key, game, [few], num_updates=8, steps_per_update=4, num_envs=4))
    before, after = jax.jit(few.init)(jax.random.key(0)), run(jax.random.key(0)).states[0]
    total = round(0.25 * sum(kernel.size for kernel in kernels(after.params)))
    for state in (before, after):
        assert sum(int(mask.sum()) for mask in state.optimizer.masks) == total
        for tree in (state.params, getattr(state, "target", state.params)):
            for kernel, mask in zip(kernels(tree), state.optimizer.masks, strict=True):
                np.testing.assert_array_equal(kernel[~mask], 0)
    moved = [bool((a != b).any()) for a, b in zip(before.optimizer.masks, after.optimizer.masks, strict=True)]
    assert any(moved)
