"""What a report writes where there is no number."""

import json

import numpy as np

from meta.runs.report import finite


def test_what_is_no_finite_number_is_none_of_whatever_type_it_is():
    data = {
        "a": [np.float32("nan"), np.float64("inf"), -np.inf, np.array(np.nan)],
        3: (np.float32(0.5), np.int64(2), "x"),
    }
    assert finite(data) == {"a": [None] * 4, "3": [0.5, 2, "x"]}
    json.dumps(finite(data), allow_nan=False)
