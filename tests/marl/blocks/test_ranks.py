"""Arrays of another rank would be broadcast, to results of the right shape and the wrong value: they are refused."""

import jax.numpy as jnp
import pytest

from marl.blocks.advantages import generalized_advantages, leave_one_out, returns_to_go
from marl.blocks.objectives import clipped_surrogate, dice_objective, policy_gradient

STEPS, ENVS = 3, 2
FULL, ROW, NOWHERE = jnp.ones((STEPS, ENVS)), jnp.ones(ENVS), jnp.zeros((STEPS, ENVS), bool)


@pytest.mark.parametrize("place", range(5))
def test_advantages_are_of_steps_and_environments(place):
    arrays = [FULL, FULL, FULL, NOWHERE, NOWHERE]
    assert generalized_advantages(*arrays, 0.9, 0.8).shape == (STEPS, ENVS)
    arrays[place] = arrays[place][0]
    with pytest.raises(AssertionError, match=r"shape|rank"):
        generalized_advantages(*arrays, 0.9, 0.8)


def test_returns_and_baselines_are_of_steps_and_environments():
    with pytest.raises(AssertionError, match="rank"):
        returns_to_go(ROW, NOWHERE[0], 0.9)
    with pytest.raises(AssertionError, match="rank"):
        leave_one_out(FULL[..., None])


@pytest.mark.parametrize("objective", [clipped_surrogate(), policy_gradient])
def test_an_objective_has_an_advantage_for_each_ratio(objective):
    assert objective(FULL, FULL).shape == (STEPS, ENVS)
    with pytest.raises(AssertionError, match="shape"):
        objective(FULL, ROW)


@pytest.mark.parametrize("place", range(4))
def test_the_sampled_return_is_of_steps_and_environments(place):
    arrays = [FULL, FULL, FULL, NOWHERE]
    arrays[place] = arrays[place][0]
    log_probs, rewards, values, done = arrays
    with pytest.raises(AssertionError, match=r"shape|rank"):
        dice_objective(log_probs, rewards, 0.9, values, done)
