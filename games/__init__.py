"""Pure, jittable games: `games.make("coin_game")`; `python -m games` lists them all."""

# ruff: noqa: F403

from typing import TYPE_CHECKING

import marl_shaping

if TYPE_CHECKING:
    from games.public import *

    __version__: str
else:
    __getattr__, __dir__ = marl_shaping.on_first_use(__name__)
