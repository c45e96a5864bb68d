"""Reacher against an independent integration in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.reacher import Reacher, ReacherState

KEY = jax.random.key(0)
REACHER = Reacher()
step = jax.jit(lambda game, state, torques: game.step_env(KEY, state, {"agent_0": torques}))


def arm(angles, goal, velocities=(0.0, 0.0), time=0):
    floats = [jnp.asarray(x, jnp.float32) for x in (angles, velocities, goal)]
    return ReacherState(*floats, jnp.int32(time))


def test_a_trajectory_agrees_with_float64():
    rng = np.random.default_rng(0)
    game = REACHER.replace(goal_radius=0.0)
    state = arm([0.3, -2.0], [1.0, -0.5])
    angles, velocities, goal = np.array([0.3, -2.0]), np.zeros(2), np.array([1.0, -0.5])
    for t in range(200):
        torques = rng.uniform(-1.5, 1.5, 2)
        obs, state, rewards, dones, infos = step(game, state, jnp.asarray(torques, jnp.float32))
        angles = angles + 0.1 * velocities
        velocities = 0.9 * velocities + 0.1 * np.clip(torques, -1, 1)
        gap = goal - np.array([np.cos(angles).sum(), np.sin(angles).sum()])
        expected = [*np.cos(angles), *np.sin(angles), *velocities, *goal, *gap]
        np.testing.assert_allclose(obs["agent_0"], expected, atol=1e-4)
        assert float(rewards["agent_0"]) == pytest.approx(np.exp(-(gap**2).sum()), abs=1e-4)
        assert infos["distance"][0] == pytest.approx(np.linalg.norm(gap), abs=1e-4)
        assert dones["__all__"] == (t == 199)
    assert infos["truncated"].tolist() == [True]


def test_the_reward_by_hand():
    rest = jnp.zeros(2)
    # Stretched out, the tip is at (2, 0), at the distance 1 from (2, 1).
    assert step(REACHER, arm([0.0, 0.0], [2.0, 1.0]), rest)[2]["agent_0"] == pytest.approx(np.exp(-1))
    quadratic = Reacher(reward="quadratic")
    assert step(quadratic, arm([0.0, 0.0], [2.0, 1.0]), jnp.array([0.5, -1.0]))[2]["agent_0"] == pytest.approx(-2.25)
    squashed = Reacher(reward="quadratic", squash=True)
    _, state, rewards, _, _ = step(squashed, arm([0.0, 0.0], [2.0, 1.0]), jnp.array([2.0, 0.0]))
    assert rewards["agent_0"] == pytest.approx(-1 - np.tanh(2.0) ** 2)
    assert float(state.velocities[0]) == pytest.approx(0.1 * np.tanh(2.0))


@pytest.mark.parametrize(("distance", "ends"), [(0.29, True), (0.31, False)])
def test_it_ends_within_the_radius_of_the_goal_and_that_is_no_truncation(distance, ends):
    # The goal is at that distance from the tip, (0, 2), of an arm that stands upright.
    state = arm([np.pi / 2, np.pi / 2], [0.0, 2.0 - distance], time=199)
    _, _, _, dones, infos = step(REACHER, state, jnp.zeros(2))
    assert dones["__all__"]
    assert infos["truncated"].tolist() == [not ends]
    assert infos["reached"].tolist() == [float(ends)]
    assert step(REACHER, state.replace(time=jnp.int32(0)), jnp.zeros(2))[3]["__all__"] == ends


def test_resets_are_at_rest_with_goals_uniform_in_the_disc():
    states = jax.jit(jax.vmap(lambda key: REACHER.reset(key)[1]))(jax.random.split(KEY, 4000))
    radius = np.linalg.norm(states.goal, axis=-1)
    assert radius.max() <= 2.0 + 1e-5
    # A disc of radius r has the share (r / 2)^2 of the area.
    for r in (0.5, 1.0, 1.5):
        assert (radius < r).mean() == pytest.approx((r / 2) ** 2, abs=0.03)
    np.testing.assert_allclose(np.asarray(states.goal).mean(0), 0.0, atol=0.06)
    assert not np.asarray(states.velocities).any()
    assert np.abs(states.angles).max() <= np.pi + 1e-5
    np.testing.assert_allclose(np.asarray(states.angles).std(0), np.pi / np.sqrt(3), atol=0.06)


def test_the_reward_is_differentiable_in_an_earlier_torque():
    def later(torques):
        state = arm([0.0, 0.0], [2.0, 1.0])
        for _ in range(3):
            _, state, rewards, _, _ = step(REACHER, state, torques)
        return rewards["agent_0"]

    gradient = jax.grad(later)(jnp.zeros(2))
    nudge = 1e-2
    for i in range(2):
        change = jnp.zeros(2).at[i].set(nudge)
        assert gradient[i] == pytest.approx(float(later(change) - later(-change)) / (2 * nudge), rel=1e-2)
    assert (gradient > 0).all()  # up, to the goal


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Reacher(num_joints=0), "num_joints"),
        (lambda: Reacher(reward="sparse"), "reward"),
        (lambda: Reacher(dt=0.0), "dt"),
        (lambda: Reacher(damping=1.1), "damping"),
        (lambda: Reacher(episode_length=0), "episode_length"),
    ],
)
def test_impossible_parameters_are_refused(make, field):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        make()
