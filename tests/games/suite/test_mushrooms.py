"""Mushrooms: what each kind pays and to which players, what grows, and how long an eater digests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.mushrooms import Mushrooms
from games.toolbox import boards
from tests.games.suite.grid_tools import BEAM, FORWARD, KEY, LEFT, RIGHT, STAY, UP, begin, board, cells, play

NOTHING = np.zeros((4, 4), np.float32)
GAME = Mushrooms(layout=("MMMM", "MMMM", "PPPP"), num_agents=3, view_size=3, beam_radius=0, growth=NOTHING)
PLACES, LOOK = [(1, 0), (1, 3), (2, 2)], [UP, UP, UP]


def mushrooms(**lie):
    return jnp.stack([board(GAME, *lie.get(kind, ())) for kind in ("red", "green", "blue", "orange")])


@pytest.mark.parametrize(
    ("kind", "paid", "steps"),
    [("red", [1, 0, 0], 10), ("green", [2 / 3] * 3, 15), ("blue", [0, 1.5, 1.5], 20), ("orange", [-0.2] * 3, 0)],
)
def test_a_mushroom_pays_by_its_kind_and_is_digested(kind, paid, steps):
    state = begin(GAME, PLACES, LOOK, mushrooms=mushrooms(**{kind: [(0, 0)]}))
    _, state, rewards, infos = play(GAME, state, FORWARD, STAY, STAY)
    assert rewards == pytest.approx(paid, abs=1e-5)
    assert infos[kind] == [1, 0, 0]
    assert not boards.union(state.mushrooms).any()
    assert state.digests.tolist() == [steps, 0, 0]
    for i in range(steps):  # the eater stays where it is, whatever it does
        _, state, *_ = play(GAME, state, FORWARD + i % 2, STAY, STAY)
        assert state.positions[0].tolist() == [0, 0]
    _, state, *_ = play(GAME, state, FORWARD + 1, STAY, STAY)
    assert state.positions[0].tolist() == [1, 0]


def test_others_see_that_a_player_digests():
    state = begin(GAME, [(1, 0), (1, 1), (2, 2)], [UP, LEFT, UP], digests=jnp.array([3, 0, 0]))
    obs = GAME.get_obs(state)
    assert np.asarray(obs["agent_1"])[0, 1, 9] == 1
    assert np.asarray(obs["agent_0"])[..., 9].sum() == 0


@pytest.mark.system
def test_spores_grow_with_their_probabilities_on_free_sites():
    growth = np.array([[0.5, 0.25, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], np.float32)
    game = GAME.replace(growth=growth)
    state = begin(game, PLACES, LOOK, mushrooms=mushrooms(red=[(0, 0)], blue=[(0, 1)]))
    acts = dict(zip(game.agents, (FORWARD, STAY, STAY), strict=True))
    step = jax.jit(jax.vmap(lambda key: game.step_env(key, state, acts)[1]))  # one program
    after = step(jax.random.split(KEY, 4000)).mushrooms
    grown = np.asarray(boards.count(after))
    # Two spores of each kind on 8 - 3 free sites: two red ones fall onto the same with probability 1/5.
    assert grown[:, 0].mean() == pytest.approx(2 * 0.5 - 0.5**2 / 5, abs=0.03)
    free = np.stack([boards.cells(words, 12) for words in np.asarray(after[:, 0])])
    assert set(np.flatnonzero(free.any(0))) == {2, 3, 4, 5, 6} - {7}
    assert free.sum(0)[[2, 3, 4, 5, 6]].std() / free.sum(0)[2] < 0.1
    assert grown[:, 2].tolist() == [1] * 4000
    assert grown[:, 3].max() == 0


def test_no_kind_exceeds_its_limit():
    always = np.ones((4, 4), np.float32)
    game = GAME.replace(growth=always, limits=(2, 0, 1, 1))
    state = begin(game, PLACES, LOOK, mushrooms=mushrooms(red=[(0, 0), (1, 1)]))
    for i in range(20):
        _, after, *_ = play(game, state, FORWARD, STAY, STAY, key=jax.random.key(i))
        number = boards.count(after.mushrooms).tolist()
        assert all(have <= most for have, most in zip(number, game.limits, strict=True))
        assert number[1] == 0
        assert len(cells(game, boards.union(after.mushrooms))) == sum(number)  # one mushroom on a site


def test_a_player_that_is_zapped_stops_digesting():
    state = begin(GAME, [(1, 0), (1, 1), (2, 2)], [RIGHT, UP, UP], digests=jnp.array([0, 9, 0]))
    _, state, _, infos = play(GAME, state, BEAM, STAY, STAY)
    assert infos["zapped"] == [0, 1, 0]
    assert state.digests.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"spores": (1, 2, 3)}, "spores: got .*; four integers from 0 to 8"),
        ({"limits": (1, 2, 3, -1)}, "limits: got .*; four integers"),
        ({"growth": [[0.5] * 4] * 3}, r"growth: got shape \(3, 4\)"),
        ({"growth": [[1.5] * 4] * 4}, "growth: got .*; a number in"),
        ({"num_agents": 1}, "num_agents: got 1"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        Mushrooms(**params)
