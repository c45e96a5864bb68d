"""One learner in several seats: its rows, its updates and its evaluation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import marl
from games import Discrete, make
from games.suite.coin_game import CoinGame
from marl.core.evaluate import evaluate, evaluate_team
from marl.core.seats import Seats, seats_of, shared
from marl.learners.sampled.mappo import mappo
from marl.learners.sampled.ppo import ppo
from tests.marl.sampled_steps import CART_POLE, linear

COINS = make("coin_game", episode_length=5)
SMALL = {"epochs": 1, "minibatches": 1, "discount": 0.9, "gae_lambda": 0.8}
SIZES = {"num_updates": 2, "steps_per_update": 8, "num_envs": 3}


@struct.dataclass(eq=False)
class Unlike(CoinGame):
    """A coin game in which the second player may stand still."""

    def action_space(self, agent):
        return Discrete(4 + (agent == "agent_1"))


@pytest.mark.parametrize(
    "spec",
    [
        "reinforce",
        "naive_dice",
        "advantage_alignment(baseline='group')",
        "proximal_advantage_alignment(baseline='group')",
    ],
)
def test_learners_that_compare_environments_hold_one_seat(spec):
    """A co-player's return in the same environment would be a part of the mean of all other rows."""
    game = make("ipd", episode_length=5)
    with pytest.raises(ValueError, match="shared: got a learner whose baseline is the mean of the other environments"):
        shared(marl.make_learner(spec, game), game)
    shared(marl.make_learner("advantage_alignment", game), game)  # with a critic


def flat_linear(num_inputs, num_outputs=4):
    """`linear` of images."""
    network = linear(num_outputs, num_inputs)
    return network._replace(
        apply=lambda params, obs, carry: network.apply(params, obs.reshape(*obs.shape[:-3], -1), carry)
    )


def mappo_of_coins(**settings):
    return mappo(COINS, network=flat_linear(36), critic=flat_linear(72), **SMALL | settings)


@pytest.fixture(scope="module")
def history():
    """Two updates of MAPPO with one network."""
    team = shared(mappo_of_coins(details={"value_clip": None}), COINS)
    return marl.learn(jax.random.key(0), COINS, [team], keep_trajectories=True, **SIZES)


def test_rows_are_environments_times_seats():
    seats = Seats(("a", "b"), ("a", "b", "c"), 2, False)
    values = {"a": jnp.array([1, 2]), "b": jnp.array([3, 4]), "c": jnp.array([5, 6])}
    assert seats.num_rows == 4
    assert seats.rows(values).tolist() == [1, 3, 2, 4]
    assert [x.tolist() for x in seats.others(values)] == [[3, 1, 4, 2], [5, 5, 6, 6]]
    assert {k: x.tolist() for k, x in seats.by_agent(seats.rows(values)).items()} == {"a": [1, 2], "b": [3, 4]}
    over_time = jnp.stack([seats.rows(values), 10 * seats.rows(values)])
    assert seats.by_agent(over_time, axis=1)["b"].tolist() == [[3, 4], [30, 40]]
    without = seats._replace(num_envs=None)
    assert without.rows({"a": jnp.int32(1), "b": jnp.int32(3)}).tolist() == [1, 3]


def test_a_central_observation_begins_with_the_own_one():
    values = {agent: jnp.array([[10 * i, 10 * i + 1]]) for i, agent in enumerate("abc")}
    seats = Seats(("b", "c"), ("a", "b", "c"), 1, True)
    assert seats.observe(values).tolist() == [[10, 11, 20, 21, 0, 1], [20, 21, 0, 1, 10, 11]]


@pytest.mark.system
def test_a_shared_learner_of_one_player_is_the_learner_to_the_bit():
    learner = ppo(CART_POLE, network=linear(), minibatches=2, normalize_observations=True)
    ours, plain = (
        marl.learn(jax.random.key(3), CART_POLE, [one], **SIZES) for one in (shared(learner, CART_POLE), learner)
    )
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True))


@pytest.mark.system
def test_each_seat_learns_from_its_own_reward_by_advantages_in_float64(history):
    (rows,) = history.trajectories
    first = jax.tree.map(lambda x: np.asarray(x[0], np.float64), rows._replace(first_memory=(), last_memory=()))
    for seat, rewards in enumerate(history.rewards):
        assert float(rewards[0]) == pytest.approx(first.reward[:, seat::2].mean(), abs=1e-6)
    team = shared(mappo_of_coins(), COINS)
    run_keys = jax.random.split(jax.random.key(0), 3)  # as `learn` splits it for one learner
    critic = np.asarray(team.init(run_keys[2]).params[1], np.float64)[:, -1]
    after = first.next_obs.reshape(8, 6, -1) @ critic
    values = first.obs.reshape(8, 6, -1) @ critic
    np.testing.assert_allclose(values, first.extras.value, rtol=1e-4, atol=1e-5)
    advantage, later = np.zeros((8, 6)), np.zeros(6)
    for t in reversed(range(8)):
        terminated = first.done[t] * (1 - first.truncated[t])
        later = first.reward[t] + 0.9 * (1 - terminated) * after[t] - values[t] + 0.72 * (1 - first.done[t]) * later
        advantage[t] = later
    # V - (V + A) is the error of the only gradient step.
    assert float(history.metrics[0]["value_loss"][0]) == pytest.approx(0.5 * (advantage**2).mean(), rel=1e-4)


