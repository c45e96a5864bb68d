"""Scripted policies: choices by hand in small states, and the interface for other games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games.suite.cleanup import CLEAN, Cleanup
from games.suite.coins import Coins
from games.suite.coop_mining import MINE, CoopMining
from games.suite.foraging import LOAD, Foraging
from games.suite.gift_refinement import CONSUME, GIVE, GiftRefinement
from games.suite.harvest import Harvest
from games.suite.mushrooms import Mushrooms
from games.suite.negotiation import Negotiation
from games.suite.territory import PAINT, Territory
from games.toolbox import boards
from games.toolbox.grid import BACK, BEAM, FORWARD, STAY, STEP_RIGHT, TURN_RIGHT

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


@pytest.mark.system
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


def choice(name, policy, **fields):
    """The action of the first player in a state, with the fields as they are."""
    game = games.make(*name) if isinstance(name, tuple) else name
    state = game.reset(KEY)[1].replace(**{field: jnp.asarray(value) for field, value in fields.items()})
    return np.asarray(getattr(games.scripted_policies(game), policy)(KEY, state, jnp.int32(0))).tolist()


def test_cooperators_leave_the_coins_of_others():
    game = Coins(layout=("CCC", "PPP"))
    coins = jnp.stack([board(game), board(game, 0)])  # one of the other's colour, ahead
    places = {"positions": [(1, 0), (1, 2)], "directions": [UP, UP]}
    assert choice(game, "cooperate", coins=coins, **places) == STAY
    assert choice(game, "defect", coins=coins, **places) == FORWARD
    torus = games.make("coin_game")
    state = {"players": (jnp.int32(0), jnp.int32(8)), "coins": (jnp.int32(-1), jnp.int32(1))}
    made = torus.reset(KEY)[1].replace(**state)
    policies = games.scripted_policies(torus)
    assert int(policies.defect(KEY, made, 0)) == 0  # right, onto the coin
    assert int(policies.cooperate(KEY, made, 0)) != 0
    below = made.replace(coins=(jnp.int32(1), jnp.int32(1)))  # both on one cell, where two that spared it would wait
    assert int(policies.cooperate(KEY, below, 0)) == 0


def test_eaters_of_mushrooms_choose_by_kind():
    game = Mushrooms(layout=("M.M", "P.P"), num_agents=2)
    lie = jnp.stack([board(game, 0), board(game), board(game, 2), board(game)])  # red above, blue two columns on
    places = {"positions": [(1, 0), (1, 2)], "directions": [UP, UP], "mushrooms": lie}
    assert choice(game, "defect", **places) == FORWARD
    assert choice(game, "cooperate", **places) == STEP_RIGHT


def test_givers_turn_to_others_and_keepers_consume():
    game = GiftRefinement(layout=("TTT", "PPP"), num_agents=2)
    places = {"positions": [(1, 0), (1, 1)], "directions": [UP, UP]}
    assert choice(game, "cooperate", held=[[1, 0, 0], [0, 0, 0]], **places) == TURN_RIGHT
    places["directions"] = [RIGHT, UP]
    assert choice(game, "cooperate", held=[[1, 0, 0], [0, 0, 0]], **places) == GIVE
    assert choice(game, "cooperate", held=[[0, 0, 2], [0, 0, 0]], **places) == CONSUME
    assert choice(game, "defect", held=[[1, 0, 0], [0, 0, 0]], **places) == CONSUME


def test_painters_leave_the_walls_of_others_or_paint_them_over():
    game = Territory(layout=("W..", "P.P"), num_agents=2)
    places = {"positions": [(1, 0), (1, 2)], "directions": [UP, UP]}
    bare, theirs = (jnp.stack([board(game), board(game, *lie)]) for lie in ((), (0,)))
    assert choice(game, "cooperate", painted=bare, **places) == PAINT
    assert choice(game, "cooperate", painted=theirs, **places) == STAY
    assert choice(game, "defect", painted=theirs, **places) == PAINT


def test_gatherers_collect_one_kind_and_meet_with_it():
    game = games.make("ipd_in_the_matrix")
    state = game.reset(KEY)[1]
    lie = jnp.stack([board(game, 1), board(game, 8)])  # of the first kind to the right, of the second below
    begun = {
        "positions": [(0, 0), (7, 7)],
        "directions": [UP, UP],
        "resources": lie,
        "held": jnp.zeros_like(state.held),
    }
    assert choice(game, "cooperate", **begun) == STEP_RIGHT
    assert choice(game, "defect", **begun) == BACK
    near = begun | {"positions": [(3, 3), (2, 3)], "held": state.held.at[:, 0, 0].set(1)}
    assert choice(game, "cooperate", **near) == BEAM
    aside = near | {"positions": [(3, 3), (2, 4)]}  # where a beam three cells wide gets, and one of a single cell not
    assert choice(game, "cooperate", **aside) == BEAM
    assert choice(game.replace(beam_radius=0), "cooperate", **aside) != BEAM


def test_foragers_lift_together_or_alone():
    game = Foraging(num_agents=2, grid_size=5, num_food=2)
    state = {"positions": [(1, 0), (4, 4)], "levels": [1, 2], "food": [(1, 1), (3, 3)], "food_levels": [3, 1]}
    assert choice(game, "cooperate", **state) == LOAD  # the food at (1, 1) is 1 + 6 steps away, the other 5 + 2
    assert choice(game, "defect", **state) != LOAD  # too large for one


def test_choices_in_games_without_a_grid():
    assert choice(("donation",), "cooperate") == 0
    assert choice(("donation",), "defect") == 1
    assert choice(("trust_and_split",), "cooperate", hands=[1, 0]) == [1, 10]
    assert choice(("trust_and_split",), "cooperate", hands=[0, 1]) == [0, 0]
    assert choice(("trust_and_split",), "defect", hands=[0, 1]) == [0, 10]
    assert choice(("rice_n",), "cooperate")[1] == pytest.approx(0.9)
    assert choice(("c_rice_n",), "cooperate")[-1] == 1
    assert choice(("fishery",), "cooperate") < choice(("fishery",), "defect")
    assert choice(("cournot",), "cooperate") < choice(("cournot",), "defect")
    with pytest.raises(ValueError, match="a club with a mediator"):
        games.scripted_policies(games.make("rice_n", club="mediated"))


@pytest.mark.system
def test_policies_are_those_of_the_class_of_a_game_and_of_the_game_in_a_wrapper():
    harvest = games.make("harvest")
    wrapped = games.InequityAversion(harvest)
    state = wrapped.reset(KEY)[1]
    for name in ("cooperate", "defect"):
        one, other = (getattr(games.scripted_policies(game), name) for game in (harvest, wrapped))
        assert int(one(KEY, state.bare, 1)) == int(other(KEY, state, 1))

    class Mine(Negotiation):
        pass

    with pytest.raises(
        ValueError, match=r"^game: got Mine, which has no scripted policies; a game with them is needed$"
    ):
        games.scripted_policies(Mine())
    games.scripted_policies.register(Mine, lambda game: games.ScriptedPolicies(None, None, "mine"))
    assert games.scripted_policies(Mine()).meaning == "mine"
    with pytest.raises(ValueError, match=r"one of two actions each is needed$"):
        games.scripted_policies(games.make("rock_paper_scissors"))
