"""Shapers: policies whose parameters are evolved, and fixed while the others learn; `marl.shapers.mfos(game)`.

The public names are here. The modules come in pairs for the two kinds of game: `exact` for games that are formulas,
`sampled` for games that are played step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from games import Game as _Game
    from marl.shapers.exact import Shaper
    from marl.shapers.registry import make_shaper, register_shaper
    from marl.shapers.sampled import Policy
else:
    _ROOMS = {"Policy": "sampled", "Shaper": "exact", "make_shaper": "registry", "register_shaper": "registry"}

    def __getattr__(name):  # so that the import of one room does not import all
        from importlib import import_module

        if name not in _ROOMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
        return found


__all__ = ["Policy", "Shaper", "good_shepherd", "make_shaper", "mfos", "register_shaper", "shaper"]


def mfos(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """Model-Free Opponent Shaping: a `Shaper` in an exact game, a `Policy` in any other.

    Args:
      game: what is played.
      seat: the player's number among the game's agents.
      **settings: of `marl.shapers.exact.mfos` or `marl.shapers.sampled.mfos`.

    Source: Lu et al. (2022), arXiv:2205.01447.
    """
    return _build("mfos", game, seat, settings)


def good_shepherd(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """One way to play for the whole of the opponent's learning; arguments and result as of `mfos`.

    Source: Balaguer et al. (2022), arXiv:2202.10135.
    """
    return _build("good_shepherd", game, seat, settings)


def shaper(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """One recurrent policy that remembers the whole trial; arguments and result as of `mfos`.

    Source: Khan et al. (2023), arXiv:2312.12568.
    """
    return _build("shaper", game, seat, settings)


def _build(name: str, game: _Game, seat: int, settings: dict[str, _Any]) -> _Any:
    from marl.shapers.registry import build

    return build(name, game, seat, settings)
