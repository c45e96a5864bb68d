"""Zero-determinant strategies: the identities of Press and Dyson, with a discount."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games import InfinitelyRepeated, MatrixGame, chicken, prisoners_dilemma, stag_hunt
from games.exact.zd import (
    IN_A_ROW,
    exact_payoffs,
    feasible_phi,
    fit,
    least_chi,
    longest_extortion,
    observed_policy,
    random_policies,
    zd_policy,
)
from marl import make_learner

DISCOUNT = 0.96
ALL_C, ALL_D, TFT = ([1.0] * 5, [0.0] * 5, [1.0, 1.0, 0.0, 1.0, 0.0])
SUSPICIOUS_TIT_FOR_TAT = [0.0, 1, 0, 1, 0]


def payoffs_against_random(policy, number=2_000):
    others = random_policies(np.random.default_rng(0), number)
    return exact_payoffs(prisoners_dilemma, policy, others, discount=DISCOUNT)


@settings(max_examples=30, deadline=None)
@given(st.floats(1.2, 20.0))
def test_the_enforced_relation_holds_against_random_opponents(chi):
    own, other = payoffs_against_random(zd_policy(prisoners_dilemma, chi, discount=DISCOUNT))
    # Relative to chi, which scales both sides.
    assert np.abs((own + 2) - chi * (other + 2)).max() / chi < 1e-12


@settings(max_examples=30, deadline=None)
@given(st.floats(1.2, 20.0))
def test_a_generous_strategy_shares_what_is_lost_below_mutual_cooperation(chi):
    own, other = payoffs_against_random(zd_policy(prisoners_dilemma, chi, discount=DISCOUNT, generous=True))
    assert np.abs((own + 1) - chi * (other + 1)).max() / chi < 1e-12
    assert own.max() <= -1 + 1e-12  # never more than mutual cooperation pays


def test_a_generous_strategy_is_the_one_worked_out_by_hand():
    """1 - 5 phi / d after CD, (7 phi - 0.04) / d after DC and (2 phi - 0.04) / d after DD: phi from 0.02 to 1/7."""
    for phi in (0.019, 0.144):
        with pytest.raises(ValueError, match=r"phi: got .*; a number in \[0.02, 0.1429\]"):
            zd_policy(prisoners_dilemma, 3.0, phi, discount=DISCOUNT, generous=True)
    policy = zd_policy(prisoners_dilemma, 3.0, 0.1, discount=DISCOUNT, generous=True)
    np.testing.assert_allclose(policy, [1, 1, 1 - 0.5 / 0.96, 0.66 / 0.96, 0.16 / 0.96])


def test_a_chi_of_3_has_the_known_feasible_range_and_slope():
    low = fit(prisoners_dilemma, zd_policy(prisoners_dilemma, 3.0, 0.0201, discount=DISCOUNT), discount=DISCOUNT)
    high = fit(prisoners_dilemma, zd_policy(prisoners_dilemma, 3.0, 0.1428, discount=DISCOUNT), discount=DISCOUNT)
    assert (low.phi, high.phi) == pytest.approx((0.0201, 0.1428))
    for phi in (0.019, 0.144):
        with pytest.raises(ValueError, match=r"phi: got .*; a number in \[0.02, 0.1429\]"):
            zd_policy(prisoners_dilemma, 3.0, phi, discount=DISCOUNT)
    policy = zd_policy(prisoners_dilemma, 3.0, discount=DISCOUNT)
    slope, intercept = np.polyfit(*reversed(payoffs_against_random(policy)), 1)
    assert (slope, intercept) == pytest.approx((3.0, 4.0))


@pytest.mark.parametrize("chi", [1.2, 3.0, 12.0])
def test_a_fit_finds_what_was_constructed(chi):
    found = fit(prisoners_dilemma, zd_policy(prisoners_dilemma, chi, discount=DISCOUNT), discount=DISCOUNT)
    assert found.chi == pytest.approx(chi)
    assert found.residual < 1e-12
    assert found.extortionate


def shared(*payoffs):
    return MatrixGame.of("one", payoffs, [payoffs[i] for i in (0, 2, 1, 3)])


@pytest.mark.parametrize("discount", [0.7, 0.9, 0.96, 0.999])
@pytest.mark.parametrize("payoffs", [(-1, -3, 0, -2), (3, 0, 5, 1), (3, -4, 3.5, 0)])
def test_the_least_chi_is_the_one_of_its_inequalities(payoffs, discount):
    """Worked out by hand for R, S, T, P: after CC, CD and DC a probability in [0, 1] needs

    phi (chi - 1) (R - P) >= 1 - d,   phi (P - S + chi (T - P)) <= 1,   phi (T - P + chi (P - S)) <= d.
    """
    r, s, t, p = payoffs
    over_phi = [((r - p) - (1 - discount) * (t - p), (r - p) + (1 - discount) * (p - s))]
    over_phi += [
        (discount * (r - p) - (1 - discount) * (p - s), discount * (r - p) + (1 - discount) * (t - p)),
    ]
    expected = max(high / low if low > 0 else np.inf for low, high in over_phi)
    game = shared(*payoffs)
    assert least_chi(game, discount=discount) == pytest.approx(expected, rel=1e-7)
    if not np.isfinite(expected):
        return
    assert np.isfinite(zd_policy(game, expected + 1e-6, discount=discount)).all()
    with pytest.raises(ValueError, match="enforces it"):
        zd_policy(game, expected - 1e-6, discount=discount)


def test_the_least_chi_of_players_with_different_payoffs_is_found_by_a_search_too():
    game = MatrixGame("apart", ((3.0, -1.0), (5.0, 0.0)), ((3.0, 4.0), (-2.0, 0.5)))
    phis, chis = np.geomspace(1e-3, 1, 4000)[:, None], np.linspace(1, 2, 1001)
    found = []
    for seat in (0, 1):
        own, other = (np.array(x) - x[3] for x in game.seen_by(seat))
        policies = (([1, 1, 0, 0] + phis * (own - chi * other)) / 0.9 for chi in chis)
        found.append(chis[np.argmax([((p >= 0) & (p <= 1)).all(1).any() for p in policies])])
    assert found == pytest.approx([1.6, 1.1], abs=5e-3)
    assert [least_chi(game, discount=0.9, seat=seat) for seat in (0, 1)] == pytest.approx(found, abs=5e-3)


@pytest.mark.parametrize(
    ("policy", "chi", "extortionate"),
    [
        ([0.5, 1, 0, 1, 0], 1.04167, False),
        ([0.0, 1, 0.03, 1, 0], 1.09913, False),
        (SUSPICIOUS_TIT_FOR_TAT, 1.13043, True),  # the least of all: 1.04 / 0.92
        (zd_policy(prisoners_dilemma, 2.0, discount=DISCOUNT), 2.0, True),
    ],
)
def test_extortion_needs_a_factor_that_a_strategy_enforces(policy, chi, extortionate):
    found = fit(prisoners_dilemma, policy, discount=DISCOUNT)
    assert found.near
    assert found.chi == pytest.approx(chi, abs=1e-5)
    assert found.least_chi == pytest.approx(1.04 / 0.92)
    assert found.extortionate == extortionate


def test_a_policy_far_from_every_line_has_no_chi():
    found = fit(prisoners_dilemma, [0.4, 0.1, 0.9, 0.2, 0.8], discount=DISCOUNT)
    assert found.residual > 0.3
    assert not found.near
    assert not found.extortionate


def test_suspicious_tit_for_tat_is_the_least_extortion_there_is():
    """phi = 0.04 / (chi - 1), and chi = 1.04 / 0.92: phi = 0.04 * 0.92 / 0.12."""
    found = fit(prisoners_dilemma, SUSPICIOUS_TIT_FOR_TAT, discount=DISCOUNT)
    assert (found.chi, found.phi, found.least_chi) == pytest.approx((1.04 / 0.92, 0.04 * 0.92 / 0.12, 1.04 / 0.92))
    assert found.residual < 1e-15
    assert longest_extortion(prisoners_dilemma, [SUSPICIOUS_TIT_FOR_TAT] * 7, discount=DISCOUNT) == 7


def test_always_defecting_enforces_a_line_that_falls():
    """A defector gets 0 or -2, the other -3 or -2: s_X - P = -2 (s_Y - P), which is no extortion."""
    found = fit(prisoners_dilemma, [0.0] * 5, discount=DISCOUNT)
    assert (found.chi, found.residual) == (pytest.approx(-2.0), pytest.approx(0.0, abs=1e-15))
    assert not found.near


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 3))
def test_the_longest_extortion_is_that_of_the_steps_in_a_row(steps, trials):
    extortioner, cooperator = zd_policy(prisoners_dilemma, 3.0, discount=DISCOUNT), np.ones(5)
    policies = np.array([[extortioner if one else cooperator for one in steps]] * trials)
    found = longest_extortion(prisoners_dilemma, policies, discount=DISCOUNT)
    assert found.tolist() == [max(map(len, "".join(".x"[one] for one in steps).split(".")))] * trials


def test_trials_are_judged_by_their_own_policies_and_not_by_their_mean():
    extortioner, apart = zd_policy(prisoners_dilemma, 3.0, discount=DISCOUNT), np.array([0, 0, 0.3, 0, 0])
    policies = np.stack([np.tile(extortioner + apart, (IN_A_ROW, 1)), np.tile(extortioner - apart, (IN_A_ROW, 1))])
    assert longest_extortion(prisoners_dilemma, policies, discount=DISCOUNT).tolist() == [0, 0]
    assert longest_extortion(prisoners_dilemma, policies.mean(0), discount=DISCOUNT) == IN_A_ROW


def test_random_policies_seldom_pass_for_extortion():
    """One in two hundred random policies: the best of a hundred in 40 % of trials, and never five in a row."""
    policies = np.random.default_rng(0).uniform(size=(4_000, 100, 5))
    each = fit(prisoners_dilemma, policies, discount=DISCOUNT).extortionate
    assert each.mean() == pytest.approx(0.005, abs=0.0005)  # a standard error of 0.0001
    longest = longest_extortion(prisoners_dilemma, policies, discount=DISCOUNT)
    assert (longest >= 1).mean() == pytest.approx(0.40, abs=0.03)
    assert longest.max() < IN_A_ROW


def test_the_column_player_constructs_the_same_strategy_in_a_symmetric_game():
    row, column = (zd_policy(prisoners_dilemma, 2.0, discount=DISCOUNT, seat=seat) for seat in (0, 1))
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
    own, other = payoffs_against_random(undiscounted)
    miss = np.abs((own + 2) - 3 * (other + 2)).max()
    assert 0.05 < miss < 0.6


def test_no_strategy_is_made_where_none_exists():
    # phi (chi - 1) >= 1 - discount and phi (1 + 2 chi) <= 1 leave chi >= 1.04 / 0.92 at a discount of 0.96.
    zd_policy(prisoners_dilemma, 1.131, discount=DISCOUNT)
    for chi, discount in ((1.130, DISCOUNT), (3.0, 0.1)):
        with pytest.raises(ValueError, match="no strategy of prisoners_dilemma enforces it"):
            zd_policy(prisoners_dilemma, chi, discount=discount)
    with pytest.raises(ValueError, match="no strategy of stag_hunt"):
        zd_policy(stag_hunt, -5.0, discount=DISCOUNT)


@pytest.mark.parametrize(
    ("own", "other", "payoffs"),
    [
        (ALL_D, ALL_C, (0.0, -3.0)),
        (TFT, ALL_D, (-3 * 0.04 - 2 * 0.96, 0.0 * 0.04 - 2 * 0.96)),  # exploited once
        (TFT, TFT, (-1.0, -1.0)),
        ([0.5] * 5, [0.5] * 5, (-1.5, -1.5)),
    ],
)
def test_exact_payoffs_of_famous_pairs(own, other, payoffs):
    found = exact_payoffs(prisoners_dilemma, np.array(own), np.array([other]), discount=DISCOUNT)
    assert [float(x[0]) for x in found] == pytest.approx(payoffs, abs=1e-13)


def test_exact_payoffs_are_the_discounted_sum_of_rounds():
    own, others = random_policies(np.random.default_rng(1), 2)[0], random_policies(np.random.default_rng(0), 3)
    found = exact_payoffs(chicken, own, others, discount=0.9)
    payoffs = {(0, 0): (0, 0), (0, 1): (-1, 1), (1, 0): (1, -1), (1, 1): (-100, -100)}
    for i, other in enumerate(others):
        first, then = own[0], {(a, b): own[1 + 2 * a + b] for a, b in payoffs}
        other_first, other_then = other[0], {(a, b): other[1 + 2 * b + a] for a, b in payoffs}
        chances = joint(first, other_first)
        sums = np.zeros(2)
        for step in range(300):
            sums += 0.1 * 0.9**step * sum(chances[pair] * np.array(payoffs[pair]) for pair in payoffs)
            after = {last: joint(then[last], other_then[last]) for last in payoffs}
            chances = {pair: sum(chances[last] * after[last][pair] for last in payoffs) for pair in payoffs}
        np.testing.assert_allclose([x[i] for x in found], sums, atol=1e-11)


def joint(p, q):
    return {(0, 0): p * q, (0, 1): p * (1 - q), (1, 0): (1 - p) * q, (1, 1): (1 - p) * (1 - q)}


@settings(max_examples=30, deadline=None)
@given(st.floats(1.5, 20.0), st.floats(0.9, 0.99), st.floats(0.0, 1.0))
def test_a_scale_is_feasible_if_a_strategy_has_it(chi, discount, share):
    low, high = feasible_phi(prisoners_dilemma, chi, discount=discount)
    policy = zd_policy(prisoners_dilemma, chi, low + share * (high - low), discount=discount)
    assert fit(prisoners_dilemma, policy, discount=discount).residual < 1e-9
    for outside in (low * 0.99 - 1e-6, high * 1.01):
        with pytest.raises(ValueError, match="zd: phi: got"):
            zd_policy(prisoners_dilemma, chi, outside, discount=discount)


def test_an_observed_policy_is_counted_game_by_game():
    generator = np.random.default_rng(0)
    own, other = generator.random((2, 3, 4, 6)) < 0.4  # three histories of four games
    np.testing.assert_array_equal(observed_policy(own.astype(int), other.astype(int)), observed_policy(own, other))
    for found, mine, theirs in zip(observed_policy(own, other), own, other, strict=True):
        counts = np.zeros((2, 2, 2))
        for game in range(4):
            for i in range(5):
                counts[int(mine[game, i]), int(theirs[game, i]), int(mine[game, i + 1])] += 1
        shares = [
            counts[a, b, 1] / counts[a, b].sum() if counts[a, b].sum() else mine.mean() for a in (1, 0) for b in (1, 0)
        ]
        np.testing.assert_allclose(found, [mine[:, 0].mean(), *shares])


def test_the_error_of_a_history_is_the_one_of_its_paper():
    """Knight et al. (2024): least squares on (R - P, R - P), (S - P, T - P), (T - P, S - P), (0, 0)."""
    axelrod = MatrixGame.of("axelrod", (3, 0, 5, 1), (3, 5, 0, 1))
    columns = np.array([[2.0, 2], [-1, 4], [4, -1], [0, 0]])
    for policy in ([0, 1, 0.2, 0.375, 0], [0, 8 / 9, 1 / 2, 1 / 3, 0], [0, 0.9, 0.3, 0.7, 0.4]):
        left = np.array(policy[1:]) - [1, 1, 0, 0]
        (alpha, beta), (error,), *_ = np.linalg.lstsq(columns, left, rcond=None)
        found = fit(axelrod, np.array(policy), discount=1.0)
        assert 4 * found.residual**2 == pytest.approx(error, abs=1e-12)
        assert found.chi == pytest.approx(-beta / alpha)
    known = fit(axelrod, np.array([0, 8 / 9, 1 / 2, 1 / 3, 0]), discount=1.0)  # extort-2 of Stewart and Plotkin
    assert (known.chi, known.residual) == (pytest.approx(2), pytest.approx(0, abs=1e-12))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"discount": 1.5}, r"discount: got 1.5; a number in \(0, 1\) is needed"),
        ({"discount": 0}, r"discount: got 0; a number in \(0, 1\) is needed"),
        ({"discount": 0.96, "seat": 5}, "seat: got 5; one of 0, 1 is needed"),
    ],
)
def test_discounts_and_seats_out_of_range_are_refused(settings, message):
    for make in (zd_policy, feasible_phi):
        with pytest.raises(ValueError, match=f"^{message}$"):
            make(prisoners_dilemma, 3.0, **settings)


def test_arguments_that_fit_no_game_are_refused():
    with pytest.raises(TypeError, match="game: got 'ipd'; a MatrixGame is needed"):
        zd_policy("ipd", 3.0, discount=0.96)
    with pytest.raises(TypeError, match="chi: got '3'; a number is needed"):
        zd_policy(prisoners_dilemma, "3", discount=0.96)
    with pytest.raises(ValueError, match=r"probabilities: got shape \(4,\); \[..., 5\] is needed"):
        fit(prisoners_dilemma, [0.5] * 4, discount=0.96)
    logits = [-5.0, 3.0, -2.0, 4.0, -4.0]
    with pytest.raises(ValueError, match=r"^probabilities: got -5; probabilities from 0 to 1 are needed$"):
        fit(prisoners_dilemma, logits, discount=0.96)
    with pytest.raises(ValueError, match="seat: got 5; one of 0, 1 is needed"):
        fit(prisoners_dilemma, [0.5] * 5, discount=0.96, seat=5)
    for own, others, words in (
        (logits, [[0.5] * 5], "own: got -5; probabilities"),
        ([0.5] * 5, [logits], "others: got -5; probabilities"),
        ([0.5] * 5, [0.5] * 5, r"others: got shape \(5,\); \[N, 5\] is needed"),
        ([0.5] * 4, [[0.5] * 5], r"own: got shape \(4,\); \[5\] is needed"),
    ):
        with pytest.raises(ValueError, match=words):
            exact_payoffs(prisoners_dilemma, own, others, discount=0.9)
    with pytest.raises(ValueError, match=r"discount: got 1.5; a number in \(0, 1\] is needed"):
        fit(prisoners_dilemma, [0.5] * 5, discount=1.5)
    with pytest.raises(ValueError, match=r"discount: got 0; a number in \(0, 1\] is needed"):
        least_chi(prisoners_dilemma, discount=0)
    with pytest.raises(ValueError, match=r"discount: got 1.0; a number in \[0, 1\) is needed"):
        exact_payoffs(prisoners_dilemma, [0.5] * 5, [[0.5] * 5], discount=1.0)
