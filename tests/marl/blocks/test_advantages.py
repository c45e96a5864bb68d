"""V-trace, several steps and the scale of values, against their definitions in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marl.blocks import advantages
from marl.blocks.advantages import mean, multi_step, squash, standardize, unsquash

DISCOUNT = 0.9
v_trace, generalized_advantages = map(jax.jit, (advantages.v_trace, advantages.generalized_advantages))


def steps(seed, length=9, envs=3):
    """Log ratios, rewards, values, next values, ends and time limits, some of each."""
    rng = np.random.default_rng(seed)
    log_ratio, reward, value, next_value = rng.normal(size=(4, length, envs))
    done = rng.random((length, envs)) < 0.3
    truncated = done & (rng.random((length, envs)) < 0.5)
    # Inside an episode the observation after a step is that of the next step.
    next_value[:-1] = np.where(done[:-1], next_value[:-1], value[1:])
    return log_ratio, reward, value, next_value, done, truncated


def single(arrays):
    return [jnp.asarray(x, bool if x.dtype == bool else jnp.float32) for x in arrays]


@pytest.mark.parametrize(("trace_lambda", "rho_clip", "trace_clip"), [(1.0, 1.0, 1.0), (0.8, 2.0, 0.7)])
def test_targets_are_the_sums_of_the_paper(trace_lambda, rho_clip, trace_clip):
    """Equation 1 as printed: a sum of products for each step."""
    log_ratio, reward, value, next_value, done, truncated = arrays = steps(0)
    ratio = np.exp(log_ratio)
    rho, c = np.minimum(rho_clip, ratio), trace_lambda * np.minimum(trace_clip, ratio)
    worth = np.where(done & ~truncated, 0.0, next_value)
    delta = rho * (reward + DISCOUNT * worth - value)
    target, advantage = np.zeros_like(value), np.zeros_like(value)
    for s in range(len(reward)):
        for n in range(reward.shape[1]):
            product, t, after = 1.0, s, 0.0
            while True:
                target[s, n] += product * delta[t, n]
                if t > s:
                    after += product / c[s, n] * delta[t, n]  # v_{s+1} - V(s_{s+1}), discounted
                if done[t, n] or t + 1 == len(reward):
                    break
                product *= DISCOUNT * c[t, n]
                t += 1
            target[s, n] += value[s, n]
            to_come = reward[s, n] + DISCOUNT * worth[s, n] + trace_lambda * after - value[s, n]
            advantage[s, n] = rho[s, n] * to_come
    found = v_trace(*single(arrays), DISCOUNT, trace_lambda, rho_clip, trace_clip)
    np.testing.assert_allclose(found.target, target, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.advantage, advantage, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=20)  # the first is compiled
@given(st.integers(0, 10_000), st.floats(0, 1))
def test_on_policy_they_are_generalized_advantages(seed, trace_lambda):
    _, *rest = single(steps(seed))
    found = v_trace(jnp.zeros_like(rest[0]), *rest, DISCOUNT, trace_lambda)
    expected = generalized_advantages(*rest, DISCOUNT, trace_lambda)
    np.testing.assert_allclose(found.advantage, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.target - rest[1], expected, rtol=1e-3, atol=1e-5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_targets_stop_at_the_end_of_an_episode_and_bootstrap_at_a_time_limit(seed):
    log_ratio, reward, value, next_value, done, truncated = steps(seed)
    done[4], truncated[4] = True, [True, False, True]
    before = v_trace(*single((log_ratio, reward, value, next_value, done, truncated)), DISCOUNT)
    reward[5:] += 100.0
    value[5:] -= 7.0
    after = v_trace(*single((log_ratio, reward, value, next_value, done, truncated)), DISCOUNT)
    np.testing.assert_array_equal(before.target[:5], after.target[:5])
    next_value[4] += 1.0
    moved = v_trace(*single((log_ratio, reward, value, next_value, done, truncated)), DISCOUNT)
    rho = np.minimum(1, np.exp(log_ratio[4]))
    expected = np.where(truncated[4], rho * DISCOUNT, 0.0)
    np.testing.assert_allclose(moved.target[4] - after.target[4], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_several_steps_stop_at_the_end_of_an_episode_and_of_the_batch(n):
    _, reward, _, _, done, truncated = steps(3)
    found = multi_step(*single((reward, done, truncated)), DISCOUNT, n)
    for s in range(len(reward)):
        for env in range(reward.shape[1]):
            total, factor, t = 0.0, 1.0, s
            while True:
                total += factor * reward[t, env]
                factor *= 0.0 if done[t, env] and not truncated[t, env] else DISCOUNT
                if done[t, env] or t + 1 == len(reward) or t + 1 == s + n:
                    break
                t += 1
            assert found.last[s, env] == t
            assert float(found.reward[s, env]) == pytest.approx(total, rel=1e-4, abs=1e-5)
            assert float(found.factor[s, env]) == pytest.approx(factor, rel=1e-4, abs=1e-7)


@settings(deadline=None, max_examples=20)
@given(st.floats(-1e4, 1e4))
def test_scaling_of_values_is_inverted(x):
    assert float(unsquash(squash(jnp.float32(x)))) == pytest.approx(x, rel=2e-3, abs=2e-3)
    assert float(squash(jnp.float32(x))) == pytest.approx(
        np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x, rel=1e-4, abs=1e-6
    )


def test_invalid_steps_count_in_neither_mean_nor_deviation():
    rng = np.random.default_rng(0)
    x, valid = rng.normal(size=(5, 4, 2)), rng.random((5, 4)) < 0.6
    nonsense = jnp.where(jnp.asarray(valid)[..., None], x, 1e6)
    assert float(mean(nonsense, jnp.asarray(valid))) == pytest.approx(x[valid].mean(), rel=1e-4)
    found = standardize(nonsense, jnp.asarray(valid))
    np.testing.assert_allclose(found[valid], (x[valid] - x[valid].mean()) / x[valid].std(), rtol=1e-3, atol=1e-5)
    assert float(mean(jnp.asarray(x))) == pytest.approx(x.mean(), rel=1e-4)
