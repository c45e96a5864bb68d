"""Benchmarks measure the compared programs in turn."""

import jax.numpy as jnp

from benchmarks.timing import compiled, in_turn, ratio, seconds_in_turn


def test_calls_are_made_in_turn_and_their_results_kept_apart():
    order = []
    calls = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert in_turn(calls, 3) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert order == list("ababab")


def test_a_first_turn_is_not_counted():
    program = compiled(jnp.sin, jnp.ones(3))
    times = seconds_in_turn({"sine": program}, 2)["sine"]
    assert len(times) == 2
    assert min(*times, program.seconds_to_compile) > 0


def test_a_ratio_is_the_median_over_turns():
    assert ratio([1.0, 6.0, 9.0], [1.0, 2.0, 1.0]) == 3.0
