"""Reports: missing numbers, and verdicts of claims by hand."""

import math

import pytest

from meta.runs.reports.claims import Claim, claims_table, difference, number, passes, summary


def test_a_difference_is_in_combined_standard_errors():
    # 0.003 and 0.004 combine to 0.005.
    claim = Claim("", -1.506, 0.003, reference=-1.516, reference_error=0.004)
    assert difference(claim) == pytest.approx(2.0)
    assert difference(claim._replace(ours=-1.5235)) == pytest.approx(-1.5)
    assert difference(Claim("", 0.5, 0.1, reference=0.3)) == pytest.approx(2.0)  # an exact reference
    assert difference(Claim("", -0.40, 0.01, least=-0.42)) == pytest.approx(2.0)  # a target without a reference
    assert difference(Claim("", 1.0, 0.0, reference=1.0)) == 0.0
    assert difference(Claim("", 1.0, None, reference=1.0)) is None
    assert difference(Claim("", 1.0, math.nan, reference=1.0)) is None


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (Claim("", -1.5011, 0.003, -1.516, 0.004), True),  # 2.98 standard errors
        (Claim("", -1.5009, 0.003, -1.516, 0.004), False),  # 3.02
        (Claim("", -1.5311, 0.003, -1.516, 0.004), False),
        (Claim("", -0.42, 0.5, least=-0.42), True),  # the figure itself decides, however large its error
        (Claim("", -0.4201, 0.5, least=-0.42), False),
        (Claim("", -0.40, 0.0001, -0.30, least=-0.42), True),  # a reference beside a target is for comparison
        (Claim("", 0.06, None, most=0.05), False),
        (Claim("", -0.2, None, least=-0.1, most=0.1), False),
        (Claim("", 0.0, None, least=-0.1, most=0.1), True),
        (Claim("", 1.0, 0.0, 1.0), True),
        (Claim("", 1.0, 0.0, 1.1), False),  # two exact numbers
        (Claim("", 1.0, None, 1.0), None),  # of one training, whose distance has no unit
        (Claim("", 1.0, math.nan, 1.0), None),
        (Claim("", None, None, 1.0, 0.1), False),
        (Claim("", math.nan, 0.1, least=0.0), False),
        (Claim("", 1.0, 0.1), None),
    ],
)
def test_verdicts(claim, verdict):
    assert passes(claim) is verdict


def test_only_claims_are_counted_and_shown_with_a_verdict():
    claims = [Claim("reached", 1.0, 0.1, least=0.9), Claim("missed", 1.0, 0.1, least=1.1), Claim("reported", 1.0, 0.1)]
    assert summary(claims) == (1, 2)
    rows = claims_table(claims).splitlines()
    assert [row.split("|")[-2].strip() for row in rows[2:]] == ["pass", "**fail**", ""]
    assert [number(x) for x in (0.12345, 1.5e-14, 0.0, None, math.nan)] == ["0.123", "1.5e-14", "0.000", "", ""]
