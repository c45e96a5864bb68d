"""What is played: pure, jittable games."""

from games.game import Game
from games.matrix import (
    MatrixGame,
    battle_of_the_sexes,
    chicken,
    discounted_payoffs,
    hawk_dove,
    matching_pennies,
    matrix_games,
    prisoners_dilemma,
    stag_hunt,
    state_visits,
    symmetric,
)
from games.repeated import InfinitelyRepeated
from games.spaces import Box, Discrete

__all__ = [
    "Box",
    "Discrete",
    "Game",
    "InfinitelyRepeated",
    "MatrixGame",
    "battle_of_the_sexes",
    "chicken",
    "discounted_payoffs",
    "hawk_dove",
    "matching_pennies",
    "matrix_games",
    "prisoners_dilemma",
    "stag_hunt",
    "state_visits",
    "symmetric",
]
