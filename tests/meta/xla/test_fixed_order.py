"""Results that do not depend on the number of cores."""

import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta.xla.fixed_order import has_large, in_fixed_order
from tests.nightly import nightly

pytestmark = pytest.mark.system


def drawn(*shape):
    return jnp.asarray(np.random.RandomState(0).randn(*shape), jnp.float32)


PRODUCTS = {
    "batched": (lambda a, b: jnp.einsum("xbti,xbtj->bxij", a, b), (2, 3, 1000, 32), (2, 3, 1000, 40)),
    "two axes": (lambda a, b: jnp.einsum("stix,stj->xij", a, b), (20, 50, 32, 2), (20, 50, 40)),
    "whole sums": (lambda a, b: a @ b, (70, 200), (200, 64)),  # four pieces of 18 rows, the last with two of them again
    "vectors": (lambda a, b: a @ b, (300_000,), (300_000,)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_in_blocks_is_the_product(name):
    product, left, right = PRODUCTS[name]
    a, b = drawn(*left), drawn(*right)
    assert has_large(jax.make_jaxpr(product)(a, b).jaxpr)
    found = in_fixed_order(product)(a, b)
    exact = product(np.asarray(a, np.float64), np.asarray(b, np.float64)) if name == "whole sums" else product(a, b)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)


CONVOLUTIONS = {
    "plain": {},
    "strides": {"window_strides": (2, 3)},
    "padded": {"padding": [(2, 1), (0, 3)]},
    "cut": {"padding": [(-1, 0), (1, -2)]},
    "far apart": {"rhs_dilation": (2, 1), "lhs_dilation": (1, 2)},
    "channels first": {"dimension_numbers": ("NCHW", "OIHW", "NCHW")},
    "mixed": {"dimension_numbers": ("HNWC", "WIHO", "CWNH"), "window_strides": (1, 2), "padding": [(1, 1), (0, 2)]},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_as_a_product_is_the_convolution(name):
    """With its gradients, for sides of 11 x 12, 6 channels and kernels of 3 x 4."""
    how = {"window_strides": (1, 1), "padding": [(0, 0), (0, 0)], "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    how |= CONVOLUTIONS[name]
    sizes = {"N": 16, "H": 11, "W": 12, "C": 6}, {"H": 3, "W": 4, "I": 6, "O": 16}
    x, k = (drawn(*(of[axis] for axis in axes)) for of, axes in zip(sizes, how["dimension_numbers"][:2], strict=True))

    def convolution(x, k):
        return jax.lax.conv_general_dilated(x, k, **how)

    def gradients(x, k):
        return jax.grad(lambda x, k: (jnp.tanh(convolution(x, k)) ** 2).sum(), (0, 1))(x, k)

    for function in (convolution, gradients):
        assert has_large(jax.make_jaxpr(function)(x, k).jaxpr)
        assert not has_large(jax.make_jaxpr(in_fixed_order(function))(x, k).jaxpr)
        found, expected = jax.jit(in_fixed_order(function))(x, k), jax.jit(function)(x, k)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


def test_products_inside_of_loops_and_branches_are_found():
    """Gradient steps of a network in a scan, a while loop and a branch."""
    gradient = jax.grad(lambda w, x: (jnp.tanh(jnp.tanh(x @ w) @ w) ** 2).mean())

    def steps(w, x):
        w = jax.lax.scan(lambda w, _: (w - 0.1 * gradient(w, x), None), w, None, 2)[0]
        w = jax.lax.while_loop(lambda c: c[1] < 2, lambda c: (c[0] - gradient(c[0], x), c[1] + 1), (w, 0))[0]
        return jax.lax.cond(w.sum() > 0, jax.jit(gradient), lambda w, x: -gradient(w, x), w, x)

    w, x = drawn(64, 64) / 8, drawn(700, 64)
    np.testing.assert_allclose(jax.jit(in_fixed_order(steps))(w, x), jax.jit(steps)(w, x), atol=1e-7)
    inside = jax.make_jaxpr(in_fixed_order(steps))(w, x).jaxpr
    assert has_large(jax.make_jaxpr(steps)(w, x).jaxpr)
    assert not has_large(inside)


def test_a_large_product_that_cannot_be_taken_apart_is_reported():
    product = jax.custom_batching.custom_vmap(lambda a, b: a @ b)
    product.def_vmap(lambda size, batched, a, b: (a @ b, True))
    a, b = drawn(64, 128), drawn(128, 64)
    with pytest.warns(UserWarning, match="custom_vmap_call: large products inside have no fixed order"):
        found = in_fixed_order(product)(a, b)
    np.testing.assert_array_equal(found, product(a, b))


def test_a_program_without_large_products_does_not_change():
    def small(a, b):
        return jax.lax.scan(lambda c, _: (c @ b, None), a, None, 3)[0]

    a, b = drawn(8, 16), drawn(16, 16)
    before, after = (str(jax.make_jaxpr(function)(a, b)) for function in (small, in_fixed_order(small)))
    assert before == after


BITS = """
import hashlib, os, jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_num_cpu_devices", int(os.environ["NPROC"]))
from meta.xla.devices import in_chunks
from meta.xla.fixed_order import in_fixed_order
from meta.loop import compiler_options

def drawn(*shape):
    return jnp.asarray(np.random.RandomState(0).randn(*shape), jnp.float32)

def conv(x, k):
    return jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

found = []
for function, *shapes in (
    (lambda a: (a.sum(), a.sum(0), a.mean(), a.std(), jnp.tanh(a), jnp.exp(a)), (1003, 517)),
    (lambda a, b: a.T @ b, (100_000, 32), (100_000, 32)),
    (lambda a, b: jnp.einsum("bti,btj->bij", a, b), (16, 4096, 16), (16, 4096, 32)),
    (lambda a, b: a @ b, (1003, 200), (200, 64)),
    (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (64, 40, 100), (64, 100, 40)),
    (lambda a, b: a @ b, (300_000,), (300_000,)),
    (jax.grad(lambda w, x: (jnp.tanh(jnp.tanh(x @ w) @ w) ** 2).mean()), (64, 64), (8192, 64)),
    (conv, (256, 10, 10, 4), (3, 3, 4, 16)),
    (jax.grad(lambda k, x: (conv(x, k) ** 2).sum()), (3, 3, 4, 16), (256, 10, 10, 4)),
    (in_chunks(lambda x: (jnp.exp(x @ x.T).sum(), jnp.tanh(x) @ x.sum(0)), 4, 1), (4, 30, 70)),
    (in_chunks(lambda x: (jnp.exp(x @ x.T).sum(), jnp.tanh(x) @ x.sum(0)), 7, 3), (7, 30, 70)),
):
    program = jax.jit(in_fixed_order(function), compiler_options=compiler_options())
    found += jax.tree.leaves(program(*(drawn(*shape) for shape in shapes)))
print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in found)).hexdigest())
"""
RUN = ["-m", "marl.mfos", "ipd", "--seed=5", "--evolution.generations=2", "--evaluation-trials=2", "--quiet"]


def of_threads(number, environment, line, cwd):
    """Starts Python with XLA's threads for this number of cores, and without the XLA options of the tests."""
    variables = {name: x for name, x in environment.items() if name != "XLA_FLAGS"} | {"NPROC": str(number)}
    called = [sys.executable, *line]
    return subprocess.Popen(called, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_sums_products_convolutions_and_chunks_have_the_same_bits_on_any_number_of_cores(environment, tmp_path):
    both = [of_threads(number, environment, ["-c", BITS], tmp_path) for number in (1, 4)]
    printed = [process.communicate(timeout=600) for process in both]
    assert printed[0][0] == printed[1][0] != "", printed


@nightly
def test_a_run_with_chunks_is_the_same_bit_for_bit_on_any_number_of_cores(environment, tmp_path):
    """A process bound to one core, and one with the threads of four."""
    bound = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); "
    bound += "from marl.mfos import main; main(%r)"
    chunks = ["--evolution.chunk-size=64"]
    lines = [
        ["-c", bound % [*RUN[2:], *chunks, "--out=one"]],
        [*RUN, *chunks, "--out=four"],
    ]
    started = [of_threads(number, environment, line, tmp_path) for number, line in zip((1, 4), lines, strict=True)]
    for process in started:
        assert process.wait(timeout=300) == 0, process.stderr.read()
    found = {hashlib.sha256((tmp_path / x / "metrics.jsonl").read_bytes()).hexdigest() for x in ("one", "four")}
    assert len(found) == 1
