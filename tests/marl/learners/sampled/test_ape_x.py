"""Ape-X: its ladder of exploration, and its priorities and gradient against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl import Trajectory, ape_x
from marl.learners.sampled.dqn import DQNExtras, DQNMemory
from tests.marl.sampled_steps import CART_POLE, DISCOUNT, gradient, linear, single


def test_every_environment_of_ape_x_has_its_own_rate_of_exploration():
    learner = ape_x(CART_POLE, network=linear())
    memory = learner.init_memory(learner.policy(learner.init(jax.random.key(0))), 3)
    np.testing.assert_allclose(memory.epsilon, [0.4, 0.4**4.5, 0.4**8], rtol=1e-5)
    obs = jnp.ones((3, 4))
    policy = learner.policy(learner.init(jax.random.key(0)))
    act = jax.jit(jax.vmap(lambda key: learner.act(key, policy, memory, obs)[0]))
    actions = np.asarray(act(jax.random.split(jax.random.key(1), 20_000)))
    greedy = np.asarray(learner.act_greedy(policy, memory, obs)[0])
    p = np.array([0.4, 0.4**4.5, 0.4**8]) / 2  # half of the random actions are the other one
    assert (abs((actions != greedy).mean(0) - p) < 4 * np.sqrt(p * (1 - p) / 20_000)).all()


def test_first_priorities_come_from_the_actors_own_values():
    rng = np.random.default_rng(0)
    learner = ape_x(
        CART_POLE, network=linear(), discount=DISCOUNT, replay={"buffer_size": 8, "learning_starts": 100},
        priorities={"priority_exponent": 1.0},
    )  # fmt: skip
    state = learner.init(jax.random.key(0))
    value, best = rng.normal(size=(2, 4, 2))
    obs, next_obs = rng.normal(size=(2, 4, 2, 4))
    done = np.array([[0, 0], [1, 0], [0, 1], [0, 0]], bool)
    truncated = np.array([[0, 0], [0, 0], [0, 1], [0, 0]], bool)
    reward, action = rng.normal(size=(4, 2)), np.zeros((4, 2), int)
    memory = DQNMemory(None, np.zeros(2))
    t = Trajectory(obs, action, reward, done, DQNExtras(value, best), (), truncated, next_obs, memory, memory)
    after, _ = learner.update(jax.random.key(1), state, single(t))
    seen = next_obs[-1] @ np.asarray(state.params, np.float64)
    coming = (seen[:, -1:] + seen[:, :-1] - seen[:, :-1].mean(-1, keepdims=True)).max(-1)
    expected = np.zeros((4, 2))
    for env in range(2):
        for s in range(4):
            total, factor, k = 0.0, 1.0, s
            while True:
                total += factor * reward[k, env]
                factor *= 0.0 if done[k, env] and not truncated[k, env] else DISCOUNT
                if done[k, env] or k + 1 in (4, s + 3):
                    break
                k += 1
            after_it = best[k, env] if truncated[k, env] else (coming[env] if k == 3 else best[k + 1, env])
            expected[s, env] = abs(total + factor * after_it - value[s, env])
    np.testing.assert_allclose(after.priority, expected.ravel(), rtol=1e-3, atol=1e-5)
    late = t._replace(valid=np.array([[1, 1], [1, 1], [1, 1], [0, 1]], bool))
    after, _ = learner.update(jax.random.key(1), state, single(late))
    assert float(after.priority[6]) == 0.0  # it is never drawn
    assert (np.asarray(after.priority)[[0, 1, 7]] > 0).all()


def test_a_gradient_step_of_ape_x_has_importance_weights():
    """Stratified sampling: 4,096 draws give every step its share of the priorities up to one draw."""
    rng = np.random.default_rng(1)
    learner = ape_x(
        CART_POLE, network=linear(), discount=DISCOUNT, multi_step=1, max_gradient_norm=1e9,
        replay={"buffer_size": 4, "batch_size": 4096, "gradient_steps": 1, "learning_starts": 4},
    )  # fmt: skip
    state = learner.init(jax.random.key(0))._replace(target=linear().init(jax.random.key(9)))
    value, best = rng.normal(size=(2, 2, 2))
    obs, next_obs = rng.normal(size=(2, 2, 2, 4))
    reward, action, goes_on = np.array([[9.0, 1], [0, -1]]), np.array([[0, 1], [1, 0]]), np.zeros((2, 2), bool)
    memory = DQNMemory(None, np.zeros(2))
    t = Trajectory(obs, action, reward, goes_on, DQNExtras(value, best), (), goes_on, next_obs, memory, memory)
    after, metrics = jax.jit(learner.update)(jax.random.key(1), state, single(t))
    params, target = (np.asarray(x, np.float64) for x in (state.params, state.target))

    def values(matrix, obs):
        found = obs @ matrix
        return found[..., -1:] + found[..., :-1] - found[..., :-1].mean(-1, keepdims=True)

    following = np.stack([best[1], values(params, next_obs[-1]).max(-1)])
    first = abs(reward + DISCOUNT * following - value) ** 0.6
    share = first / first.sum()
    weight = (4 * share) ** -0.4 / ((4 * share) ** -0.4).max()
    assert weight.min() < 0.7  # the weights matter
    chosen = values(params, next_obs).argmax(-1)[..., None]
    goal = reward + DISCOUNT * np.take_along_axis(values(target, next_obs), chosen, -1)[..., 0]

    def off(learned):
        return np.take_along_axis(values(learned, obs), action[..., None], -1)[..., 0] - goal

    def loss(learned):
        return (share * weight * 0.5 * off(learned) ** 2).sum()

    assert float(metrics["value_loss"]) == pytest.approx(loss(params), rel=5e-3)
    moment = next(x for x in jax.tree.leaves(after.optimizer) if x.ndim == 1)  # a tenth of the gradient by then
    np.testing.assert_allclose(10 * moment.reshape(params.shape), gradient(loss, params), rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(after.priority, abs(off(params)).ravel() ** 0.6, rtol=1e-3)
    np.testing.assert_allclose(after.target, target + 0.02 * (np.asarray(after.params) - target), rtol=1e-5, atol=1e-6)
