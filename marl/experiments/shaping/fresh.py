"""Fresh trials, some of them at once on every device: what is measured is never what was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marl.experiments.shaping.config import ShapingConfig
from meta.devices import spread
from meta.loop import compiler_options
from meta.memory import bytes_of, check_bytes


def compile_trials(trial: Callable[[jax.Array, Any], Any], parameters: Any, count: int, at_once: int) -> Any:
    """Compiles a trial for `play_trials`.

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


def play_trials(program: Any, keys: jax.Array, parameters: Any, at_once: int) -> Any:
    """The results of a trial for each key, `[count, ...]`, on the host.

    Args:
      program: of `compile_trials`, with the same `at_once` and as many trials as there are keys.
      keys: `[count]`.
      parameters: of the trial.
      at_once: as of `compile_trials`.
    """
    count = len(keys)
    number, width = _size(count, at_once)
    groups = math.ceil(count / (number * width))
    padded = keys[jnp.arange(groups * number * width) % count].reshape(groups, number, width)
    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), parameters)
    parts = [jax.tree.map(np.asarray, program(some, everywhere)) for some in padded]
    return jax.tree.map(lambda *x: np.concatenate([one.reshape(-1, *one.shape[2:]) for one in x])[:count], *parts)


def check_training(config: ShapingConfig, init: Callable[[jax.Array], Any], trial: int) -> None:
    """Raises TooLarge, before anything is compiled, for trainings that no memory can hold.

    Args:
      config: of the trainings.
      init: `(key) -> parameters` of what is trained.
      trial: bytes that one trial of a candidate needs at least.
    """
    parameters = bytes_of(jax.eval_shape(init, jax.random.key(0)))
    check_bytes("shaper", config.shaper, parameters)
    if config.meta_learner == "ppo":
        check_bytes("meta_ppo.batch_size", config.meta_ppo.batch_size, config.meta_ppo.batch_size * trial)
        return
    evolution, devices = config.evolution, len(jax.local_devices())
    size = evolution.population_size
    check_bytes("evolution.population_size", size, config.seeds * size * parameters)
    together = min(evolution.chunk_size * devices, size) if evolution.chunk_size else size
    check_bytes("trials", config.trials, together * config.trials * trial)


def check_results(config: ShapingConfig, groups: int, trial: int) -> None:
    """Raises TooLarge for fresh trials whose results, of so many bytes each, no memory can hold.

    They are joined, so that all are there twice.
    """
    trials = config.evaluation_trials
    check_bytes("evaluation_trials", trials, 2.0 * groups * config.seeds * trials * trial)


def _size(count: int, at_once: int) -> tuple[int, int]:
    """(devices, trials that are played together on each)."""
    number = len(jax.local_devices())
    return number, min(at_once, -(-count // number))