@pytest.mark.system
def test_exchanged_seats_exchange_rows_and_learn_the_same():
    learner = shared(ppo(COINS, network=flat_linear(36), **SMALL), COINS)
    state, (seats,) = learner.init(jax.random.key(0)), seats_of(COINS, [learner], 3)
    observations = {agent: jax.random.normal(jax.random.key(i), (3, 3, 3, 4)) for i, agent in enumerate(COINS.agents)}
    exchanged = dict(zip(COINS.agents, reversed(observations.values()), strict=True))
    memory = learner.init_memory(learner.policy(state), seats.num_rows)
    actions, others = (
        seats.by_agent(learner.act_greedy(learner.policy(state), memory, seats.observe(seen))[0])
        for seen in (observations, exchanged)
    )
    assert [x.tolist() for x in actions.values()] == [x.tolist() for x in reversed(others.values())]
    history = marl.learn(jax.random.key(1), COINS, [learner], keep_trajectories=True, **SIZES)
    rows = jax.tree.map(lambda x: x[1], history.trajectories[0])._replace(first_memory=memory, last_memory=memory)
    order = np.array([1, 0, 3, 2, 5, 4])
    turned = jax.tree.map(lambda x: x[:, order], rows._replace(first_memory=(), last_memory=()))
    turned = turned._replace(first_memory=memory, last_memory=memory)
    update = jax.jit(learner.update)
    ours, theirs = (update(jax.random.key(2), state, one)[0].params for one in (rows, turned))
    assert not np.array_equal(ours, state.params)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("central", "sees"), [(True, True), (False, False)])
def test_only_a_central_critic_sees_the_observations_of_others(central, sees):
    learner = mappo_of_coins() if central else ppo(COINS, network=flat_linear(36), **SMALL)
    learner = shared(learner, COINS)
    (seats,), policy = seats_of(COINS, [learner], 1), learner.policy(learner.init(jax.random.key(0)))
    memory = learner.init_memory(policy, 2)

    def value(other, seat):
        seen = {"agent_0": jnp.ones((1, 3, 3, 4)), "agent_1": other}
        return learner.act(jax.random.key(0), policy, memory, seats.observe(seen))[2].value[seat]

    def log_prob(other):
        seen = {"agent_0": jnp.ones((1, 3, 3, 4)), "agent_1": other}
        return learner.act(jax.random.key(0), policy, memory, seats.observe(seen))[2].log_prob[0]

    other = jax.random.normal(jax.random.key(1), (1, 3, 3, 4))
    assert bool(jnp.all(jax.grad(value)(other, 0) != 0)) == sees
    assert bool(jnp.any(jax.grad(value)(other, 0) != 0)) == sees
    assert jnp.all(jax.grad(value)(other, 1) != 0)
    assert not jnp.any(jax.grad(log_prob)(other))  # the policy is decentralised in both


def test_a_traced_setting_compiles_once():
    def run(key, rate):
        team = shared(ppo(COINS, network=flat_linear(36), learning_rate=rate, **SMALL), COINS)
        return marl.learn(key, COINS, [team], **SIZES).states[0].params

    run = jax.jit(run)
    slow, fast = (run(jax.random.key(0), rate) for rate in (0.0, 0.1))
    assert run._cache_size() == 1
    assert not np.array_equal(slow, fast)


@pytest.mark.system
def test_an_evaluation_of_a_team_is_that_of_each_player(history):
    learner = ppo(CART_POLE, network=linear())
    state, sizes = learner.init(jax.random.key(0)), {"num_episodes": 4, "num_steps": 30}
    team = evaluate_team(jax.random.key(1), CART_POLE, [learner], [state], **sizes).returns
    assert np.array_equal(team[:, 0], evaluate(jax.random.key(1), CART_POLE, learner, state, **sizes))
    mine = shared(mappo_of_coins(), COINS)
    found = evaluate_team(jax.random.key(1), COINS, [mine], history.states, num_episodes=64, num_steps=5)
    own, other = found.infos["own_coin"], found.infos["other_coin"]
    np.testing.assert_allclose(found.returns, own + other - 2 * other[:, ::-1])  # the rules of the game
    assert float(own.sum()) > 0
    longer = evaluate_team(jax.random.key(1), COINS, [mine], history.states, num_episodes=64, num_steps=8)
    for social, returns in ((found.social, found.returns), (longer.social, longer.returns)):  # of 5 steps both
        np.testing.assert_allclose(social.efficiency, returns.sum(1) / 5, atol=1e-6)
        assert social.peace is None
        assert np.all((social.equality >= 0) & (social.equality <= 1))
        assert np.all(social.sustainability <= 5)


def test_misfits_are_refused():
    unlike = Unlike()
    with pytest.raises(ValueError, match=r"shared: got Unlike, .*; a game that is alike from all seats is needed"):
        shared(marl.make_learner("random", unlike), unlike)
    with pytest.raises(ValueError, match="learners: got 1; CoinGame has 2 players"):
        marl.learn(jax.random.key(0), COINS, [mappo_of_coins()], **SIZES)
    team = shared(mappo_of_coins(), COINS)
    states = [jax.eval_shape(team.init, jax.random.key(0))]
    with pytest.raises(ValueError, match="num_envs: got 3; a divisor of the 4 episodes is needed"):
        evaluate_team(jax.random.key(1), COINS, [team], states, num_episodes=4, num_steps=5, num_envs=3)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["ppo", "mappo"])
def test_a_team_with_one_network_learns_to_harvest(spec):
    game = make("harvest", episode_length=64)
    settings = "hidden=[32], learning_rate=2e-3, minibatches=4, activation='relu'"
    learners = [shared(marl.make_learner(f"{one}", game), game) for one in (f"{spec}({settings})", "random")]
    rewards = [
        sum(marl.learn(jax.random.key(0), game, [one], num_updates=40, steps_per_update=64, num_envs=16).rewards)
        for one in learners
    ]
    assert float(rewards[0][-4:].mean()) > 1.5 * float(rewards[1].mean()), rewards
