"""Arrays of a wrong rank are refused, because broadcasting would give the right shape and the wrong values."""

import jax
import jax.numpy as jnp
import pytest

from attacks.messages import make_message
from games import Box, Discrete, make
from marl.blocks.advantages import generalized_advantages, leave_one_out, returns_to_go
from marl.blocks.distributions import distribution
from marl.blocks.layers import where_done
from marl.blocks.networks import feed_forward, recurrent
from marl.blocks.normalization import add, first_statistics, normalize
from marl.blocks.objectives import clipped_surrogate, dice_objective, policy_gradient
from marl.shapers.sampled_policies import shaper

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


def test_actions_have_the_axes_of_the_outputs():
    for space, outputs in ((Discrete(3), 3), (Box(-1.0, 1.0, (1,)), 2)):
        one = distribution(space)
        actions = jnp.zeros((STEPS, ENVS, *space.shape))
        assert one.log_prob(jnp.ones((STEPS, ENVS, outputs)), actions).shape == (STEPS, ENVS)
        for wrong in (actions[0], actions[..., None], actions.swapaxes(0, 1)):
            with pytest.raises(AssertionError, match="shape"):
                one.log_prob(jnp.ones((STEPS, ENVS, outputs)), wrong)


@pytest.mark.parametrize("make_network", [feed_forward, recurrent])
def test_a_network_sees_whole_observations_and_a_carry_for_each(make_network):
    network = make_network((2, 3), 4)
    params = jax.eval_shape(network.init, jax.random.key(0))

    def outputs(obs, carry):
        return jax.eval_shape(network.apply, params, jnp.zeros(obs), carry)[0].shape

    assert outputs((5, 2, 3), network.initial(5)) == (5, 4)
    with pytest.raises(AssertionError, match="shape"):
        outputs((5, 6), network.initial(5))
    if make_network is recurrent:
        with pytest.raises(AssertionError, match="shape"):
            outputs((5, 2, 3), network.initial(1))


def test_arrays_that_an_episode_resets_have_an_entry_for_each_environment():
    done, memory = jnp.zeros(3, bool), {"h": jnp.ones((3, 3))}
    assert where_done(done, memory, memory)["h"].shape == (3, 3)
    for wrong in (done[:, None], done[:1]):
        with pytest.raises(AssertionError, match=r"rank|shape"):
            where_done(wrong, memory, memory)
    with pytest.raises(AssertionError, match="shape"):
        where_done(done, {"h": jnp.zeros(3)}, memory)


def test_statistics_are_of_batches_of_observations():
    statistics = first_statistics((3,))
    assert normalize(add(statistics, jnp.ones((3, 3))), jnp.ones(3)).shape == (3,)
    for wrong in (jnp.ones(3), jnp.ones((2, 3, 3)), jnp.ones((3, 1))):
        with pytest.raises(AssertionError, match="shape"):
            add(statistics, wrong)
    with pytest.raises(AssertionError, match="shape"):
        normalize(statistics, jnp.ones((3, 1)))


@pytest.mark.parametrize("spec", ["mlp", "linear", "echo", "table(low=[0], high=[1])"])
def test_a_message_is_about_one_observation(spec):
    message = make_message(spec, (2, 2), 2)
    words = message.init(jax.random.key(0))
    assert message.speak(words, jnp.zeros((2, 2))).shape == (2,)
    for wrong in (jnp.zeros((1, 2, 2)), jnp.zeros(4)):
        with pytest.raises(AssertionError, match="shape"):
            message.speak(words, wrong)


@pytest.mark.parametrize("channels", [0, 2])
def test_a_shaper_sees_one_observation_in_each_environment(channels):
    policy = shaper(make("coin_game"), channels=channels)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    for wrong in ((2, 36), (2, 3, 4, 3), (3, 3, 4)):
        with pytest.raises(AssertionError, match="shape"):
            jax.eval_shape(policy.act, params, policy.init_memory(2), jnp.zeros(wrong))
