"""Scalarized functions have the results of the original ones."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta import scalarize
from meta.xla import scalar_replacement
from meta.xla.barriers import computed_once, drawn_apart


def looped(step, length=4):
    """A function whose body runs in a scan, where arrays are taken apart."""

    def function(x, matrix):
        return jax.lax.scan(lambda carry, i: step(carry, i, matrix), x, jnp.arange(float(length)))

    return function


BODIES = {
    "elementwise": lambda x, i, m: (jnp.tanh(x) * 0.5 + jnp.where(x > 0, x, -2 * x) / (1 + i), x**2),
    "indexing": lambda x, i, m: (x[::-1] + x[0] - x[-1], (x[2], x[1:4])),
    "stacking": lambda x, i, m: (jnp.stack([x[4], x[3], x[2], i, x[0]]), jnp.concatenate([x, x[:2]])),
    "matrix product": lambda x, i, m: (jnp.tanh(m @ x), m * x),
    "sums": lambda x, i, m: (x / (1 + x.sum() ** 2), jnp.outer(x, x).sum(0)),
    "shapes": lambda x, i, m: (x.reshape(5, 1).T[0] + 1, jnp.broadcast_to(x[:, None], (5, 2)) * jnp.ones((5, 2))),
    "gradient": lambda x, i, m: (x - 0.1 * jax.grad(lambda y: jnp.sum(jnp.sin(y[1:] * y[:-1])))(x), i),
    "clamped index": lambda x, i, m: (x, (jax.lax.dynamic_slice(x, (7,), (2,)), jax.lax.dynamic_slice(x, (-3,), (1,)))),
    "empty": lambda x, i, m: (x, x[:0]),
    "traced index": lambda x, i, m: (jnp.roll(x, 1), x[i.astype(int)]),
    "sorting": lambda x, i, m: (jnp.sort(x)[::-1] * 0.9, jnp.argmax(x)),
    "random": lambda x, i, m: (x + jax.random.normal(jax.random.fold_in(jax.random.key(3), i.astype(int)), (5,)), i),
    "inner loop": lambda x, i, m: jax.lax.scan(lambda y, j: (y * j + i, y.sum()), x, jnp.arange(3.0)),
    "loop of one": lambda x, i, m: jax.lax.scan(lambda y, j: (y + j + i, (y, y[0])), x, jnp.ones((1, 5))),
    "conditional": lambda x, i, m: (jax.lax.cond(i > 1, lambda y: y + 1, lambda y: -y, x), i),
    "branches": lambda x, i, m: (lambda y, *more: (y, more))(
        *jax.lax.switch(
            i.astype(int),
            [
                lambda y: (jax.lax.optimization_barrier(y * i)[::-1], jnp.argmax(y), m @ y),
                lambda y: (jnp.zeros(5), jnp.int32(1), y),
                lambda y: (jnp.stack([*y[1:], i]), (y > 0).sum(), jnp.ones(5)),
            ],
            x,
        )
    ),
    "while": lambda x, i, m: (jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x), i),
    "custom derivative": lambda x, i, m: (jax.nn.relu(x) - jax.nn.softplus(x), jax.nn.logsumexp(x)),
    "barrier": lambda x, i, m: jax.lax.optimization_barrier((x * 1.1 + i, jnp.tanh(m))),
    "unread": lambda x, i, m: (jax.lax.cond(i > 1, lambda y: (y + 1, y[::-1]), lambda y: (-y, y), x)[0], i),
    "parts": lambda x, i, m: (jnp.concatenate(jnp.split(x, [2])[::-1]), i),
    "padding": lambda x, i, m: (jnp.pad(x, (1, 2), constant_values=2.0)[1:6], jax.lax.pad(x, 0.0, [(-1, 0, 1)])),
}


@pytest.mark.filterwarnings("error:scalarize")
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("max_size", [0, 5, 30])
def test_results_are_those_of_the_function(name, max_size):
    function = looped(BODIES[name])
    x = jax.random.normal(jax.random.key(0), (3, 5))
    matrix = jax.random.normal(jax.random.key(1), (5, 5))
    expected = jax.vmap(function, (0, None))(x, matrix)
    found = jax.jit(jax.vmap(scalarize(function, max_size=max_size), (0, None)))(x, matrix)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.filterwarnings("error:scalarize")
def test_the_installed_jax_has_the_expected_layout_of_each_primitive(monkeypatch):
    handlers, taken_apart = scalar_replacement._STRUCTURAL, set()

    def noted(name):
        def handle(*arguments):
            result = handlers[name](*arguments)
            if result is not None:
                taken_apart.add(name)
            return result

        return handle

    monkeypatch.setattr(scalar_replacement, "_STRUCTURAL", {name: noted(name) for name in handlers})
    for body in BODIES.values():
        jax.make_jaxpr(scalarize(looped(body), max_size=30))(jnp.ones(5), jnp.ones((5, 5)))
    assert taken_apart == {name for name in handlers if hasattr(jax.lax, f"{name}_p")}


OTHER_LAYOUTS = {  # change in JAX: (attribute here, its new value)
    "a parameter of a primitive": ("_STRUCTURAL", {"rev": lambda params, value: value[params["axes"]]}),
    "a parameter of a call": ("_INLINED", {"custom_jvp_call": "body", "jit": "body"}),
    "an attribute": ("core", SimpleNamespace()),
    "the number of results": ("_STRUCTURAL", {"rev": lambda params, value: [value, value]}),
}


@pytest.mark.parametrize("change", OTHER_LAYOUTS)
def test_a_function_stays_as_it_is_if_a_layout_is_unknown(change, monkeypatch):
    monkeypatch.setattr(scalar_replacement, *OTHER_LAYOUTS[change])
    function = looped(lambda x, i, m: (jax.nn.relu(x[::-1]) + i, x.sum()))
    x, matrix = jnp.arange(5.0) - 2, jnp.ones((5, 5))
    with pytest.warns(RuntimeWarning, match=f"scalarize: unknown to it in jax {jax.__version__}"):
        found = scalarize(function)(x, matrix)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(function(x, matrix)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_error_of_the_function_is_its_own():
    with pytest.raises(KeyError, match="nothing"):
        scalarize(looped(lambda x, i, m: {}["nothing"]))(jnp.ones(5), jnp.ones((5, 5)))


def test_a_batch_of_small_vectors_is_taken_apart_in_the_loop():
    function = scalarize(looped(lambda x, i, m: (jnp.sin(x) + x[::-1], None)))
    text = str(jax.make_jaxpr(jax.vmap(function, (0, None)))(jnp.ones((7, 5)), jnp.ones((5, 5))))
    assert "f32[7] = sin" in text
    assert "f32[7,5] = sin" not in text


def test_small_vectors_are_taken_apart_in_a_branch_that_a_batch_shares():
    function = scalarize(
        looped(lambda x, i, m: (jax.lax.cond(i > 1, lambda y: jnp.sin(y) + y[::-1], jnp.cos, x), None))
    )
    text = str(jax.make_jaxpr(jax.vmap(function, (0, None)))(jnp.ones((7, 5)), jnp.ones((5, 5))))
    assert "f32[7] = sin" in text
    assert "f32[7,5] = sin" not in text
    assert "cond[" in text


def test_values_computed_once_are_the_same_behind_a_branch_in_a_batch():
    def walk(once, x):
        def step(x, i):
            drawn = jax.random.normal(jax.random.fold_in(jax.random.key(3), i), x.shape)
            moved, sign = once((x + drawn, jnp.sign(drawn).astype(int)), i)
            return jnp.tanh(moved / 4), sign  # a slope near 0 would be mostly rounding

        return jax.lax.scan(step, x, jnp.arange(4))

    x = jax.random.normal(jax.random.key(0), (3, 5))
    plain, behind = (jax.vmap(lambda x, once=once: walk(once, x)) for once in (lambda values, i: values, fenced))
    text = str(jax.make_jaxpr(behind)(x))
    assert "cond[" in text  # no selection between results of both branches
    assert "select_n" not in text.split("cond[")[1]
    for a, b in zip(jax.jit(plain)(x), jax.jit(behind)(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    slopes = [jax.jit(jax.grad(lambda x, f=f: f(x)[0].sum()))(x) for f in (plain, behind)]
    assert np.abs(slopes[0]).min() > 0
    np.testing.assert_allclose(*slopes, rtol=1e-6)


def fenced(values, i):
    return computed_once(values, i >= 0)


def test_drawn_apart_gives_every_member_the_same_numbers():
    key, members = jax.random.split(jax.random.key(7), 2), jnp.linspace(-3.0, 5.0, 6).reshape(3, 2)
    expected = jax.vmap(jax.random.uniform)(key)
    text = str(jax.make_jaxpr(jax.vmap(lambda one: jax.vmap(jax.random.uniform)(drawn_apart(key, one))))(members))
    assert re.search(r"u32\[3,2\] = random_bits", text)  # not two words for all three
    found = jax.jit(jax.vmap(lambda one: jax.vmap(jax.random.uniform)(drawn_apart(key, one))))(members)
    np.testing.assert_array_equal(found, jnp.stack([expected] * 3))
