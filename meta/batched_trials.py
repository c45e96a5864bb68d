"""Fresh trials, some of them at once on every device: what is measured is never what was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from meta.loop import compile_program
from meta.xla.backend import local_devices, platform
from meta.xla.devices import spread
from meta.xla.memory import check_memory, largest_that_fits


class TrialsProgram(NamedTuple):
    """A compiled program of trials, for `run_trials`."""

    call: Callable[[jax.Array, Any], Any]  # (keys `[devices, width]`, parameters `[devices, ...]`) -> results
    devices: int
    width: int  # trials that a device plays together


def compile_trials(trial: Callable[[jax.Array, Any], Any], parameters: Any, count: int, at_once: int) -> TrialsProgram:
    """Compiles a trial for `run_trials`.

    Args:
      trial: `(key, parameters) -> result`, unbatched.
      parameters: as those that it will be played with, or their shapes.
      count: how many trials will be played.
      at_once: how many of them together on a core, at most; another device plays all that its memory holds.
    """
    number = len(local_devices())
    share = -(-count // number)

    def compiled(width: int) -> TrialsProgram:
        def some(keys: jax.Array, parameters: Any) -> Any:
            return jax.vmap(lambda key: trial(key, parameters))(keys)

        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (number, width)))
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((number, *x.shape), x.dtype), parameters)
        program = compile_program(spread(some, number), keys, shapes)
        if platform() != "cpu":
            check_memory(program)
        return TrialsProgram(program, number, width)

    return largest_that_fits(compiled, min(at_once, share) if platform() == "cpu" else share)


def run_trials(
    program: TrialsProgram,
    keys: jax.Array,
    parameters: Any,
    report: Callable[[int, int], Any] = lambda group, groups: None,
) -> Any:
    """The results of a trial for each key, `[count, ...]`, on the host.

    The result of a key is that of this key, but for rounding, however many devices there are and trials at once.

    Args:
      program: of `compile_trials`, for as many trials as there are keys.
      keys: `[count]`.
      parameters: of the trial.
      report: called as `report(group, groups)`, before each group of those that are played together, from 1 on.
    """
    count, number, width = len(keys), program.devices, program.width
    groups = math.ceil(count / (number * width))
    padded = keys[jnp.arange(groups * number * width) % count].reshape(groups, number, width)
    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), parameters)
    parts = []
    for i, some in enumerate(padded):
        report(i + 1, groups)
        parts.append(jax.tree.map(np.asarray, program.call(some, everywhere)))
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
