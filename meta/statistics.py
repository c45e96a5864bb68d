"""Means with their standard errors: as data, and as words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

MOST_DIGITS = 6  # after the point; single precision has no more


def standard_error(values: np.ndarray) -> Any:
    """The standard error of the mean of independent values `[N]`; NaN of a single one."""
    return values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else math.nan


def mean_and_error(values: np.ndarray) -> dict[str, float | None]:
    """None stands for what is not finite, where a learner's numbers have run away."""
    found: dict[str, float | None] = finite({"mean": values.mean(), "standard_error": standard_error(values)})
    return found


def finite(value: Any) -> Any:
    """Nested data with None for each number that is not finite, because JSON has no word for it; paths as text."""
    if isinstance(value, dict):
        return {str(name): finite(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def or_nan(value: float | None) -> float:
    """The number again, of which `mean_and_error` has made None where it is not finite; NaN passes no test."""
    return math.nan if value is None else value


def rounded(value: float | None, digits: int = 2) -> str:
    """A number to so many digits; `not finite` for None, as `mean_and_error` has it, and for infinity and NaN."""
    return "not finite" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def with_error(value: dict[str, float | None], digits: int = 3) -> str:
    """A mean with its standard error, to so many digits or to one of the error; a tiny error as a power of ten."""
    if any(x is None or not math.isfinite(x) for x in (value["mean"], value["standard_error"])):
        return "not finite"
    digits = max(digits, -math.floor(math.log10(value["standard_error"] or 1)))
    if digits > MOST_DIGITS:
        return f"{value['mean']:.{MOST_DIGITS}f} ± {value['standard_error']:.0e}"
    return f"{value['mean']:.{digits}f} ± {value['standard_error']:.{digits}f}"
