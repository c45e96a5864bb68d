"""Fresh trials, some of them at once on every device: what is measured is never what was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meta.loop import compiler_options
from meta.xla.backend import local_devices
from meta.xla.devices import spread


def compile_trials(trial: Callable[[jax.Array, Any], Any], parameters: Any, count: int, at_once: int) -> Any:
    """Compiles a trial for `run_trials`.

    Args:
      trial: `(key, parameters) -> result`, unbatched.
      parameters: as those that it will be played with, or their shapes.
      count: how many trials will be played.
      at_once: how many of them together on a device, at most.
    """
    number, width = _size(count, at_once)

    def some(keys: jax.Array, parameters: Any) -> Any:
        return jax.vmap(lambda key: trial(key, parameters))(keys)

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (number, width)))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((number, *x.shape), x.dtype), parameters)
    return jax.jit(spread(some, number), compiler_options=compiler_options()).lower(keys, shapes).compile()


def run_trials(
    program: Any,
    keys: jax.Array,
    parameters: Any,
    at_once: int,
    report: Callable[[int, int], Any] = lambda group, groups: None,
) -> Any:
    """The results of a trial for each key, `[count, ...]`, on the host.

    The result of a key is that of this key, but for rounding, however many devices there are and trials at once.

    Args:
      program: of `compile_trials`, with the same `at_once` and as many trials as there are keys.
      keys: `[count]`.
      parameters: of the trial.
      at_once: as of `compile_trials`.
      report: called as `report(group, groups)`, before each group of those that are played together, from 1 on.
    """
    count = len(keys)
    number, width = _size(count, at_once)
    groups = math.ceil(count / (number * width))
    padded = keys[jnp.arange(groups * number * width) % count].reshape(groups, number, width)
    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), parameters)
    parts = []
    for i, some in enumerate(padded):
        report(i + 1, groups)
        parts.append(jax.tree.map(np.asarray, program(some, everywhere)))
    return jax.tree.map(lambda *x: np.concatenate([one.reshape(-1, *one.shape[2:]) for one in x])[:count], *parts)


def without_nan(values: Any) -> Any:
    """Infinite for NaN, in a pytree of floats whose NaN stands for a missing number, such as the return of no episode.

    For results of a program, because `jax_debug_nans` stops one that returns NaN. `with_nan` is the inverse where
    nothing was infinite.
    """
    return jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), values)


def with_nan(values: Any) -> Any:
    """NaN for infinite numbers, on the host."""
    return jax.tree.map(lambda x: np.where(np.isinf(x), np.asarray(x).dtype.type(np.nan), x), values)


def _size(count: int, at_once: int) -> tuple[int, int]:
    """(devices, trials that are played together on each)."""
    number = len(local_devices())
    return number, min(at_once, -(-count // number))
