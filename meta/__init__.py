"""Evolution over whole trials, and run directories; independent of games."""

# ruff: noqa: F403

from typing import TYPE_CHECKING

import marl_shaping

if TYPE_CHECKING:
    from meta.public import *

    __version__: str
else:
    __getattr__, __dir__ = marl_shaping.on_first_use(__name__)
