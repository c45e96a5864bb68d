"""Random bits, as few as a game needs: on a CPU they are the dearest thing in a light game.

`words` and `split` give the very bits of `jax.random.bits` and `jax.random.split`. XLA on the CPU runs the rounds of
threefry in a loop of small kernels, which for some thousand keys costs ten times the arithmetic; here they are
unrolled. `unrolled` gives a key from which everything of `jax.random` is drawn so, for code that is not ours.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

_FEW = 4
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def words(key: jax.Array, count: int) -> list[jax.Array]:
    """`count` random words, uint32 `[]` each: the entries of `jax.random.bits(key, (count,), "uint32")`."""
    if not _is_threefry(key):
        return list(jax.random.bits(key, (count,), jnp.uint32))
    data = jax.random.key_data(key)
    return [first ^ second for first, second in (_threefry(data, i) for i in range(count))]


def array(key: jax.Array, size: int) -> jax.Array:
    """Random words, uint32 `[size]`: `jax.random.bits(key, (size,), "uint32")`."""
    if not _is_threefry(key):
        return jax.random.bits(key, (size,), jnp.uint32)
    first, second = _threefry(jax.random.key_data(key), jnp.arange(size))
    return first ^ second


def split(key: jax.Array, num: int = 2) -> jax.Array:
    """`jax.random.split(key, num)`."""
    if not _is_threefry(key):
        return jax.random.split(key, num)
    data = jax.random.key_data(key)
    if num <= _FEW:  # apart, so that under vmap each is contiguous
        keys = jnp.stack([jnp.stack(_threefry(data, i)) for i in range(num)])
    else:
        keys = jnp.stack(_threefry(data, jnp.arange(num)), -1)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(keys, impl="threefry2x32") if typed else keys


def unrolled(key: jax.Array) -> jax.Array:
    """The same key, from which `jax.random` draws the same numbers, faster in a batch and slower to compile."""
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED) if _is_threefry(key) else key


def draw_integer(word: jax.Array, n: int | jax.Array) -> tuple[jax.Array, jax.Array]:
    """A uniform integer in 0 ... n - 1 from a random word, and the word that is left for further draws.

    A word w is read as the fraction w / 2^32 and the integer is its first digit in base n; what remains of the
    fraction are the digits to come. After draws of n1, n2, ... every outcome has its probability to within
    n1 n2 ... / 2^32.

    Args:
      word: uint32 of any shape.
      n: at most 2^16.

    Returns:
      (int32 of the same shape, uint32 of the same shape).
    """
    n = jnp.asarray(n, jnp.uint32)
    low, high = word & 0xFFFF, word >> 16
    digit = (high * n + (low * n >> 16)) >> 16  # the upper half of the 64-bit product, in 32-bit arithmetic
    return digit.astype(jnp.int32), word * n


def permutation(key: jax.Array, size: int) -> jax.Array:
    """The numbers 0 to size - 1 in a random order, int32 `[size]`.

    Each number is the tail of a random word, and the words are sorted: XLA on the CPU sorts one array of integers six
    times faster than the pairs of `jax.random.permutation`. Where two words agree in their random part the smaller
    number comes first; for a size of 512 that happens to one order in sixty. Above 2^16 numbers too few random bits are
    left, and the order is that of `jax.random.permutation`.

    Args:
      key: of the order.
      size: of the order.
    """
    if size > 2**16:
        return jax.random.permutation(key, jnp.arange(size, dtype=jnp.int32))
    tail = jnp.uint32(2 ** (size - 1).bit_length() - 1)
    return (jnp.sort(array(key, size) & ~tail | jnp.arange(size, dtype=jnp.uint32)) & tail).astype(jnp.int32)


def uniform(word: jax.Array) -> jax.Array:
    """A uniform number in [0, 1) from a random word, float32 with 24 random bits."""
    return (word >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def _is_threefry(key: jax.Array) -> bool:
    """True for a threefry key, typed or raw; the layout of counts is JAX's default since 0.5."""
    typed = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
    partitionable = getattr(jax.config, "jax_threefry_partitionable", True)
    return "threefry2x32" in str(jax.random.key_impl(typed)) and bool(partitionable)


def _threefry(key: jax.Array, count: int | jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with twenty rounds (Salmon et al., 2011) of the counters (0, count) under a key `[2]`."""
    schedule = [key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)]
    first, second = schedule[0], schedule[1] + jnp.uint32(count)
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            first = first + second
            second = first ^ ((second << rotation) | (second >> (32 - rotation)))
        first = first + schedule[(i + 1) % 3]
        second = second + schedule[(i + 2) % 3] + jnp.uint32(i + 1)
    return first, second


def _counted(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Both words of the counters 0, 1, 2, ... in an array of a shape; fewer than 2^32 of them."""
    return _threefry(key, jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape))


def _random_bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    first, second = _counted(key, shape)
    if width == 64:
        return first.astype(jnp.uint64) << 32 | second
    return (first ^ second).astype(f"uint{width}")


_UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=lambda seed: jax.random.key_data(jax.random.key(seed, impl="threefry2x32")),
    split=lambda key, shape: jnp.stack(_counted(key, shape), -1),
    random_bits=_random_bits,
    fold_in=lambda key, data: jnp.stack(_threefry(key, data)),
    name="unrolled_threefry2x32",
    tag="ufry",
)
