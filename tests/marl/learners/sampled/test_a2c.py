"""Advantage actor-critic against the policy gradient in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from marl import learn
from marl.core.evaluate import evaluate
from marl.learners.sampled.ppo import PPOState, a2c
from tests.marl.sampled_steps import (
    CART_POLE,
    DISCOUNT,
    ENVS,
    STEPS,
    gradient,
    linear,
    log_softmax,
    single,
    some_steps,
)


def test_a_step_follows_the_policy_gradient_of_the_paper():
    epsilon, rate, t = 100.0, 50.0, some_steps(2)
    t.next_obs[:-1] = np.where(t.done[:-1, :, None], t.next_obs[:-1], t.obs[1:])
    learner = a2c(
        CART_POLE, network=linear(), learning_rate=rate, discount=DISCOUNT, entropy_coefficient=0.02,
        value_coefficient=0.7, max_gradient_norm=1e9, details={"adam_epsilon": epsilon},
    )  # fmt: skip

    @jax.jit
    def step():
        state = learner.init(jax.random.key(0))
        played, value, _ = linear().apply(state.params, single(t).obs, ())
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(played), t.action[..., None], -1)[..., 0]
        extras = t.extras._replace(log_prob=log_prob, value=value)
        return state, learner.update(jax.random.key(1), state, single(t)._replace(extras=extras))[0]

    first, second = step()
    assert isinstance(first, PPOState)
    before = np.asarray(first.params, np.float64)

    returns = np.zeros((STEPS, ENVS))  # rewards to the end of the episode, or to the last step and then the value
    later = np.zeros(ENVS)
    for step in reversed(range(STEPS)):
        value = t.next_obs[step] @ before[:, -1]
        cut = t.truncated[step] | (step == STEPS - 1)
        later = np.where(t.done[step] & ~t.truncated[step], 0, np.where(cut, value, later))
        later = returns[step] = t.reward[step] + DISCOUNT * later

    def loss(params):
        log_p, value = log_softmax(t.obs @ params[:, :-1]), t.obs @ params[:, -1]
        chosen = np.take_along_axis(log_p, t.action[..., None], -1)[..., 0]
        gain = (chosen * (returns - t.obs @ before[:, -1])).mean()
        entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
        return 0.7 * 0.5 * ((value - returns) ** 2).mean() - 0.02 * entropy - gain

    g = gradient(loss, before)
    np.testing.assert_allclose(second.params - before, -rate * g / (abs(g) + epsilon), rtol=2e-3, atol=2e-5)


@pytest.mark.slow
def test_it_solves_cart_pole_within_its_budget():
    updates = 500_000 // (8 * 5)
    learner = a2c(CART_POLE, learning_rate=optax.linear_schedule(1e-3, 0.0, updates))

    def run(key):
        history = learn(key, CART_POLE, [learner], num_updates=updates, steps_per_update=5, num_envs=8)
        return evaluate(key, CART_POLE, learner, history.states[0], num_episodes=32, num_steps=500).mean()

    returns = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 16))
    assert (returns >= 475).sum() >= 15, sorted(returns.tolist())
