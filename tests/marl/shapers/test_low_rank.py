"""Shapers and messages evolve with noise of low rank as they are."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import attacks
import games
import marl
from benchmarks.speed import low_rank
from meta import Evolution, Outcome
from meta.low_rank import AXES, LowRankNoise, Proposals
from tests.nightly import MARKS, nightly


def exact():
    game = games.InfinitelyRepeated(games.prisoners_dilemma)
    shaper = marl.make_shaper("shaper(hidden_units=8)", game)
    return marl.shaping_trial(game, shaper, marl.make_learner("naive", game, seat=1), meta_steps=3), shaper.init


def sampled(spec):
    """With so many environments that the layers of 16 units are products on CPUs too."""
    game = games.make("coin_game")
    shaper = marl.make_shaper(spec, game)
    learners = [marl.make_learner("ppo(hidden=[4])", game, seat=1)]
    return marl.shaping_trial(game, shaper, learners, meta_steps=2, episode_length=4, num_envs=12), shaper.init


def message(spec):
    made = attacks.make_message(spec, (4,), 2)
    memory = made.memory if made.remember else None

    def trial(parameters, key):
        def step(memory, obs):
            if made.remember:
                memory = made.remember(parameters, memory, obs)
                return memory, made.speak(parameters, obs, memory)
            return memory, made.speak(parameters, obs)

        return Outcome(jax.lax.scan(step, memory, jax.random.normal(key, (5, 4)))[1].mean(), {})

    return trial, made.init


@pytest.mark.system
@pytest.mark.parametrize(
    ("made", "matrices"),
    [
        pytest.param(exact, 3, id="exact"),
        pytest.param(lambda: message("mlp(hidden=[8, 8])"), 3, id="mlp"),
        pytest.param(lambda: message("lstm(units=8)"), 9, id="lstm"),
        pytest.param(lambda: message("linear"), 1, id="linear"),
        pytest.param(lambda: sampled("shaper(channels=4)"), 6, id="shaper", marks=MARKS),
        pytest.param(lambda: sampled("mfos(channels=4)"), 12, id="mfos", marks=MARKS),
    ],
)
def test_a_trial_with_shared_matrices_is_that_of_a_candidate_in_full(made, matrices):
    """And every matrix of two rows and columns or more is shared."""
    trial, init = made()
    key, rows = jax.random.key(0), jnp.arange(6)
    mean, unravel = ravel_pytree(init(key))
    noise = LowRankNoise(unravel, mean.size, Evolution(noise="low_rank", population_size=6), trial, (key,))
    shapes = [x.shape for x in jax.tree.leaves(init(key))]
    shared = sum(sum(shape) for shape in shapes if len(shape) == 2 and min(shape) > 1)
    assert sum(len(shape) == 2 and min(shape) > 1 for shape in shapes) == matrices
    assert noise.numbers == shared + sum(np.prod(shape, dtype=int) for shape in shapes if len(shape) < 2 or 1 in shape)
    proposals = Proposals(mean, jnp.float32(0.3), key)
    candidates = noise.draw(proposals, rows)

    def both(candidate):
        whole = noise.call(lambda parameters: parameters, candidate)
        return noise.call(trial, candidate, key).fitness, trial(whole, key).fitness

    found, expected = jax.jit(jax.vmap(both, (AXES,)))(candidates)
    assert np.std(expected) > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@nightly
def test_4096_candidates_of_a_recurrent_shaper_of_512_units_need_less_than_two_gigabytes():
    """With 1.6 million parameters all candidates would be 26 gigabytes in full."""
    assert 4096 * low_rank.parameters(512) * 4 > 25e9
    options = argparse.Namespace(population=4096, trials=1, chunk_size=0)
    assert low_rank.memory(low_rank.search(512, "low_rank", options)) < 2e9
