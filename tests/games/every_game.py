"""Names of games as parameters of tests: one game of each mechanism is always tested, the others by the nightly run."""

import pytest

from games import registry
from tests.nightly import MARKS

# A table of payoffs, one of several players, images, and actions that are vectors of choices or continuous.
KINDS = ("ipd", "three_player_ipd", "coin_game", "negotiation", "pendulum")
# Games, and the one that has the same mechanism and is tested in their place.
REPRESENTED = {
    **dict.fromkeys(("cleanup", "coop_mining", "foraging", "gift_refinement", "harvest", "mushrooms"), "coins"),
    "territory": "coins",
    "rock_paper_scissors_in_the_matrix": "ipd_in_the_matrix",
    **dict.fromkeys(("rock_paper_scissors", "bayesian_battle_of_the_sexes", "donation"), "ipd"),
    **dict.fromkeys(("trust_and_split", "rice_n"), "negotiation"),
    **dict.fromkeys(("cournot", "ultimatum"), "fishery"),
    **dict.fromkeys(("reacher", "cart_pole_swing_up", "inverted_pendulum"), "pendulum"),
    "Pendulum-v1": "CartPole-v1",
}


def suite(*others):
    """All names of ours and the others; those that another game represents are of the nightly run."""
    names = (*registry.ours(), *others)
    assert {*REPRESENTED.values()} <= {*names, "CartPole-v1"}
    return [pytest.param(name, marks=MARKS) if name in REPRESENTED else name for name in names]


def every_game(*others):
    """The same, of which one game of each kind is in the unit tests and the others are in the system tests."""
    rest = [one for one in suite(*others) if one not in KINDS]
    return [*KINDS, *(pytest.param(one, marks=pytest.mark.system) if isinstance(one, str) else one for one in rest)]
