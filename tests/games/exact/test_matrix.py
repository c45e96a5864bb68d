"""The exact payoffs against independent computations in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from games import (
    InfinitelyRepeated,
    MatrixGame,
    discounted_payoffs,
    matrix_games,
    prisoners_dilemma,
    state_visits,
    symmetric,
)

DISCOUNT = 0.96
GAMES = list(matrix_games.values())


def transition(logits_1, logits_2):
    """(first distribution `[4]`, transition matrix `[4, 4]`) in float64, state by state."""
    p, q = (1 / (1 + np.exp(-np.asarray(x, np.float64))) for x in (logits_1, logits_2))
    q_index = {0: 1, 1: 3, 2: 2, 3: 4}  # CC, CD, DC, DD of the row player as the column player sees them

    def joint(a, b):
        return [a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)]

    return np.array(joint(p[0], q[0])), np.array([joint(p[s + 1], q[q_index[s]]) for s in range(4)])


def simulate(logits_1, logits_2, discount):
    """Discounted visits to each state by following the chain, round after round, in float64."""
    distribution, matrix = transition(logits_1, logits_2)
    visits, weight = np.zeros(4), 1.0
    while weight > 1e-14:
        visits += weight * distribution
        distribution = distribution @ matrix
        weight *= discount
    return visits


@jax.jit
@jax.vmap
def visits(logits_1, logits_2):
    return jnp.stack(state_visits(logits_1, logits_2, DISCOUNT))


def payoffs(game, logits_1, logits_2):
    return jnp.stack(discounted_payoffs(game, logits_1, logits_2, DISCOUNT))


def traced(function):
    """The function of (game, a batch of pairs of policies), compiled once for all games."""
    batch = jax.jit(lambda tables, pairs: jax.vmap(lambda pair: function(MatrixGame("traced", *tables), pair))(pairs))
    return lambda game, pairs: np.asarray(batch((game.row, game.column), pairs))


all_payoffs = traced(lambda game, pair: payoffs(game, *pair))
all_gradients = traced(lambda game, pair: jax.jacrev(lambda pair: payoffs(game, *pair))(pair))


def policies(scale):
    rng = np.random.default_rng(int(scale))
    corners = rng.choice([-20.0, 20.0], (40, 2, 5))  # nearly deterministic, as after long learning
    spread = np.clip(rng.normal(0, scale, (160, 2, 5)), -20, 20)
    return np.concatenate([corners, spread]).astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0])
def test_visits_agree_with_a_float64_simulation_to_1e_5_relative_in_every_state(scale):
    pairs = policies(scale)
    found = np.asarray(visits(pairs[:, 0], pairs[:, 1]))
    expected = np.array([simulate(a, b, DISCOUNT) for a, b in pairs])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)


@pytest.fixture(scope="module")
def simulated():
    """(pairs of policies, their discounted visits in float64)."""
    pairs = policies(5.0)
    return pairs, np.array([simulate(a, b, DISCOUNT) for a, b in pairs])


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_payoffs_agree_with_a_float64_simulation_to_1e_5(game, simulated):
    pairs, m = simulated
    found = all_payoffs(game, pairs)
    for seat, payoffs in enumerate((game.row_payoffs, game.column_payoffs)):
        # Relative to the payoffs that are added up: wins and losses may cancel to nothing.
        np.testing.assert_array_less(abs(found[:, seat] - m @ payoffs), 1e-5 * (m @ np.abs(payoffs)) + 1e-30)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_gradients_agree_with_float64_finite_differences(game, scale):
    pairs = policies(scale)[20:60].astype(np.float64)
    found = all_gradients(game, pairs.astype(np.float32))
    assert np.isfinite(found).all()

    def value(pair):
        m = np.linalg.solve(np.eye(4) - DISCOUNT * transition(*pair)[1].T, transition(*pair)[0])
        return np.array([m @ game.row_payoffs, m @ game.column_payoffs])

    size = max(np.abs(game.row_payoffs).max(), np.abs(game.column_payoffs).max()) / (1 - DISCOUNT)
    for pair, gradient in zip(pairs, found, strict=True):
        for player in range(2):
            for i in range(5):
                step = np.zeros((2, 5))
                step[player, i] = 1e-5
                difference = (value(pair + step) - value(pair - step)) / 2e-5
                np.testing.assert_allclose(gradient[:, player, i], difference, rtol=2e-4, atol=1e-6 * size)


def test_second_derivatives_agree_with_finite_differences_of_the_gradient():
    a, b = policies(1.0)[50]

    def value(x):
        return discounted_payoffs(prisoners_dilemma, x, b, DISCOUNT)[1]

    hessian = np.asarray(jax.jit(jax.hessian(value))(a))
    gradient = jax.jit(jax.grad(value))
    steps = 1e-2 * np.eye(5, dtype=np.float32)
    differences = np.array([(gradient(a + h) - gradient(a - h)) / 2e-2 for h in steps])
    np.testing.assert_allclose(hessian, differences, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-3, atol=1e-3)


@settings(max_examples=200, deadline=None)
@given(arrays(np.float32, (2, 5), elements=st.floats(-200, 200, width=32)))
def test_visits_add_up_to_the_length_of_the_game_and_are_never_negative_or_nan(pair):
    found = np.asarray(visits(pair[None, 0], pair[None, 1]))[0]
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1 / (1 - DISCOUNT), rel=1e-5)


def test_certain_policies_take_their_obvious_values():
    always, never = jnp.full(5, jnp.inf), jnp.full(5, -jnp.inf)
    cases = ((always, always, -1, -1), (never, never, -2, -2), (always, never, -3, 0), (never, always, 0, -3))
    for a, b, own, other in cases:
        value = [0.04 * float(v) for v in discounted_payoffs(prisoners_dilemma, a, b, DISCOUNT)]
        assert value == pytest.approx([own, other], abs=1e-5)


def test_tit_for_tat_against_always_defect_loses_the_first_round_only():
    tft = jnp.array([20.0, 20.0, -20.0, 20.0, -20.0])
    own, other = discounted_payoffs(prisoners_dilemma, tft, jnp.full(5, -20.0), DISCOUNT)
    assert float(own) == pytest.approx(-3 - 2 * 0.96 / 0.04, rel=1e-5)
    assert float(other) == pytest.approx(0 - 2 * 0.96 / 0.04, rel=1e-5)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_changing_seats_changes_nothing(game):
    turned = MatrixGame("turned", np.transpose(game.column).tolist(), np.transpose(game.row).tolist())
    a, b = policies(1.0)[77]
    here, there = all_payoffs(game, np.array([[a, b]])), all_payoffs(turned, np.array([[b, a]]))
    np.testing.assert_allclose(here, there[:, ::-1], rtol=1e-5)


def test_a_discount_of_zero_is_the_game_played_once_by_single_logits():
    half, sure = jnp.zeros(1), jnp.full(1, 30.0)
    own, other = discounted_payoffs(matrix_games["chicken"], half, sure, 0.0)
    assert (float(own), float(other)) == pytest.approx((0.5, -0.5))


def test_whole_payoffs_and_discounts_have_the_derivatives_of_floats():
    policies = jax.random.normal(jax.random.key(0), (2, 5))
    whole, real = symmetric("whole", ((3, 0), (5, 1))), symmetric("real", ((3.0, 0.0), (5.0, 1.0)))
    for discount in (0, 0.5):
        found, expected = (
            jax.grad(lambda x, game=game, by=by: discounted_payoffs(game, x, policies[1], by)[0])(policies[0])
            for game, by in ((whole, discount), (real, float(discount)))
        )
        np.testing.assert_array_equal(found, expected)
    jax.grad(lambda x: state_visits(x, policies[1], 0)[0])(policies[0])


def test_games_of_lists_are_those_of_tuples():
    made = symmetric("mine", [[1.0, 2.0], [3.0, 4.0]])
    assert made == symmetric("mine", ((1.0, 2.0), (3.0, 4.0)))
    assert len({made, MatrixGame("mine", [[1.0, 2.0], [3.0, 4.0]], [[1.0, 3.0], [2.0, 4.0]])}) == 1


def test_payoffs_and_discount_may_be_traced_and_batched():
    def value(temptation, discount):
        game = symmetric("any", ((-1.0, -3.0), (temptation, -2.0)))
        return discounted_payoffs(game, jnp.full(5, -30.0), jnp.full(5, 30.0), discount)[0]

    found = jax.vmap(value)(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.9]))
    np.testing.assert_allclose(found, [2.0, 20.0], rtol=1e-5)
    assert float(jax.grad(value, 1)(1.0, 0.5)) == pytest.approx(4.0, rel=1e-4)  # d/dx 1 / (1 - x)


@pytest.mark.parametrize(("first", "second"), [((4,), (5,)), ((5,), (1,)), ((5, 1), (5,))])
def test_policies_of_another_shape_are_refused(first, second):
    with pytest.raises(ValueError, match="logits of shape"):
        discounted_payoffs(prisoners_dilemma, jnp.zeros(first), jnp.zeros(second), DISCOUNT)
    with pytest.raises(ValueError, match="logits of shape"):
        state_visits(jnp.zeros(first), jnp.zeros(second), 0.9)


def test_lists_are_policies_too_and_there_are_two_seats():
    lists, arrays = [0.0, 1.0, -1.0, 2.0, 0.5], jnp.array([0.0, 1.0, -1.0, 2.0, 0.5])
    expected = discounted_payoffs(prisoners_dilemma, arrays, arrays, 0.9)
    np.testing.assert_array_equal(discounted_payoffs(prisoners_dilemma, lists, lists, 0.9), expected)
    np.testing.assert_array_equal(state_visits(lists, lists, 0.9), state_visits(arrays, arrays, 0.9))
    with pytest.raises(ValueError, match="seat: got 2; one of 0, 1 is needed"):
        InfinitelyRepeated(prisoners_dilemma).value(2, arrays, arrays)


def test_policies_of_one_logit_need_a_discount_of_zero():
    with pytest.raises(ValueError, match=r"logits of shape \(5,\)"):
        state_visits(jnp.zeros(1), jnp.zeros(1), 0.96)
    with pytest.raises(ValueError, match=r"policy_2: got shape \(5,\); logits of shape \(1,\)"):
        discounted_payoffs(prisoners_dilemma, jnp.zeros(1), jnp.zeros(5), 0)
    for zero in (0, np.float32(0)):
        assert state_visits(jnp.zeros(1), jnp.zeros(1), zero) == [0.25] * 4


def test_discounts_out_of_range_are_refused():
    for discount in (1.0, -0.1):
        with pytest.raises(ValueError, match=rf"discount: got {discount}; a number in \[0, 1\) is needed"):
            state_visits(jnp.zeros(5), jnp.zeros(5), discount)
        with pytest.raises(ValueError, match=rf"discount: got {discount}; a number in \[0, 1\) is needed"):
            discounted_payoffs(prisoners_dilemma, jnp.zeros(5), jnp.zeros(5), discount)


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="two by two"):
        MatrixGame("wrong", ((1, 2, 3), (4, 5, 6)), ((1, 2), (3, 4)))
    with pytest.raises(ValueError, match="row: got 5; a two by two table"):
        MatrixGame("wrong", 5, 5)
    with pytest.raises(ValueError, match=r"row: got \[5, 6\]; a two by two table"):
        MatrixGame("wrong", [5, 6], [5, 6])
    with pytest.raises(ValueError, match=r"symmetric: payoffs: got .* two by two"):
        symmetric("wrong", ((1, 2), (3,)))
    with pytest.raises(ValueError, match="row: got 'a'; a number is needed"):
        MatrixGame("wrong", ((1, 2), (3, "a")), ((1, 2), (3, 4)))
    for payoffs in ((1, 2, 3), (1, 2, 3, 4, 5)):
        with pytest.raises(ValueError, match=r"column: got .*; payoffs after CC, CD, DC, DD are needed"):
            MatrixGame.of("wrong", (1, 2, 3, 4), payoffs)
