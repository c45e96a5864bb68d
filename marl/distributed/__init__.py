"""The same learners in environments of other libraries: in one process, in threads, on a cluster."""

# ruff: noqa: F403

from typing import TYPE_CHECKING

import marl_shaping

if TYPE_CHECKING:
    from marl.distributed.public import *
else:
    __getattr__, __dir__ = marl_shaping.on_first_use(__name__)
