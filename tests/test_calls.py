"""Wrong calls of the public API; `python -m tests.fault_injection.calls --seed N` draws others."""

import random

from tests.fault_injection import calls


def test_wrong_calls_are_answered_in_one_line_of_ours():
    source = random.Random(0)
    answers = {}
    for _ in range(300):
        name, arguments = calls.draw(source)
        if found := calls.fault(name, arguments):
            answers[name] = found
    assert answers == {}
