"""Public names of `marl.distributed`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from marl.distributed.runtime import train
from marl.distributed.vector_env_adapters import make_env
