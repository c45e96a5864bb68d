"""Returns of a learner over seeds: statistics for a summary, and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from meta.statistics import standard_error


def statistics(seed: int, values: np.ndarray) -> dict[str, Any]:
    """Means of what is finite in `[S, ...]`: of each seed, over the seeds, and the standard error between seeds.

    None where there is no number, such as the standard error of one seed.

    Args:
      seed: the first one.
      values: returns of each seed.
    """
    means = np.array([np.mean(x[np.isfinite(x)]) if np.isfinite(x).any() else np.nan for x in values])
    each = [{"seed": seed + i, "mean": _number(mean)} for i, mean in enumerate(means)]
    return {"mean": _number(means.mean()), "standard_error": _number(standard_error(means)), "seeds": each}


def read_returns(file: Path) -> np.ndarray:
    """Training returns of a run, `[updates, seeds]`, NaN where no episode has ended.

    Args:
      file: the run's metrics.jsonl.
    """
    with file.open(encoding="utf-8") as lines:
        rows = [json.loads(line)["training_return"] for line in lines]
    return np.array([row if isinstance(row, list) else [row] for row in rows], float)


def with_error(found: dict[str, float | None]) -> str:
    """A mean with its standard error, where there is one.

    Args:
      found: as of `statistics`.
    """
    error = found["standard_error"]
    return shown(found["mean"]) + (f" ± {error:.2f}" if error is not None else "")


def shown(x: float | None) -> str:
    """A return in words.

    Args:
      x: None where it is not known.
    """
    return "not known" if x is None else f"{x:.2f}"


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None
