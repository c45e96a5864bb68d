"""Advantages and returns, from rewards and values."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from games.core.game import Scalar


def mean(x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """The mean, over what is valid; `x` has further axes behind those of `valid`, if any."""
    if valid is None:
        return x.mean()
    chex.assert_tree_shape_prefix(x, valid.shape)
    valid = jnp.broadcast_to(valid.reshape(*valid.shape, *[1] * (x.ndim - valid.ndim)), x.shape)
    return jnp.where(valid, x, 0.0).sum() / jnp.maximum(valid.sum(), 1)


def standardize(x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
    """In standard deviations from the mean, both over what is valid."""
    if valid is None:
        return (x - x.mean()) / (x.std() + 1e-8)
    centred = x - mean(x, valid)
    return centred / (jnp.sqrt(mean(centred**2, valid)) + 1e-8)


def generalized_advantages(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    done: jax.Array,
    truncated: jax.Array,
    discount: Scalar,
    gae_lambda: Scalar,
) -> jax.Array:
    """Generalised advantage estimates `[T, N]`.

    Args:
      reward: `[T, N]`, as all of them.
      value: of the observation before a step.
      next_value: of the observation after it, before a reset.
      done: whether the episode ended with it.
      truncated: whether it ended by a time limit, where the value after it counts.
      discount: of rewards.
      gae_lambda: of the errors to come.

    Raises:
      AssertionError: if one of the arrays has another shape, which would be broadcast.

    Source: Schulman et al. (2016), arXiv:1506.02438, equation 16.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape((reward, value, next_value, done, truncated))
    goes_on = jnp.where(done & ~truncated, 0.0, discount)
    error = reward + goes_on * next_value - value
    decay = jnp.where(done, 0.0, discount * gae_lambda)

    def back(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (error, decay), reverse=True, unroll=16)[1]


def align(own: jax.Array, others: jax.Array, done: jax.Array, discount: Scalar) -> jax.Array:
    """(sum_{k < t} discount^(t - k) A_k) B_t, `[T, N]`, k of the same episode and of the batch.

    How far what is done now, which is B_t good for the co-player, answers to how good A_k for oneself was what both
    did before: to raise its probability teaches the co-player to do again what was good for oneself.

    Args:
      own: `[T, N]`, advantages A.
      others: `[T, N]`, the co-player's B; of several co-players the sum of theirs.
      done: `[T, N]`, whether the episode ended with the step.
      discount: of rewards.

    Raises:
      AssertionError: if one of the arrays has another shape, which would be broadcast.

    Source: Duque et al., Advantage Alignment Algorithms (2024), arXiv:2406.14662.
    """
    chex.assert_rank(own, 2)
    chex.assert_equal_shape((own, others, done))

    def forward(before: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        advantage, ended = now
        return jnp.where(ended, 0.0, discount * (before + advantage)), before

    return jax.lax.scan(forward, jnp.zeros_like(own[0]), (own, done), unroll=16)[1] * others


def returns_to_go(rewards: jax.Array, done: jax.Array, discount: Scalar) -> jax.Array:
    """sum_{k >= t} discount^(k - t) r_k up to the end of the episode or of the batch, `[T, N]` as both arguments."""
    nothing = jnp.zeros_like(rewards)
    return generalized_advantages(rewards, nothing, nothing, done, jnp.zeros(done.shape, bool), discount, 1.0)


def group_relative(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    done: jax.Array,
    truncated: jax.Array,
    discount: Scalar,
    gae_lambda: Scalar,
) -> jax.Array:
    """Returns to go less their mean over the other environments at the same step, `[T, N]`.

    No value is asked, so that the step of the environments should be that of their episodes too. The arguments are
    those of `generalized_advantages`, of which reward, done and discount count.

    Raises:
      ValueError: for a single environment.

    Source: Piche et al., Learning Robust Social Strategies with Large Language Models (2025), arXiv:2511.19405.
    """
    del value, next_value, truncated, gae_lambda
    if reward.shape[1] < 2:
        raise ValueError("baseline: got 'group' in one environment; two at least are needed")
    to_go = returns_to_go(reward, done, discount)
    return to_go - leave_one_out(to_go)


def of_action(values: jax.Array, action: jax.Array) -> jax.Array:
    """The values `[...]` of these actions `[...]`, of those of all actions `[..., actions]`."""
    chex.assert_shape(action, values.shape[:-1])
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]


def leave_one_out(values: jax.Array) -> jax.Array:
    """The mean over the other environments at the same step, `[T, N]`; 0 where N is 1."""
    chex.assert_rank(values, 2)
    num_others = values.shape[1] - 1
    return (values.sum(1, keepdims=True) - values) / num_others if num_others else jnp.zeros_like(values)


class VTrace(NamedTuple):
    """The result of `v_trace`, `[T, N]` each."""

    target: jax.Array  # of the value
    advantage: jax.Array  # of the policy gradient, with the weight of its own step


