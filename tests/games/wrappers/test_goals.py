"""Games with goals: the distribution of goals, their rewards, and the unchanged bare game."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games.suite.pendulum import PendulumState
from games.suite.reacher import ReacherState
from games.toolbox.drawing import INK
from games.wrappers import goals
from games.wrappers.goals import GoalConditioned, Goals, GoalState, register_goals

KEY = jax.random.key(0)
BARE = {name: games.make(name) for name in ("CartPole-v1", "reacher", "pendulum", "Pendulum-v1")}
reset = jax.jit(lambda game, key: game.reset(key))
step = jax.jit(lambda game, key, state, action: game.step_env(key, state, {"agent_0": action}))


def drawn(name, count=2000):
    keys = jax.random.split(KEY, count)
    return np.asarray(jax.jit(jax.vmap(lambda key: GoalConditioned(BARE[name]).reset(key)[1].goal))(keys))


def test_observations_keep_the_bounds_of_the_bare_game():
    bare, space = (
        BARE["reacher"].observation_space("agent_0"),
        GoalConditioned(BARE["reacher"]).observation_space("agent_0"),
    )
    np.testing.assert_array_equal(space.low, [*bare.low, -np.inf, -np.inf])
    np.testing.assert_array_equal(space.high, [*bare.high, np.inf, np.inf])
    traced = jax.jit(lambda game: jnp.zeros(GoalConditioned(game).observation_space("agent_0").shape))
    assert traced(BARE["pendulum"]).shape == GoalConditioned(BARE["pendulum"]).observation_space("agent_0").shape


def test_goals_of_the_cart_are_uniform_on_the_track():
    positions = drawn("CartPole-v1")[:, 0]
    assert np.abs(positions).max() <= 2.4
    assert np.mean(positions) == pytest.approx(0.0, abs=0.1)
    assert np.std(positions) == pytest.approx(2.4 / np.sqrt(3), rel=0.05)


def test_goals_of_the_arm_are_uniform_in_its_disc_and_not_its_own():
    places = drawn("reacher")
    radius = np.linalg.norm(places, axis=1)
    assert radius.max() <= 2.0
    for r in (0.5, 1.0, 1.5):
        assert (radius < r).mean() == pytest.approx((r / 2) ** 2, abs=0.04)
    state = reset(GoalConditioned(BARE["reacher"]), KEY)[1]
    assert np.linalg.norm(state.goal - state.bare.goal) > 0.01


@pytest.mark.parametrize("name", ["pendulum", "Pendulum-v1"])
def test_goals_of_the_rod_are_uniform_on_the_whole_circle(name):
    places = drawn(name)
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1.0, atol=1e-5)
    # The second coordinate is a sine: the four quadrants are equally likely, where (cos, cos) has two.
    quadrants = np.unique(places > 0, axis=0, return_counts=True)[1] / len(places)
    np.testing.assert_allclose(quadrants, 0.25, atol=0.04)


def a_few_ulps(actual, desired):
    """Equal but for rounding: two programs, which are fused each in its own way. Integers are equal."""
    np.testing.assert_allclose(actual, desired, rtol=5e-7, atol=5e-7)


@pytest.mark.parametrize("name", BARE)
def test_transitions_ends_and_observations_are_the_bare_game_s(name):
    bare, game = BARE[name], GoalConditioned(BARE[name])
    space = bare.action_space("agent_0")
    assert game.action_space("agent_0").shape == space.shape
    observations, state = reset(game, KEY)
    for i in range(12):
        key, size, alone = jax.random.key(i), state.goal.size, state.bare
        assert observations["agent_0"].shape == game.observation_space("agent_0").shape
        a_few_ulps(observations["agent_0"][:-size], bare.get_obs(alone)["agent_0"])
        np.testing.assert_array_equal(observations["agent_0"][-size:], state.goal)
        observations, state, _, dones, infos = step(game, key, state, space.sample(key))
        _, alone, rewards, ends, bare_infos = step(bare, key, alone, space.sample(key))
        jax.tree.map(a_few_ulps, state.bare, alone)
        assert dones == ends
        a_few_ulps(infos.pop("bare_reward")[0], rewards["agent_0"])
        assert infos == bare_infos


def paid(name, bare, goal):
    """The goal reward of a step, and the state after it."""
    game = GoalConditioned(BARE[name])
    action = jnp.zeros(game.action_space("agent_0").shape, jnp.int32)
    _, state, rewards, _, _ = step(game, KEY, GoalState(bare, jnp.array(goal, jnp.float32)), action)
    return float(rewards["agent_0"]), state.bare


def test_the_rewards_by_hand():
    rest, clock = jnp.zeros(2), jnp.int32(0)
    # Stretched out, the arm's tip is at (2, 0), at the distance 1 from (2, 1), whatever its own goal.
    arm = ReacherState(jnp.zeros(2), rest, jnp.array([-1.0, 0.0]), clock)
    assert paid("reacher", arm, [2.0, 1.0])[0] == pytest.approx(np.exp(-1))
    # The rod stays upright, at (1, 0); (0, 1) and (0, -1) are at the distance sqrt(2), (-1, 0) at 2.
    upright = PendulumState(jnp.float32(0), jnp.float32(0), clock)
    for goal, squared in (([1, 0], 0), ([0, 1], 2), ([0, -1], 2), ([-1, 0], 4)):
        assert paid("pendulum", upright, goal)[0] == pytest.approx(np.exp(-squared), rel=1e-5)
    # To the left it is at (0, 1) and not at (0, 0), the result of a cosine in place of the sine.
    left = PendulumState(jnp.float32(np.pi / 2), jnp.float32(0), clock)
    reward, after = paid("pendulum", left, [0, 1])
    assert after.angle == pytest.approx(np.pi / 2 + 0.05**2 * 15, rel=1e-4)
    assert reward == pytest.approx(np.exp(-((2 * np.sin(0.05**2 * 15 / 2)) ** 2)), rel=1e-5)
    # The cart is judged after the step, which moves it by 0.02 seconds times its speed.
    cart = BARE["CartPole-v1"].reset(KEY)[1].replace(x=jnp.float32(1.0), x_dot=jnp.float32(5.0))
    reward, after = paid("CartPole-v1", cart, [-0.4])
    assert after.x == pytest.approx(1.1)
    assert reward == pytest.approx(np.exp(-(1.5**2)), rel=1e-5)


def test_an_episode_keeps_its_goal_and_the_next_has_another():
    game = GoalConditioned(games.make("pendulum", episode_length=3))
    state, seen = game.reset(KEY)[1], []
    for i in range(7):
        seen.append(state.goal)
        _, state, *_ = jax.jit(lambda *given: game.step(*given))(jax.random.key(i), state, {"agent_0": jnp.zeros(1)})
    first, second, third = (np.unique(part, axis=0) for part in np.split(np.array(seen), [3, 6]))
    assert len(first) == len(second) == len(third) == 1
    assert len(np.unique([first, second, third], axis=0)) == 3


@pytest.mark.parametrize("name", BARE)
def test_the_ring_is_drawn_around_the_goal(name):
    game = GoalConditioned(BARE[name])
    bare = game.reset(KEY)[1].bare
    bare = bare.replace(x=jnp.float32(0.3), theta=jnp.float32(0)) if name == "CartPole-v1" else bare
    place = np.asarray(goals.GOALS[game.game.name].place(game.game, bare))
    row, column = goals.GOALS[game.game.name].spot(game.game, place)
    picture = game.render(GoalState(bare, place))
    ringed = np.argwhere((picture != game.game.render(bare)).any(-1))
    shares = (row, column) * np.array(picture.shape[:2])
    np.testing.assert_allclose((ringed.min(0) + ringed.max(0) + 1) / 2, shares, atol=1.5)
    # The middle of the ring shows the body that is to reach it: the end of the arm, the cart.
    inked = tuple(int(INK[i : i + 2], 16) for i in (1, 3, 5))
    np.testing.assert_array_equal(picture[tuple(shares.astype(int))], inked)


def test_goals_may_be_registered_for_another_game():
    with pytest.raises(ValueError, match=r"^game: got Catch-bsuite, which has no goals; one of CartPole-v1, Reacher,"):
        GoalConditioned(games.make("Catch-bsuite"))
    register_goals(
        "Catch-bsuite",
        Goals(
            lambda game, key: jnp.array([2.0]),
            lambda game, state: state.paddle_x[None],
            lambda game, goal: (0.95, (goal[0] + 0.5) / 5),
        ),
    )
    try:
        game = GoalConditioned(games.make("Catch-bsuite"))
        state = game.reset(KEY)[1]
        observations, state, rewards, _, _ = step(game, KEY, state, jnp.int32(1))
        assert observations["agent_0"].shape == game.observation_space("agent_0").shape == (51,)
        assert rewards["agent_0"] == pytest.approx(np.exp(-((float(state.bare.paddle_x) - 2) ** 2)))
        assert (game.render(state) != game.game.render(state.bare)).any()
    finally:
        del goals.GOALS["Catch-bsuite"]
