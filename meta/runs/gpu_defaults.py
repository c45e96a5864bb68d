"""Defaults of a GPU, for configs whose presets were measured on CPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, TypeVar

from meta.strategies import Evolution
from meta.xla.backend import platform

Config = TypeVar("Config")


def with_gpu_defaults(config: Config, given: Collection[str] = ()) -> Config:
    """The config with all candidates at once on a GPU; as it is on a CPU, for whose caches presets have chunks.

    What the memory of the GPU does not hold at once, `evolve` takes in chunks itself.

    Args:
      config: a dataclass, with evolutions among its fields.
      given: fields that a user has set, by their names in full, which stay.
    """
    evolutions: dict[str, Any] = {
        field.name: dataclasses.replace(part, chunk_size=0)
        for field in dataclasses.fields(config)  # type: ignore[arg-type]
        if isinstance(part := getattr(config, field.name), Evolution)
        if part.chunk_size and f"{field.name}.chunk_size" not in given
    }
    if not evolutions or platform() == "cpu":
        return config
    return dataclasses.replace(config, **evolutions)  # type: ignore[type-var]


def gpu_line(before: Any, now: Any) -> str:
    """A line for the header about what `with_gpu_defaults` changed; empty if that is nothing."""
    changed = [
        f"{field.name}.chunk_size {part.chunk_size}"
        for field in dataclasses.fields(before)
        if isinstance(part := getattr(before, field.name), Evolution) and part != getattr(now, field.name)
    ]
    if not changed:
        return ""
    return f"on a GPU all candidates at once, as far as its memory holds them, in place of {', '.join(changed)}"
