"""Settings of rounding on GPUs, without one."""

import os

import jax
import jax.numpy as jnp
import pytest

from configs import ConfigError
from meta.xla import numerics
from meta.xla.numerics import DETERMINISTIC, Numerics


@pytest.fixture
def restored():
    """Puts JAX's own precision back."""
    before = jax.config.values["jax_default_matmul_precision"]
    yield
    jax.config.update("jax_default_matmul_precision", before)


def lowered() -> str:
    matrix = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return jax.jit(jnp.matmul).trace(matrix, matrix).lower(lowering_platforms=("cuda",)).as_text()


def test_a_gpu_computes_products_in_float32_unless_asked_otherwise(restored):
    Numerics().set_precision("gpu")
    assert "precision = [HIGHEST, HIGHEST]" in lowered()
    assert numerics.settings("gpu")["precision"] == "float32"
    assert numerics.described("gpu") == "float32 products"


def test_tensorfloat32_is_what_xla_does_by_itself(restored):
    """Precision HIGH, JAX's name for it, gives products in float32 on an H100: seen in compiled programs."""
    Numerics(precision="tensorfloat32").set_precision("gpu")
    assert "precision = [HIGH" not in lowered()
    assert numerics.described("gpu") == "tensorfloat32 products"


def test_a_deterministic_run_says_so(restored, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=4")
    Numerics().set_flags()
    assert os.environ["XLA_FLAGS"] == "--xla_gpu_autotune_level=4"
    assert not numerics.settings("gpu")["deterministic"]
    for _ in range(2):
        Numerics(deterministic=True).set_flags()
    assert os.environ["XLA_FLAGS"] == f"--xla_gpu_autotune_level=4 {DETERMINISTIC}"
    assert numerics.settings("gpu")["deterministic"]
    assert numerics.described("gpu").endswith(", deterministic")


def test_a_cpu_keeps_its_bits():
    before = jax.config.values["jax_default_matmul_precision"]
    Numerics().set_precision("cpu")
    assert jax.config.values["jax_default_matmul_precision"] == before
    assert numerics.settings("cpu") == {"precision": "float32", "deterministic": True}
    assert numerics.described("cpu") == ""
    with pytest.raises(ConfigError, match="precision: got tensorfloat32; float32 is needed on a cpu"):
        Numerics(precision="tensorfloat32").set_precision("cpu")
