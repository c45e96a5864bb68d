"""Distillation of an evolved objective: a smaller network and a closed formula, fitted to what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from games.core.game import Scalar
from marl.blocks.objectives import Objective, quadratic_drift
from marl.blocks.value_losses import distance_of
from marl.learners.sampled.objective_registry import Form

NO_CLIP = 1e6  # of a drift that began at zero
SAMPLES = 1024  # points of a fit
SPREAD = 0.2  # standard deviation of their log ratios; that of advantages and of scaled differences is 1
STARTS = 8  # random first parameters of a network's fit, of which the best counts


class Distilled(NamedTuple):
    """Fits to an objective.

    Attributes:
      network: parameters of the objective's own form, of which all units but a few are 0
      formula: settings of `quadratic_drift` or of `expectile`
      explained: of `network` and `formula`, the share of the objective's variance over the points that it explains
    """

    network: Any
    formula: dict[str, float]
    explained: dict[str, float]


def distil(form: Form, parameters: Any, clip: float = 0.2, *, hidden: int = 1, seed: int = 0) -> Distilled:
    """Fits a network of `hidden` units and a closed formula by least squares.

    The points are normal: advantages with a deviation of 1, as learners normalise them, log ratios with one of 0.2;
    differences of values from their targets with one of their root mean square.

    Args:
      form: of the objective, without the time.
      parameters: of the objective.
      clip: of a drift that began as PPO, as of `Form.settings`.
      hidden: units of the smaller network.
      seed: of the points and of the first parameters.

    Returns:
      `Distilled`.

    Raises:
      ValueError: for an objective that sees the time or is constant, or more units than it has.
    """
    if form.timed:
        raise ValueError("form: got one that depends on the time; one without it is needed")
    if not 1 <= hidden <= form.hidden:
        raise ValueError(f"hidden: got {hidden}; 1 to {form.hidden} is needed")
    clip = clip if form.start == "ppo" else NO_CLIP
    rng = np.random.default_rng(seed)
    points = jnp.asarray(rng.normal(size=(2, SAMPLES)), jnp.float32)
    points = points * jnp.array([[SPREAD], [1.0]]) if form.kind == "drift" else points[:1]
    wanted = np.asarray(_values(form, parameters, clip, points), np.float64)
    if not wanted.any():
        raise ValueError("parameters: got those of an objective that is 0 everywhere; others are needed")
    network, of_network = _smaller(form, clip, points, wanted, hidden, parameters, rng)
    first, formula = _formula(form, clip)
    numbers, of_formula = _least_squares(lambda x: formula(x, points), wanted, [first], low=1e-3)
    if form.kind == "drift":
        found = dict(zip(("penalty", "correction", "scale"), map(float, numbers), strict=True)) | {"clip": clip}
    else:
        found = {"tau": float(numbers[1] / (numbers[0] + numbers[1]))}
    return Distilled(network, found, {"network": of_network, "formula": of_formula})


def _values(form: Form, parameters: Any, clip: Scalar, points: jax.Array) -> jax.Array:
    """The drift, or the distance without its scale."""
    if form.kind == "drift":
        drift: jax.Array = form.network(clip).apply(parameters, *points)
        return drift
    return distance_of(parameters, points[0], "l2" if form.start == "l2" else "zero")


def _formula(form: Form, clip: float) -> tuple[np.ndarray, Callable[[jax.Array, jax.Array], jax.Array]]:
    """(first numbers, (numbers, points) -> values)."""
    if form.kind == "value_loss":  # of values above their targets, and below
        return np.ones(2), lambda x, points: 0.5 * points[0] ** 2 * jnp.where(points[0] > 0, x[0], x[1])

    def drift(x: jax.Array, points: jax.Array) -> jax.Array:
        objective: Objective = quadratic_drift(penalty=x[0], correction=x[1], scale=x[2], clip=clip)
        return jnp.exp(points[0]) * points[1] - objective(points[0], points[1])

    return np.full(3, 0.3), drift


def _smaller(
    form: Form,
    clip: float,
    points: jax.Array,
    wanted: np.ndarray,
    hidden: int,
    parameters: Any,
    rng: np.random.Generator,
) -> tuple[Any, float]:
    """(parameters of the best fit with zeros for the units that it lacks, share that it explains)."""
    small = form._replace(hidden=hidden)
    shapes = jax.eval_shape(small.network(clip).init, jax.random.key(0))
    zeros, unravel = ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape), shapes))

    def values(x: jax.Array) -> jax.Array:
        return _values(small, unravel(x), clip, points)

    best, explained = _least_squares(values, wanted, list(rng.normal(size=(STARTS, zeros.size))))

    def wider(x: jax.Array, like: jax.Array) -> jax.Array:
        return jnp.pad(x, [(0, there - here) for here, there in zip(x.shape, like.shape, strict=True)])

    return jax.tree.map(wider, unravel(jnp.asarray(best, zeros.dtype)), parameters), explained


def _least_squares(
    values: Callable[[jax.Array], jax.Array], wanted: np.ndarray, starts: Sequence[np.ndarray], low: float = -np.inf
) -> tuple[np.ndarray, float]:
    """(the best numbers that fits from each of the starts find, the share of the variance that they explain)."""
    from scipy.optimize import least_squares  # here, because it takes a while

    compute, slope = jax.jit(values), jax.jit(jax.jacfwd(values))
    fits = [
        least_squares(
            lambda x: np.asarray(compute(jnp.float32(x)), np.float64) - wanted,
            start,
            lambda x: np.asarray(slope(jnp.float32(x)), np.float64),
            bounds=(low, np.inf),
        )
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    return best.x, 1.0 - float((best.fun**2).mean() / wanted.var())
