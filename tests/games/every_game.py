"""Names of games for tests of adapters: one of each kind in the unit tests, all of them in the system tests."""

import pytest

from games import registry

# A table of payoffs, one of several players, images, and actions that are vectors of choices or continuous.
KINDS = ("ipd", "three_player_ipd", "coin_game", "negotiation", "pendulum")


def every_game(*others):
    """All names of ours and the others, as parameters of a test."""
    return [
        name if name in KINDS else pytest.param(name, marks=pytest.mark.system) for name in (*registry.ours(), *others)
    ]
