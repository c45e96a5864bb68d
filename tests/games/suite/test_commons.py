"""Harvest and clean-up: steps worked out by hand, growth, and invariants in random play."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import rollout
from games.suite.cleanup import CLEAN, Cleanup
from games.suite.harvest import Harvest
from games.toolbox import boards
from tests.games.suite.grid_tools import DOWN, KEY, LEFT, RIGHT, UP, begin

STAY, FORWARD, BACK, STEP_LEFT, STEP_RIGHT, TURN_LEFT, TURN_RIGHT, ZAP = range(8)

# Two players on a strip of five columns; apples grow in the upper row. Certain to grow where one is near by.
STRIP = ("AAAAA", ".....", "P...P")
HARVEST = Harvest(
    layout=STRIP, num_agents=2, view_size=3, regrowth=(0.0, 1.0, 1.0, 1.0), regrowth_radius=1, zap_steps=3
)
RIVER = ("HRHRH", ".....", "P...P", "AAAAA")
CLEANUP = Cleanup(layout=RIVER, num_agents=2, view_size=3, growth=1.0, waste_probability=0.0, zap_steps=3)
step = jax.jit(lambda game, state, first, second: game.step_env(KEY, state, {"agent_0": first, "agent_1": second}))


def board(*cells, size=15):
    lie = np.zeros(size, bool)
    lie[list(cells)] = True
    return jnp.asarray(boards.constant(lie))


def cells(board, size=20):
    return set(np.flatnonzero(boards.cells(board, size)).tolist())


def paid(rewards):
    return [float(rewards[agent]) for agent in ("agent_0", "agent_1")]


@pytest.mark.system
def test_an_apple_is_eaten_and_no_other_is_near_enough_to_bring_it_back():
    before = begin(HARVEST, [(1, 0), (2, 4)], [UP, UP], apples=board(0))
    _, after, rewards, _, infos = step(HARVEST, before, FORWARD, STAY)
    assert paid(rewards) == [1, 0]
    np.testing.assert_array_equal(infos["apples"], [1, 0])
    assert cells(after.apples) == set()
    for _ in range(5):
        _, after, rewards, _, _ = step(HARVEST, after, BACK, STAY)
        assert cells(after.apples) == set()
        assert paid(rewards) == [0, 0]


def test_apples_grow_next_to_apples_but_not_under_a_player():
    before = begin(HARVEST, [(1, 3), (0, 1)], [LEFT, UP], apples=board(2))
    _, after, *_ = step(HARVEST, before, STAY, STAY)
    assert cells(after.apples) == {2, 3}  # at 1 stands player 1
    _, after, *_ = step(HARVEST, after, STAY, STAY)
    assert cells(after.apples) == {2, 3, 4}


def test_the_probability_of_regrowth_depends_on_the_apples_near_by():
    game = Harvest(layout=("AAAAA", "AAAAA", "P...P"), num_agents=2, view_size=3, regrowth_radius=1)
    game = game.replace(regrowth=(0.0, 0.1, 0.4, 0.8))
    before = begin(game, [(2, 0), (2, 4)], [UP, UP], apples=board(0, 2, 3, 6, 8))
    many = jax.jit(jax.vmap(lambda key: game.step_env(key, before, {"agent_0": STAY, "agent_1": STAY})[1].apples))
    grown = boards_of(many(jax.random.split(KEY, 4000)))
    # Site 1 has 0, 2 and 6 beside it; 4 has 3; 5 has 0 and 6; 7 has 2, 6 and 8; 9 has 8.
    for site, probability in ((1, 0.8), (4, 0.1), (5, 0.4), (7, 0.8), (9, 0.1)):
        assert grown[:, site].mean() == pytest.approx(
            probability, abs=4.5 * (probability * (1 - probability) / 4000) ** 0.5
        )
    assert grown[:, [0, 2, 3, 6, 8]].all()


def boards_of(words):
    return np.stack([boards.cells(word, 10) for word in np.asarray(words)])


def test_a_zapped_player_is_away_for_some_steps_and_sees_nothing():
    before = begin(HARVEST, [(1, 0), (1, 2)], [RIGHT, UP], apples=board(4))
    obs, after, rewards, _, infos = step(HARVEST, before, ZAP, STAY)
    np.testing.assert_array_equal(infos["zaps"], [1, 0])
    np.testing.assert_array_equal(infos["zapped"], [0, 1])
    assert paid(rewards) == [0, 0]
    for _ in range(2):
        assert not obs["agent_1"].any()
        assert obs["agent_0"].any()
        obs, after, _, _, infos = step(HARVEST, after, STAY, FORWARD)
        np.testing.assert_array_equal(infos["away"], [0, 1])
    obs, after, _, _, infos = step(HARVEST, after, STAY, FORWARD)
    np.testing.assert_array_equal(infos["away"], [0, 0])
    assert tuple(after.positions[1].tolist()) in {(2, 0), (2, 4)}  # where players start
    assert obs["agent_1"].any()


def test_fines_are_for_firing_and_for_being_hit():
    game = HARVEST.replace(zap_steps=0, zap_cost=1.0, zap_penalty=50.0)
    before = begin(HARVEST, [(1, 0), (1, 2)], [RIGHT, LEFT], apples=board())
    _, after, rewards, _, infos = step(game, before, ZAP, ZAP)
    assert paid(rewards) == [-51, -51]
    assert not infos["away"].any()
    np.testing.assert_array_equal(after.positions, [(1, 0), (1, 2)])


def test_a_beam_does_not_pass_a_wall():
    walled = Harvest(layout=("AA#AA", "..#..", "P.#.P"), num_agents=2, view_size=3)
    before = begin(walled, [(1, 1), (1, 3)], [RIGHT, LEFT])
    _, after, _, _, infos = step(walled, before, ZAP, FORWARD)
    assert not infos["zapped"].any()
    np.testing.assert_array_equal(after.positions, [(1, 1), (1, 3)])  # nor does a player


def test_the_view_of_the_commons_by_hand():
    before = begin(HARVEST, [(1, 1), (0, 2)], [UP, LEFT], apples=board(0, 1, 4))
    obs = np.asarray(jax.jit(HARVEST.get_obs)(before)["agent_0"])
    # Three wide, itself at row 1, column 1: the row ahead is the upper row of the strip.
    np.testing.assert_array_equal(obs[..., 0], [[1, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert not obs[..., 1].any()
    np.testing.assert_array_equal(np.argwhere(obs[..., 2:]), [[0, 2, 3]])  # one ahead on the right, looking left


def test_each_lane_of_the_cleaning_beam_removes_the_first_waste():
    game = Cleanup(layout=("HHH", "HHH", "RRR", "P.P", "AAA"), num_agents=2, view_size=3, waste_probability=0.0)
    before = begin(game, [(3, 1), (3, 2)], [UP, DOWN], waste=board(0, 1, 2, 3, 5))
    _, after, rewards, _, infos = step(game, before, CLEAN, STAY)
    assert cells(after.waste) == {0, 2}  # 3 and 5 in the outer lanes, and 1 behind the clean 4 in the middle
    np.testing.assert_array_equal(infos["cleaned"], [3, 0])
    np.testing.assert_allclose(infos["waste"], 2 / 9)
    assert paid(rewards) == [0, 0]


@pytest.mark.parametrize(
    ("waste", "apples"),
    [((0, 1), set()), ((0, 1, 2, 3, 4), set()), ((), {15, 16, 17, 18, 19})],  # 0.4 of the river is too much
)
def test_apples_grow_only_while_the_river_is_clean(waste, apples):
    before = begin(CLEANUP, [(1, 0), (1, 4)], [UP, UP], waste=board(*waste, size=20))
    _, after, *_ = step(CLEANUP, before, STAY, STAY)
    assert cells(after.apples) == apples
    assert cells(after.waste) == set(waste)


def test_waste_falls_on_one_clean_cell_of_the_river_at_a_time():
    dirty = CLEANUP.replace(waste_probability=1.0)
    after = begin(dirty, [(1, 0), (1, 4)], [UP, UP], waste=board(0, size=20))
    for number in range(2, 6):
        _, after, *_ = step(dirty, after, STAY, STAY)
        assert len(cells(after.waste)) == number
        assert cells(after.waste) <= set(range(5))
    _, after, *_ = step(dirty, after, STAY, STAY)
    assert cells(after.waste) == set(range(5))  # there is no clean cell any more


@pytest.mark.system
@pytest.mark.parametrize("game", [Harvest(num_agents=3, zap_steps=4), Cleanup(num_agents=3, zap_steps=4, growth=0.5)])
def test_invariants_hold_in_random_play(game):
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, 120)))(jax.random.split(jax.random.key(1), 3))
    rewards = np.stack([played.rewards[agent] for agent in game.agents], -1)
    np.testing.assert_array_equal(rewards, played.infos["apples"])  # no reward without an apple
    positions, away = np.asarray(played.states.positions), np.asarray(played.infos["away"])
    rows, columns = len(game.layout), len(game.layout[0])
    assert positions.min() >= 0
    assert (positions < [rows, columns]).all()
    places = positions[..., 0] * columns + positions[..., 1]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        together = (places[..., i] == places[..., j]) & (away[..., i] == 0) & (away[..., j] == 0)
        assert not together.any()
    assert np.asarray(played.infos["zapped"]).any()
    apples = np.asarray(played.states.apples)
    assert not (apples & ~boards.constant([[letter == "A" for letter in row] for row in game.layout])).any()


@pytest.mark.parametrize(
    ("game", "params", "message"),
    [
        (Harvest, {"layout": ()}, "layout: got"),
        (Harvest, {"layout": ("A.A",)}, r"layout: got .*; a cell P, where players begin, is needed"),
        (Harvest, {"layout": ("A.P", "A")}, "layout"),
        (Harvest, {"layout": ("A.X",)}, "layout"),
        (Harvest, {"num_agents": 99}, "num_agents: got 99; a whole number from 1 to"),
        (Harvest, {"regrowth": (0.1, 0.2)}, "regrowth: got .0.1, 0.2."),
        (Harvest, {"regrowth": (0, 1, 2, 3)}, "regrowth: got"),
        (Cleanup, {"layout": ("A.P", "..P"), "num_agents": 1}, "layout: .*river"),
        (Cleanup, {"depletion": 0.0}, "depletion: got 0.0"),
        (Cleanup, {"waste_probability": 1.5}, "waste_probability: got 1.5"),
        (Cleanup, {"view_size": 2}, "view_size"),
    ],
)
def test_impossible_commons_are_refused(game, params, message):
    with pytest.raises(ValueError, match=message):
        game(**params)


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.37, 1.0])
def test_cells_of_a_random_board_are_drawn_with_their_probability_and_independently(probability):
    many = jax.jit(jax.vmap(lambda key: boards.bernoulli(jax.random.bits(key, (2,), "uint32"), 7, 2, probability)[0]))
    drawn = np.stack([boards.cells(word, 64) for word in np.asarray(many(jax.random.split(KEY, 2000)))]).astype(float)
    variance = probability * (1 - probability)
    assert drawn.mean() == pytest.approx(probability, abs=5 * (variance / drawn.size) ** 0.5 + 1e-12)
    if variance:
        sums = drawn.sum(1)  # of 64 independent cells
        assert sums.var() == pytest.approx(64 * variance, rel=0.2)
