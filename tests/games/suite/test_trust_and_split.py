"""Trust-and-Split: hands, talk and splits, worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import rollout
from games.suite.trust_and_split import TrustAndSplit
from tests.games.suite.grid_tools import KEY, first_state

ROCK, PAPER, SCISSORS = range(3)
GAME = TrustAndSplit()
_step = jax.jit(lambda game, key, state, actions: game.step_env(key, state, actions))


def begin(game=GAME, hands=(PAPER, ROCK), starter=0):
    return first_state(game).replace(hands=jnp.array(hands), starter=jnp.int32(starter))


def play(state, first, second, game=GAME, key=KEY):
    actions = {"agent_0": jnp.array(first), "agent_1": jnp.array(second)}
    obs, state, rewards, dones, infos = _step(game, key, state, actions)
    seen = [np.asarray(obs[agent]) for agent in game.agents]
    return seen, state, [float(x) for x in rewards.values()], dones, infos


def claim(first, second, hands=(PAPER, ROCK)):
    state = begin(hands=hands)
    for _ in range(2):
        _, state, rewards, _, _ = play(state, (0, 10), (0, 10))
        assert rewards == [0, 0]  # nothing is split while they talk
    return play(state, (0, first), (0, second))


@pytest.mark.parametrize(
    ("first", "second", "paid", "efficiency"),
    [
        (10, 0, [100, 0], 1.0),
        (10, 10, [50, 5], 0.55),  # both claim all and get a half
        (6, 9, [40, 6], 0.46),
        (3, 4, [30, 4], 0.34),  # coins that no player claims are lost
        (0, 0, [0, 0], 0.0),
    ],
)
def test_coins_are_split_in_proportion_and_are_worth_more_to_the_winner(first, second, paid, efficiency):
    *_, rewards, _, infos = claim(first, second)
    assert rewards == pytest.approx(paid)
    assert infos["efficiency"].tolist() == pytest.approx([efficiency] * 2)
    assert claim(second, first, hands=(ROCK, PAPER))[2] == pytest.approx(paid[::-1])  # the seats are alike


@pytest.mark.parametrize(("winner", "loser"), [(PAPER, ROCK), (SCISSORS, PAPER), (ROCK, SCISSORS)])
def test_each_hand_beats_one(winner, loser):
    assert claim(10, 0, hands=(winner, loser))[2] == [100, 0]
    assert claim(10, 0, hands=(loser, winner))[2] == [10, 0]


def test_one_speaks_then_the_other_and_both_hear():
    state = begin(starter=1)
    obs = GAME.get_obs(state)
    kinds = [np.asarray(obs[agent])[:3].tolist() for agent in GAME.agents]
    assert kinds == [[0, 1, 0], [1, 0, 0]]
    seen, state, *_, infos = play(state, (2, 0), (1, 0))  # what agent_0 says is not heard
    assert infos["speaking"].tolist() == [0, 1]
    assert infos["truth"].tolist() == [0, 0]
    assert state.messages.tolist() == [-1, 1]
    assert seen[0][6:12].tolist() == [0, 0, 0, 0, 1, 0]
    assert seen[0][:3].tolist() == [1, 0, 0]
    seen, state, *_, infos = play(state, (1, 0), (2, 0))
    assert infos["truth"].tolist() == [1, 0]  # paper it is
    assert seen[1][6:12].tolist() == [0, 1, 0, 0, 1, 0]
    assert seen[1][:3].tolist() == [0, 0, 1]


def test_the_next_round_begins_with_the_other_and_shows_the_last_one():
    seen, state, *_ = claim(7, 9)
    assert seen[0][12:].tolist() == pytest.approx([0, 1, 0, 1, 0, 0, 0.7, 0.9, 1])
    assert seen[1][12:].tolist() == pytest.approx([1, 0, 0, 0, 1, 0, 0.9, 0.7, 1])
    assert seen[0][:3].tolist() == [0, 1, 0]  # agent_0 began the first round
    assert state.messages.tolist() == [-1, -1]


def test_both_speak_at_once_where_the_game_says_so():
    game = TrustAndSplit(speakers="both", talks=2)
    assert game.steps == 3
    state = begin(game)
    for _ in range(2):
        *_, infos = play(state, (1, 0), (0, 0), game)
        _, state, *_ = play(state, (1, 0), (0, 0), game)
        assert infos["speaking"].tolist() == [1, 1]
    assert state.messages.tolist() == [1, 0]
    assert play(state, (0, 10), (0, 0), game)[2] == [100, 0]
    silent = TrustAndSplit(talks=0)
    assert play(begin(silent), (0, 10), (0, 0), silent)[2] == [100, 0]


def test_hands_differ_and_are_dealt_alike():
    hands = np.asarray(jax.vmap(GAME.reset)(jax.random.split(KEY, 3000))[1].hands)
    assert (hands[:, 0] != hands[:, 1]).all()
    np.testing.assert_allclose(
        np.bincount(hands[:, 0] * 3 + hands[:, 1], minlength=9)[[1, 2, 3, 5, 6, 7]] / 3000, 1 / 6, atol=0.03
    )


def test_truth_and_honour_pay_more_than_greed_in_the_long_run():
    """A round pays 100 where the loser leaves all to the winner, and 55 where both claim all."""

    def honest(key, obs):
        actions = {}
        for agent in GAME.agents:
            own, heard = obs[agent][3:6], obs[agent][9:12]
            wins = (jnp.argmax(own) - jnp.argmax(heard)) % 3 == 1
            actions[agent] = jnp.stack([jnp.argmax(own), jnp.where(wins, 10, 0)])
        return actions

    def greedy(key, obs):
        return dict.fromkeys(GAME.agents, jnp.array([0, 10]))

    steps = 3 * 200
    paid = {
        act.__name__: np.asarray(list(rollout(KEY, GAME, steps, act).rewards.values())).sum(1) / 200
        for act in (honest, greedy)
    }
    assert paid["honest"].sum() == pytest.approx(100)
    assert paid["greedy"].sum() == pytest.approx(55)
    assert paid["honest"].min() > paid["greedy"].max()
