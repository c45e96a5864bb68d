"""JAX's modes, which belong to the user: games and learners of this library compute the same in all of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Function = TypeVar("Function", bound=Callable[..., Any])

_SINGLE = {"float64": jnp.float32, "int64": jnp.int32, "uint64": jnp.uint32, "complex128": jnp.complex64}


@contextlib.contextmanager
def lenient() -> Iterator[None]:
    """Inside, ranks and dtypes are promoted as NumPy does, and new arrays have 32 bits: modes are for the user's code.

    JAX's own functions, such as `jax.nn.one_hot`, and flax need it too.
    """
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        yield


def single(tree: Any) -> Any:
    """A pytree whose arrays have 32 bits at most, also with `jax_enable_x64`; without it, the tree as it is."""
    return jax.tree.map(_single, tree)


def _single(leaf: Any) -> Any:
    dtype = _SINGLE.get(str(getattr(leaf, "dtype", "")))
    if dtype is None:
        return leaf
    return leaf.astype(dtype) if hasattr(leaf, "astype") else jnp.asarray(leaf, dtype)


def in_any_mode(function: Function) -> Function:
    """A function of this library whose results have the same dtypes in all modes; 64 bits of arguments become 32."""

    @functools.wraps(function)
    def same(*args: Any, **kwargs: Any) -> Any:
        if jax.config.read("jax_enable_x64"):  # numbers of Python become 64 bits where they are arguments of a program
            args, kwargs = single((args, kwargs))
        with lenient():
            return single(function(*args, **kwargs))

    return same  # type: ignore[return-value]
