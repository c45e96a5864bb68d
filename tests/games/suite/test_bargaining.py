"""Ultimatum, negotiation and the Bayesian battle of the sexes: rounds by hand, privacy, symmetry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.suite.bayesian import BattleState, BayesianBattleOfTheSexes
from games.suite.negotiation import Negotiation, NegotiationState
from games.suite.ultimatum import Ultimatum

KEY = jax.random.key(0)
ULTIMATUM, BATTLE = Ultimatum(), BayesianBattleOfTheSexes()
PROPORTIONAL, NOTHING = Negotiation(), Negotiation(split="nothing")


@jax.jit
def step(game, state, first, second, key=KEY):
    return game.step_env(key, state, {"agent_0": first, "agent_1": second})


reset = jax.jit(lambda game, key: game.reset(key))
resets = jax.jit(jax.vmap(lambda game, key: game.reset(key)[1], in_axes=(None, 0)))


def pair(by_agent):
    return [float(by_agent["agent_0"]), float(by_agent["agent_1"])]


def proposed_by(agent):
    state = reset(ULTIMATUM, KEY)[1]
    return state.replace(proposer=jnp.int32(agent))


@pytest.mark.parametrize(
    ("offer", "threshold", "expected"), [(3, 3, [7, 3]), (3, 4, [0, 0]), (0, 0, [10, 0]), (10, 10, [0, 10])]
)
def test_ultimatum_pays_as_offered_where_the_offer_reaches_the_threshold(offer, threshold, expected):
    _, _, rewards, _, infos = step(ULTIMATUM, proposed_by(0), offer, threshold)
    assert pair(rewards) == expected
    assert infos["accepted"].tolist() == [float(sum(expected) > 0)] * 2
    assert infos["offer"].tolist() == pytest.approx([offer / 10] * 2)
    _, _, rewards, _, _ = step(ULTIMATUM, proposed_by(1), threshold, offer)
    assert pair(rewards) == expected[::-1]
    _, _, rewards, _, _ = step(ULTIMATUM.replace(pie=1.0), proposed_by(0), offer, threshold)
    assert pair(rewards) == pytest.approx([x / 10 for x in expected])


def test_ultimatum_observation_by_hand():
    obs, *_ = step(ULTIMATUM, proposed_by(0), 3, 5)
    # Responder now, proposer then, an offer of 3 of 10, refused.
    assert obs["agent_0"].tolist() == [0, 1, 1, 0, *(float(i == 3) for i in range(11)), 0, 1]
    assert obs["agent_1"].tolist() == [1, 0, 0, 1, *(float(i == 3) for i in range(11)), 0, 1]
    start = ULTIMATUM.get_obs(proposed_by(0))
    assert start["agent_0"].tolist() == [1.0] + 16 * [0.0]


def test_a_refused_threshold_stays_hidden():
    first = step(ULTIMATUM, proposed_by(0), 3, 5)[0]
    second = step(ULTIMATUM, proposed_by(0), 3, 9)[0]
    np.testing.assert_array_equal(first["agent_0"], second["agent_0"])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1), st.integers(0, 10), st.integers(0, 10))
def test_a_swap_of_ultimatum_s_roles_swaps_observations_and_rewards(proposer, first, second):
    obs, _, rewards, _, _ = step(ULTIMATUM, proposed_by(proposer), first, second)
    obs_swapped, _, rewards_swapped, _, _ = step(ULTIMATUM, proposed_by(1 - proposer), second, first)
    assert pair(rewards) == pair(rewards_swapped)[::-1]
    np.testing.assert_array_equal(obs["agent_0"], obs_swapped["agent_1"])
    np.testing.assert_array_equal(obs["agent_1"], obs_swapped["agent_0"])


@pytest.mark.parametrize("roles", ["fixed", "alternating", "sampled"])
def test_roles(roles):
    game = Ultimatum(roles=roles)
    state, seen = resets(game, jax.random.split(KEY, 200)), []
    steps = jax.jit(jax.vmap(game.step_env))
    for i in range(3):
        seen.append(np.asarray(state.proposer))
        zeros = jnp.zeros(200, jnp.int32)
        keys = jax.random.split(jax.random.key(i + 1), 200)
        state = steps(keys, state, {"agent_0": zeros, "agent_1": zeros})[1]
    seen = np.array(seen)
    if roles == "fixed":
        assert not seen.any()
    else:
        assert 70 < seen[0].sum() < 130
    if roles == "alternating":
        assert (seen[1] == 1 - seen[0]).all()
        assert (seen[2] == seen[0]).all()
    if roles == "sampled":
        assert 70 < (seen[1] == seen[0]).sum() < 130


def pool(quantities, first, second):
    as_int = [jnp.asarray(x, jnp.int32) for x in (quantities, [first, second])]
    return NegotiationState(*as_int, jnp.zeros((2, 3), jnp.int32), jnp.int32(0))


POOL = pool([4, 4, 2], [5, 1, 2], [1, 5, 2])  # the whole is worth 28 to either, 44 divided best


def test_negotiation_by_hand():
    want = jnp.array([4, 0, 1]), jnp.array([0, 4, 1])
    for game in (PROPORTIONAL, NOTHING):
        obs, _, rewards, _, infos = step(game, POOL, *want)
        assert pair(rewards) == [22, 22]
        assert infos["agreement"].tolist() == [1, 1]
        assert infos["efficiency"].tolist() == [1, 1]
        assert infos["wanted"].tolist() == pytest.approx([22 / 28] * 2)
    expected = [0.8, 0.8, 0.4, 1, 0.2, 0.4, 0.8, 0, 0.2, 0, 0.8, 0.2]
    np.testing.assert_allclose(obs["agent_0"], expected, rtol=1e-6)


def test_too_much_wanted_is_split_in_proportion_or_lost():
    want = jnp.array([4, 4, 1]), jnp.array([4, 1, 0])
    # Kind 0: 4 are divided 4 : 4; kind 1: 4 are divided 4 : 1; kind 2: one of 2 is left over.
    rewards = step(PROPORTIONAL, POOL, *want)[2]
    np.testing.assert_allclose(pair(rewards), [5 * 2 + 1 * 3.2 + 2 * 1, 1 * 2 + 5 * 0.8], rtol=1e-6)
    _, _, rewards, _, infos = step(NOTHING, POOL, *want)
    assert pair(rewards) == [0, 0]
    assert infos["agreement"].tolist() == infos["efficiency"].tolist() == [0, 0]


def test_negotiation_s_rewards_as_shares_of_the_own_whole():
    game = Negotiation(normalize=True)
    rewards = step(game, POOL, jnp.array([4, 4, 2]), jnp.zeros(3, jnp.int32))[2]
    assert pair(rewards) == [1, 0]


three = st.lists(st.integers(0, 5), min_size=3, max_size=3).map(lambda x: jnp.array(x, jnp.int32))


@settings(max_examples=40, deadline=None)
@given(three, three, st.integers(0, 1000))
def test_negotiation_never_pays_more_than_there_is_and_its_seats_are_alike(first, second, seed):
    state = reset(PROPORTIONAL, jax.random.key(seed))[1]
    swapped = state.replace(values=state.values[::-1], proposals=state.proposals[::-1])
    values, quantities = np.asarray(state.values), np.asarray(state.quantities)
    best = (quantities * values.max(0)).sum()
    for game in (PROPORTIONAL, NOTHING):
        obs, _, rewards, _, infos = step(game, state, first, second)
        assert min(pair(rewards)) >= 0
        assert sum(pair(rewards)) <= best * (1 + 1e-6)
        assert sum(pair(rewards)) / best == pytest.approx(float(infos["efficiency"][0]), rel=1e-5)
        obs_swapped, _, rewards_swapped, _, _ = step(game, swapped, second, first)
        assert pair(rewards_swapped) == pair(rewards)[::-1]
        np.testing.assert_array_equal(obs_swapped["agent_0"], obs["agent_1"])
        np.testing.assert_array_equal(obs_swapped["agent_1"], obs["agent_0"])


def test_values_are_private_unless_they_are_not():
    other = POOL.replace(values=POOL.values.at[1].set(jnp.array([3, 3, 3])))
    np.testing.assert_array_equal(PROPORTIONAL.get_obs(POOL)["agent_0"], PROPORTIONAL.get_obs(other)["agent_0"])
    assert (PROPORTIONAL.get_obs(POOL)["agent_1"] != PROPORTIONAL.get_obs(other)["agent_1"]).any()
    public = Negotiation(private_values=False)
    np.testing.assert_allclose(public.get_obs(other)["agent_0"][6:9], [0.6] * 3)
    np.testing.assert_allclose(public.get_obs(other)["agent_1"][6:9], [1.0, 0.2, 0.4])


def test_pools_are_uniform_and_drawn_when_they_should_be():
    states = resets(PROPORTIONAL, jax.random.split(KEY, 4000))
    for numbers in (states.quantities, states.values[:, 0], states.values[:, 1]):
        counts = np.array([(np.asarray(numbers) == i).mean(0) for i in range(1, 6)])  # [5, kinds]
        np.testing.assert_allclose(counts, 0.2, atol=0.03)
    independent = np.corrcoef(states.values[:, 0, 0], states.values[:, 1, 0])[0, 1]
    assert abs(independent) < 0.06
    zeros = jnp.zeros(3, jnp.int32)
    same = step(PROPORTIONAL, POOL, zeros, zeros)[1]
    np.testing.assert_array_equal(same.values, POOL.values)
    each_round = Negotiation(redraw="round")
    values = [step(each_round, POOL, zeros, zeros, jax.random.key(i))[1].values for i in range(2)]
    assert (values[0] != values[1]).any()


def battle(loves, time=0):
    return BattleState(jnp.array(loves), jnp.zeros(2, jnp.int32), jnp.int32(time))


# Osborne, figures 273.1 and 277.1: (loves, loves), (loves, hates), (hates, loves), (hates, hates); rows are the first
# player's places, Bach and Stravinsky.
OSBORNE = {
    (True, True): [[(2, 1), (0, 0)], [(0, 0), (1, 2)]],
    (True, False): [[(2, 0), (0, 2)], [(0, 1), (1, 0)]],
    (False, True): [[(0, 1), (2, 0)], [(1, 0), (0, 2)]],
    (False, False): [[(0, 0), (2, 2)], [(1, 1), (0, 0)]],
}


@pytest.mark.parametrize("loves", list(OSBORNE))
def test_the_payoffs_are_osborne_s(loves):
    for first in range(2):
        for second in range(2):
            _, _, rewards, _, infos = step(BATTLE, battle(loves), first, second)
            assert tuple(pair(rewards)) == OSBORNE[loves][first][second]
            assert infos["content"].tolist() == [float(x > 0) for x in OSBORNE[loves][first][second]]
            assert infos["met"].tolist() == [float(first == second)] * 2


def test_the_other_s_type_is_unseen_and_the_last_round_is_seen_own_first():
    np.testing.assert_array_equal(
        BATTLE.get_obs(battle((True, True)))["agent_0"], BATTLE.get_obs(battle((True, False)))["agent_0"]
    )
    assert BATTLE.get_obs(battle((True, False)))["agent_1"].tolist() == [0, 1, 1, 0, 0, 0, 0]
    obs, *_ = step(BATTLE, battle((True, False)), 0, 1)
    assert obs["agent_0"].tolist() == [1, 0, 0, 0, 1, 0, 0]  # BS
    assert obs["agent_1"].tolist() == [0, 1, 0, 0, 0, 1, 0]  # SB


def test_types_have_their_probabilities_and_stay():
    keys = jax.random.split(KEY, 4000)
    drawn = np.asarray(resets(BATTLE.replace(love_probability=np.array([2 / 3, 1 / 2])), keys).loves)
    np.testing.assert_allclose(drawn.mean(0), [2 / 3, 1 / 2], atol=0.03)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.06
    assert resets(BATTLE.replace(love_probability=1.0), keys).loves.all()
    assert not resets(BATTLE.replace(love_probability=0.0), keys).loves.any()
    state = step(BATTLE, battle((True, False)), 0, 1)[1]
    assert state.loves.tolist() == [True, False]


@pytest.mark.parametrize("game", [ULTIMATUM, PROPORTIONAL, BATTLE], ids=lambda game: game.name)
def test_time_limits_truncate(game):
    action = jnp.zeros(game.action_space("agent_0").shape, jnp.int32)
    _, state, _, dones, infos = step(game.replace(episode_length=2), reset(game, KEY)[1], action, action)
    assert not dones["__all__"]
    _, _, _, dones, infos = step(game.replace(episode_length=2), state, action, action)
    assert dones["__all__"]
    assert infos["truncated"].tolist() == [True, True]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Ultimatum(num_units=0), "num_units"),
        (lambda: Ultimatum(roles="mixed"), "roles"),
        (lambda: Ultimatum(pie=0.0), "pie"),
        (lambda: Negotiation(num_items=0), "num_items"),
        (lambda: Negotiation(max_value=0), "max_value"),
        (lambda: Negotiation(split="half"), "split"),
        (lambda: Negotiation(redraw="never"), "redraw"),
        (lambda: BayesianBattleOfTheSexes(love_probability=1.5), "love_probability"),
        (lambda: BayesianBattleOfTheSexes(love_probability=(0.5, 0.5, 0.5)), "love_probability"),
        (lambda: BayesianBattleOfTheSexes(episode_length=0), "episode_length"),
    ],
)
def test_impossible_parameters_are_refused(make, field):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        make()
