"""Running statistics of observations against NumPy's, of all at once."""

import jax.numpy as jnp
import numpy as np
import pytest

from marl.blocks.normalization import add, first_statistics, normalize


@pytest.mark.usefixtures("promoted")
def test_observations_stay_as_they_are_before_there_are_statistics():
    obs = jnp.float32([[0.03, -2.0, 10.0]])
    np.testing.assert_allclose(normalize(first_statistics((3,)), obs), obs, rtol=1e-6)


def test_running_statistics_are_those_of_two_passes():
    rng = np.random.default_rng(0)
    chunks = [rng.normal(5, 3, (n, 2, 3)) * [1, 10, 0] + [0, 100, 4] for n in (1, 7, 2, 30)]
    statistics = first_statistics((2, 3))
    for chunk in chunks:
        statistics = add(statistics, jnp.float32(chunk))
    together = np.concatenate(chunks)
    assert float(statistics.number) == 40
    np.testing.assert_allclose(statistics.mean, together.mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics.variance, together.var(0), rtol=1e-4, atol=1e-9)
    expected = (together - together.mean(0)) / np.sqrt(together.var(0) + 1e-8)
    np.testing.assert_allclose(normalize(statistics, jnp.float32(together)), expected, rtol=1e-3, atol=2e-3)
