"""Self-play against past selves: the probabilities of opponents, and the policies that are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import Learner, make_learner, past_selves, stale
from marl.core.league import LATEST, RATE, League, draw_opponent
from marl.core.learn import learning
from marl.core.learner import frozen

IPD = make("ipd", episode_length=2)
UPDATES, EVERY, MOST = 60, 3, 4


def counting():
    """A learner whose policy is the number of its updates; it defects if that is odd."""

    def act(key, parameters, memory, obs):
        return jnp.broadcast_to(parameters % 2, obs.shape[:1]), memory, ()

    return Learner(init=lambda key: jnp.int32(0), act=act, update=lambda key, state, trajectory: (state + 1, {}))


@pytest.fixture(scope="module")
def played():
    """States before each update `[K]`, and the trajectories and metrics of the update."""
    pair = [counting(), past_selves(counting(), 0.7, every=EVERY, most=MOST)]
    begin, update = learning(IPD, pair, steps_per_update=2, num_envs=3, keep_trajectories=True)

    @jax.jit
    def run(key):
        carry, run_key = begin(key)

        def step(carry, key):
            after, found = update(carry, key)
            return after, (carry.states, found.trajectories, found.metrics)

        return jax.lax.scan(step, carry, jax.random.split(run_key, UPDATES))[1]

    return run(jax.random.key(0))


def test_qualities_are_those_of_the_rules_in_float64(played):
    (updates, other), trajectories, metrics = played
    quality, beaten = {}, 0
    for k in range(UPDATES):
        assert updates[k] == other.version[k] == k
        if k % EVERY == 0:
            quality[k] = max(quality.values(), default=0.0)
            if len(quality) > MOST:
                del quality[min(quality, key=quality.get)]  # the oldest of them
        versions, qualities = other.league.version[k], other.league.quality[k]
        assert set(versions[versions != LATEST].tolist()) == set(quality)
        for version, expected in quality.items():
            assert qualities[versions == version] == pytest.approx([expected], abs=1e-6)
        played = int(other.played[k])
        assert played == LATEST or played in quality
        assert other.policy[k] == (k if played == LATEST else played)
        np.testing.assert_array_equal(trajectories[1].action[k], other.policy[k] % 2)
        if played != LATEST and k % 2 > played % 2:  # it defected against a self that cooperated
            weights = {version: np.exp(x) for version, x in quality.items()}
            quality[played] -= RATE / (len(quality) * weights[played] / sum(weights.values()))
            beaten += 1
    assert beaten > 5
    np.testing.assert_array_equal(metrics[1]["against_past"], other.played != LATEST)


def test_past_selves_are_drawn_in_proportion_to_the_exponentials_of_their_qualities():
    quality = np.array([0.0, 1.0, -np.inf, 2.0, 0.0])
    league = League(jnp.arange(5), jnp.array([0, 5, LATEST, 10, 15]), jnp.asarray(quality))
    places = np.asarray(
        jax.jit(jax.vmap(lambda key: draw_opponent(key, league, 0.3)))(jax.random.split(jax.random.key(1), 20_000))
    )
    assert np.mean(places != LATEST) == pytest.approx(0.3, abs=0.01)
    weights = np.exp(quality)
    for place, weight in enumerate(weights / weights.sum()):
        assert np.mean(places[places != LATEST] == place) == pytest.approx(weight, abs=0.02)


@pytest.mark.system
def test_frozen_past_selves_keep_their_policies():
    player = past_selves(counting(), 0.7, every=1, most=MOST)
    state = player.init(jax.random.key(0))
    begin, update = learning(IPD, [counting(), frozen(player, state)], steps_per_update=2, num_envs=3)
    carry, run_key = begin(jax.random.key(1))
    for key in jax.random.split(run_key, 3):
        carry, _ = update(carry, key)
    kept = carry.states[1]
    for now, before in zip(jax.tree.leaves(kept), jax.tree.leaves(state), strict=True):
        assert jnp.issubdtype(now.dtype, jax.dtypes.prng_key) or np.array_equal(now, before)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="past_selves: got 2"):
        past_selves(counting(), 2)
    with pytest.raises(ValueError, match="every: got 0"):
        past_selves(counting(), every=0)
    with pytest.raises(ValueError, match="past_selves: got a learner for seat 1; one for seat 0 is needed"):
        past_selves(make_learner("ppo", IPD, 1))
    with pytest.raises(ValueError, match="learner: got one that copies from the states of others"):
        past_selves(past_selves(counting()))
    with pytest.raises(ValueError, match="stale: got past selves"):
        stale(past_selves(counting()), 1)
