"""Checks of the parameters of games.

A game is a pytree, and JAX makes games of whatever stands for its leaves: tracers, gradients, batches, shapes. So what
JAX holds passes, and numbers of Python and NumPy are checked. What is static is checked always.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from configs import LARGEST, MOST, shown

MOST_LAYERS = 64
MANY = 1_000_000  # a limit that need not be said of what is too small


def whole(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """Raises ValueError unless `value` is a whole number in [least, most], or an array of them."""
    if known(value):
        array, most = _array(value), min(most, MOST)
        plain = array.dtype.kind in "iu" and not isinstance(value, list | tuple)
        if not plain or (array < least).any() or (array > most).any():
            below = array.dtype.kind != "O" and not (plain and (array > most).any())
            limits = f"of at least {least}" if most >= MANY and below else f"from {least} to {most:.0f}"
            raise ValueError(f"{name}: got {shown(value)}; a whole number {limits} is needed")


def size(name: str, value: Any, least: int, most: float = MOST) -> None:
    """As `whole`, for what shapes depend on: a plain whole number, and nothing else."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: got {shown(value)}; a plain whole number is needed, for shapes depend on it")
    whole(name, value, least, most)


def sizes(name: str, values: Any, least: int) -> None:
    """As `size`, for a list of `MOST_LAYERS` entries at most."""
    if len(values) > MOST_LAYERS:
        raise ValueError(f"{name}: got {len(values)} numbers; {MOST_LAYERS} at most are needed")
    plain = [isinstance(x, int | np.integer) and not isinstance(x, bool) and least <= x <= MOST for x in values]
    if not all(plain):
        above = any(isinstance(x, int | float) and x > MOST for x in values)
        limits = f"from {least} to {MOST}" if above else f"of at least {least}"
        raise ValueError(f"{name}: got {shown(list(values))}; a list of whole numbers {limits} is needed")


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, brackets: str = "[]") -> None:
    """Raises ValueError unless `value` is a finite number between the limits, or an array of them.

    `brackets` close the limits or leave them open. Lists are for `table`, for JAX takes one for many numbers.
    """
    if known(value):
        array = _array(value)
        if array.dtype.kind in "iu" and (np.abs(array.astype(float)) > MOST).any():  # JAX has whole numbers of 32 bits
            raise ValueError(f"{name}: got {shown(value)}; beyond {MOST} a number with a point is needed")
        fits = array.dtype.kind in "iuf" and not isinstance(value, list | tuple)
        fits = fits and bool((np.abs(array) <= LARGEST).all())  # in single precision
        fits = fits and bool(((array > low) if brackets[0] == "(" else (array >= low)).all())
        if not (fits and ((array < high) if brackets[1] == ")" else (array <= high)).all()):
            raise ValueError(f"{name}: got {shown(value)}; a number{_interval(low, high, brackets)} is needed")


def table(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> Any:
    """`value`, a list as an array of single precision: one leaf, not one for each number. ValueError as of `number`."""
    array = _array(value) if isinstance(value, list | tuple) else value
    if known(array) and np.asarray(array).dtype.kind not in "iuf":
        raise ValueError(f"{name}: got {shown(value)}; a table of numbers is needed, with lines of equal length")
    number(name, array, low, high)
    return array.astype(np.float32) if isinstance(value, list | tuple) else value


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raises ValueError unless `value` is one of those allowed."""
    if not any(value is option or (type(value) is type(option) and value == option) for option in allowed):
        raise ValueError(f"{name}: got {shown(value)}; one of {', '.join(map(str, allowed))} is needed")


def known(*values: Any) -> bool:
    """True if all values are numbers or strings of Python or NumPy, and none is an object of JAX."""
    return all(
        all(map(known, value))
        if isinstance(value, list | tuple)
        else isinstance(value, bool | int | float | complex | str | np.generic)
        or (isinstance(value, np.ndarray) and value.dtype.kind != "V")
        for value in values
    )


def _array(value: Any) -> np.ndarray:
    """An array of objects where it is one of no numbers: of lists of unequal length, or of whole numbers too large."""
    try:
        return np.asarray(value)
    except (ValueError, OverflowError):
        return np.asarray(None, object)


def _interval(low: float, high: float, brackets: str) -> str:
    if high == math.inf:
        return "" if low == -math.inf else f" {'above' if brackets[0] == '(' else 'of at least'} {low:g}"
    return f" in {'(' if low == -math.inf else brackets[0]}{low:g}, {high:g}{brackets[1]}"
