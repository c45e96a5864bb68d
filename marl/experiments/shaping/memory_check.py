"""Whether a memory can hold what a config asks for, by the least that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from marl.experiments.shaping.config import ShapingConfig
from meta.xla.memory import bytes_of, check_bytes


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
    if screening := config.screening:
        check_bytes("start", config.starting, screening.at_once * trial)


def check_results(config: ShapingConfig, groups: int, trial: int) -> None:
    """Raises TooLarge for fresh trials whose results, of so many bytes each, no memory can hold.

    They are joined, so that all are there twice.
    """
    trials = config.evaluation_trials
    check_bytes("evaluation_trials", trials, 2.0 * groups * config.seeds * trials * trial)
