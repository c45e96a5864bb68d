"""White-box learners against their definitions, differentiated by finite differences in float64 NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import Differentiable
from games.exact.differentiable import hamiltonian, tandem
from marl import Trajectory, learn
from marl.learners.exact.naive import PolicyState, naive
from marl.learners.exact.white_box import cgd, hola, lola, lookahead, pola, sga, sos
from tests.marl.exact_game import GAME, sigmoid, values
from tests.nightly import MARKS

ALPHA, ETA = 0.3, 0.2
A, B = 0.2, 0.15  # of SOS
OUTER_BETA, INNER_BETA, OUTER_STEPS, INNER_STEPS = 30.0, 40.0, 4, 3
rates = {"learning_rate": ALPHA, "lookahead_rate": ETA}


def blind(payoffs, *, learning_rate=ALPHA, num_logits=5):
    """The naive learner, from both players' payoffs as for the others."""
    return naive(lambda own, other: payoffs(own, other)[0], learning_rate=learning_rate, num_logits=num_logits)


LEARNERS = {
    "lookahead": partial(lookahead, **rates),
    "lola": partial(lola, **rates),
    "naive": blind,
    "exact lola": partial(hola, order=1, **rates),
    "order 2": partial(hola, order=2, **rates),
    "sos": partial(sos, learning_rate=ALPHA, a=A, b=B),
    "cgd": partial(cgd, learning_rate=ALPHA),
    "sga": partial(sga, learning_rate=ALPHA, adjustment=0.7),
    "pola": partial(
        pola, outer_beta=OUTER_BETA, inner_beta=INNER_BETA, outer_steps=OUTER_STEPS, inner_steps=INNER_STEPS
    ),
}


def polynomial(x, y):
    """Payoffs without symmetry, with a fixed point at 0 and derivatives of the first four orders."""
    first = x[0] * y[0] - 2 * x[1] * y[0] + 0.5 * x[1] * y[1] ** 2 + 0.4 * x[0] ** 2 * y[1] ** 2 - x[0] ** 2 - y[1] ** 3
    second = 0.7 * x[1] * y[1] - x[0] * y[0] + 0.3 * x[0] ** 2 * y[0] - 0.6 * x[1] * y[0] * y[1] ** 2 - x[1] * y[0] ** 2
    return first, second


def d(function, x):
    """Derivatives in the coordinates of x, in a last axis: five points, of fourth order."""
    h = 2e-3
    steps = h * np.eye(len(x))
    differences = [
        8 * (np.asarray(function(x + e)) - function(x - e)) - (np.asarray(function(x + 2 * e)) - function(x - 2 * e))
        for e in steps
    ]
    return np.stack(differences, -1) / (12 * h)


def expect_lookahead(v, x, y):
    there = y + ETA * d(lambda s: v(x, s)[1], y)
    return x + ALPHA * d(lambda t: v(t, there)[0], x)


def expect_lola(v, x, y):
    def anticipated(t):
        return v(t, y)[0] + ETA * d(lambda s: v(t, s)[0], y) @ d(lambda s: v(t, s)[1], y)

    return x + ALPHA * d(anticipated, x)


def expect_naive(v, x, y):
    return x + ALPHA * d(lambda t: v(t, y)[0], x)


def expect_exact_lola(v, x, y):
    return x + ALPHA * d(lambda t: v(t, y + ETA * d(lambda s: v(t, s)[1], y))[0], x)


def expect_order_2(v, x, y):
    def lola_of_the_other(t):
        return d(lambda s: v(t + ETA * d(lambda r: v(r, s)[0], t), s)[1], y)

    return x + ALPHA * d(lambda t: v(t, y + ETA * lola_of_the_other(t))[0], x)


def gradient_and_jacobian(v, x, y):
    """The simultaneous gradient of both payoffs, and its Jacobian."""
    n = len(x)

    def xi(z):
        return np.concatenate([d(lambda t: v(t, z[n:])[0], z[:n]), d(lambda s: v(z[:n], s)[1], z[n:])])

    z = np.concatenate([x, y])
    return xi(z), d(xi, z)


def factors_of_sos(v, x, y):
    """(xi_0, chi, p_1, p_2) of both players together."""
    n = len(x)
    xi, jacobian = gradient_and_jacobian(v, x, y)
    cross = jacobian.copy()
    cross[:n, :n] = cross[n:, n:] = 0
    xi_0 = xi + ALPHA * cross @ xi
    # The derivative of the other's learning step, times the derivative of the own payoff.
    chi_1 = jacobian[n:, :n].T @ d(lambda s: v(x, s)[0], y)
    chi_2 = jacobian[:n, n:].T @ d(lambda t: v(t, y)[1], x)
    chi = np.concatenate([chi_1, chi_2])
    agreement = ALPHA * chi @ xi_0
    p_1 = 1.0 if agreement >= 0 else min(1.0, A * xi_0 @ xi_0 / -agreement)
    p_2 = xi @ xi if np.linalg.norm(xi) < B else 1.0
    return xi_0, chi, p_1, p_2


