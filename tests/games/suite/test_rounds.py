"""The sampled repeated games against hand-worked rounds and against the exact payoffs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import games
from games import RepeatedGame, SocialDilemma, discounted_payoffs, matrix_games, prisoners_dilemma, repeated
from games.suite.rounds import rock_paper_scissors, three_player_ipd
from games.suite.social_dilemmas import n_player_stag_hunt, public_goods, volunteers_dilemma

KEY = jax.random.key(0)


def play(game, *rounds):
    """Plays rounds from a reset; (obs, rewards, infos) after the last."""
    _, state = game.reset(KEY)
    for actions in rounds:
        named = dict(zip(game.agents, actions, strict=True))
        obs, state, rewards, _, infos = game.step_env(KEY, state, named)
    return obs, [float(rewards[agent]) for agent in game.agents], infos


def seen(game, *rounds):
    """The states in which the agents see the rounds, by the entry of their observation that is set."""
    obs, *_ = play(game, *rounds)
    return [np.flatnonzero(obs[agent]).tolist() for agent in game.agents]


@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize(
    ("actions", "states", "paid", "names"),
    [
        ((0, 0), [1, 1], [-1, -1], ("CC", "CC")),
        ((0, 1), [2, 3], [-3, 0], ("CD", "DC")),
        ((1, 0), [3, 2], [0, -3], ("DC", "CD")),
        ((1, 1), [4, 4], [-2, -2], ("DD", "DD")),
    ],
)
def test_a_round_of_the_prisoners_dilemma_by_hand(actions, states, paid, names):
    game = games.make("ipd")
    obs, rewards, infos = play(game, actions)
    assert rewards == paid
    for i, agent in enumerate(game.agents):
        np.testing.assert_array_equal(obs[agent], np.eye(5)[states[i]])
        assert {name for name in ("CC", "CD", "DC", "DD") if infos[name][i]} == {names[i]}
        assert infos["cooperation"][i] == (actions[i] == 0)


@pytest.mark.parametrize("name", list(matrix_games))
def test_presets_pay_what_their_tables_say(name):
    table = matrix_games[name]
    game = repeated(table)
    for i, j in itertools.product(range(2), repeat=2):
        assert play(game, (i, j))[1] == [table.row[i][j], table.column[i][j]]


def test_memory_shows_the_last_rounds_newest_first():
    game = games.make("ipd", memory=3)
    obs, _ = game.reset(KEY)
    np.testing.assert_array_equal(obs["agent_0"].reshape(3, 5), np.eye(5)[[0, 0, 0]])
    assert seen(game, (0, 1), (1, 1)) == [[4, 5 + 2, 10 + 0], [4, 5 + 3, 10 + 0]]
    assert seen(game, (0, 1), (1, 1), (0, 0), (1, 0)) == [[3, 5 + 1, 10 + 4], [2, 5 + 1, 10 + 4]]


def test_rock_paper_scissors():
    game = rock_paper_scissors()
    assert play(game, (1, 0))[1] == [1, -1]  # paper covers rock
    assert play(game, (2, 1))[1] == [1, -1]  # scissors cut paper
    assert play(game, (0, 2))[1] == [1, -1]  # rock blunts scissors
    assert float(play(game, (0, 2))[2]["RS"][0]) == 1
    for action in range(3):
        assert play(game, (action, action))[1] == [0, 0]


def test_players_may_have_different_numbers_of_actions():
    game = RepeatedGame(payoffs=np.arange(12.0).reshape(2, 3, 2))
    assert [game.action_space(agent).n for agent in game.agents] == [2, 3]
    assert play(game, (1, 2))[1] == [10, 11]
    assert seen(game, (1, 2)) == [[1 + 1 * 3 + 2], [1 + 2 * 2 + 1]]
    infos = play(game, (0, 1))[2]  # agent 1 played its second action, and saw the first of agent 0
    assert {name for name in infos if len(name) == 2} == {"C0", "C1", "C2", "D0", "D1", "D2"} | {
        "0C", "0D", "1C", "1D", "2C", "2D"
    }  # fmt: skip
    assert [name for name in infos if len(name) == 2 and infos[name][0]] == ["C1"]
    assert [name for name in infos if len(name) == 2 and infos[name][1]] == ["1C"]


def test_states_of_many_actions_have_names_of_their_own():
    game = RepeatedGame(payoffs=np.zeros((12, 12, 2)))
    infos = play(game, (1, 10))[2]
    assert sum(name[0].isdigit() for name in infos) == 144
    assert [name for name in infos if name[0].isdigit() and infos[name][0]] == ["1.10"]


def test_three_players_see_themselves_first_and_then_around_the_table():
    game = three_player_ipd()
    # Agent 1 alone defects: it sees DCC, agent 0 sees CDC, agent 2 sees CCD.
    assert seen(game, (0, 1, 0)) == [[1 + 0b010], [1 + 0b100], [1 + 0b001]]
    assert play(game, (0, 1, 0))[1] == [2, 5, 2]
    assert play(game, (0, 0, 0))[1] == [4, 4, 4]
    assert play(game, (1, 1, 1))[1] == [1, 1, 1]
    assert play(game, (0, 1, 1))[1] == [0, 3, 3]


def test_public_goods_by_hand():
    game = public_goods(num_agents=4, multiplier=1.6, endowment=10.0)
    assert play(game, (0, 0, 1, 1))[1] == pytest.approx([8, 8, 18, 18])
    assert play(game, (1, 1, 1, 1))[1] == pytest.approx([10] * 4)
    assert play(game, (0, 0, 0, 0))[1] == pytest.approx([16] * 4)
    _, _, infos = play(game, (0, 0, 1, 0))
    np.testing.assert_array_equal(infos["cooperators"], [3] * 4)
    # A cooperator of three sees entry 1 + 1, one other defects; the defector 1 + 4 + 0.
    assert seen(game, (0, 0, 1, 0)) == [[2], [2], [5], [2]]


def test_volunteers_dilemma_by_hand():
    game = volunteers_dilemma(num_agents=3, benefit=2.0, cost=0.5)
    assert play(game, (1, 1, 1))[1] == [0, 0, 0]
    assert play(game, (0, 1, 1))[1] == [1.5, 2, 2]
    assert play(game, (0, 0, 1))[1] == [1.5, 1.5, 2]


def test_stag_hunt_of_n_by_hand():
    game = n_player_stag_hunt(num_agents=4, threshold=3, stag=5.0, hare=1.0)
    assert play(game, (0, 0, 1, 1))[1] == [0, 0, 1, 1]
    assert play(game, (0, 0, 0, 1))[1] == [5, 5, 5, 1]


def test_two_players_of_a_social_dilemma_see_what_those_of_a_matrix_game_see():
    table = SocialDilemma(payoffs=[[-3, -1], [-2, 0]])  # [own action][others that cooperate]
    for actions in itertools.product(range(2), repeat=2):
        obs, rewards, _ = play(table, actions)
        same, paid, _ = play(repeated(prisoners_dilemma), actions)
        assert rewards == paid
        for agent in table.agents:
            np.testing.assert_array_equal(obs[agent], same[agent])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=5, max_size=5), st.permutations(range(5)))
def test_a_social_dilemma_treats_all_seats_alike(actions, order):
    game = public_goods(num_agents=5)
    _, paid, _ = play(game, actions)
    _, turned, _ = play(game, [actions[i] for i in order])
    assert turned == [paid[i] for i in order]


@pytest.mark.system
@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize(
    ("first", "second"),
    [([0.6, 0.9, 0.2, 0.7, 0.1], [0.3, 0.8, 0.4, 0.6, 0.3]), ([1, 1, 0, 1, 0], [0.5, 0.9, 0.1, 0.9, 0.1])],
)
def test_the_mean_return_is_the_exact_one(first, second):
    discount, count = 0.9, 20_000
    game = games.make("ipd", discount=discount)
    policies = jnp.array([first, second])

    def one(key):
        def step(carry, key):
            (obs, state), alive, returns = carry
            act_key, step_key = jax.random.split(key)
            cooperate = jnp.stack([obs[agent] @ policies[i] for i, agent in enumerate(game.agents)])
            actions = (jax.random.uniform(act_key, (2,)) >= cooperate).astype(int)
            obs, state, rewards, dones, _ = game.step_env(step_key, state, dict(zip(game.agents, actions, strict=True)))
            returns = returns + alive * jnp.stack([rewards[agent] for agent in game.agents])
            return ((obs, state), alive & ~dones["__all__"], returns), None

        carry = game.reset(key), jnp.ones((), bool), jnp.zeros(2)
        (_, alive, returns), _ = jax.lax.scan(step, carry, jax.random.split(key, 150))
        return returns, alive

    returns, alive = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), count))
    assert alive.sum() <= 3  # 0.9^150 of the games go on: their rest is lost
    logits = jnp.clip(jnp.log(policies) - jnp.log1p(-policies), -20, 20)
    exact = np.array(discounted_payoffs(prisoners_dilemma, *logits, discount))
    error = np.asarray(returns).std(0) / count**0.5
    assert (np.abs(np.asarray(returns).mean(0) - exact) < 4 * error).all()
    assert (error < 0.3).all()


def test_rounds_end_by_the_limit_or_by_chance():
    fixed = games.make("ipd", episode_length=3)
    _, state = fixed.reset(KEY)
    ends = []
    for _ in range(3):
        _, state, _, dones, infos = fixed.step_env(KEY, state, {"agent_0": 0, "agent_1": 0})
        ends.append((bool(dones["__all__"]), bool(infos["truncated"].all())))
    assert ends == [(False, False), (False, False), (True, True)]
    # An end by chance is a termination, and no time limit truncates.
    chance = games.make("ipd", discount=0.75)
    after = state.replace(time=jnp.int32(10_000))
    step = jax.jit(jax.vmap(lambda key: chance.step_env(key, after, {"agent_0": 0, "agent_1": 0})))
    _, _, _, dones, infos = step(jax.random.split(KEY, 20_000))
    assert float(dones["__all__"].mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 20_000) ** 0.5)
    assert not infos["truncated"].any()


def test_one_program_serves_all_payoffs_and_gradients_flow_to_them():
    @jax.jit
    def reward(game):
        _, state = game.reset(KEY)
        return game.step_env(KEY, state, {"agent_0": 0, "agent_1": 1})[2]["agent_0"]

    assert float(reward(games.make("ipd"))) == -3
    assert float(reward(games.make("stag_hunt"))) == 0
    assert reward._cache_size() == 1
    slope = jax.grad(reward)(games.make("ipd")).payoffs
    np.testing.assert_array_equal(slope, np.zeros((2, 2, 2)) + np.eye(8)[0b010].reshape(2, 2, 2))


@pytest.mark.parametrize("name", ["ipd", "rock_paper_scissors", "public_goods", "harvest"])
def test_a_batch_of_games_has_the_numbers_of_players_and_actions_of_one(name):
    """`vmap` stacks the payoffs of a game; a stack of five is not a game of more players, on the host either."""
    game = games.make(name)
    many = jax.vmap(lambda _: game)(jnp.arange(5))
    for batch in (many, jax.device_get(many)):
        assert batch.num_agents == game.num_agents
        assert getattr(batch, "num_actions", None) == getattr(game, "num_actions", None)
    one = jax.tree.map(lambda x: x[3], jax.device_get(many))
    jax.tree.map(np.testing.assert_array_equal, one, game)


def test_a_hunt_of_two_needs_both():
    pair = games.make("n_player_stag_hunt", num_agents=2)
    np.testing.assert_array_equal(pair.payoffs, [[0, 4], [1, 1]])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"discount": 1}, r"discount: got 1; a number in \[0, 1\) is needed"),
        ({"discount": -0.1}, "discount: got -0.1"),
        ({"episode_length": 0}, "episode_length: got 0"),
        ({"memory": 0}, "memory: got 0"),
        ({"payoffs": [[1, 2, 3], [4, 5, 6]]}, r"payoffs: got shape \(2, 3\); an axis of actions"),
        ({"payoffs": np.zeros((2, 2, 2, 2)).tolist()}, r"payoffs: got shape \(2, 2, 2, 2\); an axis of actions"),
        ({"payoffs": [[1, 2], [3]]}, r"payoffs: got \[\[1, 2\], \[3\]\]; a table of numbers is needed"),
        ({"payoffs": None}, "ipd: payoffs: got None; another value is needed"),
        ({"payoffs": np.full((2, 2, 2), np.nan)}, "payoffs: got"),
        ({"labels": "C"}, "labels: got 'C'; 2 different letters"),
        ({"labels": "CC"}, "labels: got 'CC'; 2 different letters"),
        ({"labels": 12}, "labels: got 12; 2 different letters"),
        ({"episode_length": [3, 4]}, r"episode_length: got \[3, 4\]; a whole number"),
    ],
)
def test_impossible_repeated_games_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        games.make("ipd", **params)


def test_payoffs_of_jax_and_players_without_payoffs_are_looked_at():
    for table in (jnp.zeros((2, 2, 3)), np.zeros((2, 2, 3))):
        with pytest.raises(ValueError, match=r"payoffs: got shape \(2, 2, 3\); an axis of actions for each agent"):
            games.make("ipd", payoffs=table)
    with pytest.raises(ValueError, match="num_agents: got 3 without payoffs; 2 is needed"):
        games.make("matrix_game", num_agents=3)
    assert games.make("matrix_game", num_agents=2).num_agents == 2


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("public_goods", {"num_agents": 1}, "num_agents: got 1; a whole number from 2 to 30"),
        ("public_goods", {"payoffs": 3}, r"payoffs: got shape \(\); \[2, number of agents\]"),
        ("public_goods", {"payoffs": "abc"}, "payoffs: got 'abc'; a table of numbers"),
        ("public_goods", {"payoffs": [[0, 1, 3], [1, 2, 3]]}, "num_agents: got 4 with payoffs of 3 agents; equal ones"),
        ("public_goods", {"multiplier": 0}, r"multiplier: got 0; a number above 0"),
        ("n_player_stag_hunt", {"threshold": 5}, "threshold: got 5; a whole number from 1 to 4"),
        ("volunteers_dilemma", {"cost": -1}, "cost: got -1"),
    ],
)
def test_impossible_social_dilemmas_are_refused(name, params, message):
    with pytest.raises(ValueError, match=message):
        games.make(name, **params)
