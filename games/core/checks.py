"""Checks of the parameters of games.

A game is a pytree, and JAX makes games of whatever stands for its leaves: tracers, gradients, batches, shapes. So what
JAX holds passes, and numbers of Python and NumPy are checked. What is static is checked always.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """Raises ValueError unless `value` is a whole number in [least, most]."""
    if known(value):
        array = np.asarray(value)
        if array.dtype.kind not in "iu" or (array < least).any() or (array > most).any():
            limits = f"of at least {least}" if most == math.inf else f"from {least} to {most:.0f}"
            raise ValueError(f"{name}: got {value!r}; a whole number {limits} is needed")


def size(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """As `whole`, for what shapes depend on: a plain whole number, and nothing else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: got {value!r}; a plain whole number is needed, for shapes depend on it")
    whole(name, value, least, most)


def sizes(name: str, values: Any, least: int) -> None:
    """As `size`, for a list of any length."""
    plain = [isinstance(x, int | np.integer) and not isinstance(x, bool) and x >= least for x in values]
    if not all(plain):
        raise ValueError(f"{name}: got {list(values)}; a list of whole numbers of at least {least} is needed")


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, brackets: str = "[]") -> None:
    """Raises ValueError unless `value` is a finite number between the limits, which `brackets` close or leave open."""
    if known(value):
        array = np.asarray(value)
        fits = array.dtype.kind in "iuf" and np.isfinite(array).all()
        fits = fits and ((array > low) if brackets[0] == "(" else (array >= low)).all()
        if not (fits and ((array < high) if brackets[1] == ")" else (array <= high)).all()):
            raise ValueError(f"{name}: got {value!r}; a number{_interval(low, high, brackets)} is needed")


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raises ValueError unless `value` is one of those allowed."""
    if not any(value is option or (type(value) is type(option) and value == option) for option in allowed):
        raise ValueError(f"{name}: got {value!r}; one of {', '.join(map(str, allowed))} is needed")


def known(*values: Any) -> bool:
    """Whether all values are numbers or words of Python or NumPy, not something that JAX has put in their place."""
    return all(
        all(map(known, value))
        if isinstance(value, list | tuple)
        else isinstance(value, bool | int | float | complex | str | np.generic)
        or (isinstance(value, np.ndarray) and value.dtype.kind != "V")
        for value in values
    )


def _interval(low: float, high: float, brackets: str) -> str:
    if high == math.inf:
        return "" if low == -math.inf else f" {'above' if brackets[0] == '(' else 'of at least'} {low:g}"
    return f" in {'(' if low == -math.inf else brackets[0]}{low:g}, {high:g}{brackets[1]}"
