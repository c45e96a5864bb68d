"""Gift refinement: what a gift turns into, worked out by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.gift_refinement import GiftRefinement
from tests.games.suite.grid_tools import BEAM, FORWARD, LEFT, RIGHT, SECOND_BEAM, STAY, UP, begin, board, play

GIVE, CONSUME = BEAM, SECOND_BEAM
GAME = GiftRefinement(layout=("TTTT", "PPPP"), num_agents=3, view_size=3, growth=0.0)
PLACES = [(1, 0), (1, 1), (1, 3)]


def held(*rows):
    return jnp.array(rows, jnp.int32)


@pytest.mark.parametrize(
    ("before", "giver", "receiver"),
    [
        ([2, 1, 1], [1, 1, 1], [0, 3, 0]),  # the lowest level is given
        ([0, 2, 1], [0, 1, 1], [0, 0, 3]),
        ([0, 0, 2], [0, 0, 1], [0, 0, 1]),
        ([0, 0, 0], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_a_gift_is_refined(before, giver, receiver):
    state = begin(GAME, PLACES, [RIGHT, UP, UP], held=held(before, [0, 0, 0], [5, 5, 5]))
    _, state, rewards, infos = play(GAME, state, GIVE, STAY, STAY)
    assert state.held.tolist() == [giver, receiver, [5, 5, 5]]
    assert rewards == [0, 0, 0]
    assert infos["received"] == [0, sum(receiver), 0]
    assert infos["gifts"] == [float(any(before)), 0, 0]


def test_a_gift_needs_a_receiver_and_the_action():
    state = begin(GAME, PLACES, [UP, RIGHT, UP], held=held([1, 0, 0], [1, 0, 0], [0, 0, 0]))
    _, state, *_ = play(GAME, state, GIVE, GIVE, STAY)  # agent_1 looks at an empty cell, agent_0 at the grass
    assert state.held.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
    far = GAME.replace(beam_length=2)
    _, state, *_ = play(far, state, STAY, GIVE, STAY)
    assert state.held.tolist() == [[1, 0, 0], [0, 0, 0], [0, 3, 0]]


def test_the_first_player_in_the_beam_gets_the_gift():
    game = GAME.replace(beam_length=3)
    state = begin(game, PLACES, [RIGHT, UP, UP], held=held([1, 0, 0], [0, 0, 0], [0, 0, 0]))
    _, state, *_ = play(game, state, GIVE, STAY, STAY)
    assert state.held.tolist() == [[0, 0, 0], [0, 3, 0], [0, 0, 0]]


def test_two_that_give_to_each_other_both_gain():
    state = begin(GAME, PLACES, [RIGHT, LEFT, UP], held=held([1, 0, 0], [1, 0, 0], [0, 0, 0]))
    _, state, *_ = play(GAME, state, GIVE, GIVE, STAY)
    assert state.held.tolist() == [[0, 3, 0], [0, 3, 0], [0, 0, 0]]
    _, state, rewards, infos = play(GAME, state, CONSUME, CONSUME, CONSUME)
    assert rewards == [3, 3, 0]
    assert infos["consumed"] == [3, 3, 0]
    assert not state.held.any()


def test_more_than_the_capacity_is_lost_and_a_token_without_room_stays():
    state = begin(
        GAME, PLACES, [RIGHT, UP, UP], held=held([1, 0, 0], [15, 14, 0], [0, 0, 0]), tokens=board(GAME, (0, 1))
    )
    _, state, *_ = play(GAME, state, GIVE, FORWARD - 1, STAY)
    assert state.held[1].tolist() == [15, 15, 0]
    _, state, _, infos = play(GAME, state, STAY, FORWARD, STAY)
    assert infos["tokens"] == [0, 0, 0]
    assert state.tokens.any()


def test_a_token_is_taken_and_shown():
    state = begin(GAME, PLACES, [UP, UP, UP], tokens=board(GAME, (0, 0)))
    obs, state, _, infos = play(GAME, state, FORWARD, STAY, STAY)
    assert state.held.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert infos["tokens"] == [1, 0, 0]
    assert not state.tokens.any()
    np.testing.assert_allclose(np.asarray(obs["agent_0"])[..., -3:].reshape(-1, 3), [[1 / 15, 0, 0]] * 9, rtol=1e-6)
