"""Objectives of policies: the published formulas, and the constraints of mirror learning."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from marl.blocks.objectives import Timed, clipped_surrogate, dpo, drift_network, learned, quadratic_drift

LOG_RATIO, ADVANTAGE = (x.ravel() for x in np.meshgrid(np.linspace(-2, 2, 41), np.linspace(-3, 3, 25)))
HIDDEN = 5
WEIGHT = st.floats(-100, 100, width=32)
drift_parameters = st.fixed_dictionaries(
    {"w1": arrays(np.float32, (8, HIDDEN), elements=WEIGHT), "w2": arrays(np.float32, HIDDEN, elements=WEIGHT)}
)
drift_and_slope = jax.jit(
    lambda parameters, x, a, clip: jax.value_and_grad(
        lambda x: drift_network(HIDDEN, clip).apply(parameters, x, a)
    )(x)
)  # fmt: skip


def test_dpo_is_the_published_formula():
    """The formula in float64 for ratios and advantages of either sign, alpha 2 and beta 0.6."""
    ratio, a = np.exp(LOG_RATIO), ADVANTAGE
    up = np.maximum((ratio - 1) * a - 2 * np.tanh((ratio - 1) * a / 2), 0)
    down = np.maximum(a * LOG_RATIO - 0.6 * np.tanh(a * LOG_RATIO / 0.6), 0)
    expected = ratio * a - np.where(a >= 0, up, down)
    np.testing.assert_allclose(dpo()(jnp.float32(LOG_RATIO), jnp.float32(a)), expected, rtol=2e-5, atol=2e-6)


def test_the_quadratic_drift_is_its_formula_and_without_its_terms_the_clipped_surrogate():
    more, a = np.expm1(LOG_RATIO), ADVANTAGE
    clipped = np.maximum((more - np.clip(more, -0.4, 0.4)) * a, 0)
    bounded = 0.3 * np.tanh((0.6 * more**2 - 0.25 * more * a) / 0.3)
    expected = np.exp(LOG_RATIO) * a - np.maximum(clipped + bounded - 1e-4, 0)
    settings = {"penalty": 0.6, "correction": 0.25, "scale": 0.3, "clip": 0.4}
    found = quadratic_drift(**settings)(jnp.float32(LOG_RATIO), jnp.float32(a))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    bare = quadratic_drift(penalty=0, correction=0, clip=0.4)(jnp.float32(LOG_RATIO), jnp.float32(a))
    of_ppo = clipped_surrogate(clip=0.4)(jnp.float32(LOG_RATIO), jnp.float32(a))
    np.testing.assert_allclose(bare, of_ppo, rtol=1e-5, atol=1.1e-4)  # a drift has to exceed 1e-4 to count


@pytest.mark.parametrize("objective", [clipped_surrogate(), dpo(), dpo(alpha=0.3, beta=4), quadratic_drift()])
def test_the_named_objectives_have_a_drift_of_mirror_learning(objective):
    """The drift is at least 0; at a ratio of 1 it is 0 and the objective's slope is the advantage."""
    drift = jnp.exp(LOG_RATIO) * ADVANTAGE - objective(jnp.float32(LOG_RATIO), jnp.float32(ADVANTAGE))
    assert (drift > -1e-5).all()
    for a in (-2.0, -0.1, 0.0, 0.5, 3.0):
        value, slope = jax.value_and_grad(objective)(0.0, a)
        assert (float(value), float(slope)) == pytest.approx((a, a))


@settings(deadline=None, max_examples=50)
@given(drift_parameters, st.floats(-3, 3, width=32), st.floats(-4, 4, width=32), st.floats(0.0625, 2, width=32))
def test_every_drift_network_keeps_the_constraints_of_mirror_learning(parameters, x, a, clip):
    drift, _ = drift_and_slope(parameters, x, a, clip)
    at_one, slope = drift_and_slope(parameters, 0.0, a, clip)
    assert drift >= 0
    assert (float(at_one), float(slope)) == (0.0, 0.0)


def test_a_drift_network_is_its_formula():
    parameters = drift_network(HIDDEN).init(jax.random.key(0))
    parameters["w2"] = jax.random.normal(jax.random.key(1), (HIDDEN,))
    w1, w2 = (np.float64(parameters[name]) for name in ("w1", "w2"))
    ratio = np.exp(LOG_RATIO)
    x = np.stack([LOG_RATIO, LOG_RATIO**2, 1 - ratio, (1 - ratio) ** 2])
    x = np.concatenate([x, x * ADVANTAGE])
    clipped = np.maximum((ratio - np.clip(ratio, 0.7, 1.3)) * ADVANTAGE, 0)
    for clip, base in ((None, 0.0), (0.3, clipped)):
        expected = np.maximum(base + np.tanh(x.T @ w1) @ w2 - 1e-4, 0)
        found = drift_network(HIDDEN, clip).apply(parameters, jnp.float32(LOG_RATIO), jnp.float32(ADVANTAGE))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("timed", [False, True])
def test_the_unevolved_objective_is_ppo_with_its_gradient(timed):
    network = drift_network(HIDDEN, 0.2, timed=timed)
    objective = learned(network, network.init(jax.random.key(0)), timed=timed)
    if isinstance(objective, Timed):
        objective = objective.at(0.5)
    x, a = jnp.float32(LOG_RATIO), jnp.float32(ADVANTAGE)
    np.testing.assert_allclose(objective(x, a), clipped_surrogate()(x, a), atol=1.1e-4)
    slopes = [jax.vmap(jax.grad(one))(x, a) for one in (objective, clipped_surrogate())]
    far = np.abs(jnp.exp(x) * a - clipped_surrogate()(x, a)) > 1e-3  # not at the edge, which is less sharp
    inside = np.abs(np.exp(LOG_RATIO) - 1) < 0.2
    np.testing.assert_allclose(slopes[0][far | inside], slopes[1][far | inside], rtol=1e-5, atol=1e-5)


def test_a_timed_drift_differs_by_the_share_of_the_training():
    network = drift_network(HIDDEN, timed=True)
    parameters = network.init(jax.random.key(0)) | {"w2": jnp.ones(HIDDEN)}
    objective = learned(network, parameters, timed=True)
    early, late = (objective.at(share)(jnp.float32(LOG_RATIO), jnp.float32(ADVANTAGE)) for share in (0.0, 1.0))
    assert np.abs(early - late).max() > 0.1
    for share in (0.0, 0.3, 1.0):
        assert float(jax.grad(objective.at(share))(0.0, 1.5)) == 1.5


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "expected"),
    [
        (math.log(1.5), 1.0, 1.2),
        (math.log(1.5), -1.0, -1.5),
        (math.log(0.5), 1.0, 0.5),
        (math.log(0.5), -2.0, -1.6),
        (math.log(1.1), 3.0, 3.3),
    ],
)
def test_clipped_surrogate_by_hand(log_ratio, advantage, expected):
    assert float(clipped_surrogate(clip=0.2)(log_ratio, advantage)) == pytest.approx(expected)
