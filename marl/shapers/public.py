"""Public names of `marl.shapers`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from typing import Any as _Any

from games import Game as _Game
from marl.shapers.exact_policies import Shaper
from marl.shapers.registry import build_shaper as _build_shaper
from marl.shapers.registry import make_shaper, register_shaper
from marl.shapers.sampled_policies import Policy


def mfos(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """Model-Free Opponent Shaping: a `Shaper` in an exact game, a `Policy` in any other.

    Args:
      game: what is played.
      seat: the player's number among the game's agents.
      **settings: of `marl.shapers.exact_policies.mfos` or `marl.shapers.sampled_policies.mfos`.

    Source: Lu et al. (2022), arXiv:2205.01447.
    """
    return _build_shaper("mfos", game, seat, settings)


def good_shepherd(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """One way to play for the whole of the opponent's learning.

    Args:
      game: as of `mfos`.
      seat: as of `mfos`.
      **settings: of `marl.shapers.exact_policies.good_shepherd` or `marl.shapers.sampled_policies.good_shepherd`.

    Source: Balaguer et al. (2022), arXiv:2202.10135.
    """
    return _build_shaper("good_shepherd", game, seat, settings)


def shaper(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """One recurrent policy that remembers the whole trial.

    Args:
      game: as of `mfos`.
      seat: as of `mfos`.
      **settings: of `marl.shapers.exact_policies.shaper` or `marl.shapers.sampled_policies.shaper`.

    Source: Khan et al. (2023), arXiv:2312.12568.
    """
    return _build_shaper("shaper", game, seat, settings)


def counts(game: _Game, seat: int = 0, **settings: _Any) -> _Any:
    """A shaper that sees how often each joint action was played so far in the trial.

    Args:
      game: as of `mfos`.
      seat: as of `mfos`.
      **settings: of `marl.shapers.exact_policies.counts` or `marl.shapers.sampled_policies.counts`.

    Source: the observation of Garcia Segura et al. (2025), arXiv:2510.08255.
    """
    return _build_shaper("counts", game, seat, settings)
