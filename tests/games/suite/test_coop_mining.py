"""Cooperative mining: ores for one and for several, worked out by hand, and against a plain implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import rollout
from games.suite.coop_mining import CoopMining, _at_least
from games.toolbox import boards
from tests.games.suite.grid_tools import KEY, LEFT, UP, begin

STAY, FORWARD, TURN_LEFT, MINE = 0, 1, 5, 7
GAME = CoopMining(layout=("O.O", "...", "PPP"), num_agents=3, view_size=3, iron_growth=0.0, gold_growth=0.0)
step = jax.jit(lambda game, key, state, actions: game.step_env(key, state, actions))


def board(*cells, size=9):
    lie = np.zeros(size, bool)
    lie[list(cells)] = True
    return jnp.asarray(boards.constant(lie))


def play(game, state, *acts, key=KEY):
    obs, state, rewards, _, infos = step(game, key, state, {f"agent_{i}": jnp.int32(a) for i, a in enumerate(acts)})
    return obs, state, [float(rewards[agent]) for agent in game.agents], infos


def cells(words):
    return set(np.flatnonzero(boards.cells(words, 9)).tolist())


def test_iron_pays_the_one_that_mines_it_first():
    state = begin(GAME, [(2, 0), (1, 0), (2, 2)], [UP, UP, LEFT], iron=board(0, 2))
    obs, after, paid, infos = play(GAME, state, MINE, STAY, STAY)
    assert paid == [1, 0, 0]  # two cells ahead, past a player
    assert cells(after.iron) == {2}
    np.testing.assert_array_equal(infos["iron"], [1, 0, 0])
    winners = {tuple(play(GAME, state, MINE, MINE, STAY, key=jax.random.key(i))[2]) for i in range(20)}
    assert winners == {(1, 0, 0), (0, 1, 0)}  # a random one of two
    np.testing.assert_array_equal(np.asarray(obs["agent_1"])[..., 0], 0)  # it is gone


def test_gold_pays_all_that_mine_it_within_the_window():
    state = begin(GAME, [(1, 0), (0, 1), (2, 0)], [UP, LEFT, UP], gold=board(0))
    obs, one, paid, _ = play(GAME, state, MINE, STAY, STAY)
    assert paid == [0, 0, 0]
    assert cells(one.gold) == {0}
    assert np.asarray(obs["agent_0"])[..., 2].sum() == 1  # it glows
    _, again, paid, _ = play(GAME, one, MINE, STAY, STAY)
    assert paid == [0, 0, 0]  # the same player again is no second one
    _, done, paid, infos = play(GAME, again, STAY, MINE, STAY)
    assert paid == [8, 8, 0]  # the third step of the window
    assert cells(done.gold) == set()
    assert not done.miners.any()
    np.testing.assert_array_equal(infos["gold"], [1, 1, 0])
    _, _, paid, _ = play(GAME, state, MINE, MINE, MINE)
    assert paid == [8, 8, 8]


def test_a_window_ends_and_nothing_of_it_is_left():
    state = begin(GAME, [(1, 0), (0, 1), (2, 0)], [UP, LEFT, UP], gold=board(0))
    _, state, *_ = play(GAME, state, MINE, STAY, STAY)
    for _ in range(2):
        assert state.miners.any()
        _, state, *_ = play(GAME, state, STAY, STAY, STAY)
    assert not state.miners.any()
    assert not state.running.any()
    _, state, paid, _ = play(GAME, state, STAY, MINE, STAY)
    assert paid == [0, 0, 0]
    assert cells(state.gold) == {0}


def test_too_many_miners_get_nothing():
    game = CoopMining(layout=GAME.layout, num_agents=3, view_size=3, max_miners=2, iron_growth=0.0, gold_growth=0.0)
    state = begin(game, [(1, 0), (0, 1), (2, 0)], [UP, LEFT, UP], gold=board(0))
    _, after, paid, _ = play(game, state, MINE, MINE, MINE)
    assert paid == [0, 0, 0]
    assert cells(after.gold) == {0}
    assert not after.miners.any()
    _, _, paid, _ = play(game, after, MINE, MINE, STAY)
    assert paid == [8, 8, 0]


def test_ores_appear_on_free_sites_with_their_probabilities():
    game = GAME.replace(iron_growth=0.3, gold_growth=0.5)
    state = begin(game, [(0, 0), (1, 1), (2, 2)], [UP, UP, UP])
    stay = {agent: jnp.int32(STAY) for agent in game.agents}
    many = jax.jit(jax.vmap(lambda key: game.step_env(key, state, stay)[1]))(jax.random.split(KEY, 4000))
    iron, gold = (
        np.stack([boards.cells(word, 9) for word in np.asarray(words)]).mean(0) for words in (many.iron, many.gold)
    )
    assert iron[2] == pytest.approx(0.3, abs=0.03)
    assert gold[2] == pytest.approx(0.7 * 0.5, abs=0.035)
    assert iron[[0, 1, 3, 4, 5, 6, 7, 8]].max() == 0  # under a player, and where no site is
    assert gold[[0, 1, 3, 4, 5, 6, 7, 8]].max() == 0


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_cells_on_several_boards_are_counted(number):
    members = jax.random.bits(KEY, (4, 2), jnp.uint32)
    lie = np.stack([boards.cells(words, 64) for words in np.asarray(members)])
    np.testing.assert_array_equal(boards.cells(_at_least(members, number), 64), lie.sum(0) >= number)


@pytest.mark.system
def test_random_play_pays_for_ores_that_are_there():
    game = CoopMining(iron_growth=0.002, gold_growth=0.1, window=8)
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, 300)))(jax.random.split(KEY, 8))
    rewards = np.stack([played.rewards[agent] for agent in game.agents], -1)
    infos = {name: np.asarray(values) for name, values in played.infos.items()}
    np.testing.assert_allclose(rewards, infos["iron"] + 8 * infos["gold"])
    assert infos["iron"].sum() > 0
    assert infos["gold"].sum() > 0
    paid = infos["gold"].sum(-1)
    assert set(np.unique(paid)) <= {0, 2, 3, 4, 5, 6, 7, 8}  # never one alone
    assert not (np.asarray(played.states.iron) & np.asarray(played.states.gold)).any()
    assert not (np.asarray(played.states.miners) & ~np.asarray(played.states.gold)[..., None, :]).any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"min_miners": 0}, "min_miners: got 0"),
        ({"min_miners": 3, "max_miners": 2}, "max_miners: got 2"),
        ({"window": 0}, "window: got 0"),
        ({"iron_growth": 2.0}, "iron_growth: got 2.0"),
        ({"layout": ("O.O",)}, "a cell P, where players begin"),
    ],
)
def test_impossible_mines_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        CoopMining(**params)
