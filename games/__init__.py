"""What is played: pure, jittable games. `games.make("coin_game")`; `python -m games` lists them all."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from games.core.game import Game
    from games.core.rollout import Rollout, rollout
    from games.core.spaces import Box, Discrete, MultiDiscrete
    from games.exact import zd
    from games.exact.differentiable import Differentiable
    from games.exact.infinite import InfinitelyRepeated
    from games.exact.matrix import (
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
    from games.registry import make, names, register
    from games.suite.coin_game import CoinGame
    from games.suite.rounds import RepeatedGame, repeated
    from games.suite.social_dilemmas import SocialDilemma
    from games.toolbox.drawing import animate
else:

    def __getattr__(name):  # so that `import games` takes no time
        from configs.lazy import find

        return find(__name__, name)


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


def __dir__() -> list[str]:
    return __all__
