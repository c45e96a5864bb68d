"""`lazy_cond` in a batch: the results of `cond`, without computing a branch that no member takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.core.branching import lazy_cond


def double(number, x, factor):
    """A branch with a closure over the factor, as in learners."""
    return lazy_cond(number % 3 == 0, lambda x: {"x": jnp.sort(x) * factor}, lambda x: {"x": x + factor}, x)["x"]


@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, None), (None, 0, 0), (0, None, 0)])
def test_each_member_has_the_result_of_cond(axes):
    number, x, factor = jnp.arange(4), jax.random.normal(jax.random.key(0), (4, 5)), jnp.arange(1.0, 5.0)
    given = [value if axis == 0 else value[3] for value, axis in zip((number, x, factor), axes, strict=True)]
    found = jax.jit(jax.vmap(double, axes))(*given)
    for i in range(4):
        n, y, f = (value[i] if axis == 0 else value for value, axis in zip(given, axes, strict=True))
        np.testing.assert_allclose(found[i], np.sort(y) * f if n % 3 == 0 else y + f, rtol=1e-6)


def test_a_batch_in_a_batch_in_a_loop_has_the_results_of_cond():
    def loop(x, factor):
        return jax.lax.scan(lambda x, number: (double(number, x, factor), None), x, jnp.arange(1, 5))[0]

    x, factor = jax.random.normal(jax.random.key(0), (2, 3, 5)), jnp.ones((2, 3)) * 2
    found = jax.jit(jax.vmap(jax.vmap(loop)))(x, factor)
    np.testing.assert_allclose(found, np.sort(x + 4.0) * 2 + 2, rtol=1e-5)


def test_a_branch_that_is_not_taken_is_not_computed():
    """A callback counts the computations; a selection between two results would always call it."""
    calls = []

    def note(x):
        jax.debug.callback(lambda x: calls.append(float(x)), x)
        return x

    def step(number, x):
        return lazy_cond(number == 2, note, lambda x: x, x)

    run = jax.jit(lambda x: jax.lax.scan(lambda x, number: (jax.vmap(step)(number, x), None), x, numbers)[0])
    numbers = jnp.stack([jnp.arange(6)] * 3, 1)
    jax.block_until_ready(run(jnp.zeros(3)))
    jax.effects_barrier()
    assert len(calls) == 3  # once for each member, and not six times
