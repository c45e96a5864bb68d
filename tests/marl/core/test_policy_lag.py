"""A learner that acts with an old policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import Learner, learn, stale

GAME = make("CartPole-v1")


def counting():
    """A learner whose policy is the number of its updates, which the extras of its actions hold."""

    def act(key, parameters, memory, obs):
        return jnp.zeros(obs.shape[:-1], jnp.int32), memory, jnp.broadcast_to(parameters, obs.shape[:-1])

    return Learner(init=lambda key: jnp.int32(0), act=act, update=lambda key, state, trajectory: (state + 1, {}))


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_stale_learner_acts_with_an_old_policy(lag):
    settings = {"num_updates": 8, "steps_per_update": 2, "num_envs": 3, "keep_trajectories": True}
    found = jax.jit(lambda key: learn(key, GAME, [stale(counting(), lag)], **settings))(jax.random.key(0))
    expected = np.maximum(np.arange(8) - lag, 0)
    np.testing.assert_array_equal(found.trajectories[0].extras, np.broadcast_to(expected[:, None, None], (8, 2, 3)))
    state = found.states[0]
    assert int(state.own if lag else state) == 8


def test_bad_lags():
    for lag in (-1, 1.5, True):
        with pytest.raises(ValueError, match="lag: got"):
            stale(counting(), lag)
