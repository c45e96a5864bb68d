"""The coin game against its rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games import CoinGame
from games.suite.coin_game import CoinState

ONE, TWO = CoinGame(), CoinGame(num_coins=2, stay=True)
RIGHT, LEFT, DOWN, UP, STAY = range(5)
step_one, step_two = jax.jit(ONE.step_env), jax.jit(TWO.step_env)
reset_one = jax.jit(ONE.reset)


def state(players, coins, time=0):
    return CoinState(*(tuple(jnp.int32(cell) for cell in cells) for cells in (players, coins)), jnp.int32(time))


def play(step, before, first, second, key=0):
    obs, after, rewards, dones, infos = step(jax.random.key(key), before, {"agent_0": first, "agent_1": second})
    return obs, after, (float(rewards["agent_0"]), float(rewards["agent_1"])), dones, infos


# Cells of the 3 x 3 torus:  0 1 2 / 3 4 5 / 6 7 8.
@pytest.mark.parametrize(
    ("action", "cell"),
    [(RIGHT, 0), (LEFT, 1), (DOWN, 5), (UP, 8), (STAY, 2)],
    ids=["right", "left", "down", "up", "stay"],
)
def test_moves_on_the_torus_from_the_upper_right_corner(action, cell):
    _, after, *_ = play(step_two, state((2, 4), (7, 7)), action, STAY)
    assert (int(after.players[0]), int(after.players[1])) == (cell, 4)


@pytest.mark.parametrize(
    ("coins", "first", "second", "rewards"),
    [
        ((1, -1), RIGHT, RIGHT, (1, 0)),  # player 0 at 0 steps on its own coin at 1
        ((-1, 1), RIGHT, RIGHT, (1, -2)),  # the same coin, but of player 1
        ((5, -1), LEFT, RIGHT, (-2, 1)),  # player 1 at 4 takes the coin of player 0
        ((-1, 5), LEFT, RIGHT, (0, 1)),
        ((8, -1), LEFT, RIGHT, (0, 0)),
    ],
)
def test_payoffs_of_one_coin_by_hand(coins, first, second, rewards):
    _, after, paid, _, infos = play(step_one, state((0, 4), coins), first, second)
    assert paid == rewards
    owner = 0 if coins[0] >= 0 else 1
    took = [paid[0] > 0, paid[1] > 0]
    np.testing.assert_array_equal(infos["own_coin"], [took[0] and owner == 0, took[1] and owner == 1])
    np.testing.assert_array_equal(infos["other_coin"], [took[0] and owner == 1, took[1] and owner == 0])
    # The colour changes with every coin that is taken, and only then.
    assert (int(after.coins[0]) >= 0) == ((owner == 0) ^ any(took))


def test_both_take_a_coin_at_once_and_both_are_paid():
    _, _, paid, _, infos = play(step_one, state((0, 2), (1, -1)), RIGHT, LEFT)
    assert paid == (1 - 2, 1)
    np.testing.assert_array_equal(infos["own_coin"], [1, 0])
    np.testing.assert_array_equal(infos["other_coin"], [0, 1])


def test_two_coins_on_one_cell_are_both_taken():
    _, _, paid, *_ = play(step_two, state((0, 5), (1, 1)), RIGHT, STAY)
    assert paid == (2, -2)


def test_payoffs_are_parameters():
    game = CoinGame(reward=3.0, penalty=-5.0)
    _, _, paid, *_ = play(game.step_env, state((0, 4), (-1, 1)), RIGHT, RIGHT)
    assert paid == (3, -5)


cells = st.integers(0, 8)


@settings(max_examples=50, deadline=None)
@given(st.tuples(cells, cells), st.tuples(cells, cells), st.integers(0, 1), st.integers(0, 4), st.integers(0, 4))
def test_swapping_the_seats_swaps_everything(players, coins, owner, first, second):
    for step, lying, count in ((step_one, (coins[0], -1) if owner == 0 else (-1, coins[1]), 4), (step_two, coins, 5)):
        obs, after, paid, _, infos = play(step, state(players, lying), first % count, second % count)
        swapped = play(step, state(players[::-1], lying[::-1]), second % count, first % count)
        assert paid == swapped[2][::-1]
        for name in ("own_coin", "other_coin"):
            np.testing.assert_array_equal(infos[name], swapped[4][name][::-1])
        taken = float(infos["own_coin"].sum() + infos["other_coin"].sum())
        if step is step_one or not taken:  # new coins of two colours fall in their own order
            np.testing.assert_array_equal(obs["agent_0"], swapped[0]["agent_1"])
            np.testing.assert_array_equal(obs["agent_1"], swapped[0]["agent_0"])
        # Rewards: 1 for each coin taken, -2 for each of one's own coins that the other took.
        assert sum(paid) == float(infos["own_coin"].sum() - infos["other_coin"].sum())
        if not taken:
            assert [int(cell) for cell in after.coins] == list(lying)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_a_reset_leaves_the_coin_free_and_every_plane_has_at_most_one_entry(seed):
    obs, begun = reset_one(jax.random.key(seed))
    lying = [int(cell) for cell in begun.coins if cell >= 0]
    assert len(lying) == 1
    assert lying[0] not in [int(cell) for cell in begun.players]
    planes = np.asarray(obs["agent_0"]).reshape(9, 4).T
    assert planes[:2].sum() == 2
    assert planes[2:].sum() == 1
    np.testing.assert_array_equal(planes[[1, 0, 3, 2]], np.asarray(obs["agent_1"]).reshape(9, 4).T)
    assert planes[0].argmax() == int(begun.players[0])


@pytest.mark.parametrize("players", [(0, 1), (4, 4)])
def test_new_coins_fall_on_all_free_cells_alike(players):
    keys = jax.random.split(jax.random.key(0), 20_000)
    # From one cell to the left of here, on the torus, both step to the right, player 0 onto its coin.
    left = [cell - 1 if cell % 3 else cell + 2 for cell in players]
    before = state(left, (players[0], -1))
    after = jax.jit(jax.vmap(lambda key: ONE.step_env(key, before, {"agent_0": 0, "agent_1": 0})[1]))(keys)
    counts = np.bincount(np.asarray(after.coins[1]), minlength=9)
    free = [cell for cell in range(9) if cell not in players]
    assert counts.sum() == 20_000
    assert counts[list(set(players))].sum() == 0
    expected = 20_000 / len(free)
    np.testing.assert_allclose(counts[free], expected, atol=5 * expected**0.5)


def test_both_players_see_the_same_picture_unless_it_is_their_own():
    game = CoinGame(egocentric=False)
    obs = game.get_obs(state((0, 4), (-1, 8)))
    np.testing.assert_array_equal(obs["agent_0"], obs["agent_1"])
    assert [int(plane.argmax()) if plane.any() else None for plane in obs["agent_1"].reshape(9, 4).T] == [0, 4, None, 8]


def test_the_centered_view_turns_the_torus():
    obs = CoinGame(centered=True).get_obs(state((0, 4), (-1, 8)))
    # From 0 everything moves one down and one to the right: 4 -> 8, and 8 comes round to 0.
    assert [int(plane.argmax()) if plane.any() else None for plane in obs["agent_0"].reshape(9, 4).T] == [4, 8, None, 0]
    assert [int(plane.argmax()) if plane.any() else None for plane in obs["agent_1"].reshape(9, 4).T] == [4, 0, 8, None]


def test_the_observation_is_an_image_by_row_and_column_with_its_channels_last():
    game = CoinGame(grid_size=4)
    seen = np.asarray(game.get_obs(state((1, 14), (-1, 7)))["agent_0"])
    assert seen.shape == game.observation_space("agent_0").shape == (4, 4, 4)
    assert game.observation_space("agent_0").image
    assert np.argwhere(seen).tolist() == [[0, 1, 0], [1, 3, 3], [3, 2, 1]]


def test_the_time_limit_truncates():
    _, _, _, dones, infos = play(step_one, state((0, 4), (8, -1), time=15), LEFT, UP)
    assert bool(dones["__all__"])
    assert infos["truncated"].all()
    _, _, _, dones, infos = play(step_one, state((0, 4), (8, -1), time=14), LEFT, UP)
    assert not bool(dones["__all__"])
    assert not infos["truncated"].any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"grid_size": 0}, "grid_size: got 0; a whole number from 2 to 128"),
        ({"grid_size": 2.5}, "grid_size: got 2.5"),
        ({"num_coins": 3}, "num_coins: got 3; one of 1, 2 is needed"),
        ({"episode_length": 0}, "episode_length: got 0; a whole number of at least 1"),
        ({"reward": float("nan")}, "reward: got nan"),
        ({"reward": 3_000_000_000}, "reward: got 3000000000; beyond 2147483647 a number with a point is needed"),
    ],
)
def test_impossible_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        CoinGame(**params)
