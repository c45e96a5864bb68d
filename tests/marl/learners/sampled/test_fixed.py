"""Fixed strategies of sampled games: cooperators and defectors, in rounds and in the coin game."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import CoinGame, make
from games.suite.coin_game import CoinState
from marl import learn, make_learner
from tests.nightly import grid

RIGHT, LEFT, DOWN, UP, STAY = range(5)


@cache
def actor(name, seat=0, **settings):
    """(player's and coins' cells, own first) -> the actions that it draws with a hundred keys."""
    game = CoinGame(num_coins=2, **settings)
    learner = make_learner(name, game, seat)

    def act(players, coins):
        cells = [tuple(jnp.int32(cell) for cell in (two[::-1] if seat else two)) for two in (players, coins)]
        seen = game.get_obs(CoinState(*cells, jnp.int32(0)))[game.agents[seat]]
        keys = jax.random.split(jax.random.key(0), 100)
        return jax.vmap(lambda key: learner.act(key, (), (), seen[None])[0][0])(keys)

    compiled = jax.jit(act)
    return lambda own, other, mine, theirs: set(np.asarray(compiled((own, other), (mine, theirs))).tolist())


# Cells of the 5 x 5 torus are numbered row by row; the player stands on 12, in the middle.
@pytest.mark.parametrize(
    ("mine", "theirs", "cooperates", "defects"),
    [
        (13, 2, {RIGHT}, {RIGHT}),  # its own is beside it
        (10, 13, {LEFT}, {RIGHT}),  # two steps to its own, one to the other's
        (14, 13, {LEFT}, {RIGHT}),  # two steps lead over the other's, three go around the torus
        (18, 24, {RIGHT, DOWN}, {RIGHT, DOWN}),  # two ways of one length
        (18, 13, {DOWN}, {RIGHT}),  # one of them leads over the other's
        (2, 22, {UP}, {UP, DOWN}),
        (7, 7, {UP}, {UP}),  # both coins on one cell are taken together
        (12, 11, {STAY}, {STAY, LEFT}),  # it stands on its own: staying takes it
        (-1, 13, {LEFT, DOWN, UP, STAY}, {RIGHT}),  # nothing is its own
    ],
)
def test_the_way_to_the_next_coin(mine, theirs, cooperates, defects):
    for settings in ({}, {"centered": True}, {"egocentric": False}):
        for seat in (0, 1):
            for name, expected in (("always_cooperate", cooperates), ("always_defect", defects)):
                act = actor(name, seat, grid_size=5, stay=True, **settings)
                assert act(12, 0, mine, theirs) == expected, (name, seat, settings)


@pytest.fixture(scope="module")
def played():
    """(row, column, coins) -> own and the other's coins that each takes in a step, and the mean rewards."""

    @cache
    def play(row, column, num_coins):
        game = make("coin_game", num_coins=num_coins)
        learners = [make_learner(name, game, seat) for seat, name in enumerate((row, column))]
        history = learn(jax.random.key(1), game, learners, num_updates=10, steps_per_update=16, num_envs=16)
        own, other = (np.asarray(history.infos[name]).mean(0) for name in ("own_coin", "other_coin"))
        return own, other, [float(reward.mean()) for reward in history.rewards]

    return play


@pytest.mark.system
@pytest.mark.parametrize("num_coins", grid((1, 2), 2))
def test_cooperators_take_their_own_coins_and_defectors_any(played, num_coins):
    own, other, rewards = played("always_cooperate", "always_cooperate", num_coins)
    if num_coins == 1:
        assert not other.any()
    else:  # of all coins, those that lie on one cell with an own one, 1 in 9 of the draws
        assert np.all((other > 0) & (other < own / 4))
    np.testing.assert_allclose(rewards, own + other - 2 * other[::-1], atol=1e-6)
    own, other, rewards = played("always_defect", "always_defect", num_coins)
    assert np.all(abs(own - other) < 0.05)  # as many of both colours
    np.testing.assert_allclose(rewards, own + other - 2 * other[::-1], atol=1e-6)
    assert max(map(abs, rewards)) < 0.1  # gains of both make up for losses
    own, other, rewards = played("always_cooperate", "always_defect", num_coins)
    assert other[0] < other[1] / 2
    assert num_coins == 2 or not other[0]
    assert rewards[0] < 0 < rewards[1]


def test_cooperators_do_not_wait_for_each_other_where_both_coins_lie_on_one_cell():
    """In one long episode of two coins they take as many late as early."""
    game = make("coin_game", num_coins=2, episode_length=200)
    learners = [make_learner("always_cooperate", game, seat) for seat in (0, 1)]
    history = learn(jax.random.key(0), game, learners, num_updates=8, steps_per_update=25, num_envs=32)
    own = np.asarray(history.infos["own_coin"], float).mean(-1)
    np.testing.assert_allclose(own[1:], own[1:].mean(), atol=0.06)
    assert own.min() > 0.5


def test_random_actions_are_uniform():
    """Actions in a box are uniform between its bounds, also in one environment without an axis."""
    game = make("cournot")
    learner = make_learner("random", game)
    obs = jnp.zeros((4000, *game.observation_space("agent_0").shape))
    drawn = np.asarray(learner.act(jax.random.key(0), (), (), obs)[0])
    low, high = float(game.action_space("agent_0").low), float(game.action_space("agent_0").high)
    assert drawn.shape == (4000, 1)
    spread = (high - low) / 12**0.5
    assert drawn.mean() == pytest.approx((low + high) / 2, abs=4.5 * spread / 4000**0.5)
    assert drawn.std() == pytest.approx(spread, rel=0.05)
    assert low <= drawn.min() < drawn.max() <= high
    rounds = make("ipd", episode_length=5)
    players = [make_learner("random", rounds, seat) for seat in (0, 1)]
    history = learn(jax.random.key(0), rounds, players, num_updates=400, steps_per_update=5)
    assert float(history.infos["cooperation"].mean()) == pytest.approx(0.5, abs=4.5 * 0.5 / 4000**0.5)


def test_fixed_strategies_play_one_action_in_rounds():
    game = make("ipd", episode_length=5)
    for row, column, payoffs in (
        ("always_cooperate", "always_cooperate", (-1, -1)),
        ("always_cooperate", "always_defect", (-3, 0)),
        ("always_defect", "always_defect", (-2, -2)),
    ):
        learners = [make_learner(name, game, seat) for seat, name in enumerate((row, column))]
        history = learn(jax.random.key(0), game, learners, num_updates=2, steps_per_update=5, num_envs=2)
        assert [float(reward.mean()) for reward in history.rewards] == list(payoffs)


def test_games_without_two_such_actions_are_refused_in_one_line():
    for name in ("rock_paper_scissors", "ipd_in_the_matrix", "cournot"):
        with pytest.raises(ValueError, match=r"learner: always_defect: got .*; rounds of a game with two actions"):
            make_learner("always_defect", make(name))
