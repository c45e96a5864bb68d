"""Shapers: policies whose parameters are evolved, and fixed while the others learn; `marl.shapers.mfos(game)`.

The public names are here. The modules come in pairs for the two kinds of game: `exact` for games that are formulas,
`sampled` for games that are played step by step.
"""

# ruff: noqa: F403

from typing import TYPE_CHECKING

import marl_shaping

if TYPE_CHECKING:
    from marl.shapers.public import *
else:
    __getattr__, __dir__ = marl_shaping.on_first_use(__name__)
