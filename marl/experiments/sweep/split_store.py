"""The storage of many runs that one program trains: each has a run directory of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meta import RunDirectory
from meta.prng_data import data_of


class SplitStore:
    """A `meta.loop.Store` of runs that are trained together, whose entries are a leading axis of all arrays.

    Each directory gets what the run would write alone. A stop in the midst of saving leaves some of them a checkpoint
    behind the others: the runs go on from the newest one that all have.

    Args:
      runs: the directories, in the order of the runs in the leading axis.
      each: entries of a run: its seeds.
      squeeze: whether the state of a run of one seed has no leading axis. Its metrics never have one.
    """

    def __init__(self, runs: Sequence[RunDirectory], each: int, *, squeeze: bool):
        self._runs, self._each, self._squeeze = list(runs), each, squeeze and each == 1

    def _part(self, number: int, *, squeeze: bool) -> Any:
        return number if squeeze else slice(number * self._each, (number + 1) * self._each)

    def restore(self, like: Any, last: int) -> tuple[int, Any, dict[str, np.ndarray]] | None:
        part = self._part(0, squeeze=self._squeeze)
        one = jax.eval_shape(lambda state: jax.tree.map(lambda x: x[part], state), like)
        while True:
            found = [run.restore(one, last) for run in self._runs]
            oldest = min(some[0] if some else 0 for some in found)
            whole = [some for some in found if some and some[0] == oldest]
            if len(whole) == len(found):
                state = jax.tree.map(lambda *x: self._join(x), *(some[1] for some in whole))
                return oldest, state, _joined([some[2] for some in whole], self._each)
            for run in self._runs:
                run.drop_after(oldest)
            if not oldest:
                return None

    def _join(self, parts: Sequence[jax.Array]) -> jax.Array:
        return jnp.stack(parts) if self._squeeze else jnp.concatenate(parts)

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        for run, own in zip(self._runs, self._rows(rows), strict=True):
            run.rewrite(own)

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        for run, own in zip(self._runs, self._rows(rows), strict=True):
            run.append(own)

    def save(self, generation: int, state: Any, metrics: dict[str, np.ndarray]) -> None:
        arrays = jax.tree.map(lambda x: np.asarray(data_of(jnp.asarray(x))), state)
        for i, run in enumerate(self._runs):
            part, of_metrics = self._part(i, squeeze=self._squeeze), self._part(i, squeeze=self._each == 1)
            own = {name: x[:, of_metrics] for name, x in metrics.items()}
            run.save(generation, jax.tree.map(lambda x, part=part: x[part], arrays), own)

    def _rows(self, rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """The rows of each run."""
        kept = list(rows)
        parts = [self._part(i, squeeze=self._each == 1) for i in range(len(self._runs))]
        return [
            [{name: x[part] if isinstance(x, list) else x for name, x in row.items()} for row in kept] for part in parts
        ]


def _joined(metrics: list[dict[str, np.ndarray]], each: int) -> dict[str, np.ndarray]:
    join = np.concatenate if each > 1 else np.stack
    return {name: join([one[name] for one in metrics], 1) for name in metrics[0]}
