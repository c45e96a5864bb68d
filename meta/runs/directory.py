"""A run directory: everything that a run leaves behind, and all that is needed to go on with it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import shutil
import signal
import threading
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

    def __init__(self, path: Path, warn: Callable[[str], Any] = lambda message: None):
        self.path, self._warn = path, warn
        self._absolute = path.resolve()  # Orbax takes nothing else
        self._lock = (path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(f"{path}: another run is writing there") from None
        for unfinished in (self._absolute / "checkpoints").glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished, ignore_errors=True)

    @classmethod
    def create(cls, path: Path, config: str, warn: Callable[[str], Any] = lambda message: None) -> RunDirectory:
        """Begins a run in a new or empty directory.

        Raises:
          FileExistsError: if there is something in it already.
          OSError: if it cannot be written to; what was made is removed again.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FileExistsError(f"{path}: already holds something; name another, or go on with --resume {path}")
        new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, warn)
        if (path / "config.yaml").exists():  # somebody else's, between the look and the lock
            raise FileExistsError(f"{path}: another run has just begun there")
        try:
            run.write("config.yaml", config)
        except OSError:
            for name in (".lock", ".config.yaml"):
                (path / name).unlink(missing_ok=True)
            if new:
                path.rmdir()
            raise
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
            file.writelines(_line(row) for row in rows)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every generation so far; a last line cut short by a fault is left out."""
        rows: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError), (self.path / "metrics.jsonl").open() as file:
            for line in file:
                row = json.loads(line)  # one by one: those before a bad line are kept
                rows.append({name: _each(lambda x: np.nan if x is None else x, value) for name, value in row.items()})
        return rows

    def save(self, generation: int, state: Any) -> None:
        """Saves the state after a generation; the newest three checkpoints are kept."""
        target = self._absolute / "checkpoints" / f"{generation:08d}"
        if target.exists():
            return
        leaves = _to_numpy(state)
        contents = {"state": {f"{i:04d}": leaf for i, leaf in enumerate(leaves)}, "digest": _digest(leaves)}
        with _uninterrupted(), _plain_errors(self.path / "checkpoints" / target.name):
            _checkpointer().save(target, contents)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, like: Any) -> tuple[int, Any] | None:
        """The newest whole checkpoint as (generation, state of the structure of `like`); None if there is none.

        Damaged ones are reported and renamed. Metrics of later generations are dropped: they come again.

        Raises:
          ValueError: if a checkpoint belongs to other settings.
        """
        found = None
        for path in reversed(self._checkpoints()):
            try:
                with _plain_errors(path):
                    contents = _checkpointer().restore(path)
                leaves = [contents["state"][name] for name in sorted(contents["state"])]
                if not np.array_equal(contents["digest"], _digest(leaves)):
                    raise OSError("its contents do not match their digest")
                if len(self.metrics()) < int(path.name):
                    raise OSError("metrics.jsonl is shorter than it was")
            except (OSError, KeyError, ValueError) as error:
                self._warn(f"checkpoint {path.name} is damaged and left out ({' '.join(str(error).split())[:120]})")
                path.rename(path.with_name(f"{path.name}.damaged"))
                continue
            found = int(path.name), _from_numpy(leaves, like)
            break
        generation = found[0] if found else 0
        kept = self.metrics()[:generation]
        self.write("metrics.jsonl", "".join(map(_line, kept)))
        return found

    def _checkpoints(self) -> list[Path]:
        return sorted(path for path in (self._absolute / "checkpoints").glob("*") if path.name.isdigit())


def _line(row: dict[str, Any]) -> str:
    """A line of JSON, in which null stands for what is not a number: JSON has no word for it."""
    return json.dumps({name: _each(lambda x: None if x != x else x, value) for name, value in row.items()}) + "\n"


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of every entry of nested lists."""
    return [_each(function, x) for x in value] if isinstance(value, list) else function(value)


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp  # here, for it costs half a second

    return ocp.PyTreeCheckpointer()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Puts Ctrl-C and SIGTERM off until the end: a checkpoint is whole or not there."""
    if threading.current_thread() is not threading.main_thread():  # where no signal arrives
        yield
        return
    received: list[tuple[int, Any]] = []
    handlers = {
        number: signal.signal(number, lambda *arguments: received.append(arguments))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for arguments in received[:1]:
        if callable(handler := handlers[signal.Signals(arguments[0])]):
            handler(*arguments)


@contextlib.contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """A failure of Orbax as one OSError, without what its threads print of it."""
    logger, hook = logging.getLogger("absl"), threading.excepthook
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    threading.excepthook = lambda arguments: None
    try:
        yield
    except Exception as error:
        raise OSError(f"{path}: {' '.join(str(error).split())[:200]}") from error
    finally:
        threading.excepthook = hook
        logger.setLevel(level)


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
