"""Invariants of all gridworlds: one player on a cell, none in a wall, and nothing left of a thing that is gone.

Many players on small maps act at random for thousands of steps, so that they crowd, zap, return and collide.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import rollout
from games.suite.cleanup import Cleanup
from games.suite.coins import Coins
from games.suite.coop_mining import CoopMining
from games.suite.foraging import Foraging
from games.suite.gift_refinement import GiftRefinement
from games.suite.harvest import Harvest
from games.suite.in_the_matrix import ipd_in_the_matrix
from games.suite.mushrooms import Mushrooms
from games.suite.territory import Territory
from games.toolbox import boards
from tests.games.suite.grid_tools import BACK, BEAM, FORWARD, LEFT, RIGHT, STAY, UP, begin, play
from tests.nightly import grid

CROWD = {"num_agents": 7, "view_size": 3}
SMALL = {
    "harvest": Harvest(layout=("A.A#P", "PPPPP", "AP#A."), zap_steps=3, **CROWD),
    "cleanup": Cleanup(layout=("HRHRH", "PPPPP", "P#A.P", "AAAAA"), zap_steps=2, growth=0.5, depletion=0.9, **CROWD),
    "coop_mining": CoopMining(layout=("OOO#O", "PPPPP", "OPOPO"), iron_growth=0.05, gold_growth=0.1, **CROWD),
    "mushrooms": Mushrooms(layout=("RGB#O", "PPPPP", "MPMPM"), zap_steps=3, digestion=(1, 2, 3, 0), **CROWD),
    "gift_refinement": GiftRefinement(layout=("TTT#T", "PPPPP", "TPTPT"), growth=0.1, capacity=3, **CROWD),
    "territory": Territory(layout=("W..#W", "PPPPP", ".PWP."), dry_steps=2, player_hits=3, **CROWD),
    "coins": Coins(layout=("CCC#C", "PPPPP", "CPCPC"), growth=0.1, **CROWD),
    "foraging": Foraging(num_agents=7, grid_size=5, num_food=3, sight=1),
    "ipd_in_the_matrix": ipd_in_the_matrix(num_agents=7, grid_size=6, num_resources=3, view_size=3, freeze_steps=2),
}
STEPS, GAMES = 500, 8


# Players that are zapped away and return, and those that are gone for good.
@pytest.fixture(scope="module", params=grid(SMALL, "harvest", "territory"))
def played(request):
    """(game, states `[STEPS * GAMES, ...]`, those before them, observations of the latter) of random play."""
    game = SMALL[request.param].replace(episode_length=100)
    run = jax.jit(jax.vmap(lambda key: rollout(key, game, STEPS)))
    found = run(jax.random.split(jax.random.key(1), GAMES))
    flat = lambda tree: jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), tree)  # noqa: E731
    return request.param, game, flat(found.states), flat(found.observations)


def _present(game, states):
    if hasattr(states, "away"):
        return states.away == 0
    if hasattr(states, "hits"):
        return states.hits < game.player_hits
    return np.ones(states.positions.shape[:2], bool)


def _lie(game, words):
    """Boards as booleans `[..., cells]`."""
    bits = words[..., None] >> np.arange(32, dtype=np.uint32) & 1
    return bits.astype(bool).reshape(*words.shape[:-1], -1)[..., : game.grid.num_cells]


@pytest.mark.system
def test_no_two_players_share_a_cell_and_none_is_in_a_wall(played):
    _, game, states, _ = played
    present, cells = _present(game, states), np.asarray(game.grid.cell(states.positions))
    apart = np.where(present, cells, -1 - np.arange(cells.shape[1]))
    assert all(len(set(row)) == len(row) for row in apart.tolist())
    assert states.positions.min() >= 0
    assert (states.positions < [game.grid.rows, game.grid.columns]).all()
    walls = np.array([letter == "#" for row in game.grid.layout for letter in row])
    assert not walls[cells[present]].any()
    if present.size != present.sum():
        assert 0 < present.mean() < 1  # some were away and came back, or are gone


def test_nothing_outlives_what_it_belongs_to(played):
    name, game, states, _ = played
    cells, present = np.asarray(game.grid.cell(states.positions)), _present(game, states)
    under = np.zeros((len(cells), game.grid.num_cells), bool)
    for i in range(game.num_agents):
        under[np.arange(len(cells))[present[:, i]], cells[present[:, i], i]] = True
    boards_of = {field: _lie(game, words) for field, words in vars(states).items() if words.dtype == np.uint32}
    sites = {letter: _lie(game, game.grid.board(letter)) for letter in "AHROGBMTWPC#"}
    if name in ("harvest", "cleanup"):
        assert not (boards_of["apples"] & (under | ~sites["A"])).any()
    if name == "cleanup":
        assert not (boards_of["waste"] & ~(sites["H"] | sites["R"])).any()
    if name == "coop_mining":
        iron, gold = boards_of["iron"], boards_of["gold"]
        assert not (iron & gold).any()
        assert not ((iron | gold) & ~sites["O"]).any()
        assert not (boards_of["miners"] & ~gold[:, None]).any()
        running = boards_of["running"].any(1)
        np.testing.assert_array_equal(running, boards_of["miners"].any(1))  # gold has a window while some mine it
    if name == "mushrooms":
        assert boards_of["mushrooms"].sum(1).max() == 1  # of one kind on a site
        assert not (boards_of["mushrooms"].any(1) & under).any()
        assert not states.digests[~present].any()
        assert (boards_of["mushrooms"].sum(-1) <= game.limits).all()
    if name == "gift_refinement":
        assert states.held.min() >= 0
        assert states.held.max() <= game.capacity
        assert not (boards_of["tokens"] & ~(sites["T"] | sites["P"])).any()
    if name == "territory":
        walls, painted = boards_of["walls"], boards_of["painted"]
        assert painted.sum(1).max() == 1  # in one colour
        assert not (painted.any(1) & ~walls).any()
        assert not (boards_of["cracked"] & ~walls).any()
        assert not (boards_of["age"].any(1) & ~painted.any(1)).any()
        assert not (under & walls).any()
    if name == "coins":
        assert boards_of["coins"].sum(1).max() == 1
        assert not (boards_of["coins"].any(1) & under).any()
    if name == "foraging":
        lies = np.where(states.food_levels > 0, np.asarray(game.grid.cell(states.food)), -1)
        assert not any(set(row) & set(food) for row, food in zip(cells.tolist(), lies.tolist(), strict=True))
    if name == "ipd_in_the_matrix":
        number = _lie(game, states.resources).sum((1, 2)) + _lie(game, states.held).sum((1, 2, 3))
        assert (number == 6).all()


def test_observations_follow_from_the_state_and_hide_nothing_of_those_that_are_away(played):
    _, game, states, obs = played
    some = slice(0, 200)
    seen = jax.vmap(game.get_obs)(jax.tree.map(lambda x: jnp.asarray(x[some]), states))
    present = _present(game, states)[some]
    goes_on = np.flatnonzero(np.diff(states.time[some]) == 1)  # no game began between this state and the next
    assert len(goes_on) > 50
    for i, agent in enumerate(game.agents):
        assert obs[agent].min() >= 0
        assert obs[agent].max() <= 1
        np.testing.assert_array_equal(obs[agent][goes_on + 1], np.asarray(seen[agent])[goes_on])
        assert not np.asarray(seen[agent])[~present[:, i]].any()


def test_exchanging_two_players_in_the_state_exchanges_what_they_see(played):
    name, game, states, _ = played
    n = game.num_agents
    order = np.array([1, 0, *range(2, n)])

    def exchange(field, x):
        if name == "ipd_in_the_matrix" and field == "partner":
            return order[x][:, order]
        by_player = (
            x.ndim > 1 and x.shape[1] == n and field not in ("food", "food_levels", "running", "resources", "age")
        )
        return x[:, order] if by_player else x

    some = {field: x[:100] for field, x in vars(states).items()}
    plain, exchanged = (
        jax.vmap(game.get_obs)(type(states)(**{field: jnp.asarray(x) for field, x in fields.items()}))
        for fields in (some, {field: exchange(field, x) for field, x in some.items()})
    )
    for i, j in enumerate(order):
        np.testing.assert_array_equal(plain[game.agents[j]], exchanged[game.agents[i]])


@pytest.mark.parametrize("name", ["harvest", "cleanup", "mushrooms"])
def test_a_player_that_is_away_blocks_no_cell_and_returns_to_a_free_one(name):
    game = SMALL[name].replace(num_agents=2, zap_steps=2)
    state = begin(game, [(1, 0), (1, 1)], [RIGHT, UP])
    _, state, _, infos = play(game, state, BEAM, STAY)
    assert infos["away"] == [0, 1]
    _, state, *_ = play(game, state, FORWARD, STAY)
    assert state.positions[0].tolist() == [1, 1]
    for i in range(20):
        _, after, _, infos = play(game, state, STAY, BACK, key=jax.random.key(i))
        assert infos["away"] == [0, 0]
        assert after.positions[1].tolist() != [1, 1]


def test_a_player_does_not_enter_a_cell_that_another_leaves():
    game = SMALL["coins"].replace(num_agents=2)
    state = begin(game, [(1, 0), (1, 1)], [RIGHT, RIGHT])
    _, state, *_ = play(game, state, FORWARD, FORWARD)
    assert state.positions.tolist() == [[1, 0], [1, 2]]
    state = begin(game, [(1, 0), (1, 1)], [RIGHT, LEFT])
    _, state, *_ = play(game, state, FORWARD, FORWARD)
    assert state.positions.tolist() == [[1, 0], [1, 1]]  # nor do two exchange their cells


def test_a_random_one_gets_a_cell_that_several_want():
    cells, wants = jnp.array([3, 5, 3, 3, 5, 7]), jnp.array([1, 1, 1, 0, 1, 0], bool)
    kept = np.stack([boards.one_each(cells, wants, [jnp.uint32(i), jnp.uint32(2)], 0) for i in range(40)])
    assert {tuple(row) for row in kept[:, [0, 2]].tolist()} == {(True, False), (False, True)}
    assert {tuple(row) for row in kept[:, [1, 4]].tolist()} == {(True, False), (False, True)}
    assert not kept[:, [3, 5]].any()
