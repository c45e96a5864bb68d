"""The host's loop: the number of steps in one call to the device, and a signal between two calls."""

import os
import signal
import time

import jax
import jax.numpy as jnp
import pytest

from meta import RunDirectory, loop, process
from meta.cluster.on_ray import run_on_host


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


def test_a_signal_while_metrics_are_written_loses_no_step(tmp_path):
    class Signalled(RunDirectory):
        def append(self, rows):
            super().append(rows)
            os.kill(os.getpid(), signal.SIGTERM)

    def step(key, number, state):
        return state + 1, {"x": state}

    with Signalled(tmp_path) as run, process.running():
        process.stop_on_signals()
        with pytest.raises(KeyboardInterrupt):
            loop.iterate(step, jnp.float32(0), jax.random.key(0), 5, store=run)
        number, state, metrics = run.restore(jnp.float32(0), 5)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert number == state == len(metrics["x"]) == len(lines) == 1


def test_a_signal_that_a_library_made_another_error_of_saves_a_checkpoint_too(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MAX_ITERATIONS_PER_CALL", 1)

    def step(key, number, state):
        return state + 1, {"x": state}

    def convert(metrics, first):
        if first == 3:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            except KeyboardInterrupt:
                raise RuntimeError("the compiler has failed") from None
        return metrics

    with RunDirectory(tmp_path) as run, process.running():
        process.stop_on_signals()
        with pytest.raises(KeyboardInterrupt):
            loop.iterate(step, jnp.float32(0), jax.random.key(0), 5, store=run, process_metrics=convert)
        number, state, _ = run.restore(jnp.float32(0), 5)
    assert number == state == 3


def test_a_second_signal_does_not_stop_the_last_save(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MAX_ITERATIONS_PER_CALL", 1)

    class Signalled(RunDirectory):
        def save(self, *state):
            os.kill(os.getpid(), signal.SIGTERM)
            super().save(*state)

    def step(key, number, state):
        return state + 1, {"x": state}

    def stop(number, metrics, seconds):
        if number == 2:
            raise KeyboardInterrupt

    with Signalled(tmp_path) as run, process.running():
        process.stop_on_signals()
        with pytest.raises(KeyboardInterrupt):
            loop.iterate(step, jnp.float32(0), jax.random.key(0), 5, store=run, report=stop)
        assert run.restore(jnp.float32(0), 5)[0] == 2


def test_a_metric_cannot_take_the_place_of_the_number_of_an_iteration_on_a_cluster_either():
    call = run_on_host(lambda key, number, state: (state, {"generation": number}), "generation", 0.0, None, "")
    with pytest.raises(ValueError, match="metrics: got one named 'generation', which is what an iteration is called"):
        call(0.0, None, 0, 1)
