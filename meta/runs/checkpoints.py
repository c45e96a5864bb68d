"""Checkpoints: one file each of a state, the metrics that led to it and the record of the run, with a digest of all.

Not Orbax, whose checkpoint is a folder of many files in formats of their own, each of which could be damaged, a link or
larger than it says. Here a first line has the digest of all that follows, a second one the record as JSON, and the rest
is a safetensors file: it is whole or not there, and its size is known before it is read.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs import files
from meta.atomic_files import write_whole
from meta.prng_data import data_of, kind_of, typed
from meta.runs.provenance import Record

MAX_RECORD = 2**18  # bytes
MAX_METRICS = 2**20  # bytes for a generation: of thousands of runs at once
MAX_NAMES = 2**22  # bytes for what arrays are called

Metrics = dict[str, np.ndarray]


class Damaged(Exception):
    """A file that is no whole checkpoint."""


def write(path: Path, state: Any, metrics: Metrics, record: Record | None) -> None:
    """Writes the state after the generation that is the file's name, and the metrics `[generation, ...]` up to it."""
    from safetensors.numpy import save

    arrays = {f"state.{i:04d}": leaf for i, leaf in enumerate(map(_to_numpy, jax.tree.leaves(state)))}
    floats = {name: x.astype(np.float32) if x.dtype.kind == "V" else x for name, x in metrics.items()}
    arrays |= {f"metrics.{name}": np.ascontiguousarray(values) for name, values in floats.items()}
    text = record.to_json(indent=None) if record else ""
    body = text.encode() + b"\n" + save(arrays)
    write_whole(path, _digest(path, body) + b"\n" + body)


def read(path: Path, like: Any, last: int) -> tuple[Any, Metrics, Record | None]:
    """A state of the structure of `like`, the metrics, and the record of the run.

    Args:
      path: the file, whose name is the generation.
      like: a state, or its shapes.
      last: the last generation that there will be.

    Raises:
      Damaged: if it is not as it was written.
      ValueError: if it belongs to a run with other settings, or to a later generation.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not path.is_file():
        raise Damaged("it is no file")
    leaves, structure = jax.tree.flatten(like)
    data, generation = [jax.eval_shape(_data, leaf) for leaf in leaves], int(path.name)
    most = sum(x.size * x.dtype.itemsize for x in data) + MAX_METRICS * min(generation, last) + MAX_RECORD + MAX_NAMES
    if os.stat(path).st_size > most:
        raise ValueError(f"{path}: it is larger than a checkpoint of this run; it belongs to a run with other settings")
    digest, _, body = files.read(path, most=most).partition(b"\n")
    if digest != _digest(path, body):
        raise Damaged("its contents do not match their digest")
    text, _, rest = body.partition(b"\n")
    try:
        arrays = load(rest)
    except SafetensorError as error:
        raise Damaged(str(error)) from None
    metrics = {name.removeprefix("metrics."): arrays.pop(name) for name in sorted(arrays) if name[:8] == "metrics."}
    expected = {f"state.{i:04d}": (x.shape, _stored_as(x.dtype)) for i, x in enumerate(data)}
    others = [values.shape[:1] != (generation,) for values in metrics.values()]
    if {name: (x.shape, x.dtype) for name, x in arrays.items()} != expected or any(others):
        raise ValueError(f"{path}: it belongs to a run with other settings")
    if generation > last:
        raise ValueError(f"{path}: {generation} generations are done; got {last} of them, and no fewer are needed")
    state = [_from_numpy(arrays[name], leaf) for name, leaf in zip(expected, leaves, strict=True)]
    return jax.tree.unflatten(structure, state), metrics, Record.from_json(text)


def record_in(path: Path) -> Record | None:
    """The record of the run, without the rest; None if it is not there as it was."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        file.readline(len(_digest(path, b"")) + 1)
        return Record.from_json(file.readline(MAX_RECORD))


def _data(leaf: Any) -> jax.Array:
    return data_of(jax.numpy.asarray(leaf))


def _stored_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Whole numbers of the same bits for bfloat16 and other types that NumPy itself does not have."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype


def _to_numpy(leaf: Any) -> np.ndarray:
    array = np.ascontiguousarray(_data(leaf)).reshape(np.shape(_data(leaf)))
    return array.view(_stored_as(array.dtype))


def _from_numpy(array: np.ndarray, like: Any) -> jax.Array:
    array = array.view(jax.eval_shape(_data, like).dtype)
    return typed(jax.numpy.asarray(array), kind_of(jax.eval_shape(jax.numpy.asarray, like)))


def _digest(path: Path, body: bytes) -> bytes:
    """The digest of a file and its name, because a checkpoint of another generation is not this one."""
    return hashlib.sha256(path.name.encode() + b"\n" + body).hexdigest().encode()
