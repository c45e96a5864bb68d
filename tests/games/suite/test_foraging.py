"""Level-based foraging: lifting food by levels, worked out by hand, and what is drawn at the reset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.foraging import Foraging
from tests.games.suite.grid_tools import KEY, first_state, play

STAY, UP, DOWN, LEFT, RIGHT, LOAD = range(6)
GAME = Foraging(num_agents=3, grid_size=5, sight=2, num_food=2, penalty=0.5)


def begin(positions, levels, food, food_levels):
    return first_state(GAME).replace(
        positions=jnp.array(positions),
        levels=jnp.array(levels),
        food=jnp.array(food),
        food_levels=jnp.array(food_levels),
        worth=jnp.asarray(sum(food_levels)),
    )


@pytest.mark.system
def test_food_is_shared_by_levels():
    state = begin([(1, 2), (3, 2), (2, 1)], [1, 2, 1], [(2, 2), (3, 4)], [3, 2])
    _, after, rewards, infos = play(GAME, state, LOAD, LOAD, STAY)
    assert rewards == pytest.approx([1 / 5, 2 / 5, 0], abs=1e-5)  # level 3 of 5, by 1 : 2
    np.testing.assert_allclose(infos["food"], [1, 2, 0], rtol=1e-6)
    assert after.food_levels.tolist() == [0, 2]
    _, _, rewards, _ = play(GAME.replace(normalize=False), state, LOAD, LOAD, LOAD)
    assert rewards == pytest.approx([0.75, 1.5, 0.75])


def test_too_few_levels_fail_and_pay_the_penalty():
    state = begin([(1, 2), (0, 0), (2, 1)], [1, 2, 1], [(2, 2), (3, 4)], [3, 2])
    _, after, rewards, infos = play(GAME, state, LOAD, LOAD, LOAD)
    assert rewards == [-0.5, 0, -0.5]  # one that is not beside food pays nothing
    assert infos["failed"] == [1, 0, 1]
    assert after.food_levels.tolist() == [3, 2]


def test_a_player_between_two_pieces_lifts_one():
    state = begin([(2, 2), (4, 4), (4, 0)], [2, 1, 1], [(2, 3), (1, 2)], [1, 1])
    _, after, rewards, _ = play(GAME, state, LOAD, STAY, STAY)
    assert after.food_levels.tolist() == [1, 0]  # the one above
    assert rewards == [0.5, 0, 0]


def test_food_blocks_until_it_is_gone_and_the_last_piece_ends_the_game():
    state = begin([(1, 2), (4, 4), (4, 0)], [2, 1, 1], [(2, 2), (1, 1)], [1, 0])
    _, after, *_ = play(GAME, state, DOWN, STAY, STAY)
    assert after.positions[0].tolist() == [1, 2]
    _, after, *_ = play(GAME, state, LEFT, STAY, STAY)
    assert after.positions[0].tolist() == [1, 1]  # nothing lies there any more
    actions = dict(zip(GAME.agents, (LOAD, STAY, STAY), strict=True))
    *_, dones, infos = GAME.step_env(KEY, state, {agent: jnp.int32(act) for agent, act in actions.items()})
    assert bool(dones["__all__"])
    assert not np.asarray(infos["truncated"]).any()


def test_the_four_moves():
    state = begin([(2, 2), (4, 4), (0, 0)], [1, 1, 1], [(1, 1), (3, 3)], [1, 1])
    for act, place in ((UP, [1, 2]), (DOWN, [3, 2]), (LEFT, [2, 1]), (RIGHT, [2, 3]), (STAY, [2, 2])):
        assert play(GAME, state, act, RIGHT, UP)[1].positions.tolist() == [place, [4, 4], [0, 0]]


@pytest.mark.system
def test_a_reset_draws_places_and_levels():
    game = Foraging(num_agents=3, grid_size=5, num_food=4, max_player_level=3, min_food_level=2, max_food_level=20)
    _, states = jax.vmap(game.reset)(jax.random.split(KEY, 2000))
    levels, food_levels = np.asarray(states.levels), np.asarray(states.food_levels)
    np.testing.assert_allclose(np.bincount(levels.ravel(), minlength=4)[1:] / levels.size, 1 / 3, atol=0.03)
    assert (food_levels <= levels.sum(1)[:, None]).all()  # all together can lift all
    assert food_levels.min() == 2
    food = np.asarray(states.food)
    assert food.min() == 1
    assert food.max() == 3  # none on the border
    places = np.concatenate([np.asarray(states.positions), food], 1)
    cells = np.sort(places[..., 0] * 5 + places[..., 1], 1)
    assert (np.diff(cells, axis=1) > 0).all()  # all different


def test_four_players_can_lift_every_piece():
    game = Foraging(num_agents=6, max_player_level=3, min_food_level=20, max_food_level=20)
    _, states = jax.vmap(game.reset)(jax.random.split(KEY, 50))
    four = np.sort(states.levels, 1)[:, -4:].sum(1)
    np.testing.assert_array_equal(states.food_levels, np.broadcast_to(four[:, None], states.food_levels.shape))


def test_the_view_is_about_the_player():
    state = begin([(0, 0), (1, 1), (4, 4)], [1, 2, 1], [(2, 1), (3, 3)], [3, 2])
    seen = np.asarray(GAME.get_obs(state)["agent_0"])
    assert seen[4, 3].tolist() == [1, 0, 0, 0.5]  # food of the highest level, two down, one right
    assert seen[3, 3].tolist() == [0, 1, 0, 0.5]
    assert seen[:2, :, 2].min() == 1  # beyond the border
    assert seen[2:, 2:, 2].max() == 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_food": 37}, "num_food: got 37"),
        ({"min_food_level": 4}, "min_food_level: got 4"),
        ({"num_agents": 61}, "num_agents: got 61"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        Foraging(**params)
