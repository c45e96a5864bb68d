"""Missing numbers in reports."""

import json

import numpy as np

from meta.runs.report import finite


def test_numbers_of_any_type_that_are_not_finite_become_none():
    data = {
        "a": [np.float32("nan"), np.float64("inf"), -np.inf, np.array(np.nan)],
        3: (np.float32(0.5), np.int64(2), "x"),
    }
    assert finite(data) == {"a": [None] * 4, "3": [0.5, 2, "x"]}
    json.dumps(finite(data), allow_nan=False)
