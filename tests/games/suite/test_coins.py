"""Coins on a wide grid: what a coin pays and costs, and where coins of which colour appear."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.coins import Coins
from games.toolbox import boards
from tests.games.suite.grid_tools import FORWARD, KEY, STAY, UP, begin, board, play
from tests.nightly import grid

GAME = Coins(layout=("CCC", "CCC", "PPP"), num_agents=2, view_size=3, growth=0.0)


@pytest.mark.system
@pytest.mark.parametrize(("color", "paid", "own"), [(0, [1, 0], [1, 0]), (1, [1, -2], [0, 0])])
def test_a_coin_pays_its_taker_and_costs_its_owner(color, paid, own):
    coins = jnp.stack([board(GAME, *([(0, 0)] if color == i else [])) for i in range(2)])
    state = begin(GAME, [(1, 0), (1, 2)], [UP, UP], coins=coins)
    obs = GAME.get_obs(state)
    assert np.asarray(obs["agent_0"])[0, 1, :2].tolist() == [1 - color, color]
    _, state, rewards, infos = play(GAME, state, FORWARD, STAY)
    assert rewards == paid
    assert infos["own_coins"] == own
    assert infos["coins"] == [1, 0]
    assert not state.coins.any()


def test_two_that_take_each_others_coins_lose_one_each():
    coins = jnp.stack([board(GAME, (0, 2)), board(GAME, (0, 0))])
    state = begin(GAME, [(1, 0), (1, 2)], [UP, UP], coins=coins)
    assert play(GAME, state, FORWARD, FORWARD)[2] == [-1, -1]


@pytest.mark.system
@pytest.mark.parametrize("num_agents", grid((2, 3), 2))
def test_coins_appear_on_free_cells_in_all_colours_alike(num_agents):
    game = GAME.replace(growth=0.3, num_agents=num_agents)
    coins = jnp.stack([board(game, (0, 0))] + [board(game)] * (num_agents - 1))
    state = begin(game, [(1, 1), (2, 2), (2, 0)][:num_agents], [UP] * num_agents, coins=coins)
    acts = dict.fromkeys(game.agents, STAY)
    step = jax.jit(jax.vmap(lambda key: game.step_env(key, state, acts)[1]))
    after = step(jax.random.split(KEY, 6000)).coins
    lie = np.stack([[boards.cells(words, 9) for words in colors] for colors in np.asarray(after)]).mean(0)
    np.testing.assert_allclose(lie[1:, 3], 0.3 / num_agents, atol=0.02)  # a free cell
    assert lie[:, 3].sum() == pytest.approx(0.3, abs=0.02)
    assert lie[0, 0] == 1  # the coin that lay there
    assert lie[1:, 0].max() == 0
    assert lie[:, 4].max() == 0  # under a player
    assert lie.sum(0).max() <= 1
