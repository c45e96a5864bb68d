"""Zero-determinant strategies: the identities of Press and Dyson, with a discount."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games import InfinitelyRepeated, prisoners_dilemma, stag_hunt
from games.exact.zd import fit, payoffs_against_random, zd_policy
from marl import make_learner

DISCOUNT = 0.96


def logits(probabilities):
    p = np.asarray(probabilities)
    return jnp.asarray(np.clip(np.log(p + 1e-30) - np.log1p(-p + 1e-30), -40, 40), jnp.float32)


@settings(max_examples=30, deadline=None)
@given(st.floats(1.2, 20.0))
def test_the_enforced_relation_holds_against_random_opponents_below_1e_5(chi):
    policy = zd_policy(prisoners_dilemma, chi, discount=DISCOUNT)
    own, other = payoffs_against_random(jax.random.key(0), prisoners_dilemma, logits(policy), discount=DISCOUNT)
    # Relative to chi, which scales both sides.
    residual = np.abs((np.asarray(own) + 2) - chi * (np.asarray(other) + 2)) / chi
    assert residual.max() < 1e-5


def test_a_chi_of_3_has_the_known_feasible_range_and_slope():
    low = fit(prisoners_dilemma, zd_policy(prisoners_dilemma, 3.0, 0.0201, discount=DISCOUNT), discount=DISCOUNT)
    high = fit(prisoners_dilemma, zd_policy(prisoners_dilemma, 3.0, 0.1428, discount=DISCOUNT), discount=DISCOUNT)
    assert (low.phi, high.phi) == pytest.approx((0.0201, 0.1428))
    for phi in (0.019, 0.144):
        with pytest.raises(ValueError, match=r"phi: got .*; a number in \[0.02, 0.1429\]"):
            zd_policy(prisoners_dilemma, 3.0, phi, discount=DISCOUNT)
    policy = zd_policy(prisoners_dilemma, 3.0, discount=DISCOUNT)
    own, other = payoffs_against_random(jax.random.key(1), prisoners_dilemma, logits(policy), discount=DISCOUNT)
    slope, intercept = np.polyfit(np.asarray(other, np.float64), np.asarray(own, np.float64), 1)
    assert (slope, intercept) == pytest.approx((3.0, 4.0), rel=1e-4)


@pytest.mark.parametrize("chi", [1.2, 3.0, 12.0])
def test_a_fit_finds_what_was_constructed(chi):
    found = fit(prisoners_dilemma, zd_policy(prisoners_dilemma, chi, discount=DISCOUNT), discount=DISCOUNT)
    assert found.chi == pytest.approx(chi)
    assert found.residual < 1e-12
    assert found.extortionate


def test_the_column_player_constructs_the_same_strategy_in_a_symmetric_game():
    row, column = (zd_policy(prisoners_dilemma, 2.0, discount=DISCOUNT, player=player) for player in (0, 1))
    np.testing.assert_allclose(row, column)


def test_famous_strategies_get_their_known_verdicts():
    known = {"tft": True, "all_d": False, "all_c": False, "wsls": False, "grim": False}
    game = InfinitelyRepeated(prisoners_dilemma, 0.999)
    for name, zero_determinant in known.items():
        p = jax.nn.sigmoid(make_learner(name, game, 1).init(jax.random.key(0)).logits)
        found = fit(prisoners_dilemma, np.asarray(p), discount=0.999)
        assert (found.residual < 0.01 and abs(found.chi - 1) < 0.01) == zero_determinant, name


def test_an_undiscounted_strategy_misses_at_a_discount():
    undiscounted = zd_policy(prisoners_dilemma, 3.0, 0.08, discount=1 - 1e-9)
    own, other = payoffs_against_random(jax.random.key(0), prisoners_dilemma, logits(undiscounted), discount=DISCOUNT)
    miss = np.abs((np.asarray(own) + 2) - 3 * (np.asarray(other) + 2)).max()
    assert 0.05 < miss < 0.6


def test_no_strategy_is_made_where_none_exists():
    # phi (chi - 1) >= 1 - discount and phi (1 + 2 chi) <= 1 leave chi >= 1.04 / 0.92 at a discount of 0.96.
    zd_policy(prisoners_dilemma, 1.131, discount=DISCOUNT)
    for chi, discount in ((1.130, DISCOUNT), (3.0, 0.1)):
        with pytest.raises(ValueError, match="no strategy of prisoners_dilemma enforces it"):
            zd_policy(prisoners_dilemma, chi, discount=discount)
    with pytest.raises(ValueError, match="no strategy of stag_hunt"):
        zd_policy(stag_hunt, -5.0, discount=DISCOUNT)
