"""Self-play by actors: the same as in `learn`, with any actors and lags, and after a stop."""

import jax
import numpy as np
import pytest

from games import make
from marl import learn, make_learner, past_selves
from marl.distributed.adapters.maker import make_env
from marl.distributed.runtime import train
from marl.distributed.system import System
from meta import RunDirectory
from meta.prng_data import data_of
from tests.nightly import nightly

pytestmark = pytest.mark.system

UPDATES = 12
HOST = make_env("ipd(episode_length=4)", 2)
SETTINGS = {"key": jax.random.key(0), "num_updates": UPDATES, "steps_per_update": 4}


@pytest.fixture(scope="module")
def pair():
    learner = make_learner("ppo(network='recurrent', hidden=[4], memory=4, minibatches=1)", make("ipd"))
    return [learner, past_selves(learner, 0.5, every=2, most=4)]


def assert_equal(one, two, **tolerances):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(data_of(x), data_of(y), **tolerances)


@nightly
def test_one_actor_has_the_results_of_learn(pair):
    game = make("ipd", episode_length=4)
    expected = jax.jit(lambda key: learn(key, game, pair, num_updates=UPDATES, steps_per_update=4, num_envs=2))(
        SETTINGS["key"]
    )
    found = train(pair, [HOST], **SETTINGS).history
    assert 0 < expected.metrics[1]["against_past"].sum() < UPDATES
    np.testing.assert_array_equal(found.metrics[1]["against_past"], expected.metrics[1]["against_past"])
    # Equal up to rounding, which depends on the compiler options of the tests.
    assert_equal((found.states, found.rewards), (expected.states, expected.rewards), rtol=1e-4, atol=1e-6)


def test_threads_with_a_lag_have_the_results_of_one_process(pair):
    here, threads = (
        train(pair, [HOST] * 2, system=System(where, lag=2), **SETTINGS).history for where in ("here", "threads")
    )
    assert_equal(here.states, threads.states, rtol=0)
    together = train(pair, [HOST] * 2, system=System(path="barrier", lag=2), **SETTINGS).history
    assert together.metrics[1]["against_past"].shape == (UPDATES,)


def test_a_resumed_run_has_its_past_selves(pair, tmp_path):
    """Episodes end with the rollouts, so that new environments are in the same states."""
    whole = train(pair, [HOST], system=System(lag=0), **SETTINGS).history
    with RunDirectory.create(tmp_path / "run", {}) as run:
        train(pair, [HOST], system=System(lag=0), **SETTINGS | {"num_updates": 7}, store=run)
    with RunDirectory(tmp_path / "run") as run:
        found = train(pair, [HOST], system=System(lag=0), **SETTINGS, store=run).history
    assert_equal(found.states, whole.states, rtol=0)
    assert_equal(found.metrics, whole.metrics, rtol=0)
    assert sorted(found.states[1].league.version.tolist()) == [6, 8, 10, 12]
