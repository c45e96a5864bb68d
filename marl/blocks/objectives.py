"""Objectives of policy gradients: surrogates and drifts, as functions.

Those with parameters are pairs of pure functions, `Parametric`, as networks are, so that they can be evolved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from games.core import checks
from games.core.arguments import check_arguments
from games.core.game import Scalar
from marl.blocks.advantages import generalized_advantages

Objective = Callable[[jax.Array, jax.Array], jax.Array]  # (log ratios, advantages) -> what is to be maximised, [...]

NO_DRIFT = 1e-4  # what a learned drift has to exceed to count: around a ratio of 1 it is 0, and flat


class Timed(NamedTuple):
    """An objective that depends on how much of the training is over.

    Attributes:
      at: `(share in [0, 1]) -> objective` at that share of the training.
      num_updates: of the whole training, as of `learn`; a learner needs it.
    """

    at: Callable[[jax.Array], Objective]
    num_updates: int | None = None


class Aligned(NamedTuple):
    """An objective of advantages to which the co-players' advantages are added, as of `advantage_alignment`.

    Attributes:
      alignment: weight of the co-players' advantages.
      objective: of log ratios and the sums.
      advantages: from rewards and values, with the arguments of `generalized_advantages`.
    """

    alignment: Scalar
    objective: Objective
    advantages: Callable[..., jax.Array] = generalized_advantages


class Parametric(NamedTuple):
    """A function with parameters.

    Attributes:
      init: `(key) -> parameters`.
      apply: `(parameters, *arguments) -> [...]`.
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[..., jax.Array]


@check_arguments
def clipped_surrogate(*, clip: Scalar = 0.2) -> Objective:
    """min(rho A, clip(rho, 1 - clip, 1 + clip) A), with rho the ratio of new and old probability.

    Args:
      clip: distance of rho from 1 beyond which nothing more is gained, above 0.

    Raises:
      ValueError: for a `clip` that is not above 0.

    Example:
      >>> import marl, numpy as np
      >>> objective = marl.objectives.clipped_surrogate(clip=0.2)
      >>> round(float(objective(np.log(2.0), np.float32(3.0))), 2)  # a ratio of 2 counts as 1.2
      3.6

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), arXiv:1707.06347, equation 7.
    """
    checks.number("clip", clip, 0, brackets="()")

    def objective(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
        chex.assert_equal_shape([jnp.asarray(x) for x in (log_ratio, advantage)])
        ratio = jnp.exp(log_ratio)
        return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)

    return objective


