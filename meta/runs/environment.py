"""What a result may depend on: versions and devices."""

from __future__ import annotations

import platform
from importlib import metadata

# JAX is imported where it is needed: versions are told without it.


def versions() -> dict[str, str]:
    """Versions of what a result may depend on."""
    names = ("marl-shaping", "jax", "jaxlib", "evosax", "optax", "flax", "numpy")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a checkout that is not installed
            found[name] = "not installed"
    return found


def version_line() -> str:
    """The versions of the library and of JAX in one line."""
    found = versions()
    return f"marl-shaping {found['marl-shaping']}, jax {found['jax']}"


def devices() -> list[str]:
    """The devices of this process, such as `2 x cpu`."""
    import jax

    kinds = [device.device_kind for device in jax.local_devices()]
    return [f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)]


def place() -> str:
    """Where this process computes: other devices, cores or versions of JAX round differently."""
    import jax

    from meta.xla.devices import cores as available

    cores = f", {len(available())} core(s)" if jax.default_backend() == "cpu" else ""
    return f"{', '.join(devices())}{cores}, jax {jax.__version__}"
