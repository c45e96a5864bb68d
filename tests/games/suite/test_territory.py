"""Territory: paint, drying, cracks, walls and players that are gone, worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.territory import Territory
from tests.games.suite.grid_tools import (
    BEAM,
    DOWN,
    FORWARD,
    LEFT,
    RIGHT,
    SECOND_BEAM,
    STAY,
    TURN_LEFT,
    UP,
    begin,
    board,
    cells,
    play,
)

ZAP, PAINT = BEAM, SECOND_BEAM
GAME = Territory(layout=("W..W", "....", "PPPP"), num_agents=2, view_size=3, dry_steps=3, reward=1.0)


def colors(*walls):
    return jnp.stack([board(GAME, *lie) for lie in walls])


@pytest.mark.system
def test_a_wall_is_painted_by_touch_and_pays_once_it_is_dry():
    state = begin(GAME, [(1, 0), (2, 2)], [UP, UP])
    paid = []
    for _ in range(6):
        _, state, rewards, infos = play(GAME, state, STAY, STAY)
        paid.append(rewards[0])
    assert paid == [0, 0, 0, 1, 1, 1]
    assert infos["walls"] == [1, 0]
    assert infos["dry"] == [1, 0]


def test_paint_reaches_the_first_wall_ahead_and_another_colour_starts_again():
    state = begin(GAME, [(2, 0), (2, 3)], [UP, UP])
    _, state, *_ = play(GAME, state, PAINT, STAY)
    assert cells(GAME, state.painted[0]) == {(0, 0)}
    for _ in range(3):
        _, state, rewards, _ = play(GAME, state, TURN_LEFT, STAY)
    assert rewards == [1, 0]
    state = state.replace(positions=jnp.array([(2, 3), (1, 0)]), directions=jnp.array([UP, UP]))
    _, state, rewards, _ = play(GAME, state, STAY, STAY)  # the other touches it
    assert rewards == [0, 0]
    assert cells(GAME, state.painted[1]) == {(0, 0)}
    assert not state.painted[0].any()
    paid = [play(GAME, state, STAY, STAY)[2]]
    for _ in range(3):
        _, state, rewards, _ = play(GAME, state, STAY, STAY)
    assert paid == [[0, 0]]
    assert rewards == [0, 1]


def test_a_random_one_of_two_paints_a_wall():
    state = begin(GAME, [(1, 0), (0, 1)], [UP, LEFT])
    owners = {tuple(play(GAME, state, STAY, STAY, key=jax.random.key(i))[3]["walls"]) for i in range(20)}
    assert owners == {(1, 0), (0, 1)}


def test_two_zaps_destroy_a_wall_and_the_first_takes_its_paint():
    state = begin(GAME, [(2, 0), (2, 3)], [UP, UP], painted=colors([(0, 0)], []))
    _, state, _, infos = play(GAME, state, ZAP, STAY)
    assert infos["walls"] == [0, 0]
    assert infos["destroyed"] == [0, 0]
    assert cells(GAME, state.cracked) == {(0, 0)}
    _, state, _, infos = play(GAME, state, ZAP, STAY)
    assert infos["destroyed"] == [1, 0]
    assert cells(GAME, state.walls) == {(0, 3)}
    assert not state.cracked.any()
    for _ in range(2):
        _, state, *_ = play(GAME, state, FORWARD, STAY)
    assert state.positions[0].tolist() == [0, 0]  # one may walk where it stood


def test_a_wall_blocks_and_shields():
    state = begin(GAME, [(1, 0), (0, 1)], [UP, UP])
    _, after, *_ = play(GAME, state, FORWARD, STAY)
    assert after.positions[0].tolist() == [1, 0]
    shielded = begin(Territory(layout=("..", "WW", "PP"), num_agents=2, view_size=3), [(2, 0), (0, 0)], [UP, DOWN])
    game = Territory(layout=("..", "WW", "PP"), num_agents=2, view_size=3)
    _, _, _, infos = play(game, shielded, ZAP, ZAP)
    assert infos["zapped"] == [0, 0]


def test_two_zaps_remove_a_player_for_ever_and_it_blocks_no_cell():
    state = begin(GAME, [(1, 1), (1, 2)], [RIGHT, UP], painted=colors([], [(0, 3)]))
    _, state, _, infos = play(GAME, state, ZAP, STAY)
    assert infos["zapped"] == [0, 1]
    assert infos["away"] == [0, 0]
    obs, state, _, infos = play(GAME, state, ZAP, STAY)
    assert infos["away"] == [0, 1]
    assert not np.asarray(obs["agent_1"]).any()
    assert not np.asarray(obs["agent_0"])[..., 6:10].any()
    for _ in range(4):
        _, state, rewards, infos = play(GAME, state, STAY, FORWARD)
    assert rewards == [0, 1]  # its wall keeps its colour
    assert infos["away"] == [0, 1]
    _, state, *_ = play(GAME, state, FORWARD, STAY)
    assert state.positions[0].tolist() == [1, 2]
    _, _, _, infos = play(GAME, state, ZAP, ZAP)
    assert infos["zaps"] == [1, 0]


def test_players_see_walls_in_their_colour_and_in_others():
    state = begin(GAME, [(1, 0), (1, 3)], [RIGHT, LEFT], painted=colors([(0, 0)], [(0, 3)]), hits=jnp.array([0, 1]))
    obs = {agent: np.asarray(seen) for agent, seen in GAME.get_obs(state).items()}
    assert obs["agent_0"][1, 0, :5].tolist() == [1, 0, 1, 0, 0]  # to its left: painted by itself, not dry
    assert obs["agent_1"][1, 2, :5].tolist() == [1, 0, 1, 0, 0]
    assert obs["agent_0"][0, 0, -1] == 0
    assert obs["agent_1"][0, 0, -1] == 0.5
    state = state.replace(painted=colors([], [(0, 0), (0, 3)]))
    assert np.asarray(GAME.get_obs(state)["agent_0"])[1, 0, :5].tolist() == [1, 0, 0, 1, 0]


def test_a_layout_without_walls_to_paint_is_refused():
    with pytest.raises(ValueError, match="walls to paint, letters W, are needed"):
        Territory(layout=("PP",), num_agents=2)
