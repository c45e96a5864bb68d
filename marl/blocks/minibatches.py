"""Epochs of minibatches over the steps between two updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from games.core import random_bits
from marl.blocks.sparse import scan_steps


def minibatch_epochs(
    key: jax.Array,
    step: Callable[[Any, Any, bool], tuple[Any, Any]],
    carry: Any,
    batch: Any,
    epochs: int,
    minibatches: int,
    *,
    every: int = 0,
    rows: str = "steps times environments",
) -> tuple[Any, Any]:
    """Gradient steps over a batch, shuffled in each epoch.

    Args:
      key: of the orders.
      step: `(carry, minibatch [size / minibatches, ...], whether sparsity may change) -> (carry, metrics)`.
      carry: parameters and state of the optimiser, before the first step.
      batch: a pytree of `[size, ...]`.
      epochs: over the batch.
      minibatches: of an epoch; 1 is the full batch in its own order.
      every: as of `scan_steps`.
      rows: name of the rows, for the error.

    Returns:
      The carry after the last step, and the metrics of the steps, `[epochs, ...]` or `[epochs, minibatches, ...]`.

    Raises:
      ValueError: if the minibatches do not divide the rows.
    """
    size = len(jax.tree.leaves(batch)[0])
    if size % minibatches:
        raise ValueError(f"minibatches: got {minibatches}; a divisor of the {size} {rows} is needed")
    flat_rows = jax.tree.map(lambda x: x.reshape(size, -1), batch)

    def one(carry: Any, order: jax.Array, may_change: bool) -> Any:
        # Whole rows, because XLA copies numbers of more axes one by one.
        minibatch = jax.tree.map(lambda row, x: row[order].reshape(-1, *x.shape[1:]), flat_rows, batch)
        return step(carry, minibatch, may_change)

    def epoch(carry: Any, key: jax.Array, may_change: bool) -> Any:
        if minibatches == 1:
            return step(carry, batch, may_change)
        orders = random_bits.permutation(key, size).reshape(minibatches, -1)
        return scan_steps(one, carry, orders, every)

    return scan_steps(epoch, carry, jax.random.split(key, epochs), every if minibatches == 1 else 0)
