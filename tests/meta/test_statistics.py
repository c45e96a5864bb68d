"""Standard errors by hand."""

import math

import numpy as np
import pytest

from meta.statistics import mean_and_error, standard_error


def test_the_standard_error_is_that_of_independent_values():
    assert standard_error(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(math.sqrt(5 / 3 / 4))


@pytest.mark.filterwarnings("error")
def test_a_single_value_has_none():
    assert math.isnan(standard_error(np.array([2.0])))
    assert mean_and_error(np.array([2.0])) == {"mean": 2.0, "standard_error": None}
