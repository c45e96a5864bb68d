"""Adversarial cheap talk: messages to a learner, evolved over its whole training to harm, help or control it."""

# ruff: noqa: F403

from typing import TYPE_CHECKING

import marl_shaping

if TYPE_CHECKING:
    from attacks.public import *

    __version__: str
else:
    __getattr__, __dir__ = marl_shaping.on_first_use(__name__)
