"""A `lax.cond` that stays lazy under `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


def lazy_cond(predicate: jax.Array, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`jax.lax.cond` that under `vmap` computes the expensive branch only if some member takes it.

    A `cond` whose predicate is batched becomes a choice between two results that are both computed, for every member
    of the batch, at every step. This one computes `then` only where some member wants it. It has no reverse-mode
    derivative.

    Args:
      predicate: `[]`.
      then: `(*operands) -> result`.
      otherwise: `(*operands) -> result` of the same shapes, computed in any case for a batch of which some want `then`.
      *operands: pytrees.
    """
    (rare, first), (usual, second) = _closed(then, operands), _closed(otherwise, operands)
    return _choose(rare, usual, len(first), len(second))(predicate, *first, *second, *jax.tree.leaves(operands))


def where_cheap(predicate: jax.Array, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """`lazy_cond` on a CPU; elsewhere a choice between both results, because a branch stops a GPU."""

    def choose(*operands: Any) -> Any:
        return jax.tree.map(partial(jnp.where, predicate), then(*operands), otherwise(*operands))

    lazy = partial(lazy_cond, predicate, then, otherwise)
    return jax.lax.platform_dependent(*operands, cpu=lazy, default=choose)


def _closed(function: Callable[..., Any], operands: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`(values, leaves of the operands) -> result`, and the values: what it takes from where it was written."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*operands)
    structure = jax.tree.structure(shapes)

    def of(values: Sequence[Any], leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(structure, jax.core.eval_jaxpr(jaxpr.jaxpr, values, *leaves))

    return of, jaxpr.consts


def _choose(rare: Callable[..., Any], usual: Callable[..., Any], of_rare: int, of_usual: int) -> Callable[..., Any]:
    """`(predicate, *values of the one, *values of the other, *leaves) -> result`."""

    def by_rare(values: Sequence[Any]) -> Any:
        return rare(values[:of_rare], values[of_rare + of_usual :])

    def by_usual(values: Sequence[Any]) -> Any:
        return usual(values[of_rare : of_rare + of_usual], values[of_rare + of_usual :])

    @jax.custom_batching.custom_vmap
    def choose(predicate: jax.Array, *values: Any) -> Any:
        return jax.lax.cond(predicate, lambda: by_rare(values), lambda: by_usual(values))

    @choose.def_vmap
    def of_many(size: int, batched: Sequence[bool], predicate: jax.Array, *values: Any) -> Any:
        axes = [0 if one else None for one in batched[1:]]
        predicates = predicate if batched[0] else jnp.broadcast_to(predicate, (size,))

        def each(predicate: jax.Array, *values: Any) -> Any:
            return jax.tree.map(partial(jnp.where, predicate), by_rare(values), by_usual(values))

        def some() -> Any:
            return jax.vmap(each, (0, *axes), axis_size=size)(predicates, *values)

        def none() -> Any:
            return jax.vmap(lambda *values: by_usual(values), axes, axis_size=size)(*values)

        found = lazy_cond(predicates.any(), some, none)
        return found, jax.tree.map(lambda _: True, found)

    return choose
