"""PQN: its targets, its loss and its exploration against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from games import make
from marl import learn
from marl.blocks.networks import feed_forward, recurrent
from marl.core.evaluate import evaluate
from marl.learners.sampled.pqn import pqn
from tests.marl.sampled_steps import CART_POLE, DISCOUNT, linear, single, some_steps

LAMBDA = 0.7


def targets(t, params):
    """Peng's Q(lambda) in float64, by the recursion of the paper from the last step to the first."""
    before, after = (np.asarray(x, np.float64) @ params[:, :-1] for x in (t.obs, t.next_obs))
    found = np.zeros(t.reward.shape)
    steps, envs = t.reward.shape
    for n in range(envs):
        for i in reversed(range(steps)):
            terminated, last = t.done[i, n] and not t.truncated[i, n], t.done[i, n] or i == steps - 1
            best = (after[i, n] if last else before[i + 1, n]).max()
            later = best if last else (1 - LAMBDA) * best + LAMBDA * found[i + 1, n]
            found[i, n] = t.reward[i, n] + (0 if terminated else DISCOUNT * later)
    return found, before


def test_the_loss_is_of_targets_by_the_papers_recursion():
    learner = pqn(
        CART_POLE, network=linear(), learning_rate=1e-3, epochs=1, minibatches=1, discount=DISCOUNT, trace_lambda=LAMBDA
    )
    state = learner.init(jax.random.key(3))
    params, update = np.asarray(state.params, np.float64), jax.jit(learner.update)
    for seed in range(4):
        t = some_steps(seed)
        goal, values = targets(t, params)
        chosen = np.take_along_axis(values, t.action[..., None], -1)[..., 0]
        of_steps = single(t._replace(extras=values.max(-1)))
        after, metrics = update(jax.random.key(0), state, of_steps)
        assert float(metrics["value_loss"]) == pytest.approx(0.5 * np.mean((chosen - goal) ** 2), rel=1e-4)
        assert float(metrics["value"]) == pytest.approx(chosen.mean(), rel=1e-4)
        assert int(after.steps) == t.reward.size
        valid = np.arange(t.reward.size).reshape(t.reward.shape) % 3 > 0
        _, metrics = jax.jit(learner.update)(jax.random.key(0), state, of_steps._replace(valid=jnp.asarray(valid)))
        assert float(metrics["value_loss"]) == pytest.approx(0.5 * np.mean((chosen - goal)[valid] ** 2), rel=1e-4)


def test_epsilon_falls_with_the_steps():
    exploration = {"epsilon_start": 0.8, "epsilon_end": 0.2, "epsilon_steps": 100}
    learner = pqn(CART_POLE, network=linear(), exploration=exploration)
    state = learner.init(jax.random.key(0))
    shares = [float(learner.policy(state._replace(steps=jnp.int32(steps))).epsilon) for steps in (0, 50, 100, 1000)]
    np.testing.assert_allclose(shares, [0.8, 0.5, 0.2, 0.2], rtol=1e-6)
    obs = jnp.ones((4000, 4))
    policy = learner.policy(state._replace(steps=jnp.int32(50)))
    action, _, best = learner.act(jax.random.key(1), policy, (), obs)
    greedy, _ = learner.act_greedy(policy, (), obs)
    assert float((action == greedy).mean()) == pytest.approx(0.75, abs=0.03)  # half of the random ones of two
    np.testing.assert_allclose(best, (obs @ state.params)[:, :-1].max(-1), rtol=1e-6)


@pytest.mark.parametrize("rows", [3, 200])  # in rows and in columns
def test_layer_normalisation_standardises_the_units_of_a_layer(rows):
    network = feed_forward((4,), 2, hidden=[6], activation="relu", shared=True, layer_norm=True)
    params = network.init(jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (rows, 4))
    x = np.asarray(obs, np.float64) @ np.asarray(params["Dense_0"]["kernel"])
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    expected = np.maximum(x, 0) @ np.asarray(params["_Heads_0"]["Dense_0"]["kernel"])
    np.testing.assert_allclose(network.apply(params, obs, ())[0], expected, rtol=1e-4, atol=1e-6)


def test_misfits_are_refused():
    with pytest.raises(ValueError, match=r"action space: got Box.*; Discrete is needed"):
        pqn(make("Pendulum-v1"))
    with pytest.raises(ValueError, match="network: got one with memory"):
        pqn(CART_POLE, network=recurrent((4,), 2))
    with pytest.raises(ValueError, match="minibatches: got 5; a divisor of the 4 steps times environments is needed"):
        learn(
            jax.random.key(0), CART_POLE, [pqn(CART_POLE, network=linear(), minibatches=5)],
            num_updates=1, steps_per_update=2, num_envs=2,
        )  # fmt: skip


@pytest.mark.slow
def test_it_learns_cart_pole():
    updates = 100_000 // (16 * 32)
    exploration = {"epsilon_steps": 20_000}
    rate = optax.linear_schedule(5e-4, 0.0, updates * 64)
    learner = pqn(CART_POLE, learning_rate=rate, exploration=exploration)

    def run(key):
        history = learn(key, CART_POLE, [learner], num_updates=updates, steps_per_update=32, num_envs=16)
        return evaluate(key, CART_POLE, learner, history.states[0], num_episodes=16, num_steps=500).mean()

    returns = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 3))
    assert float(jnp.median(returns)) >= 200, returns  # random play gets 22
