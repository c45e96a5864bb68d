"""The fishery and the Cournot oligopoly: dynamics by hand, and the equilibria of the textbooks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.suite.cournot import Cournot
from games.suite.fishery import Fishery

KEY = jax.random.key(0)
FISHERY, COURNOT = Fishery(num_agents=3), Cournot(num_agents=3)


@jax.jit
def step(game, state, values):
    actions = {agent: values[i, None] for i, agent in enumerate(game.agents)}
    return game.step_env(KEY, state, actions)


@jax.jit
def settle(game, effort):
    """Steps of a constant effort of each, `effort`, to the steady state: (stock, total of rewards a step)."""

    def body(state, _):
        actions = dict.fromkeys(game.agents, effort[None])
        _, state, rewards, _, _ = game.step_env(KEY, state, actions)
        return state, sum(rewards.values())

    state, totals = jax.lax.scan(body, game.reset(KEY)[1], None, 3000)
    return state.stock, totals[-1]


def as_array(by_agent):
    return np.array([np.asarray(x) for x in by_agent.values()])


def test_one_step_of_the_fishery_by_hand():
    game = FISHERY.replace(growth_rate=0.5, catchability=0.1, price=10.0, cost=1.0, initial_stock=0.5)
    state = game.reset(KEY)[1]
    obs, state, rewards, _, infos = step(game, state, jnp.array([1.0, 2.0, 0.0]))
    # Growth 0.5 * 0.5 * (1 - 0.5) = 0.125, harvests 0.1 * 0.5 * (1, 2, 0).
    np.testing.assert_allclose(infos["harvest"], [0.05, 0.1, 0.0], rtol=1e-6)
    np.testing.assert_allclose(state.stock, 0.5 + 0.125 - 0.15, rtol=1e-6)
    np.testing.assert_allclose(as_array(rewards), [-0.5, -1.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(obs["agent_1"], [0.475, 0.2, 0.0, 0.1], rtol=1e-6)


def test_no_more_fish_are_caught_than_there_are_and_an_empty_sea_stays_empty_with_finite_gradients():
    game = FISHERY.replace(growth_rate=0.5, catchability=1.0, price=10.0, cost=0.0)
    _, state, rewards, _, infos = step(game, game.reset(KEY)[1], jnp.array([1.0, 3.0, 0.0]))
    np.testing.assert_allclose(infos["harvest"], np.array([0.25, 0.75, 0.0]) * 0.625, rtol=1e-6)
    assert state.stock == 0
    gradient = jax.grad(lambda x: sum(step(game, state, x)[2].values()))(jnp.ones(3))
    assert np.isfinite(gradient).all()
    _, state, rewards, _, _ = step(game, state, jnp.ones(3))
    assert state.stock == 0
    assert not as_array(rewards).any()


@settings(max_examples=20, deadline=None)
@given(
    growth=st.floats(0.01, 1), capacity=st.floats(0.1, 100), share=st.floats(0, 1), catchability=st.floats(0.001, 1),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_stock_follows_the_logistic_law_in_float64_and_is_conserved(growth, capacity, share, catchability, seed):
    game = FISHERY.replace(
        growth_rate=growth, carrying_capacity=capacity, initial_stock=share * capacity, catchability=catchability
    )
    state, expected = game.reset(KEY)[1], share * capacity
    for efforts in np.random.default_rng(seed).uniform(0, 10, (10, 3)):
        before = float(state.stock)
        _, state, _, _, infos = step(game, state, jnp.asarray(efforts, jnp.float32))
        grown = expected + growth * expected * (1 - expected / capacity)
        harvest = min(catchability * efforts.sum() * expected, grown)
        expected = grown - harvest
        assert abs(float(state.stock) - expected) <= 1e-5 * capacity
        growth_now = growth * before * (1 - before / capacity)
        assert abs(before + growth_now - infos["harvest"].sum() - state.stock) <= 1e-5 * capacity  # nothing is lost
        assert 0 <= state.stock <= capacity * (1 + 1e-6)


def test_open_access_earns_nothing_at_the_stock_of_the_textbook():
    # Perman et al.: S = w / (P e) = 0.2 and E = 8 under open access; S = 0.6 and E = 4 for a sole owner.
    assert 3 * FISHERY.open_access_effort == pytest.approx(8.0)
    assert 3 * FISHERY.cartel_effort == pytest.approx(4.0)
    stock, total = settle(FISHERY, jnp.float32(FISHERY.open_access_effort))
    assert stock == pytest.approx(0.2, abs=1e-4)
    assert total == pytest.approx(0.0, abs=1e-3)
    stock, best = settle(FISHERY, jnp.float32(FISHERY.cartel_effort))
    assert stock == pytest.approx(0.6, abs=1e-4)
    assert best == pytest.approx(200 * 0.036 - 0.6 * 4, abs=1e-3)
    assert best > settle(FISHERY, jnp.float32(FISHERY.nash_effort))[1] > total


def test_no_fisher_gains_for_ever_by_leaving_the_nash_effort():
    nash, others = FISHERY.nash_effort, 2 * FISHERY.nash_effort

    def earned(effort):  # in the steady state of a total effort E the stock is K (1 - e E / g)
        stock = 1 - FISHERY.catchability * (effort + others) / FISHERY.growth_rate
        return FISHERY.price * FISHERY.catchability * effort * stock - FISHERY.cost * effort

    assert all(earned(nash) > earned(nash + change) for change in (-0.5, -0.01, 0.01, 0.5))
    assert settle(FISHERY, jnp.float32(nash))[1] == pytest.approx(3 * earned(nash), abs=1e-3)


def test_no_rounding_leaves_more_fish_than_the_sea_can_carry():
    game = Fishery(num_agents=3, growth_rate=1.0, carrying_capacity=0.7, initial_stock=0.5)
    state = game.reset(KEY)[1]
    for _ in range(12):  # to where the stock is all that there can be
        observations, state, *_ = step(game, state, jnp.zeros(3))
        assert game.observation_space("agent_0").contains(observations["agent_0"])
    assert float(observations["agent_0"][0]) == pytest.approx(1, abs=1e-5)


def test_efforts_are_clipped():
    _, _, _, _, infos = step(FISHERY, FISHERY.reset(KEY)[1], jnp.array([-1.0, 20.0, 5.0]))
    np.testing.assert_array_equal(infos["effort"], [0.0, 10.0, 5.0])


def test_a_round_of_cournot_by_hand():
    obs, _, rewards, _, infos = step(COURNOT, COURNOT.reset(KEY)[1], jnp.array([10.0, 20.0, 30.0]))
    np.testing.assert_allclose(infos["price"], 40.0)
    np.testing.assert_allclose(as_array(rewards), [300.0, 600.0, 900.0])
    np.testing.assert_allclose(obs["agent_2"], [0.4, 0.6, 0.2, 0.4], rtol=1e-6)
    _, _, rewards, _, _ = step(COURNOT, COURNOT.reset(KEY)[1], jnp.full(3, 50.0))
    np.testing.assert_allclose(as_array(rewards), -500.0)  # the price does not fall below zero


@settings(max_examples=20, deadline=None)
@given(intercept=st.floats(50, 150), slope=st.floats(1, 5), cost=st.floats(0, 40))
def test_at_nash_every_firm_s_own_gradient_is_zero_and_the_cartel_earns_more(intercept, slope, cost):
    game = COURNOT.replace(intercept=intercept, slope=slope, marginal_cost=cost)

    def profits(quantities):
        return jnp.stack(list(step(game, game.reset(KEY)[1], quantities)[2].values()))

    nash, cartel = jnp.full(3, game.nash_quantity), jnp.full(3, game.cartel_quantity)
    own = jnp.diag(jax.jacobian(profits)(nash))
    np.testing.assert_allclose(own / intercept, 0.0, atol=1e-5)
    np.testing.assert_allclose(jax.grad(lambda x: profits(x).sum())(cartel) / intercept, 0.0, atol=1e-5)
    assert (profits(cartel) > profits(nash)).all()
    assert profits(cartel.at[0].mul(1.1))[0] > profits(cartel)[0]  # but each would cheat
    gains = [step(game, game.reset(KEY)[1], x)[4]["profit_gain"] for x in (nash, cartel)]
    np.testing.assert_allclose(gains, [[0.0] * 3, [1.0] * 3], atol=1e-3)


def test_nash_is_reached_by_best_responses_of_two():
    game = Cournot()
    first, second = 5.0, 40.0
    for _ in range(40):  # the best response to q is (a - c - b q) / 2 b
        first, second = (90 - second) / 2, (90 - first) / 2
    assert first == pytest.approx(game.nash_quantity)
    assert game.nash_quantity == 30.0
    assert game.cartel_quantity == 22.5


@pytest.mark.parametrize("game", [FISHERY, COURNOT], ids=lambda game: game.name)
def test_seats_are_alike_and_the_time_limit_truncates(game):
    game = game.replace(episode_length=2)
    values = jnp.array([1.0, 2.0, 3.0])
    turned = jnp.roll(values, -1)
    start = game.reset(KEY)[1]
    obs, state, rewards, dones, infos = step(game, start, values)
    obs_turned, _, rewards_turned, _, _ = step(game, start, turned)
    assert not dones["__all__"]
    for agent, next_agent in (("agent_0", "agent_1"), ("agent_1", "agent_2"), ("agent_2", "agent_0")):
        np.testing.assert_allclose(obs_turned[agent], obs[next_agent], rtol=1e-6)
        np.testing.assert_allclose(rewards_turned[agent], rewards[next_agent], rtol=1e-6)
    _, _, _, dones, infos = step(game, state, values)
    assert dones["__all__"]
    assert infos["truncated"].all()


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Fishery(num_agents=0), "num_agents"),
        (lambda: Fishery(growth_rate=1.5), "growth_rate"),
        (lambda: Fishery(carrying_capacity=0.0), "carrying_capacity"),
        (lambda: Fishery(initial_stock=2.0), "initial_stock"),
        (lambda: Fishery(max_effort=-1.0), "max_effort"),
        (lambda: Cournot(num_agents=1), "num_agents"),
        (lambda: Cournot(intercept=5.0), "intercept"),
        (lambda: Cournot(slope=0.0), "slope"),
        (lambda: Cournot(episode_length=0), "episode_length"),
    ],
)
def test_impossible_parameters_are_refused(make, field):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        make()