def v_trace(
    log_ratio: jax.Array,
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    done: jax.Array,
    truncated: jax.Array,
    discount: Scalar,
    trace_lambda: Scalar = 1.0,
    rho_clip: Scalar = 1.0,
    trace_clip: Scalar = 1.0,
) -> VTrace:
    """Targets and advantages of a policy from steps that an older one took.

    With rho = exp(log_ratio),

        delta_t = min(rho_clip, rho_t) (r_t + discount V(s'_t) - V(s_t)),
        v_t - V(s_t) = delta_t + discount c_t (v_{t+1} - V(s_{t+1})),        c_t = trace_lambda min(trace_clip, rho_t),
        A_t = min(rho_clip, rho_t) (r_t + discount (V(s'_t) + trace_lambda (v_{t+1} - V(s_{t+1}))) - V(s_t)).

    V(s'_t) is the value of the observation after the step and before a reset, so that a time limit is no end; the sums
    stop where an episode does. On policy both are generalised advantages.

    Args:
      log_ratio: `[T, N]`, as all of them: log probability of what was done, now less then.
      reward: of a step.
      value: of the observation before it.
      next_value: of the observation after it, before a reset.
      done: whether the episode ended with it.
      truncated: whether it ended by a time limit, where the value after it counts.
      discount: of rewards.
      trace_lambda: of the errors to come; 1 in the paper.
      rho_clip: whose values are learned: the higher the more today's policy's, the lower the more the older one's.
      trace_clip: how far the errors to come are trusted.

    Raises:
      AssertionError: if one of the arrays has another shape, which would be broadcast.

    Source: Espeholt et al., IMPALA (2018), arXiv:1802.01561, equation 1; the lambda of its remark 2. Written here, for
    libraries take the next row's value for V(s'_t), which is another episode's after a time limit.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape((log_ratio, reward, value, next_value, done, truncated))
    ratio = jnp.exp(log_ratio)
    rho, goes_on = jnp.minimum(rho_clip, ratio), jnp.where(done & ~truncated, 0.0, discount)
    error = reward + goes_on * next_value - value
    decay = jnp.where(done, 0.0, discount * trace_lambda)

    def back(later: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, VTrace]:
        error, rho, decay, trace = now
        found = rho * error + decay * trace * later
        return found, VTrace(found, rho * (error + decay * later))

    steps = error, rho, decay, jnp.minimum(trace_clip, ratio)
    found = jax.lax.scan(back, jnp.zeros_like(reward[0]), steps, reverse=True, unroll=16)[1]
    return found._replace(target=value + found.target)


class MultiStep(NamedTuple):
    """The result of `multi_step`, `[T, N]` each."""

    reward: jax.Array  # discounted, of up to n steps
    factor: jax.Array  # by which the value after the last of them counts; 0 where the episode terminated
    last: jax.Array  # number of that step in the batch


def multi_step(reward: jax.Array, done: jax.Array, truncated: jax.Array, discount: Scalar, n: int) -> MultiStep:
    """The next n steps of each one: up to the end of its episode, or of the batch, where they are fewer.

    The target of a value is `reward + factor * V(next_obs[last])`.

    Args:
      reward: `[T, N]`, as all of them.
      done: whether the episode ended with a step.
      truncated: whether it ended by a time limit, where the value after it counts.
      discount: of rewards.
      n: how many.

    Raises:
      AssertionError: if one of the arrays has another shape, which would be broadcast.

    Source: Sutton and Barto, Reinforcement Learning (2018), equation 7.1.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape((reward, done, truncated))
    first = jnp.arange(len(reward))[:, None]
    found = MultiStep(jnp.zeros_like(reward), jnp.ones_like(reward), jnp.broadcast_to(first, reward.shape))
    going = jnp.ones(done.shape, bool)
    for k in range(n):
        now = jnp.minimum(first[:, 0] + k, len(reward) - 1)
        going &= first + k < len(reward)
        goes_on = jnp.where((done & ~truncated)[now], 0.0, discount)
        after = MultiStep(found.reward + found.factor * reward[now], found.factor * goes_on, now[:, None])
        found = jax.tree.map(lambda new, old, going=going: jnp.where(going, new, old), after, found)
        going &= ~done[now]
    return found


def squash(x: jax.Array, epsilon: Scalar = 1e-3) -> jax.Array:
    """sign(x) (sqrt(|x| + 1) - 1) + epsilon x, elementwise: values of any size on a scale that a network can put out.

    Source: Pohlen et al., Observe and Look Further (2018), arXiv:1805.11593, proposition A.2.
    """
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + epsilon * x


def unsquash(y: jax.Array, epsilon: Scalar = 1e-3) -> jax.Array:
    """The inverse of `squash`; in a form that loses no digits where the root is near 1."""
    size = jnp.abs(y)
    root = jnp.sqrt(1 + 4 * epsilon * (size + 1 + epsilon))
    # (root - 1) / (2 epsilon) = 2 (size + 1 + epsilon) / (root + 1); its square less 1, as a product.
    half = 2 * (size + 1 + epsilon) / (root + 1)
    return jnp.sign(y) * (half - 1) * (half + 1)
