"""Public names of `marl.distributed`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from marl.distributed.adapters.maker import make_env
from marl.distributed.runtime import train
from marl.distributed.system import System
