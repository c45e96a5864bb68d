"""Programs are traced for the backend that is asked for, whatever this process has."""

import jax
import jax.numpy as jnp

from meta.xla.backend import device_memory, local_devices, platform, tracing_for
from meta.xla.barriers import computed_once


def test_the_backend_of_this_process_holds_where_none_is_named():
    assert platform() == jax.default_backend()
    assert local_devices() == jax.local_devices()
    with tracing_for("gpu", 1e9):
        assert (platform(), len(local_devices()), device_memory()) == ("gpu", 1, 1e9)
    assert platform() == jax.default_backend()


def test_a_function_that_was_traced_for_one_backend_is_traced_again_for_another():
    @jax.jit
    def barrier(x):
        return computed_once(x, x > 0)

    def text():
        return barrier.trace(jnp.float32(1)).lower(lowering_platforms=(("cpu", "cuda")[platform() == "gpu"],)).as_text()

    assert "stablehlo.case" in text()
    with tracing_for("gpu"):
        assert "optimization_barrier" in text()
        assert "stablehlo.case" not in text()
    assert "stablehlo.case" in text()
