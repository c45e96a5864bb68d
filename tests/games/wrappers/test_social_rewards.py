"""Social rewards: utilities by hand, invariants, and the unchanged bare game."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import games
from games.core.rollout import rollout
from games.pettingzoo import parallel_env
from games.registry import make_game
from tests.nightly import MARKS

KEY = jax.random.key(0)
GOODS = games.make("public_goods", num_agents=3, multiplier=1.5, episode_length=3)  # a gift pays 0.5 to all
play = jax.jit(lambda key, game: rollout(key, game, 7))
step = jax.jit(lambda game, state, acts: game.step_env(KEY, state, dict(zip(game.agents, acts, strict=True))))


def paid(game, *joint_actions):
    """The rewards `[steps, n]` of joint actions from the reset on."""
    state, found = game.reset(KEY)[1], []
    for acts in joint_actions:
        _, state, rewards, _, infos = step(game, state, acts)
        found.append([float(rewards[agent]) for agent in game.agents])
        assert ("bare_reward" in infos) == (game is not GOODS)
    return np.array(found)


def test_utilities_by_hand():
    # One gives: it has 0.5, the two others 1.5.
    acts = (0, 1, 1)
    np.testing.assert_allclose(paid(GOODS, acts), [[0.5, 1.5, 1.5]])
    # A quarter of the own and three eighths of each of the others'.
    np.testing.assert_allclose(paid(games.SelfInterest(GOODS, 0.25), acts), [[1.25, 1.125, 1.125]])
    np.testing.assert_allclose(paid(games.SelfInterest(GOODS, 0.0), acts), [[1.5, 1.0, 1.0]])
    np.testing.assert_allclose(paid(games.common_reward(GOODS), acts), np.full((1, 3), 3.5 / 3), rtol=1e-6)
    # atan2(1.5, 0.5) and atan2(1, 1.5), from the target pi / 4.
    far, near = np.arctan(3) - np.pi / 4, np.pi / 4 - np.arctan(2 / 3)
    found = paid(games.SocialValueOrientation(GOODS, weight=2.0), acts)
    np.testing.assert_allclose(found, [[0.5 - 2 * far, 1.5 - 2 * near, 1.5 - 2 * near]], rtol=1e-6)


def test_envy_counts_alpha_and_guilt_counts_beta():
    """SocialJax called the function with two arguments exchanged; the numbers tell them apart."""
    game = games.InequityAversion(GOODS, alpha=4.0, beta=0.5)
    # The one that gives has 1 less than each of two: alpha (1 + 1) / 2. The others have 1 more than one: beta 1 / 2.
    np.testing.assert_allclose(paid(game, (0, 1, 1)), [[0.5 - 4.0, 1.5 - 0.25, 1.5 - 0.25]])
    np.testing.assert_allclose(paid(game.replace(alpha=0.0), (0, 1, 1)), [[0.5, 1.25, 1.25]])
    np.testing.assert_allclose(paid(game.replace(beta=0.0), (0, 1, 1)), [[-3.5, 1.5, 1.5]])
    defaults = games.InequityAversion(GOODS)
    assert (defaults.alpha, defaults.beta, defaults.decay) == (5.0, 0.05, 0.99 * 0.975)


def test_rewards_are_smoothed_over_an_episode_and_forgotten_after_it():
    # One gives, and then another: smoothed by a half, the first has 0.25 + 1.5, the second 0.75 + 0.5.
    game = games.InequityAversion(GOODS, alpha=1.0, beta=0.0, decay=0.5)
    second = paid(game, (0, 1, 1), (1, 0, 1))[1]
    np.testing.assert_allclose(second, [1.5 - 0.5 / 2, 0.5 - (0.5 + 1.0) / 2, 1.5])
    smoothed = paid(games.SelfInterest(GOODS, 1.0, decay=0.5), (0, 1, 1), (1, 0, 1))
    np.testing.assert_allclose(smoothed, [[0.5, 1.5, 1.5], [1.75, 1.25, 2.25]])
    played = play(KEY, games.SelfInterest(GOODS, 1.0, decay=1.0))  # sums of episodes of three steps
    bare = np.asarray(played.infos["bare_reward"])
    sums = np.concatenate([np.cumsum(bare[:3], 0), np.cumsum(bare[3:6], 0), bare[6:]])
    np.testing.assert_allclose(np.stack(list(played.rewards.values()), -1), sums, rtol=1e-6)


@pytest.mark.system
@pytest.mark.parametrize(
    "name", ["coin_game", pytest.param("negotiation", marks=pytest.mark.system), pytest.param("harvest", marks=MARKS)]
)
def test_a_player_that_cares_for_itself_alone_plays_the_bare_game(name):
    bare = games.make(name)
    played = play(KEY, bare)
    for game in (
        games.SelfInterest(bare, 1.0),
        games.InequityAversion(bare, 0.0, 0.0),
        games.SocialValueOrientation(bare, weight=0.0),
    ):
        same = play(KEY, game)
        assert same.infos.keys() == played.infos.keys() | {"bare_reward"}
        for one, other in ((same.rewards, played.rewards), (same.observations, played.observations)):
            jax.tree.map(np.testing.assert_array_equal, one, other)
        jax.tree.map(np.testing.assert_array_equal, same.states.bare, played.states)


vectors = st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=6)


@settings(deadline=None, max_examples=50)
@given(vectors, st.randoms())
def test_utilities_move_with_the_players(rewards, random):
    """Players in another order, with their numbers, have the same utilities in that order."""
    rewards, n = np.array(rewards, np.float32), len(rewards)
    order = np.array(random.sample(range(n), n))
    numbers = np.linspace(0, 1, n, dtype=np.float32)
    inner = games.make("public_goods", num_agents=n)
    for game in (
        games.SelfInterest(inner, numbers),
        games.InequityAversion(inner, numbers, 1 - numbers),
        games.SocialValueOrientation(inner, numbers, 2 * numbers),
    ):
        moved = jax.tree.map(lambda x, n=n, order=order: x[order] if np.shape(x) == (n,) else x, game)
        straight = game.utilities(jnp.asarray(rewards), jnp.asarray(rewards))
        found = moved.utilities(jnp.asarray(rewards[order]), jnp.asarray(rewards[order]))
        np.testing.assert_allclose(found, np.asarray(straight)[order], atol=2e-4)


@settings(deadline=None, max_examples=50)
@given(vectors)
def test_utilities_are_those_of_loops(rewards):
    """An independent implementation in float64."""
    n, r = len(rewards), np.array(rewards)
    game = SimpleNamespace(num_agents=n, alpha=5.0, beta=0.05)
    found = games.InequityAversion.utilities(game, jnp.asarray(r, jnp.float32), jnp.asarray(r, jnp.float32))
    for i in range(n):
        envy = sum(max(r[j] - r[i], 0) for j in range(n) if j != i)
        guilt = sum(max(r[i] - r[j], 0) for j in range(n) if j != i)
        assert float(found[i]) == pytest.approx(r[i] - 5 * envy / (n - 1) - 0.05 * guilt / (n - 1), abs=1e-3)


def test_numbers_are_traced_and_may_differ_between_players():
    game = games.InequityAversion(GOODS, jnp.array([4.0, 0.0, 0.0]), [0.0, 0.5, 0.0])
    np.testing.assert_allclose(paid(game, (0, 1, 1)), [[-3.5, 1.25, 1.5]])
    compiled = play._cache_size()
    for alpha in (1.0, 2.0):
        play(KEY, games.InequityAversion(GOODS, alpha, 0.0))
    assert play._cache_size() <= compiled + 1
    levels = jax.vmap(lambda level: play(KEY, games.SelfInterest(GOODS, level)).rewards["agent_0"])
    found = np.asarray(levels(jnp.array([0.0, 0.5, 1.0])))
    np.testing.assert_allclose(found[1], found[[0, 2]].mean(0), rtol=1e-6)


def test_wrappers_go_into_one_another_and_keep_the_game_s_own_rewards():
    game = games.common_reward(games.InequityAversion(games.make("coin_game")))
    played = play(KEY, game)
    np.testing.assert_array_equal(played.infos["bare_reward"], _stacked(play(KEY, games.make("coin_game"))))
    np.testing.assert_allclose(*played.rewards.values(), rtol=1e-6)
    assert game.name == "CoinGame with InequityAversion with SelfInterest"
    np.testing.assert_array_equal(
        game.render(jax.tree.map(lambda x: x[0], played.states)),
        game.game.game.render(jax.tree.map(lambda x: x[0], played.states).bare.bare),
    )


def _stacked(played):
    return np.stack(list(played.rewards.values()), -1)


def test_a_spec_names_a_wrapped_game():
    game = make_game("inequity_aversion(game='harvest(num_agents=3)', alpha=2)")
    assert isinstance(game, games.InequityAversion)
    assert (game.alpha, game.num_agents, game.game.name) == (2, 3, "Harvest")
    assert games.make("common_reward", game=GOODS).level == pytest.approx(1 / 3)
    env = parallel_env(make_game("self_interest(game='ipd', level=0.5)"))
    env.reset(seed=0)
    assert env.step({"agent_0": 0, "agent_1": 1})[1] == {"agent_0": -1.5, "agent_1": -1.5}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("self_interest", "self_interest: game: got None; a game or its spec, such as 'harvest', is needed"),
        ("self_interest(game='fishry')", "self_interest: game: got 'fishry'; did you mean fishery?"),
        ("self_interest(game='ipd', lvl=1)", "self_interest: unknown parameter lvl; did you mean level?"),
        ("self_interest(game='ipd', level=2)", "level: got 2; a number in [0, 1] is needed"),
        ("inequity_aversion(game='ipd', alpha=-1)", "alpha: got -1; a number of at least 0 is needed"),
        ("inequity_aversion(game='ipd', decay=nan)", "decay: got nan; a number in [0, 1] is needed"),
        ("social_value_orientation(game='ipd', angle=90)", "angle: got 90; a number in [-3.14159, 3.14159] is needed"),
        ("common_reward(game='ipd', level=1)", "common_reward: unknown parameter level; one of game is needed"),
        ("common_reward(game='pendulum')", "got Pendulum, of 1 player; a game of 2 players or more is needed"),
    ],
)
def test_bad_input_is_refused_in_one_line(spec, message):
    with pytest.raises(ValueError, match=r"^environment: ") as error:
        make_game(spec)
    assert str(error.value) == f"environment: {message}"


def test_numbers_for_another_number_of_players_are_refused():
    with pytest.raises(ValueError, match=r"^beta: got .*; one number, or 3 numbers, are needed$"):
        games.InequityAversion(GOODS, 1.0, [0.1, 0.2])
    with pytest.raises(TypeError, match="game: got 'ipd'; a Game is needed"):
        games.SelfInterest("ipd")
    with pytest.raises(ValueError, match="which is taken"):
        games.register("common_reward", games.CoinGame, "a game")