def expect_sos(v, x, y):
    xi_0, chi, p_1, p_2 = factors_of_sos(v, x, y)
    return x + ALPHA * (xi_0 + min(p_1, p_2) * ALPHA * chi)[: len(x)]


def expect_cgd(v, x, y):
    """The equilibrium of max u g1 + u M1 w - |u|^2 / 2 alpha, max w g2 + w M2 u - |w|^2 / 2 alpha in one system."""
    n = len(x)
    xi, jacobian = gradient_and_jacobian(v, x, y)
    system = np.eye(2 * n) / ALPHA
    system[:n, n:], system[n:, :n] = -jacobian[:n, n:], -jacobian[n:, :n]
    return x + np.linalg.solve(system, xi)[:n]


def expect_sga(v, x, y):
    xi, jacobian = (-part for part in gradient_and_jacobian(v, x, y))  # of the losses
    turn = (jacobian - jacobian.T) / 2
    hamiltonian = jacobian.T @ xi
    sign = np.sign((xi @ hamiltonian) * (turn.T @ xi @ hamiltonian) / len(xi) + 0.1)
    return x - ALPHA * (xi + 0.7 * sign * turn.T @ xi)[: len(x)]


def expect_pola(v, x, y):
    def divergence(old, new):
        p, q = sigmoid(old), sigmoid(new)
        return (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum()

    def climb(objective, start, beta, steps):
        z = start
        for _ in range(steps):
            z = z + 4 / beta * d(lambda t: objective(t) - beta * divergence(start, t), z)
        return z

    return climb(lambda t: v(t, climb(lambda s: v(t, s)[1], y, INNER_BETA, INNER_STEPS))[0], x, OUTER_BETA, OUTER_STEPS)


def expected(name, v, x, y):
    return globals()["expect_" + name.replace(" ", "_")](v, x, y)


def points(size):
    """Pairs of policies, the last one so near the polynomial's fixed point that SOS leaves LOLA's term out."""
    pairs = 0.7 * np.random.default_rng(4).normal(size=(8, 2, size))
    return np.concatenate([pairs, 0.01 * pairs[:1]])


# (the payoffs in float64 NumPy, the library's, length of a policy)
GAMES = {
    "dilemma": (values, partial(GAME.values, 0), 5),
    "polynomial": (polynomial, polynomial, 2),
}


def trajectory(others):
    """A trajectory with the one part that these learners read: the co-player's policies, `[environments, logits]`."""
    return Trajectory(None, None, None, None, (), (others[None],), None, None)


def step(learner):
    """One update from `x` against the co-player's policies `others`."""

    @jax.jit
    def update(x, others):
        return learner.update(None, PolicyState(x), trajectory(others))[0].logits

    return update


@pytest.mark.parametrize(
    ("name", "game"),
    # In the exact game only learners that compile fast; its derivatives are the same for all.
    [(name, game) for name in LEARNERS for game in GAMES if game != "dilemma" or name == "lola"]
    + [pytest.param("sos", "dilemma", marks=MARKS)],
)
def test_a_step_agrees_with_its_definition(name, game):
    expected_values, library_values, size = GAMES[game]
    pairs = points(size)
    with jax.enable_x64(True):
        update = jax.vmap(step(LEARNERS[name](library_values, num_logits=size)))
        found = np.asarray(update(pairs[:, 0], pairs[:, 1:]))
    for pair, after in zip(pairs, found, strict=True):
        np.testing.assert_allclose(after, expected(name, expected_values, *pair), rtol=1e-5, atol=1e-5)


def test_every_case_of_sos_is_among_those_points():
    factors = [factors_of_sos(polynomial, *pair)[2:] for pair in points(2)]
    assert any(p_1 == p_2 == 1 for p_1, p_2 in factors)
    assert any(p_1 < 1 == p_2 for p_1, p_2 in factors)
    assert any(p_2 < p_1 for p_1, p_2 in factors)


def test_sos_shapes_fully_where_shaping_is_orthogonal_to_the_gradient():
    """With V1 = y and V2 = xy at (1/2, 0): xi = (0, 1/2), chi_1 = 1, xi_0 = (0, 1/2), and chi . xi_0 = 0."""
    after = step(sos(lambda x, y: (y[0], x[0] * y[0]), learning_rate=ALPHA, num_logits=1))(
        jnp.ones(1) / 2, np.zeros((1, 1))
    )
    assert float(after[0]) == pytest.approx(0.5 + ALPHA**2)


def test_lola_leaves_the_tandem_games_fixed_points_and_sos_finds_them():
    game = Differentiable(tandem)
    ends = {}
    for name, factory in (("sos", sos), ("lola", lola)):
        learners = [factory(partial(game.values, i), learning_rate=0.1, num_logits=1) for i in (0, 1)]
        batch = jax.jit(jax.vmap(lambda key, both=learners: learn(key, game, both, num_updates=200)))
        history = batch(jax.random.split(jax.random.key(0), 16))
        ends[name] = sum(state.logits[:, 0] for state in history.states)
        ends[name + " pays"] = sum(rewards[:, -1] for rewards in history.rewards)
    np.testing.assert_allclose(ends["sos"], 1.0, atol=1e-4)
    np.testing.assert_allclose(ends["sos pays"], 0.0, atol=1e-3)
    # With s = x + y both of LOLA's gradients are 2 - 2s + eta (8s - 4), which is 0 at (1 - 2 eta) / (1 - 4 eta) = 4/3,
    # where both together get 2s - 2s^2.
    np.testing.assert_allclose(ends["lola"], 4 / 3, atol=1e-4)
    np.testing.assert_allclose(ends["lola pays"], -8 / 9, atol=1e-3)


def test_in_the_hamiltonian_game_all_but_the_naive_learner_spiral_inwards():
    """One step multiplies x + iy by a complex number that is worked out by hand from each update equation."""
    game, a, steps = Differentiable(hamiltonian), 0.3, 20
    factors = {
        blind: 1 + 1j * a,
        lookahead: 1 - a**2 + 1j * a,
        cgd: (1 + 1j * a) / (1 + a**2),
        sga: 1 - a + 1j * a,
    }

    @jax.jit
    def play(key):
        ends = []
        for factory in factors:
            learners = [factory(partial(game.values, i), learning_rate=a, num_logits=1) for i in (0, 1)]
            history = learn(key, game, learners, num_updates=steps, keep_trajectories=True)
            ends.append(
                [(t.action[0, 0, 0], s.logits[0]) for t, s in zip(history.trajectories, history.states, strict=True)]
            )
        return jnp.array(ends)

    ends = np.asarray(play(jax.random.key(1)))
    for (factory, factor), (x, y) in zip(factors.items(), ends, strict=True):
        assert x[1] + 1j * y[1] == pytest.approx((x[0] + 1j * y[0]) * factor**steps, rel=1e-3), factory
    assert abs(factors[blind]) > 1 > max(abs(factor) for factor in list(factors.values())[1:])


def test_proximal_lola_with_one_step_each_is_exact_lola():
    learners = pola(polynomial, outer_steps=1, inner_steps=1), hola(polynomial, order=1)
    x, y = jnp.asarray(points(2)[0])
    np.testing.assert_allclose(*[step(learner)(x, y[None]) for learner in learners], rtol=1e-4)


@pytest.mark.system
def test_the_lola_of_the_prisoners_dilemma_shapes_a_naive_learner_as_the_paper_measured():
    learners = [lola(partial(GAME.values, 0)), naive(partial(GAME.value, 1))]
    batch = jax.jit(jax.vmap(lambda key: learn(key, GAME, learners, num_updates=100).rewards))
    means = [float(x.mean()) for x in batch(jax.random.split(jax.random.key(0), 1024))]
    # The paper's public code, 4096 pairs of 100 steps, standard error about 0.005.
    assert means == pytest.approx([-1.309, -1.527], abs=0.04)


def test_the_steps_against_several_environments_are_averaged():
    x, *others = jnp.asarray(points(2)[:3, 0])
    update = step(lola(polynomial, num_logits=2))
    together = update(x, jnp.stack(others))
    np.testing.assert_allclose(together, sum(update(x, y[None]) for y in others) / 2, rtol=1e-4)


@pytest.mark.parametrize("order", [-1, 1.5])
def test_an_order_is_a_whole_number(order):
    with pytest.raises(ValueError, match=f"order: got {order}; a (plain )?whole number"):
        hola(polynomial, order=order)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outer_steps": 0}, "outer_steps: got 0; a whole number of at least 1"),
        ({"inner_steps": 1.5}, "inner_steps: got 1.5; a plain whole number"),
        ({"outer_beta": 0.0}, r"outer_beta: got 0.0; a number above 0"),
        ({"inner_beta": -1}, r"inner_beta: got -1; a number above 0"),
    ],
)
def test_bad_settings_of_proximal_lola_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        pola(polynomial, **settings)
