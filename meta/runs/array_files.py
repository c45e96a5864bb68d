"""Named arrays in a file, with what is known about them: safetensors, which holds data and never code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from meta.atomic_files import write_whole

Arrays = dict[str, np.ndarray]
DIGEST = "digest"  # in a file's metadata


def _in_order(contents: bytes) -> bytes:
    """A file of safetensors with its header sorted; the library writes metadata in an order of chance.

    The format: 8 bytes, little-endian, with the length of a header in JSON, which spaces fill up to a multiple of 8.
    Where an array is counts from the end of the header.
    """
    end = 8 + int.from_bytes(contents[:8], "little")
    header = json.dumps(json.loads(contents[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + contents[end:]


def replace_arrays(path: Path, tree: Any, metadata: dict[str, Any]) -> None:
    """Writes the leaves of a tree by their names; the file appears whole or not at all, in place of an older one."""
    write_whole(path, _to_bytes(named_leaves(tree), metadata))


def _to_bytes(arrays: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    from safetensors.numpy import save

    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    kept = {name: x.astype(np.float32) if x.dtype.kind == "V" else x for name, x in kept.items()}  # such as bfloat16
    about = json.loads(json.dumps(metadata))
    about[DIGEST] = _digest_of_file(kept, about)
    return _in_order(save(kept, {name: json.dumps(value) for name, value in about.items()}))


def _digest_of_file(arrays: Arrays, metadata: dict[str, Any]) -> str:
    return digest(arrays | {"metadata": np.frombuffer(json.dumps(metadata, sort_keys=True).encode(), np.uint8)})


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves by their paths, such as `w1`; `parameters` where there is one array and nothing around it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator=".") or "parameters": leaf for path, leaf in leaves}


def digest(tree: Any) -> str:
    """Hexadecimal digits that change with the leaves of a tree, their names and their shapes."""
    found = hashlib.sha256()
    for name, leaf in named_leaves(tree).items():
        array = np.asarray(leaf)
        found.update(f"{name} {array.shape} {array.dtype}".encode() + array.tobytes())
    return found.hexdigest()


def load_arrays(path: Path, *, finite: bool = True) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the metadata of a file that `replace_arrays` wrote, which carries a digest of both.

    Args:
      path: of the file.
      finite: whether numbers that are not finite are refused.

    Raises:
      ValueError: if there is no such file, or if it is damaged or none of ours; one line that names it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError("there is no such file")
        with safe_open(path, framework="numpy") as file:
            metadata = {name: json.loads(value) for name, value in (file.metadata() or {}).items()}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"file: got {str(path)!r}; it cannot be read ({' '.join(str(error).split())})") from None
    if metadata.pop(DIGEST, None) not in (None, _digest_of_file(arrays, metadata)):
        raise ValueError(f"file: got {str(path)!r}; its contents do not match their digest")
    for name, array in arrays.items():
        if finite and not np.isfinite(array).all():
            raise ValueError(f"file: got {str(path)!r}; {name} holds numbers that are not finite")
    return arrays, metadata


def same_shapes(arrays: Arrays, shapes: dict[str, tuple[int, ...]], file: str = "") -> None:
    """Checks the names and shapes of arrays.

    Raises:
      ValueError: if they are others.
    """
    found = {name: array.shape for name, array in arrays.items()}
    if found != shapes:
        raise ValueError(f"file: got {file!r}, with arrays of shape {found}; {shapes} is needed")


def as_tree(arrays: Arrays, like: Any, file: str, leading: tuple[int, ...] = ()) -> Any:
    """The tree of arrays that `replace_arrays` wrote: like one of arrays or their shapes, with further axes in front.

    Raises:
      ValueError: if the names or shapes are others.
    """
    shapes = {name: (*leading, *leaf.shape) for name, leaf in named_leaves(like).items()}
    same_shapes(arrays, shapes, file)
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in shapes])
