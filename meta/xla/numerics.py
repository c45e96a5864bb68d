"""Precision and determinism of programs on GPUs, as settings of a command.

CPUs compute products in float32 and give the same bits in every process, whatever the settings.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal

import jax

from configs import ConfigError
from meta.xla.backend import Platform

Precision = Literal["float32", "tensorfloat32"]

# Makes XLA choose kernels whose sums have a fixed order, and choose them without timing them.
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


@dataclasses.dataclass(frozen=True)
class Numerics:
    """Options of a command about rounding on GPUs."""

    precision: Precision = "float32"
    """Factors of matrix products on a GPU: tensorfloat32 is faster, and keeps 10 of the 23 bits of float32."""
    deterministic: bool = False
    """Give the same bits in every process on a GPU, as a CPU does; slower."""

    def set_flags(self) -> None:
        """Chooses XLA's kernels. Called before JAX starts its backend."""
        flags = os.environ.get("XLA_FLAGS", "")
        if self.deterministic and DETERMINISTIC not in flags.split():
            os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()

    def set_precision(self, platform: Platform) -> None:
        """Sets the precision of products and convolutions. JAX's own default on recent GPUs is tensorfloat32.

        Args:
          platform: the backend that computes.

        Raises:
          ConfigError: for tensorfloat32 on another device than a GPU.
        """
        if platform == "gpu":
            # XLA computes in tensorfloat32 on GPUs where nothing is asked, and not where JAX asks for it by name.
            jax.config.update("jax_default_matmul_precision", None if self.precision == "tensorfloat32" else "float32")
        elif self.precision != "float32":
            raise ConfigError(f"precision: got {self.precision}; float32 is needed on a {platform}")


def settings(platform: Platform) -> dict[str, Any]:
    """The precision of products, and True if processes on the same kind of device give the same bits."""
    if platform != "gpu":
        return {"precision": "float32", "deterministic": True}
    chosen = jax.config.values["jax_default_matmul_precision"] or "tensorfloat32"
    return {"precision": chosen, "deterministic": DETERMINISTIC in os.environ.get("XLA_FLAGS", "").split()}


def described(platform: Platform) -> str:
    """The settings in words for a GPU; empty for other devices, on which they have no effect."""
    if platform != "gpu":
        return ""
    found = settings(platform)
    return f"{found['precision']} products{', deterministic' * found['deterministic']}"
