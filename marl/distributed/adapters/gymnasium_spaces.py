"""Gymnasium's spaces as ours, with functions that convert batches of observations and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from games.core import spaces
from games.core.spaces import Space


def observed(space: Any, seen: Sequence[int] = ()) -> tuple[Space, Callable[[np.ndarray], np.ndarray]]:
    """Converts a space of observations: (our space, function that converts a batch of observations).

    Images with their channels in front, as PyTorch has them, get them behind; a `Discrete` observation is one-hot.

    Args:
      space: of one environment.
      seen: the entries of a vector that are seen; all if empty.

    Raises:
      ValueError: for a space that is no array, or entries that do not exist.
    """
    from gymnasium import spaces as theirs

    if isinstance(space, theirs.Discrete) and not seen:
        count, first = int(space.n), int(space.start)
        hot = np.eye(count, dtype=np.float32)
        return spaces.Box(0.0, 1.0, (count,)), lambda obs: hot[obs - first]
    if not isinstance(space, theirs.Box):
        if isinstance(space, theirs.Discrete):
            raise ValueError(f"seen: got {list(seen)}; no entries of {space}, which is no vector, are needed")
        raise ValueError(f"observations: got {_in_one_line(space)}; a Box or Discrete is needed")
    shape = space.shape
    if seen:
        if len(shape) != 1 or not all(0 <= i < shape[0] for i in seen):
            raise ValueError(f"seen: got {list(seen)}; numbers of entries of a vector, here of {shape}, are needed")
        index = np.array(seen)
        return spaces.Box(-np.inf, np.inf, (len(seen),)), lambda obs: np.asarray(obs[..., index], np.float32)
    if space.dtype == np.uint8 and len(shape) == 3:
        if shape[0] < min(shape[1:]):
            turned = (*shape[1:], shape[0])
            return spaces.Box(0, 255, turned, jnp.uint8, True), lambda obs: np.moveaxis(obs, -3, -1)
        return spaces.Box(0, 255, shape, jnp.uint8, True), lambda obs: obs
    return spaces.Box(-np.inf, np.inf, shape), lambda obs: np.asarray(obs, np.float32)


def acted(space: Any) -> tuple[Space, Callable[[np.ndarray], np.ndarray]]:
    """Converts a space of actions: (our space, function that converts a batch of our actions).

    Raises:
      ValueError: for a space without a distribution.
    """
    from gymnasium import spaces as theirs

    if isinstance(space, theirs.Discrete):
        first, dtype = int(space.start), np.dtype(space.dtype)
        return spaces.Discrete(int(space.n)), lambda actions: np.asarray(actions, dtype) + dtype.type(first)
    if isinstance(space, theirs.MultiDiscrete) and space.nvec.ndim == 1:
        counts = tuple(map(int, space.nvec))
        return spaces.MultiDiscrete(counts), lambda actions: np.asarray(actions, space.dtype) + space.start
    if isinstance(space, theirs.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = space.low, space.high

        def clipped(actions: np.ndarray) -> np.ndarray:
            return np.clip(actions, low, high).astype(space.dtype)

        return spaces.Box(low, high, space.shape), clipped
    raise ValueError(f"actions: got {_in_one_line(space)}; Discrete, MultiDiscrete or a Box of floats is needed")


def _in_one_line(space: Any) -> str:
    return " ".join(str(space).split())