@check_arguments
def dpo(*, alpha: Scalar = 2.0, beta: Scalar = 0.6) -> Objective:
    """The objective rho A - drift of DPO, with rho the ratio of new and old probability.

        drift = relu((rho - 1) A - alpha tanh((rho - 1) A / alpha))    where A >= 0,
        drift = relu(A log rho - beta tanh(A log rho / beta))          where A < 0:

    This is the formula of an evolved drift.

    Args:
      alpha: scale of the drift of positive advantages, above 0.
      beta: scale of the drift of negative advantages, above 0.

    Raises:
      ValueError: for an `alpha` or `beta` that is not above 0.

    Source: Lu et al., Discovered Policy Optimisation (2022), arXiv:2210.05639, section 6.
    """
    checks.number("alpha", alpha, 0, brackets="()")
    checks.number("beta", beta, 0, brackets="()")

    def drift(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
        up, down = jnp.expm1(log_ratio) * advantage, log_ratio * advantage
        up, down = up - alpha * jnp.tanh(up / alpha), down - beta * jnp.tanh(down / beta)
        return jax.nn.relu(jnp.where(advantage >= 0, up, down))

    return with_drift(drift)


@check_arguments
def quadratic_drift(
    *, penalty: Scalar = 0.7, correction: Scalar = 0.2, scale: Scalar = 0.2, clip: Scalar = 0.65
) -> Objective:
    """The objective rho A - drift of a closed formula, with rho the ratio of new and old probability.

        drift = relu(clipped + scale tanh(x / scale) - 1e-4),    x = penalty (rho - 1)^2 - correction (rho - 1) A,

    and *clipped* the drift of `clipped_surrogate`. The penalty holds the policy back. The correction weakens it where
    the policy has moved along the advantage, and strengthens it where it has moved against the advantage. It is the
    shape of the evolved drift of this library, as `marl.reproduce distillation` fits it.

    Args:
      penalty: weight of the square, at least 0.
      correction: weight of moves against the advantage, at least 0.
      scale: bound of both together, above 0.
      clip: as of `clipped_surrogate`.

    Raises:
      ValueError: for a number below 0, or a `scale` or a `clip` that is not above 0.

    Example:
      >>> import marl, numpy as np
      >>> objective = marl.objectives.quadratic_drift(penalty=0.5, correction=0.2, scale=100)
      >>> round(float(objective(np.log(1.5), np.float32(-1.0))), 3)  # -1.5 - (0.125 + 0.1)
      -1.725
    """
    checks.number("penalty", penalty, 0)
    checks.number("correction", correction, 0)
    checks.number("scale", scale, 0, brackets="()")
    checks.number("clip", clip, 0, brackets="()")

    def drift(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
        more = jnp.expm1(log_ratio)  # rho - 1
        clipped = jax.nn.relu((more - jnp.clip(more, -clip, clip)) * advantage)
        x = penalty * more**2 - correction * more * advantage
        return jax.nn.relu(clipped + scale * jnp.tanh(x / scale) - NO_DRIFT)

    return with_drift(drift)


def with_drift(drift: Objective) -> Objective:
    """The objective rho A - drift(log rho, A), the form of mirror learning.

    A drift that is at least 0, and 0 with a gradient of 0 where rho is 1, keeps the guarantees of a trust region:
    no step lowers the return, and what it leads to is optimal.

    Args:
      drift: `(log rho, A) -> drift`, elementwise, `[...]`.

    Source: Kuba et al., Mirror Learning (2022), arXiv:2201.02373.
    """

    def objective(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
        chex.assert_equal_shape([jnp.asarray(x) for x in (log_ratio, advantage)])
        return jnp.exp(log_ratio) * advantage - drift(log_ratio, advantage)

    return objective


@check_arguments
def drift_network(hidden: int = 128, clip: Scalar | None = None, *, timed: bool = False) -> Parametric:
    """A drift that is evolved: `apply(parameters, log rho, A)` or, timed, `apply(parameters, log rho, A, share)`.

        relu(base + w2 tanh(W1 x) - 1e-4),    x = log rho, (log rho)^2, 1 - rho, (1 - rho)^2, and each of them times A,

    without biases, so that for all parameters it is 0 with a gradient of 0 where rho is 1. The base is 0 or, with a
    `clip`, the drift of the clipped surrogate, relu((rho - clip(rho, 1 - clip, 1 + clip)) A). Timed, x has two more
    entries: 1 - rho and (1 - rho) A, times the share of the training that is over.

    The last layer begins at 0. The first does not: of a network of zeros the parameters w and -w are the same, and
    antithetic pairs would all tie.

    Args:
      hidden: tanh units.
      clip: of the base; None for a base of 0.
      timed: whether the share of the training that is over is an argument.

    Raises:
      ValueError: for a number of hidden units or a `clip` that is none, or too small.

    Source: Lu et al., Discovered Policy Optimisation (2022), arXiv:2210.05639, section 5 and appendix (128 units);
    a learned objective that depends on the time: Jackson et al., Discovering Temporally-Aware Reinforcement Learning
    Algorithms (2024), arXiv:2402.05828.
    """
    checks.size("hidden", hidden, 1)
    checks.number("clip", 1 if clip is None else clip, 0, brackets="()")
    inputs = 10 if timed else 8

    def init(key: jax.Array) -> dict[str, jax.Array]:
        return {"w1": jax.random.normal(key, (inputs, hidden)) / inputs**0.5, "w2": jnp.zeros(hidden)}

    def apply(parameters: Any, log_ratio: jax.Array, advantage: jax.Array, share: Any = None) -> jax.Array:
        less = -jnp.expm1(log_ratio)  # 1 - rho
        x = [log_ratio, log_ratio**2, less, less**2]
        x += [one * advantage for one in x]
        x += [share * less, share * less * advantage] if timed else []
        drift = jnp.tanh(jnp.stack(x, -1) @ parameters["w1"]) @ parameters["w2"] - NO_DRIFT
        if clip is not None:
            drift += jax.nn.relu((jnp.clip(less, -clip, clip) - less) * advantage)
        return jax.nn.relu(drift)

    return Parametric(init, apply)


def learned(network: Parametric, parameters: Any, *, timed: bool = False) -> Objective | Timed:
    """The objective of a `drift_network` with these parameters.

    Args:
      network: as `drift_network` makes it.
      parameters: of the network.
      timed: as of the network.

    Returns:
      An `Objective`, or a `Timed` one.
    """
    if not timed:
        return with_drift(lambda *x: network.apply(parameters, *x))
    return Timed(lambda share: with_drift(lambda *x: network.apply(parameters, *x, share)))


def policy_gradient(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
    """An objective of `ppo` whose gradient at the old policy is the policy gradient.

    Args:
      log_ratio: `[...]`, logarithm of the ratio of new and old probability.
      advantage: `[...]`.
    """
    chex.assert_equal_shape([jnp.asarray(x) for x in (log_ratio, advantage)])
    return log_ratio * advantage


def dice_objective(
    log_probs: jax.Array,
    rewards: jax.Array,
    discount: Scalar,
    values: jax.Array | None = None,
    done: jax.Array | None = None,
) -> jax.Array:
    """A sampled return whose derivatives of any order are unbiased estimates of those of the expected return.

    With the magic box M(w) = exp(w - stop_gradient(w)), which is 1 and has dM = M dw, w_t the log probability of what
    was done at t and W_t that of everything done in the episode up to and with t,

        L = sum_t discount^t [ M(W_t) r_t + M(W_{t-1}) (1 - M(w_t)) b_t ].

    The second term is the baseline: 0 in value and in expectation of every derivative, whatever b_t may be that does
    not depend on what was done at t or later. Its first derivative is that of DiCE's own, (1 - M(w_t)) b_t; the factor
    M(W_{t-1}) lets it lower the variance of the higher ones too.

    Args:
      log_probs: `[T, N]`, of all the players' actions whose parameters are differentiated, added up.
      rewards: `[T, N]`.
      discount: of rewards, from the beginning of their episode on.
      values: `[T, N]`, the baseline b: estimates of the return to go, not differentiated. None for no baseline.
      done: `[T, N]`, whether an episode ended with the step; what comes later does not depend on it. None for nowhere.

    Returns:
      `[]`, the mean over N of the sum over the episodes.

    Raises:
      AssertionError: if one of the arrays has another shape, which would be broadcast.

    Source: Foerster et al., DiCE: The Infinitely Differentiable Monte-Carlo Estimator (2018), arXiv:1802.05098,
    section 4, with its baseline, which serves the first derivative; the factor: Mao et al., A Baseline for Any Order
    Gradient Estimation in Stochastic Computation Graphs (2019), and for advantages of any kind Farquhar et al., Loaded
    DiCE (2019), arXiv:1909.10549.
    """
    done = jnp.zeros(rewards.shape, bool) if done is None else done
    values = jnp.zeros_like(rewards) if values is None else jax.lax.stop_gradient(values)
    chex.assert_rank(rewards, 2)
    chex.assert_equal_shape((log_probs, rewards, values, done))

    def forward(carry: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]) -> Any:
        before, weight = carry
        log_prob, ended = now
        after = before + log_prob
        later = jnp.where(ended, 0.0, after), jnp.where(ended, 1.0, weight * discount)
        return later, (before, after, weight)

    first = jnp.zeros_like(log_probs[0]), jnp.ones_like(log_probs[0])
    _, (before, after, weight) = jax.lax.scan(forward, first, (log_probs, done))
    # M(W_{t-1}) M(w_t) is M(W_t).
    return (weight * (magic_box(after) * (rewards - values) + magic_box(before) * values)).sum(0).mean()


def magic_box(x: jax.Array) -> jax.Array:
    """1, with the derivatives of exp(x): DiCE's operator on a log probability.

    Args:
      x: `[...]`, log probabilities.
    """
    return jnp.exp(x - jax.lax.stop_gradient(x))
