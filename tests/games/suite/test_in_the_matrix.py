"""In the matrix: meetings and views worked out by hand, and invariants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games import registry, rollout
from games.exact.matrix import stag_hunt
from games.suite.in_the_matrix import InTheMatrix, in_the_matrix
from games.toolbox import boards

GAME = games.make("ipd_in_the_matrix")
STAY, FORWARD, BACK, STEP_LEFT, STEP_RIGHT, TURN_LEFT, TURN_RIGHT, INTERACT = range(8)
UP, RIGHT, DOWN, LEFT = range(4)
step_env = jax.jit(lambda game, key, state, actions: game.step_env(key, state, actions))
get_obs = jax.jit(GAME.get_obs)
_, EMPTY = jax.jit(GAME.reset)(jax.random.key(0))


def board(*cells):
    lie = np.zeros(64, bool)
    lie[[8 * row + column for row, column in cells]] = True
    return jnp.asarray(boards.constant(lie))


def state(positions, directions, resources=((), ()), held=(((), ()), ((), ()))):
    return EMPTY.replace(
        positions=jnp.array(positions),
        directions=jnp.array(directions),
        resources=jnp.stack([board(*cells) for cells in resources]),
        held=jnp.stack([jnp.stack([board(*cells) for cells in kinds]) for kinds in held]),
    )


def play(before, first, second, seed=0, game=GAME):
    actions = {"agent_0": first, "agent_1": second}
    obs, after, rewards, _, infos = step_env(game, jax.random.key(seed), before, actions)
    return obs, after, [float(rewards["agent_0"]), float(rewards["agent_1"])], infos


def cells(board):
    return set(np.flatnonzero(boards.cells(board, 64)).tolist())


@pytest.mark.parametrize(
    ("action", "direction", "place", "turned"),
    [
        (FORWARD, UP, (2, 3), UP),
        (BACK, UP, (4, 3), UP),
        (STEP_LEFT, UP, (3, 2), UP),
        (STEP_RIGHT, UP, (3, 4), UP),
        (FORWARD, RIGHT, (3, 4), RIGHT),
        (STEP_RIGHT, RIGHT, (4, 3), RIGHT),
        (BACK, LEFT, (3, 4), LEFT),
        (TURN_LEFT, UP, (3, 3), LEFT),
        (TURN_RIGHT, LEFT, (3, 3), UP),
        (STAY, DOWN, (3, 3), DOWN),
    ],
)
def test_steps_and_turns(action, direction, place, turned):
    _, after, *_ = play(state([(3, 3), (7, 7)], [direction, UP]), action, STAY)
    assert tuple(after.positions[0].tolist()) == place
    assert int(after.directions[0]) == turned


def test_walls_and_players_stop_a_step_and_one_of_two_gets_a_cell():
    _, after, *_ = play(state([(0, 3), (0, 4)], [UP, LEFT]), FORWARD, FORWARD)
    np.testing.assert_array_equal(after.positions, [(0, 3), (0, 4)])
    winners = set()
    for seed in range(12):
        _, after, *_ = play(state([(3, 3), (3, 5)], [RIGHT, LEFT]), FORWARD, FORWARD, seed)
        moved = [tuple(p) == (3, 4) for p in after.positions.tolist()]
        assert sum(moved) == 1
        winners.add(moved.index(True))
    assert winners == {0, 1}


def test_a_resource_is_collected_by_walking_onto_it():
    _, after, rewards, infos = play(state([(3, 3), (7, 7)], [RIGHT, UP], [[(0, 0)], [(3, 4), (6, 6)]]), FORWARD, STAY)
    assert cells(after.resources[1]) == {8 * 6 + 6}
    assert cells(after.held[0, 1]) == {8 * 3 + 4}
    np.testing.assert_array_equal(infos["resource_1"], [1, 0])
    np.testing.assert_array_equal(infos["resource_0"], [0, 0])
    assert rewards == [0, 0]


HELD = [[[(0, 0), (0, 1), (0, 2)], [(0, 3)]], [[(1, 0)], [(1, 1)]]]  # three quarters, and one half, of cooperation


def test_a_meeting_pays_the_mixed_strategies_by_hand():
    _, after, rewards, infos = play(state([(3, 3), (3, 5)], [RIGHT, UP], held=HELD), INTERACT, STAY)
    # R, S, T, P = 3, 0, 5, 1: 3/8 (3 + 0) + 1/8 (5 + 1), and 3/8 (3 + 5) + 1/8 (0 + 1).
    assert rewards == pytest.approx([1.875, 3.125])
    np.testing.assert_array_equal(infos["interactions"], [1, 1])
    np.testing.assert_allclose(infos["cooperation"], [0.75, 0.5])
    np.testing.assert_array_equal(after.freeze, [5, 5])


def test_an_asymmetric_game_has_a_row_and_a_column_player():
    game = games.make("imp_in_the_matrix", freeze_steps=3)
    held = [[[(0, 0)], []], [[], [(1, 1)]]]
    _, after, rewards, _ = play(state([(3, 3), (3, 5)], [RIGHT, UP], held=held), INTERACT, STAY, game=game)
    table = games.matching_pennies
    assert rewards == [table.row[0][1], table.column[0][1]]
    np.testing.assert_array_equal(after.freeze, [3, 3])


@pytest.mark.parametrize(
    ("positions", "directions", "held"),
    [
        ([(3, 3), (3, 5)], [LEFT, UP], HELD),  # looks away
        ([(3, 3), (3, 7)], [RIGHT, UP], HELD),  # too far for a beam of three
        ([(3, 3), (5, 5)], [RIGHT, UP], HELD),  # beside a beam of three lanes
        ([(3, 3), (3, 5)], [RIGHT, UP], [HELD[0], [[], []]]),  # the other holds nothing
    ],
)
def test_no_meeting_and_no_reward(positions, directions, held):
    _, after, rewards, infos = play(state(positions, directions, held=held), INTERACT, STAY)
    assert rewards == [0, 0]
    assert not infos["interactions"].any()
    assert not after.freeze.any()


def test_after_the_freeze_resources_lie_again_where_they_lay():
    before = state([(3, 3), (3, 5)], [RIGHT, UP], [[(7, 7)], []], HELD)
    _, after, *_ = play(before, INTERACT, STAY)
    for _ in range(4):
        _, after, rewards, _ = play(after, FORWARD, INTERACT)  # frozen players do nothing
        np.testing.assert_array_equal(after.positions, [(3, 3), (3, 5)])
        assert cells(after.held[0, 0]) == {0, 1, 2}
        assert rewards == [0, 0]
    _, after, *_ = play(after, STAY, STAY)
    assert cells(after.resources[0]) == {0, 1, 2, 8, 63}
    assert cells(after.resources[1]) == {3, 9}
    assert not after.held.any()
    own = [8 * row + column for row, column in after.positions.tolist()]
    assert not set(own) & {0, 1, 2, 3, 8, 9, 63}


def test_the_view_is_turned_with_its_player():
    # Agent 0 at (3, 3) looks right, so that right is up for it; the view is five wide, itself at row 3, column 2.
    before = state([(3, 3), (2, 4)], [RIGHT, UP], [[(3, 5)], [(4, 3)]], HELD)
    obs = np.asarray(get_obs(before)["agent_0"])

    def where(channel):
        return {tuple(place) for place in np.argwhere(obs[..., channel]).tolist()}

    assert where(0) == {(1, 2)}  # two ahead
    assert where(1) == {(3, 3)}  # to its right, which is down on the grid
    assert where(2) == set()  # no wall
    # The other stands one ahead and one to the left, and looks up, which is left in this view.
    assert [where(channel) for channel in (3, 4, 5, 6)] == [set(), set(), set(), {(2, 1)}]
    assert where(7) == {(2, 1)}  # and it holds something
    np.testing.assert_allclose(obs[0, 0, 8:], [3 / 6, 1 / 6, 0, 0])
    # The upper left corner sees walls: two columns to the left, three rows ahead.
    walls = np.asarray(get_obs(state([(0, 0), (7, 7)], [UP, UP]))["agent_0"])[..., 2]
    np.testing.assert_array_equal(walls, [[1] * 5] * 3 + [[1, 1, 0, 0, 0]] * 2)


@pytest.mark.system
def test_swapping_the_seats_swaps_observations_and_rewards():
    played = jax.jit(jax.vmap(lambda key: rollout(key, GAME, 200)))(jax.random.split(jax.random.key(1), 4))
    flip = {name: (lambda x: x[:, ::-1]) for name in ("positions", "directions", "held", "freeze", "fired")}
    states = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), played.states)
    states = states.replace(freeze=jnp.zeros_like(states.freeze), partner=jnp.tile(jnp.array([1, 0]), (800, 1)))
    swapped = states.replace(**{name: turn(getattr(states, name)) for name, turn in flip.items()})
    acts = {agent: jnp.where(jnp.arange(800) % 2, INTERACT, x.reshape(-1)) for agent, x in played.actions.items()}
    many = jax.jit(jax.vmap(GAME.step_env))
    keys = jax.random.split(jax.random.key(2), 800)
    _, after, rewards, _, _ = many(keys, states, acts)
    obs, other_after, other, _, _ = many(keys, swapped, {"agent_0": acts["agent_1"], "agent_1": acts["agent_0"]})
    same = (after.positions == other_after.positions[:, ::-1]).all((1, 2))  # except where a random draw decided
    assert same.mean() > 0.9
    np.testing.assert_array_equal(rewards["agent_0"][same], other["agent_1"][same])
    first = jax.jit(jax.vmap(GAME.get_obs))(after)["agent_0"]
    facing = same & (after.directions == other_after.directions[:, ::-1]).all(1)
    np.testing.assert_array_equal(first[facing], obs["agent_1"][facing])
    assert (np.asarray(rewards["agent_0"])[same] != 0).sum() > 3


@pytest.mark.system
@pytest.mark.parametrize("game", [GAME, InTheMatrix(num_agents=4, grid_size=6, num_resources=3, freeze_steps=2)])
def test_random_play_conserves_resources(game):
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, 150)))(jax.random.split(jax.random.key(3), 4))
    states, n = played.states, game.num_agents
    on_grid = np.asarray(boards.count(states.resources))
    held = np.asarray(boards.count(states.held))
    assert (on_grid + held.sum(-2) == game.num_resources).all()
    positions = np.asarray(states.positions)
    assert positions.min() >= 0
    assert positions.max() < game.grid_size
    places = np.sort(positions[..., 0] * game.grid_size + positions[..., 1], -1)
    assert (np.diff(places, axis=-1) > 0).all()
    rewards = np.stack([played.rewards[agent] for agent in game.agents], -1)
    met = np.asarray(played.infos["interactions"])
    assert met.sum() > 4
    assert (met.sum(-1) % 2 == 0).all()
    assert (rewards[met == 0] == 0).all()
    assert rewards.min() >= 0
    assert rewards.max() <= 5
    assert (np.asarray(states.freeze)[met == 1] == game.freeze_steps).all()
    assert n == rewards.shape[-1]


def test_no_possible_pair_is_left_unmatched():
    """A matching of five players is maximal: each meets at most one other, and no possible pair stays free."""
    keys = jax.random.split(jax.random.key(8), 500)
    drawn = np.asarray(jax.vmap(lambda key: jax.random.bernoulli(key, 0.4, (5, 5)))(keys))
    possible = (drawn | drawn.transpose(0, 2, 1)) & ~np.eye(5, dtype=bool)
    seeds = jax.vmap(lambda key: jax.random.bits(key, (2,)))(keys)
    matched = np.asarray(jax.vmap(lambda pairs, seed: GAME._match(pairs, list(seed), 5))(possible, seeds))
    assert (matched == matched.transpose(0, 2, 1)).all()
    assert (matched <= possible).all()
    assert matched.sum(2).max() == 1
    free = ~matched.any(2)
    assert not (possible & free[:, :, None] & free[:, None]).any()
    assert (matched.sum((1, 2)) == 4).any()


def test_payoffs_come_from_any_table():
    game = in_the_matrix(stag_hunt)
    np.testing.assert_array_equal(game.payoffs[..., 0], stag_hunt.row)
    assert games.make("rock_paper_scissors_in_the_matrix").num_kinds == 3
    for name in registry.ours():
        if name.endswith("in_the_matrix"):  # of which some have payoffs that are made by a factory
            assert games.make(name, payoffs=np.ones((4, 4, 2))).num_kinds == 4


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"grid_size": 0}, "grid_size: got 0"),
        ({"grid_size": 3}, "grid_size: got 3; 16 cells are needed"),
        ({"view_size": 4}, "view_size"),
        ({"payoffs": [[1, 2], [3, 4]]}, r"payoffs: got shape \(2, 2\)"),
        ({"payoffs": 5}, r"payoffs: got shape \(\)"),
        ({"payoffs": np.ones((27, 27, 2)), "num_resources": 1}, r"payoffs: got shape \(27, 27, 2\); .* K of 2 to 26"),
        ({"num_agents": 1}, "num_agents: got 1"),
        ({"freeze_steps": 0}, "freeze_steps: got 0"),
    ],
)
def test_impossible_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        InTheMatrix(**params)
