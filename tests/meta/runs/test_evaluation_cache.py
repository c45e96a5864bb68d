"""Parts of an evaluation are computed once, while all that they depend on stays the same."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from attacks.experiments.config import AttackConfig
from meta.runs.evaluation_cache import EvaluationCache


class Found(NamedTuple):
    values: object
    more: object


CONFIG = AttackConfig()
PARAMETERS = {"w": jnp.arange(3.0)}
RESULT = Found(jnp.array([1.0, jnp.nan, jnp.inf]), {"count": jnp.int32(2)})


@pytest.fixture
def compute():
    """Returns the result, and counts its calls."""

    def compute():
        compute.calls += 1
        return RESULT

    compute.calls = 0
    return compute


def test_a_part_comes_from_its_file_as_it_was(tmp_path, compute):
    for _ in range(2):
        found = EvaluationCache(tmp_path, CONFIG).result("all", PARAMETERS, lambda: Found(0, {"count": 0}), compute)
        np.testing.assert_array_equal(found.values, RESULT.values)
        assert found.more == {"count": 2}
    assert compute.calls == 1
    EvaluationCache(tmp_path, CONFIG).clear()
    assert not list(tmp_path.iterdir())


def test_what_it_depends_on_is_compared(tmp_path, compute):
    def find(config=CONFIG, parameters=PARAMETERS):
        EvaluationCache(tmp_path, config).result("all", parameters, lambda: RESULT, compute)
        return compute.calls

    assert [find(), find()] == [1, 1]
    assert find(dataclasses.replace(CONFIG, evaluation_trials=3)) == 2
    assert find() == 3  # the file has the last one
    assert find(parameters={"w": jnp.arange(1.0, 4.0)}) == 4
    file = EvaluationCache(tmp_path, CONFIG).file("all")
    file.write_bytes(file.read_bytes()[:-1])
    assert find(parameters={"w": jnp.arange(1.0, 4.0)}) == 5  # a damaged one does not count
    assert find(parameters={"w": jnp.arange(1.0, 4.0)}) == 5
