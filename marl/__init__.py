"""Learners, shapers, and the loop in which they learn together.

Learners and networks are here, shapers in `marl.shapers`, objectives in `marl.objectives`, and losses of values in
`marl.value_losses`. Learners and shapers have names, too: `make_learner("lola(learning_rate=0.5)", game, seat=1)`,
`make_shaper("mfos", game)`.
"""

# ruff: noqa: F403

from typing import TYPE_CHECKING

import marl_shaping

if TYPE_CHECKING:
    from marl.public import *

    __version__: str
else:
    __getattr__, __dir__ = marl_shaping.on_first_use(__name__)
