"""The pole on a cart against Lagrange's equations in float64, against energy, and against gymnax's cart."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games.suite.cart_pole import CartPole, CartPoleState

inverted_pendulum = partial(games.make, "inverted_pendulum")
cart_pole_swing_up = partial(games.make, "cart_pole_swing_up")
KEY = jax.random.key(0)
step = jax.jit(lambda game, state, force: game.step_env(KEY, state, {"agent_0": force}))


def at(place=0.0, speed=0.0, angle=0.0, turning=0.0, time=0):
    return CartPoleState(*(jnp.float32(x) for x in (place, speed, angle, turning)), jnp.int32(time))


def accelerations(game, state, force):
    """Accelerations of cart and pole by Lagrange's equations: d/dt dL/dv = dL/dq + force, solved for dv/dt."""
    m, big, half, g = game.mass_pole, game.mass_cart, game.half_length, game.gravity
    damping = game.damping
    _, _, a, w = state
    # Cart: (M + m) v^2 / 2. The pole's centre moves by v + h w cos a along and by -h w sin a up, and it turns, with
    # the moment of inertia m h^2 / 3 about its centre.
    arm = m * half
    masses = np.array([[big + m, arm * np.cos(a)], [arm * np.cos(a), arm * half * 4 / 3]])
    forces = np.array([force + arm * w**2 * np.sin(a), arm * g * np.sin(a) - damping * w])
    return np.linalg.solve(masses, forces)


@pytest.mark.parametrize("make", [inverted_pendulum, cart_pole_swing_up])
def test_a_trajectory_agrees_with_lagrange_s_equations(make):
    game, rng = make(mass_pole=0.4, damping=0.05, most_angle=50.0, track=50.0), np.random.default_rng(0)
    state, exact = at(0.1, -0.2, 2.0, 0.5), np.array([0.1, -0.2, 2.0, 0.5])
    for _ in range(100):
        share = rng.uniform(-1.3, 1.3)
        obs, state, rewards, _, _ = step(game, state, jnp.array([share], jnp.float32))
        cart, pole = accelerations(game, exact, 10 * np.clip(share, -1, 1))
        exact[[1, 3]] += 0.02 * cart, 0.02 * pole
        exact[[0, 2]] += 0.02 * exact[[1, 3]]
        x, v, a, w = exact
        np.testing.assert_allclose(obs["agent_0"], [x, v, np.cos(a), np.sin(a), w], atol=2e-3)
        expected = 1.0 if make is inverted_pendulum else (1 + np.cos(a)) / 2 * (1 - (x / 50) ** 2)
        assert float(rewards["agent_0"]) == pytest.approx(expected, abs=1e-3)


def test_energy_is_kept_without_force_in_small_steps():
    game = cart_pole_swing_up(dt=1e-3, track=100.0, mass_pole=0.5)

    def swing(state, _):
        _, state, *_ = game.step_env(KEY, state, {"agent_0": jnp.zeros(1)})
        return state, (state.speed, state.angle, state.turning)

    found = jax.jit(lambda state: jax.lax.scan(swing, state, None, 3000))(at(angle=2.0))[1]
    v, a, w = (np.asarray(x, np.float64) for x in found)
    kinetic = 0.5 * 1.5 * v**2 + 0.5 * 0.5 * (4 / 3) * 0.25 * w**2 + 0.5 * 0.5 * v * w * np.cos(a)
    energy = kinetic + 0.5 * 9.8 * 0.5 * np.cos(a)
    assert np.ptp(w) > 3  # it swings
    np.testing.assert_allclose(energy, 0.5 * 9.8 * 0.5 * np.cos(2.0), atol=0.02)


def test_it_moves_as_gymnax_s_cart_does_but_for_the_order_of_a_step():
    """Gymnax moves by the old velocities and ours by the new ones, so that velocities agree."""
    theirs = games.make("CartPole-v1")
    state = theirs.reset(KEY)[1]
    own = at(state.x, state.x_dot, state.theta, state.theta_dot)
    for action in (0, 1):
        _, after, *_ = theirs.step_env(KEY, state, {"agent_0": jnp.int32(action)})
        _, found, *_ = step(inverted_pendulum(), own, jnp.array([2.0 * action - 1]))
        np.testing.assert_allclose([found.speed, found.turning], [after.x_dot, after.theta_dot], rtol=1e-5)


def test_episodes_end_by_angle_place_or_time():
    balance, swing = inverted_pendulum(episode_length=5), cart_pole_swing_up(episode_length=5)
    cases = [
        (balance, at(angle=0.19), False, False),
        (balance, at(angle=0.21), True, False),
        (balance, at(angle=-0.21), True, False),
        (balance, at(place=2.39, speed=1.0), True, False),
        (inverted_pendulum(ends_at_track=False), at(place=2.39, speed=1.0), False, False),
        (balance, at(time=4), True, True),
        (swing, at(angle=3.0), False, False),
        (swing, at(place=2.39, speed=1.0), False, False),
        (swing, at(time=4), True, True),
    ]
    for game, state, done, truncated in cases:
        *_, dones, infos = step(game, state, jnp.zeros(1))
        assert (bool(dones["__all__"]), bool(infos["truncated"][0])) == (done, truncated)
    assert float(step(swing, at(place=2.39, speed=1.0), jnp.zeros(1))[1].place) == pytest.approx(2.4)
    assert float(step(swing, at(place=2.39, speed=1.0), jnp.zeros(1))[1].speed) == 0  # it stops at the end
    assert float(step(swing, at(place=2.4), jnp.ones(1))[2]["agent_0"]) == 0


def test_state_of_inverts_the_observation():
    game = inverted_pendulum()
    state = game.reset(jax.random.key(0))[1].replace(angle=jnp.float32(-2.5))
    found = game.state_of(game.get_obs(state)["agent_0"])
    for name in ("place", "speed", "angle", "turning", "time"):
        assert float(getattr(found, name)) == pytest.approx(float(getattr(state, name)), abs=1e-6)


def test_resets_are_near_rest_and_all_is_differentiable():
    for game, angle in ((inverted_pendulum(), 0.0), (cart_pole_swing_up(), np.pi)):
        states = jax.jit(jax.vmap(lambda key, game=game: game.reset(key)[1]))(jax.random.split(KEY, 500))
        for values, centre in ((states.place, 0), (states.speed, 0), (states.angle, angle), (states.turning, 0)):
            assert np.abs(values - centre).max() == pytest.approx(0.05, rel=0.02)
    slope = jax.grad(lambda force: step(inverted_pendulum(), at(), force)[1].speed)(jnp.zeros(1))
    # At rest and upright x'' is F (1 + (m / M) / (4 / 3 - m / M)) / M.
    assert float(slope[0]) == pytest.approx(0.02 * 10 / 1.1 * (1 + (0.1 / 1.1) / (4 / 3 - 0.1 / 1.1)), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"start": "lying"}, "start: got"), ({"mass_pole": 0}, "mass_pole: got 0"), ({"track": 0.01}, "track: got 0.01")],
)
def test_bad_settings(settings, words):
    with pytest.raises(ValueError, match=words):
        CartPole(**settings)
