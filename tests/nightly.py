"""Tests that the nightly run alone has, `make slow`: what a cheaper test of the same mechanism already shows."""

import pytest

MARKS = [pytest.mark.slow, pytest.mark.system]  # both: programs are compiled as those of all other tests


def nightly(test):
    """A test, or the tests of a class, for the nightly run."""
    for mark in MARKS:
        test = mark(test)
    return test


def grid(cases, *representatives):
    """Cases of a test as its parameters, of which all but the representatives are left to the nightly run.

    A case is what a test takes as one argument, and a representative is the case or its text.
    """
    cases, chosen = list(cases), {*map(str, representatives)}
    assert chosen <= {*map(str, cases)}, f"no cases of this grid: {sorted(chosen - {*map(str, cases)})}"
    return [case if str(case) in chosen else pytest.param(case, marks=MARKS) for case in cases]
