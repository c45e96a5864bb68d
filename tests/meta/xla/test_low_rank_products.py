"""Products with a matrix and its noise of low rank, against those with the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta.xla.low_rank_products import Noise, call_with_noise


def drawn(seed, *shape):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape), jnp.float32)


X, W, KERNEL = drawn(0, 4, 6), drawn(1, 6, 5), drawn(2, 3, 3, 2, 5)
NOISE = Noise(drawn(3, 6, 2), drawn(4, 5, 2))
IMAGES = drawn(5, 2, 7, 8, 2)


def in_a_loop(arrays):
    """A product in each step of a scan, a while loop and both branches."""
    w = arrays[0]

    def step(h, x):
        return jnp.tanh(jax.lax.cond(h.sum() > 0, lambda: h @ w.T, lambda: (w @ h.T).T)[:, :5]), (x @ w).sum()

    h, sums = jax.lax.scan(step, X[:, :5], drawn(6, 3, 4, 6))
    h = jax.lax.while_loop(lambda h: jnp.abs(h).max() > 0.5, lambda h: 0.01 * (h @ w.T @ w), h)
    return h, sums


MULTIPLIED = {
    "right": lambda arrays: X @ arrays[0],
    "left": lambda arrays: arrays[0] @ drawn(7, 5, 3),
    "transposed": lambda arrays: X[:, :5] @ arrays[0].T,
    "several axes": lambda arrays: jnp.einsum("abi,ij->jab", drawn(7, 2, 3, 6), arrays[0]),
    "of a transposed": lambda arrays: jnp.einsum("ij,abj->iab", arrays[0], drawn(7, 2, 3, 5)),
    "vector": lambda arrays: X[0] @ arrays[0],
    "batched": lambda arrays: jax.vmap(lambda x: jax.jit(jnp.matmul)(x, arrays[0]))(X),
    "joined": lambda arrays: jax.nn.relu(X @ jnp.concatenate([arrays[0], arrays[0]], 1)),
    "differentiated": lambda arrays: jax.grad(lambda x: jnp.sin(x @ arrays[0]).sum())(X),
    "loops and branches": in_a_loop,
}
USED_OTHERWISE = {
    "sine": lambda arrays: jnp.sin(arrays[0]),
    "row": lambda arrays: X[0, 0] * arrays[0][2],
    "both sides": lambda arrays: arrays[0].T @ arrays[0],
    "returned": lambda arrays: arrays[0],
    "carried": lambda arrays: jax.lax.fori_loop(0, 3, lambda i, w: 0.5 * w, arrays[0]),
    "from a branch": lambda arrays: X @ jax.lax.cond(X[0, 0] > 0, lambda: arrays[0], lambda: -arrays[0]),
    "joined with others": lambda arrays: X @ jnp.concatenate([arrays[0], X.T], 1),
    "one below the other": lambda arrays: jnp.concatenate([arrays[0], arrays[0]]),
    "contracted twice": lambda arrays: jnp.einsum("ij,ij->", arrays[0], drawn(7, 6, 5)),
    "batch": lambda arrays: jnp.einsum("ai,ij->aij", X, arrays[0]),
    "whole numbers": lambda arrays: arrays[0].astype(jnp.int32),
}


@pytest.mark.parametrize("use", [*MULTIPLIED, *USED_OTHERWISE])
def test_a_function_of_a_noisy_matrix_is_that_of_the_sum(use):
    function, found = (MULTIPLIED | USED_OTHERWISE)[use], {}
    result = call_with_noise(function, [W], [NOISE], otherwise=found.setdefault)
    expected = function([W + NOISE.left @ NOISE.right.T])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), result, expected)
    assert bool(found) == (use in USED_OTHERWISE), found


@pytest.mark.parametrize("layout", ["HWIO", "IHWO", "OIHW"])
def test_a_convolution_has_filters_and_a_product_in_place_of_its_kernel(layout):
    """In a layout whose last axis is not the output the noise is added to the kernel."""
    kernel, found = jnp.transpose(KERNEL, ["HWIO".index(axis) for axis in layout]), {}
    rows = kernel.size // kernel.shape[-1]
    noise = Noise(drawn(8, rows, 2), drawn(9, kernel.shape[-1], 2))

    def function(arrays):
        numbers = ("NHWC", layout, "NCHW")
        return jax.lax.conv_general_dilated(IMAGES, arrays[0], (2, 1), "SAME", dimension_numbers=numbers)

    result = call_with_noise(function, [kernel], [noise], otherwise=found.setdefault)
    expected = function([kernel + (noise.left @ noise.right.T).reshape(kernel.shape)])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert found == ({0: "conv_general_dilated"} if layout == "OIHW" else {})


def test_arrays_without_noise_and_other_arguments_are_as_they_are():
    result = call_with_noise(lambda arrays, x: x["x"] @ arrays[0] + arrays[1], [W, W[0]], [NOISE, None], {"x": X})
    np.testing.assert_allclose(result, X @ (W + NOISE.left @ NOISE.right.T) + W[0], rtol=1e-5, atol=1e-5)


def test_a_matrix_may_be_converted_before_it_is_multiplied():
    found = {}
    function = lambda arrays: X.astype(jnp.float16) @ arrays[0].astype(jnp.float16)  # noqa: E731
    result = call_with_noise(function, [W], [NOISE], otherwise=found.setdefault)
    assert result.dtype == jnp.float16
    assert not found
    np.testing.assert_allclose(result, X @ (W + NOISE.left @ NOISE.right.T), atol=0.05)
