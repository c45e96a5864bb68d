"""Checks of the parameters of games. What is traced by JAX passes: it is checked where it is a number still."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np


def whole(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """Raises ValueError unless `value` is a whole number in [least, most]."""
    if _known(value):
        array = np.asarray(value)
        if array.dtype.kind not in "iu" or (array < least).any() or (array > most).any():
            limits = f"of at least {least}" if most == math.inf else f"from {least} to {most:.0f}"
            raise ValueError(f"{name}: got {value!r}; a whole number {limits} is needed")


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, brackets: str = "[]") -> None:
    """Raises ValueError unless `value` is a finite number between the limits, which `brackets` close or leave open."""
    if _known(value):
        array = np.asarray(value)
        fits = array.dtype.kind in "iuf" and np.isfinite(array).all()
        fits = fits and ((array > low) if brackets[0] == "(" else (array >= low)).all()
        if not (fits and ((array < high) if brackets[1] == ")" else (array <= high)).all()):
            raise ValueError(f"{name}: got {value!r}; a number in {_interval(low, high, brackets)} is needed")


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raises ValueError unless `value` is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name}: got {value!r}; one of {', '.join(map(str, allowed))} is needed")


def _known(value: Any) -> bool:
    """Whether a value can be looked at: no tracer, nor what JAX puts in the place of a leaf."""
    if isinstance(value, list | tuple):
        return all(map(_known, value))
    return isinstance(value, bool | int | float | str | np.ndarray | np.generic) or (
        isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    )


def _interval(low: float, high: float, brackets: str) -> str:
    left = "(" if low == -math.inf else brackets[0]
    right = ")" if high == math.inf else brackets[1]
    return f"{left}{low:g}, {high:g}{right}"
