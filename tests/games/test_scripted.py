"""Scripted policies: choices by hand in small states, and the interface for other games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games.suite.cleanup import CLEAN, Cleanup
from games.suite.coop_mining import MINE, CoopMining
from games.suite.harvest import Harvest
from games.toolbox import boards
from games.toolbox.grid import FORWARD, STAY, STEP_RIGHT, TURN_RIGHT

UP, RIGHT, DOWN, LEFT = range(4)
KEY = jax.random.key(0)


def board(game, *cells):
    lie = np.zeros(game.grid.num_cells, bool)
    lie[list(cells)] = True
    return jnp.asarray(boards.constant(lie))


def chosen(game, policy, positions, directions, **fields):
    """The action of the first player in a state."""
    state = game.reset(KEY)[1].replace(
        positions=jnp.array(positions),
        directions=jnp.array(directions),
        **{k: board(game, *v) for k, v in fields.items()},
    )
    return int(getattr(games.scripted_policies(game), policy)(KEY, state, jnp.int32(0)))


def test_a_cooperator_in_harvest_leaves_the_last_apples_of_a_patch():
    game = Harvest(layout=("AAAAA", "AAAAA", "P...P"), num_agents=2)
    places, looks = [(2, 0), (2, 4)], [UP, UP]
    few, many = [5, 6, 0], [5, 6, 0, 1]  # the apple ahead has two others near by, or three
    assert chosen(game, "defect", places, looks, apples=few) == FORWARD
    assert chosen(game, "cooperate", places, looks, apples=few) == STAY
    assert chosen(game, "cooperate", places, looks, apples=many) == FORWARD
    # It walks on no apple that it leaves, and on no other player.
    strip = Harvest(layout=("PAAAAA", "......", "....P."), num_agents=2, regrowth_radius=2)
    assert chosen(strip, "defect", [(0, 0), (2, 4)], looks, apples=[1, 2, 3, 4, 5]) == STEP_RIGHT
    assert chosen(strip, "cooperate", [(0, 0), (2, 4)], looks, apples=[1, 2, 3, 4, 5]) != STEP_RIGHT
    assert chosen(strip, "defect", [(0, 0), (0, 1)], looks, apples=[2]) != STEP_RIGHT


def test_a_cooperator_in_clean_up_cleans_while_little_grows():
    game = Cleanup(layout=("HHHHH", ".....", "P...P", "AAAAA"), num_agents=2)
    for direction, action in ((UP, CLEAN), (DOWN, TURN_RIGHT)):
        found = chosen(game, "cooperate", [(1, 2), (2, 4)], [direction, UP], waste=[0, 1, 2], apples=[17])
        assert found == action
    assert (
        chosen(game, "cooperate", [(2, 2), (2, 4)], [DOWN, UP], waste=[2], apples=[17]) == FORWARD
    )  # a fifth is waste
    assert chosen(game, "defect", [(2, 2), (2, 4)], [DOWN, UP], waste=[0, 1, 2], apples=[17]) == FORWARD


def test_miners_take_gold_that_is_near_to_all_or_iron():
    game = CoopMining(layout=("OO.OO", ".....", "P...P"), num_agents=2, beam_length=1)
    ores = {"iron": [0], "gold": [1, 4]}
    assert chosen(game, "defect", [(1, 0), (1, 1)], [UP, UP], **ores) == MINE
    # Gold at 1 is 2 + 1 steps away, and gold at 4 is 5 + 4.
    assert chosen(game, "cooperate", [(1, 0), (1, 1)], [UP, UP], **ores) == FORWARD
    assert chosen(game, "cooperate", [(1, 1), (1, 0)], [UP, UP], **ores) == MINE
    assert chosen(game, "cooperate", [(1, 1), (1, 0)], [UP, UP], iron=[1], gold=[]) == STAY


def test_policies_are_those_of_the_class_of_a_game_and_of_the_game_in_a_wrapper():
    harvest = games.make("harvest")
    wrapped = games.InequityAversion(harvest)
    state = wrapped.reset(KEY)[1]
    for name in ("cooperate", "defect"):
        one, other = (getattr(games.scripted_policies(game), name) for game in (harvest, wrapped))
        assert int(one(KEY, state.bare, 1)) == int(other(KEY, state, 1))

    class Mine(games.CoinGame):
        pass

    with pytest.raises(
        ValueError, match=r"^game: got Mine, which has no scripted policies; a game with them is needed$"
    ):
        games.scripted_policies(Mine())
    games.scripted_policies.register(Mine, lambda game: games.ScriptedPolicies(None, None, "mine"))
    assert games.scripted_policies(Mine()).meaning == "mine"
    with pytest.raises(ValueError, match=r"one of two actions each is needed$"):
        games.scripted_policies(games.make("rock_paper_scissors"))
