"""Number of steps in one call to the device."""

import time

import jax
import jax.numpy as jnp

from meta import loop


def test_a_call_with_a_large_state_has_more_steps(monkeypatch):
    """If a call by itself exceeds the usual time of calls, each step would otherwise be a call of its own."""
    monkeypatch.setattr(loop, "SECONDS_PER_CALL", 0.05)
    monkeypatch.setattr(loop, "STATE_PER_SECOND", 1e4)  # bytes: 0.4 s for these
    counts = []

    def run(step, name, state, key, advice):
        def call(state, key, first, count):
            counts.append(count)
            time.sleep(0.06)  # the copy; the steps are free
            return state, {"x": jnp.zeros(count)}

        return call

    for size, calls in ((1, range(20, 21)), (1_000, range(2, 20))):
        counts.clear()
        loop.iterate(lambda *_: None, jnp.zeros(size), jax.random.key(0), 20, run=run)
        assert sum(counts) == 20
        assert len(counts) in calls
