"""Programs are traced for the backend that is asked for, whatever this process has."""

import logging
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from meta.xla import backend
from meta.xla.backend import (
    device_memory,
    local_devices,
    platform,
    plugin_errors_in_one_line,
    tracing_for,
)
from meta.xla.barriers import computed_once


def test_the_backend_of_this_process_holds_where_none_is_named():
    assert platform() == jax.default_backend()
    assert local_devices() == jax.local_devices()
    with tracing_for("gpu", 1e9):
        assert (platform(), len(local_devices()), device_memory()) == ("gpu", 1, 1e9)
    assert platform() == jax.default_backend()


def test_a_limit_of_the_container_bounds_the_memory(monkeypatch):
    whole = device_memory()
    monkeypatch.setattr(backend, "memory_limit", lambda: 1e6)
    assert device_memory() == pytest.approx(9e5)
    monkeypatch.setattr(backend, "memory_limit", lambda: math.inf)
    assert device_memory() >= whole > 1e8


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


def test_a_gpu_that_jax_cannot_use_is_one_line(caplog):
    """JAX writes a traceback where the plugin is there and a library of CUDA, or the driver, is not."""
    said, logger = [], logging.getLogger("jax._src.xla_bridge")

    def fail():
        try:
            raise RuntimeError("Unable to load cuDNN.\nIs it installed?")
        except RuntimeError:
            logger.exception("Jax plugin configuration error: Exception when calling %s.initialize()", "cuda")

    with plugin_errors_in_one_line(said.append):
        logger.warning("another message")
        fail()
    assert said == ["JAX cannot use the GPU: Unable to load cuDNN. Is it installed?"]
    assert [record.getMessage() for record in caplog.records] == ["another message"]
    fail()
    assert len(caplog.records) == 2


@pytest.mark.system
@pytest.mark.parametrize(("name", "reason"), [("cuda", "no device of it is found"), ("nonsense", "Unable to init")])
def test_a_backend_that_is_not_there_is_one_line(name, reason, tmp_path):
    if name == jax.default_backend():
        pytest.skip("it is there")
    line = [sys.executable, "-m", "marl.mfos", "ipd"]
    environment = os.environ | {"JAX_PLATFORMS": name}
    found = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert f"JAX_PLATFORMS: got '{name}'; {reason}" in found.stderr
    assert not list(tmp_path.iterdir())
