"""Pendulum against an independent integration in float64, and against mechanics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games.suite.pendulum import Pendulum, PendulumState

KEY = jax.random.key(0)
PENDULUM = Pendulum()
step = jax.jit(lambda game, state, torque: game.step_env(KEY, state, {"agent_0": torque}))


def rod(angle, velocity=0.0, time=0):
    return PendulumState(jnp.float32(angle), jnp.float32(velocity), jnp.int32(time))


def test_a_trajectory_agrees_with_float64():
    rng = np.random.default_rng(0)
    state, angle, velocity = rod(2.0, -0.5), 2.0, -0.5
    for t in range(200):
        torque = rng.uniform(-1.5, 1.5)
        obs, state, rewards, dones, infos = step(PENDULUM, state, jnp.array([torque], jnp.float32))
        velocity += 0.05 * (3 * 10.0 / 2 * np.sin(angle) + 3 * np.clip(torque, -1, 1))
        velocity = np.clip(velocity, -8, 8)
        angle += 0.05 * velocity
        np.testing.assert_allclose(obs["agent_0"], [np.cos(angle), np.sin(angle), velocity], atol=2e-3)
        assert float(rewards["agent_0"]) == pytest.approx((np.cos(angle) + 1) / 2, abs=1e-3)
        assert dones["__all__"] == (t == 199)
    assert infos["truncated"].tolist() == [True]


def test_a_step_of_the_papers_public_code_by_hand():
    """Its gravity, steps of explicit Euler, and torques by tanh: upright at rest, then leaning and turning."""
    game = Pendulum(gravity=9.8, max_speed=1e6, explicit=True, squash=True)
    *_, state, _, _, _ = step(game, rod(0.0), jnp.array([2.0]))
    assert (float(state.angle), float(state.velocity)) == pytest.approx((0.0, 0.05 * 3 * np.tanh(2.0)))
    *_, state, _, _, _ = step(game, rod(np.pi / 2, 10.0), jnp.zeros(1))
    assert (float(state.angle), float(state.velocity)) == pytest.approx((np.pi / 2 + 0.5, 10 + 0.05 * 1.5 * 9.8))


def test_it_moves_as_gymnax_s_pendulum_does():
    theirs = games.make("Pendulum-v1")
    state, state_theirs = rod(0.0), theirs.reset(KEY)[1]
    state = state.replace(angle=state_theirs.theta, velocity=state_theirs.theta_dot)
    for torque in (0.5, -1.0, 1.0, 0.0):
        obs, state, *_ = step(PENDULUM, state, jnp.array([torque]))
        obs_theirs, state_theirs, *_ = theirs.step_env(KEY, state_theirs, {"agent_0": jnp.array([torque])})
        np.testing.assert_allclose(obs["agent_0"], obs_theirs["agent_0"], atol=1e-5)
    np.testing.assert_array_equal(PENDULUM.render(state), theirs.render(state_theirs))


def test_energy_is_kept_without_torque_in_small_steps():
    game = Pendulum(dt=1e-3, gravity=9.8, mass=2.0, length=0.7)

    def swing(state, _):
        _, state, *_ = game.step_env(KEY, state, {"agent_0": jnp.zeros(1)})
        return state, (state.angle, state.velocity)

    angle, velocity = jax.jit(lambda state: jax.lax.scan(swing, state, None, 3000))(rod(2.5))[1]
    # A rod about its end: moment of inertia m l^2 / 3, its centre at half its length.
    energy = 2.0 * 0.7**2 / 6 * np.square(velocity) + 2.0 * 9.8 * 0.35 * np.cos(angle)
    start = 2.0 * 9.8 * 0.35 * np.cos(2.5)
    assert np.ptp(velocity) > 3  # it swings
    np.testing.assert_allclose(energy, start, atol=0.02)


def test_the_reward_by_hand():
    # Upright and at rest it stays; hanging too.
    for angle, reward in ((0.0, 1.0), (np.pi, 0.0)):
        assert step(PENDULUM, rod(angle), jnp.zeros(1))[2]["agent_0"] == pytest.approx(reward, abs=1e-6)
    # From the horizontal at 20 / s^2 without gravity: the speed is clipped to 8, the angle moves by 0.4.
    fast = step(PENDULUM.replace(gravity=0.0), rod(np.pi / 2, 9.0), jnp.zeros(1))
    assert fast[0]["agent_0"][2] == 8.0
    assert fast[2]["agent_0"] == pytest.approx((np.cos(np.pi / 2 + 0.4) + 1) / 2, abs=1e-6)


def test_the_torque_cannot_lift_it_at_once():
    # 3 g / 2 sin(angle) = 3 u at the angle where it stays, far from upright.
    state = rod(np.pi)
    for _ in range(60):
        _, state, *_ = step(PENDULUM, state, jnp.ones(1))
        assert np.cos(state.angle) < -0.8


def test_resets_are_uniform():
    states = jax.jit(jax.vmap(lambda key: PENDULUM.reset(key)[1]))(jax.random.split(KEY, 4000))
    for values, bound in ((states.angle, np.pi), (states.velocity, 1.0)):
        assert np.abs(values).max() <= bound
        assert np.mean(values) == pytest.approx(0.0, abs=0.06 * bound)
        assert np.std(values) == pytest.approx(bound / np.sqrt(3), rel=0.04)


def test_it_is_differentiable_in_the_torque():
    slope = jax.grad(lambda torque: step(PENDULUM, rod(1.0), torque)[1].velocity)(jnp.zeros(1))
    assert slope[0] == pytest.approx(3 * 0.05)  # dt 3 / (m l^2)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"mass": 0.0}, "mass"),
        ({"length": -1.0}, "length"),
        ({"dt": 0.0}, "dt"),
        ({"gravity": float("nan")}, "gravity"),
        ({"max_torque": -1.0}, "max_torque"),
        ({"max_speed": 0.5}, "max_speed"),
        ({"episode_length": 0}, "episode_length"),
    ],
)
def test_impossible_parameters_are_refused(settings, field):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        Pendulum(**settings)
