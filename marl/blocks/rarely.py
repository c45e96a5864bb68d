"""What is dear and seldom done, inside of what is batched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def rarely(predicate: jax.Array, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`jax.lax.cond` that under `vmap` still leaves out what nobody wants.

    A `cond` whose predicate is batched becomes a choice between two results that are both computed, for every member
    of the batch, at every step. This one computes `then` only where some member wants it.

    Args:
      predicate: `[]`.
      then: `(*operands) -> result`.
      otherwise: `(*operands) -> result` of the same shapes, computed in any case for a batch of which some want `then`.
      *operands: pytrees.
    """

    (rare, first), (usual, second) = _closed(then, operands), _closed(otherwise, operands)
    return _choose(rare, usual)(predicate, first, second, operands)


def _closed(function: Callable[..., Any], operands: Any) -> tuple[Callable[..., Any], Any]:
    """`(values, operands) -> result`, and the values: what the function takes from where it was written."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*operands)
    structure = jax.tree.structure(shapes)

    def of(values: Any, operands: Any) -> Any:
        found = jax.core.eval_jaxpr(jaxpr.jaxpr, values, *jax.tree.leaves(operands))
        return jax.tree.unflatten(structure, found)

    return of, jaxpr.consts


def _choose(rare: Callable[..., Any], usual: Callable[..., Any]) -> Callable[..., Any]:
    @jax.custom_batching.custom_vmap
    def choose(predicate: jax.Array, first: Any, second: Any, operands: Any) -> Any:
        return jax.lax.cond(predicate, lambda: rare(first, operands), lambda: usual(second, operands))

    @choose.def_vmap
    def of_many(size: int, batched: Any, predicate: jax.Array, *values: Any) -> Any:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched[1:])
        predicates = predicate if batched[0] else jnp.broadcast_to(predicate, (size,))

        def each(predicate: jax.Array, first: Any, second: Any, operands: Any) -> Any:
            return jax.tree.map(partial(jnp.where, predicate), rare(first, operands), usual(second, operands))

        def some() -> Any:
            return jax.vmap(each, (0, *axes), axis_size=size)(predicates, *values)

        def none() -> Any:
            return jax.vmap(usual, tuple(axes[1:]), axis_size=size)(*values[1:])

        found = rarely(predicates.any(), some, none)
        return found, jax.tree.map(lambda _: True, found)

    return choose
