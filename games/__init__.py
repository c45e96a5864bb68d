"""Pure, jittable games: `games.make("coin_game")`; `python -m games` lists them all."""

# ruff: noqa: F403, F405

from typing import TYPE_CHECKING

import marl_shaping as marl_shaping  # first: it reports a file that hides one of the packages

__all__ = [
    "Box",
    "CoinGame",
    "Differentiable",
    "Discrete",
    "Game",
    "InfinitelyRepeated",
    "MatrixGame",
    "MultiDiscrete",
    "RepeatedGame",
    "Rollout",
    "SocialDilemma",
    "animate",
    "battle_of_the_sexes",
    "chicken",
    "discounted_payoffs",
    "hawk_dove",
    "make",
    "matching_pennies",
    "matrix_games",
    "names",
    "prisoners_dilemma",
    "register",
    "repeated",
    "rollout",
    "stag_hunt",
    "state_visits",
    "symmetric",
    "zd",
]

if TYPE_CHECKING:
    from games.public import *
else:

    def __getattr__(name):  # so that `import games` takes no time
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from games import public

        found = globals()[name] = getattr(public, name)
        return found


def __dir__() -> list[str]:
    return __all__
