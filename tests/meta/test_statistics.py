"""Standard errors by hand."""

import math
from pathlib import Path

import numpy as np
import pytest

from meta.statistics import finite, mean_and_error, standard_error


def test_the_standard_error_is_that_of_independent_values():
    assert standard_error(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(math.sqrt(5 / 3 / 4))


@pytest.mark.filterwarnings("error")
def test_a_single_value_has_none():
    assert math.isnan(standard_error(np.array([2.0])))
    assert mean_and_error(np.array([2.0])) == {"mean": 2.0, "standard_error": None}


def test_numbers_that_are_not_finite_become_null_at_any_depth():
    given = {"a": [1.0, (np.float32(np.nan), {2: -math.inf})], "b": Path("x"), "c": None, "d": np.int32(3), "e": True}
    assert finite(given) == {"a": [1.0, [None, {"2": None}]], "b": "x", "c": None, "d": 3, "e": True}
