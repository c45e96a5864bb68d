"""Keys as data, to be kept or sent."""

from typing import Any

import jax
import jax.numpy as jnp


def kind_of(x: Any) -> Any:
    """The kind of keys, or of their shapes; None of anything else."""
    return jax.random.key_impl(jnp.zeros(0, x.dtype)) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else None


def data_of(x: Any) -> Any:
    """An array as it is, of keys their data."""
    return x if kind_of(x) is None else jax.random.key_data(x)


def typed(x: Any, kind: Any) -> Any:
    """The keys of a kind whose data are given; an array as it is, if the kind is None."""
    return x if kind is None else jax.random.wrap_key_data(x, impl=kind)
