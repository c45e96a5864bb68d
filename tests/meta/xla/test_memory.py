"""The memory of a program is checked before it runs."""

import jax
import jax.numpy as jnp
import pytest

from meta.xla.memory import TooLarge, check_memory


def compiled(size):
    return jax.jit(lambda x: jnp.sort(x[:, None] * x)).lower(jax.ShapeDtypeStruct((size,), jnp.float32)).compile()


def test_a_small_program_is_accepted():
    check_memory(compiled(8))


def test_a_program_that_is_too_large_is_refused_in_one_line_with_both_numbers():
    """Its result has 4 (2^20)^2 bytes, 4 TiB, more than any machine of the tests."""
    with pytest.raises(
        TooLarge, match=r"^memory: the program needs [\d.]+ GiB and there are [\d.]+ GiB; less$"
    ) as error:
        check_memory(compiled(2**20), "; less")
    assert float(str(error.value).split()[4]) >= 4096
