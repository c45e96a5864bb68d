"""A run directory: everything that a run leaves behind, and all that is needed to go on with it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

KEPT_CHECKPOINTS = 3


class RunDirectory:
    """`config.yaml`, `metrics.jsonl` (one object per generation), `checkpoints/`, `summary.json`, `figures/`.

    A directory belongs to one process at a time. Checkpoints are written beside their final name and then renamed,
    and carry a digest of their contents, so that a half-written or damaged one is noticed and the one before it used.

    Attributes:
      path: the directory.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda message: None):
        self.path, self._warn = path, warn
        self._lock = (path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FileExistsError(f"{path}: another run is writing there") from None

    @classmethod
    def create(cls, path: Path, config: str, warn: Callable[[str], None] = lambda message: None) -> RunDirectory:
        """Begins a run in a new or empty directory.

        Raises:
          FileExistsError: if there is something in it already.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FileExistsError(f"{path}: already holds something; name another, or go on with --resume {path}")
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, warn)
        run.write("config.yaml", config)
        return run

    @property
    def figures(self) -> Path:
        """The folder for pictures."""
        (self.path / "figures").mkdir(exist_ok=True)
        return self.path / "figures"

    def write(self, name: str, text: str) -> None:
        """Writes a file whole: a reader finds the old text or the new, never half of one."""
        scratch = self.path / f".{name}"
        scratch.write_text(text)
        scratch.replace(self.path / name)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Adds a line of metrics for each generation."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every generation so far."""
        with (self.path / "metrics.jsonl").open() as file:
            return [json.loads(line) for line in file]

    def save(self, generation: int, state: Any) -> None:
        """Saves the state after a generation; the newest three checkpoints are kept."""
        target = self.path / "checkpoints" / f"{generation:08d}"
        if target.exists():
            return
        leaves = _to_numpy(state)
        contents = {
            "state": {f"{i:04d}": leaf for i, leaf in enumerate(leaves)},
            "metrics_position": np.array((self.path / "metrics.jsonl").stat().st_size),
            "digest": _digest(leaves),
        }
        with _plain_errors(target):
            _checkpointer().save(target, contents)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, like: Any) -> tuple[int, Any] | None:
        """The newest whole checkpoint as (generation, state of the structure of `like`); None if there is none.

        Metrics of later generations are dropped: they come again.
        """
        for path in reversed(self._checkpoints()):
            try:
                contents = _checkpointer().restore(path)
                leaves = [contents["state"][name] for name in sorted(contents["state"])]
                state = _from_numpy(leaves, like)
                if not np.array_equal(contents["digest"], _digest(leaves)):
                    raise ValueError("its contents do not match their digest")
                position = int(contents["metrics_position"])
                metrics = self.path / "metrics.jsonl"
                if metrics.stat().st_size < position:
                    raise ValueError("metrics.jsonl is shorter than it was")
            except Exception as error:  # whatever a damaged file makes the reader raise
                reason = " ".join(str(error).split())
                self._warn(f"checkpoint {path.name} is damaged and left out ({reason[:150]})")
                continue
            with metrics.open("r+b") as file:
                file.truncate(position)
            return int(path.name), state
        (self.path / "metrics.jsonl").unlink(missing_ok=True)
        return None

    def _checkpoints(self) -> list[Path]:
        return sorted(path for path in (self.path / "checkpoints").glob("*") if path.name.isdigit())


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp  # here, for it costs half a second

    return ocp.PyTreeCheckpointer()


@contextlib.contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """A failure to write as an OSError, whichever library noticed it."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{path}: could not be written: {' '.join(str(error).split())[:200]}") from error


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(state: Any) -> list[np.ndarray]:
    leaves = map(jax.numpy.asarray, jax.tree.leaves(state))
    return [np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in leaves]


def _from_numpy(leaves: list[np.ndarray], like: Any) -> Any:
    old, structure = jax.tree.flatten(like)
    if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in _to_numpy(like)]:
        raise ValueError("it belongs to a run with other settings")
    keys = [
        jax.random.wrap_key_data(jax.numpy.asarray(x)) if _is_key(y) else jax.numpy.asarray(x)
        for x, y in zip(leaves, old, strict=True)
    ]
    return jax.tree.unflatten(structure, keys)


def _digest(leaves: list[np.ndarray]) -> np.ndarray:
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(f"{leaf.shape}{leaf.dtype}".encode() + np.ascontiguousarray(leaf).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)
