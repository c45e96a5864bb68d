"""Random bits: those of JAX, and uniform integers from them."""

import jax
import numpy as np
import pytest

from games.core import random_bits

KEYS = {
    "typed": jax.random.key(3),
    "raw": jax.random.PRNGKey(3),
    "another generator": jax.random.key(3, impl="rbg"),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_words_and_keys_are_those_of_jax(key):
    np.testing.assert_array_equal(np.array(random_bits.words(key, 3)), jax.random.bits(key, (3,), "uint32"))
    np.testing.assert_array_equal(random_bits.array(key, 5), jax.random.bits(key, (5,), "uint32"))
    for num in (3, 9):
        ours, theirs = random_bits.split(key, num), jax.random.split(key, num)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))


def test_keys_keep_their_generator_where_another_is_the_default():
    key = KEYS["typed"]
    with jax.default_prng_impl("rbg"):
        assert (random_bits.split(key, 3) == jax.random.split(key, 3)).all()


def test_digits_of_a_word_by_hand():
    # 0.75 in binary, and in base 3 it is 0.2020...
    digit, rest = random_bits.draw_integer(np.uint32(3 << 30), 2)
    assert (int(digit), int(rest)) == (1, 1 << 31)
    digits, word = [], np.uint32(3 << 30)
    for _ in range(4):
        digit, word = random_bits.draw_integer(word, 3)
        digits.append(int(digit))
    assert digits == [2, 0, 2, 0]
    assert int(random_bits.draw_integer(np.uint32(2**32 - 1), 2**16)[0]) == 2**16 - 1


@pytest.mark.parametrize(("sizes", "total"), [((9, 9, 8), 648), ((3, 5), 15)])
def test_several_draws_from_one_word_are_uniform_and_independent(sizes, total):
    word, joint = jax.random.bits(jax.random.key(1), (200_000,), "uint32"), 0
    for n in sizes:
        digit, word = random_bits.draw_integer(word, n)
        joint = joint * n + digit
    counts = np.bincount(np.asarray(joint), minlength=total)
    expected = 200_000 / total
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - (total - 1)) < 5 * (2 * (total - 1)) ** 0.5


def test_uniform_numbers_fill_the_unit_interval():
    x = np.asarray(random_bits.uniform(jax.random.bits(jax.random.key(0), (100_000,), "uint32")))
    assert x.min() >= 0
    assert x.max() < 1
    assert x.mean() == pytest.approx(0.5, abs=5 * (1 / 12 / len(x)) ** 0.5)
    assert float(random_bits.uniform(np.uint32(2**32 - 1))) < 1


@pytest.mark.system
def test_orders_are_permutations_and_all_equally_likely():
    orders = np.asarray(
        jax.vmap(lambda key: random_bits.permutation(key, 5))(jax.random.split(jax.random.key(2), 60_000))
    )
    np.testing.assert_array_equal(np.sort(orders), np.broadcast_to(np.arange(5), orders.shape))
    counts = np.unique(orders @ 10 ** np.arange(5), return_counts=True)[1]
    assert len(counts) == 120
    chi_squared = ((counts - 500) ** 2 / 500).sum()
    assert abs(chi_squared - 119) < 5 * (2 * 119) ** 0.5
    for size in (1, 2, 512, 2**16, 2**17):
        order = random_bits.permutation(jax.random.key(0), size)
        assert order.dtype == np.int32
        np.testing.assert_array_equal(np.sort(order), np.arange(size))
    assert abs((np.diff(order) > 0).mean() - 0.5) < 0.01  # neighbours rise as often as they fall


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_everything_of_jax_is_drawn_alike_from_an_unrolled_key(key):
    draws = {
        "uniform": lambda key: jax.random.uniform(key, (3, 2)),
        "normal": lambda key: jax.random.normal(key, (5,)),
        "randint": lambda key: jax.random.randint(key, (4,), 0, 1000),
        "permutation": lambda key: jax.random.permutation(key, 7),
        "uint8": lambda key: jax.random.bits(key, (9,), "uint8"),
        "uint16": lambda key: jax.random.bits(key, (3, 3), "uint16"),
        "uint32": lambda key: jax.random.bits(key, (), "uint32"),
        "split": lambda key: jax.random.uniform(jax.random.split(key, (2, 3))[1, 2], (2,)),
        "fold_in": lambda key: jax.random.uniform(jax.random.fold_in(key, 12), (2,)),
    }
    for name, draw in draws.items():
        np.testing.assert_array_equal(draw(random_bits.unrolled(key)), draw(key), err_msg=name)


def test_an_unrolled_key_draws_alike_in_a_batch():
    keys = jax.random.split(jax.random.key(0), 3)
    ours, theirs = (
        jax.jit(jax.vmap(lambda key, f=f: jax.random.normal(f(key), (2,))))(keys)
        for f in (random_bits.unrolled, lambda x: x)
    )
    np.testing.assert_array_equal(ours, theirs)
