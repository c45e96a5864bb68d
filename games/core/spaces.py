"""Spaces of actions and observations, in JAX.

Written here because gymnasium's sample on the host, and gymnax's cost seconds of import.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import shown


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 to n - 1.

    Attributes:
      n: number of values.
      dtype: type of the integers.
    """

    n: int
    dtype: Any = dataclasses.field(default=jnp.int32, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniform draw, `[]`."""
        return jax.random.randint(key, (), 0, self.n, self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """True if `x` is one of the integers."""
        if jnp.shape(x) != ():
            return jnp.asarray(False)
        return jnp.all((jnp.asarray(x) >= 0) & (jnp.asarray(x) < self.n) & (jnp.asarray(x) == jnp.floor(x)))

    def to_gymnasium(self) -> Any:
        """The same space for gymnasium and PettingZoo."""
        from gymnasium import spaces

        return spaces.Discrete(self.n, dtype=np.dtype(self.dtype))


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors of integers, entry i from 0 to nvec[i] - 1.

    Attributes:
      nvec: number of values of each entry.
      dtype: type of the integers.
    """

    nvec: tuple[int, ...]
    dtype: Any = dataclasses.field(default=jnp.int32, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniform draw, `[len(nvec)]`."""
        return jax.random.randint(key, self.shape, 0, jnp.array(self.nvec), self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """True if `x` has the shape and every entry is one of its integers."""
        if jnp.shape(x) != self.shape:
            return jnp.asarray(False)
        x = jnp.asarray(x)
        return jnp.all((x >= 0) & (x < jnp.array(self.nvec)) & (x == jnp.floor(x)))

    def to_gymnasium(self) -> Any:
        """The same space for gymnasium and PettingZoo."""
        from gymnasium import spaces

        return spaces.MultiDiscrete(list(self.nvec), np.dtype(self.dtype))


@dataclasses.dataclass(frozen=True, eq=False)
class Box:
    """Arrays of one shape with every entry in [low, high]; the bounds are numbers or arrays, and may be infinite.

    Where `image` is set they are `[height, width, channels]`, in this order, and may be convolved. All other
    arrays are no images, whatever their shape. `numpy.moveaxis(x, -1, 0)` gives the channels first, as in PyTorch.

    Attributes:
      low: lower bound, a number or an array `[*shape]`.
      high: upper bound, likewise.
      shape: shape of the arrays.
      dtype: their type.
      image: whether they are images.
    """

    low: Any
    high: Any
    shape: tuple[int, ...]
    dtype: Any = dataclasses.field(default=jnp.float32, repr=False)
    image: bool = False

    def __post_init__(self) -> None:
        if self.image and len(self.shape) != 3:
            raise ValueError(f"image: got the shape {self.shape}; [height, width, channels] is needed")

    def sample(self, key: jax.Array) -> jax.Array:
        """A uniform draw between finite bounds, a normal draw where both are infinite, else the bound +- Exp(1).

        Integers are uniform, and infinite bounds are those of `int`, whose greatest number is never drawn.
        """
        low, high = (jnp.broadcast_to(jnp.asarray(bound), self.shape) for bound in (self.low, self.high))
        if jnp.issubdtype(self.dtype, jnp.integer):
            limits = jnp.iinfo(jax.dtypes.canonicalize_dtype(int))
            low = jnp.where(low <= limits.min, limits.min, low.astype(int))
            high = jnp.where(high >= limits.max, limits.max - 1, high.astype(int))
            return jax.random.randint(key, self.shape, low, high + 1, self.dtype)
        below, above = jnp.isfinite(low), jnp.isfinite(high)
        low, high = jnp.where(below, low, 0), jnp.where(above, high, 0)
        inside = jax.random.uniform(key, self.shape, self.dtype, low, jnp.where(above, high, low + 1))
        tail = jax.random.exponential(key, self.shape, self.dtype)
        outside = jnp.where(below, low + tail, jnp.where(above, high - tail, jax.random.normal(key, self.shape)))
        return jnp.where(below & above, inside, outside).astype(self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """True if `x` has the shape and every entry is within the bounds."""
        if jnp.shape(x) != self.shape:
            return jnp.asarray(False)
        return jnp.all((jnp.asarray(x) >= self.low) & (jnp.asarray(x) <= self.high))

    def to_gymnasium(self) -> Any:
        """The same space for gymnasium and PettingZoo."""
        from gymnasium import spaces

        dtype, bounds = np.dtype(self.dtype), (self.low, self.high)
        if np.issubdtype(dtype, np.integer):  # which have no infinity
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            within = np.vectorize(lambda x: int(min(max(x, least), most)), otypes=[dtype])
            bounds = within(self.low), within(self.high)
        low, high = (np.broadcast_to(bound, self.shape).astype(dtype) for bound in bounds)
        return spaces.Box(low, high, self.shape, dtype)


Space = Discrete | MultiDiscrete | Box


def bounds(space: Space) -> tuple[Any, Any]:
    """The least and the greatest value of every entry."""
    if isinstance(space, Box):
        return space.low, space.high
    return 0, (space.n if isinstance(space, Discrete) else np.array(space.nvec)) - 1


def described(space: Space) -> str:
    """The elements of a space in words, for messages."""
    if isinstance(space, Discrete):
        return f"a whole number from 0 to {space.n - 1}"
    if isinstance(space, MultiDiscrete):
        return f"whole numbers from 0 to {', '.join(str(n - 1) for n in space.nvec)}"
    if any(isinstance(bound, jax.core.Tracer) for bound in (space.low, space.high)):
        return "an array in the space's bounds"
    low, high = (np.unique(bound) for bound in (space.low, space.high))
    limits = f"[{low[0]:g}, {high[0]:g}]" if len(low) == len(high) == 1 else "the space's bounds"
    return f"an array in {limits}"


def is_real(dtype: Any) -> bool:
    """True for a dtype of real numbers or truth values, among them JAX's own, such as bfloat16."""
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))


def shaped(field: str, action: Any, space: Space, batch: tuple[int, ...] = ()) -> Any:
    """An action as an array of the space's shape, whichever form it comes in; its values are not looked at.

    A number, an array without axes and one of shape `(1,)` stand for the same action, and a list for an array: axes of
    length 1 do not count.

    Raises:
      ValueError: for any other shape.
    """
    shape = (*batch, *space.shape)
    traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(action))
    try:
        array = jnp.asarray(action) if traced or isinstance(action, jax.Array) else np.asarray(action)
    except (ValueError, TypeError):  # lists of unequal lengths
        raise ValueError(f"{field}: got {shown(action)}; {described(space)} of shape {shape} is needed") from None
    if [size for size in array.shape if size != 1] != [size for size in shape if size != 1]:
        raise ValueError(f"{field}: got shape {array.shape}; {described(space)} of shape {shape} is needed")
    return array.reshape(shape)


def refuse_impossible(field: str, action: Any, space: Space) -> None:
    """Raises ValueError for an action that no game can make sense of; it has to be known, and not traced by JAX.

    These are numbers that a `Discrete` or `MultiDiscrete` does not have, and what is no number. Games clip what leaves
    a `Box`.
    """
    array = np.asarray(action)
    fits = is_real(array.dtype) and not np.isnan(array.astype(np.float64)).any()
    if isinstance(space, MultiDiscrete):
        fits = fits and array.shape == space.shape
    if fits and not isinstance(space, Box):
        low, high = bounds(space)
        fits = bool(((array >= low) & (array <= high) & (array == np.floor(array))).all())
    if not fits:
        raise ValueError(f"{field}: got {array.tolist()!r}; {described(space)} is needed")
