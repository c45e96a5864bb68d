"""The coin game with drawn policies: the bare game between agents, and where the policies walk and what they leave."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from marl import learn
from marl.experiments.reproduce.coin_pool import MOVES, CoinPool, taker, walk
from marl.experiments.reproduce.in_context_games import DILEMMAS, LEARNERS, MIXED

ENVS, STEPS = 32, 20
COINS = DILEMMAS["coin_game"]


@pytest.fixture(scope="module")
def played():
    """Play of agents that take every coin with each other, and of one that takes all and one that leaves the other's.

    The second is with policies that are certain: they leave all coins of the first agent, and none of the second.
    """

    def play(share, probabilities):
        pool = CoinPool(share, episode_length=STEPS)

        class Certain(CoinPool):
            def reset(self, key):
                obs, state = super().reset(key)
                leaves = jnp.asarray(probabilities, bool)
                return obs, state.replace(policies=jnp.tile(leaves[:, None], 3).astype(jnp.float32), leaves=leaves)

        game = Certain(pool.share, pool.sharpness, pool.episode_length)
        players = [taker(False), taker(share > 0)]
        return learn(
            jax.random.key(0),
            game,
            players,
            num_updates=1,
            steps_per_update=STEPS,
            num_envs=ENVS,
            keep_trajectories=True,
        )

    return {share: jax.jit(play, static_argnums=(0, 1))(share, (True, False)) for share in (0.0, 1.0)}


def cells(x):
    """The cells in observations, `[..., 4]`: one's own, the other's, one's own coin, the other's; -1 for none."""
    there = np.asarray(x).reshape(*x.shape[:-1], 4, 9)
    return np.where(there.any(-1), there.argmax(-1), -1)


@pytest.mark.system
def test_with_each_other_it_is_the_bare_game(played):
    first, second = played[0.0].trajectories
    np.testing.assert_array_equal(cells(first.obs)[..., [1, 0, 3, 2]], cells(second.obs))
    seen, after = cells(first.obs[0]), cells(first.next_obs[0])
    own = [after[..., i] == seen[..., 2 + i] for i in (0, 1)]
    others = [after[..., i] == seen[..., 3 - i] for i in (0, 1)]
    for i, played_by in enumerate((first, second)):
        np.testing.assert_array_equal(played_by.reward[0], 1.0 * own[i] + others[i] - 2.0 * others[1 - i])
        share, weight = COINS.cooperates(jax.tree.map(lambda x: x[0], played_by))
        np.testing.assert_array_equal(share, own[i])
        np.testing.assert_array_equal(weight, own[i] + others[i])
    moved = (np.asarray(after[..., 0]) - seen[..., 0]) != 0
    assert moved.all()
    assert others[0].any()
    assert own[1].any()


def test_certain_policies_leave_all_coins_of_one_agent_and_none_of_the_other(played):
    first, second = played[1.0].trajectories
    lost = [cells(one.next_obs[0])[..., 1] == cells(one.obs[0])[..., 2] for one in (first, second)]
    assert not lost[0].any()  # the policy leaves its coins
    assert lost[1].any()
    taken = COINS.cooperates(jax.tree.map(lambda x: x[0], second))
    np.testing.assert_array_equal(*taken)  # the second agent takes its own coins alone
    assert float(first.reward.mean()) > 0.5 > 0 > float(second.reward.mean())


def test_walks_are_the_shortest_on_the_torus_or_lead_around_the_coin():
    def place(cell, move):
        return (cell // 3 + MOVES[move][0]) % 3 * 3 + (cell % 3 + MOVES[move][1]) % 3

    def steps(one, other):
        return (one // 3 != other // 3) + (one % 3 != other % 3)

    many = jax.jit(jax.vmap(walk, (0, None, None, None, None)))
    drawn = jax.random.uniform(jax.random.key(0), (64, 4))
    for cell, coin in itertools.permutations(range(9), 2):
        towards = [steps(place(cell, move), coin) for move in range(4)]
        best = {move for move in range(4) if towards[move] == min(towards)}
        for own, others, leaves in ((coin, -1, True), (-1, coin, False)):
            assert set(np.asarray(many(drawn, cell, own, others, leaves)).tolist()) == best
        around = {move for move in range(4) if place(cell, move) != coin}
        assert set(np.asarray(many(drawn, cell, -1, coin, True)).tolist()) == around


def test_policies_answer_the_coin_that_was_taken_last():
    game = CoinPool(share=1.0)
    _, state = game.reset(jax.random.key(3))
    state = state.replace(policies=jnp.tile(jnp.array([0.0, 1.0, 0.0]), (2, 1)), leaves=jnp.zeros(2, bool))
    step = jax.jit(game.step)
    seen = set()
    for i in range(45):  # less than an episode
        drawn = jax.random.uniform(jax.random.key(i), (2, 4))
        boards = state.boards
        actions = {
            agent: walk(drawn[j], boards[j].players[0], *boards[j].coins, j == 0) for j, agent in enumerate(game.agents)
        }
        before = state
        _, state, _, _, infos = step(jax.random.key(i), state, actions)
        for j in (0, 1):
            last = 1 if infos["own_coin"][j] else 2 if infos["other_coin"][j] else int(before.last[j])
            assert int(state.last[j]) == last
            if boards[j].coins[0] != state.boards[j].coins[0]:
                assert bool(state.leaves[j]) == (last == 1)
                seen.add((j, last))
    assert {(0, 1), (1, 1), (1, 2)} <= seen  # the first agent takes its own alone


@pytest.mark.parametrize("pool", [MIXED, LEARNERS])
def test_drawn_play_is_play_of_the_game(pool):
    game = COINS.make(pool, STEPS, 3.0)
    played = jax.jit(lambda key: COINS.drawn_play(key, game, pool, STEPS, ENVS))(jax.random.key(0))
    seen, after = cells(played.obs), cells(played.next_obs)
    np.testing.assert_array_equal(seen[1:], after[:-1])
    moves = np.asarray(MOVES)[np.asarray(played.action)]
    cell = seen[..., 0]
    np.testing.assert_array_equal(after[..., 0], (cell // 3 + moves[..., 0]) % 3 * 3 + (cell % 3 + moves[..., 1]) % 3)
    own, taken = COINS.cooperates(played)
    rate = float(taken.mean())
    assert rate > 0.25 if pool == MIXED else 0.05 < rate < 0.25
    assert isinstance(game.observation_space("agent_0"), games.Box)
    assert 0.4 < float(own.sum() / taken.sum()) < 1.0
