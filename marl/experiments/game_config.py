"""The fields of a config that name the game, for one kind of game or for both."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import configs

if TYPE_CHECKING:
    from games import Game, InfinitelyRepeated

Payoffs = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class GameConfig(configs.CommandConfig):
    """An exact game of two players."""

    game: str = "prisoners_dilemma"
    """prisoners_dilemma, matching_pennies, chicken, stag_hunt, battle_of_the_sexes or hawk_dove."""
    row_payoffs: Payoffs | None = None
    """The row player's payoffs after CC, CD, DC, DD (its own action first), in place of the game's."""
    column_payoffs: Payoffs | None = None
    """The column player's payoffs after the same joint actions (the row's action first), in place of the game's."""
    discount: float = 0.96
    """Probability of a further round, in [0, 1); with 0 the game is played once, by policies of one logit."""

    def __post_init__(self) -> None:
        for name in ("row_payoffs", "column_payoffs"):
            payoffs = getattr(self, name)
            if payoffs and not all(abs(x) <= configs.LARGEST for x in payoffs):
                raise ValueError(f"{name}: got {configs.shown(list(payoffs))}; four finite numbers are needed")
        if getattr(self, "environment", "") or not configs.has_defaults(self, *EXACT_FIELDS):
            self.make_game()

    def make_game(self) -> InfinitelyRepeated:
        """The game that is played."""
        from games import InfinitelyRepeated, MatrixGame, matrix_games

        if self.game not in matrix_games:
            raise ValueError(f"game: got {self.game!r}; {configs.one_of(self.game, list(matrix_games))}")
        payoffs = matrix_games[self.game]
        row, column = self.row_payoffs or payoffs.row_payoffs, self.column_payoffs or payoffs.column_payoffs
        return InfinitelyRepeated(MatrixGame.of(payoffs.name, row, column), self.discount)


@dataclasses.dataclass(frozen=True)
class SampledGameConfig(configs.CommandConfig):
    """A game that is sampled step by step."""

    environment: str = "ipd"
    """A game of two players or more by its name, with parameters in brackets; `python -m games` lists them."""

    def __post_init__(self) -> None:
        self.make_game()

    def make_game(self) -> Game:
        """The game that is played."""
        from games.registry import make_game

        return make_game(self.environment)


@dataclasses.dataclass(frozen=True)
class AnyGameConfig(GameConfig):
    """A game that is a formula or, with an environment, one that is sampled step by step."""

    environment: str = ""
    """A sampled game of two players in place of the formula, by its name, with parameters in brackets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.of_other_kind():
            if not configs.has_defaults(self, name):
                raise ValueError(f"{name}: got {getattr(self, name)!r}, which has no effect {self._kind}")

    def make_game(self) -> Any:
        """The game: an `InfinitelyRepeated` or, with an environment, a sampled `Game`."""
        if not self.environment:
            return super().make_game()
        from games.registry import make_game

        return make_game(self.environment)

    def of_other_kind(self) -> tuple[str, ...]:
        """Names of the fields that only the other kind of game has."""
        return EXACT_FIELDS if self.environment else ()

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are, and why."""
        return dict.fromkeys(self.of_other_kind(), self._kind)

    @property
    def _kind(self) -> str:
        return "in a sampled game" if self.environment else f"in {self.game}, which is a formula"


EXACT_FIELDS = ("game", "row_payoffs", "column_payoffs", "discount")
