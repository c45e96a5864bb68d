"""Where an evolution of shapers begins, by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from configs.specs import Registry

Start = Callable[..., Any]  # (trial, init, key, sigma=..., report=...) -> what `screen` returns

FORMULA: Registry[Start | None] = Registry("screened")
SAMPLED: Registry[Start | None] = Registry("screened")
SCREENED = {"sigma": 0.1, "fitness_shaping": "standardize"}  # of an evolution that is not to lose what was found


class Screening(NamedTuple):
    """How many random parameters are tried, and how often, as of `meta.screening.screen`."""

    candidates: int
    trials: int
    finalists: int
    final_trials: int

    def fitting(self) -> Screening:
        """The same with no more finalists than there are candidates."""
        return self._replace(finalists=min(self.finalists, self.candidates))

    @property
    def num_trials(self) -> int:
        """Trials before the first generation."""
        return self.candidates * self.trials + self.finalists * self.final_trials

    @property
    def at_once(self) -> int:
        """How many of them are played together, at most."""
        from meta.screening import num_together

        first, last = num_together(self.candidates, self.finalists)
        return max(first * self.trials, last * self.final_trials)


# A trial of a formula takes a hundred steps of one policy, a sampled one twenty thousand of many.
USUAL = {"formula": Screening(65_536, 8, 128, 128), "sampled": Screening(4096, 1, 32, 8)}


def auto(opponent: str, game: str, shaper: str, strategy: str) -> str:
    """What `auto` means in a formula: screened where it was measured that it pays.

    LOLA's mistakes in the prisoner's dilemma are too rare to be met by chance, with its step size of 1.
    """
    pays = opponent.strip() == "lola" and game == "prisoners_dilemma"
    return "screened" if pays and shaper.strip().startswith("mfos") and strategy == "open_es" else "random"


def make_start(spec: str, *, sampled: bool) -> Start | None:
    """A start from its name, or its name with settings; None for random parameters.

    Args:
      spec: random, screened, or the latter with settings in brackets.
      sampled: whether the game is, and not a formula.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.
    """
    return (SAMPLED if sampled else FORMULA).make("start", spec)


def read_screening(spec: str, *, sampled: bool) -> Screening | None:
    """What a start tries before the first generation; None for random parameters. Arguments as of `make_start`."""
    name, given = (SAMPLED if sampled else FORMULA).read("start", spec)
    if name != "screened":
        return None
    usual = USUAL["sampled" if sampled else "formula"]
    return usual._replace(**{size: given[size] for size in Screening._fields if size in given}).fitting()


def _screened(usual: Screening) -> Callable[..., Start]:
    def screened(
        *,
        candidates: int = usual.candidates,
        trials: int = usual.trials,
        finalists: int = usual.finalists,
        final_trials: int = usual.final_trials,
        loudest: float = 20.0,
    ) -> Start:
        from games.core import checks  # here, for who reads a config needs none of it
        from meta.screening import BATCH, screen

        sizes = Screening(candidates, trials, finalists, final_trials)
        for size, value in sizes._asdict().items():
            checks.size(size, value, 1, *([BATCH] if size == "finalists" else []))
        checks.number("loudest", loudest, 1, 1e6)
        if candidates > BATCH and candidates % BATCH:
            raise ValueError(f"candidates: got {candidates}; a multiple of {BATCH}, or fewer, is needed")
        return partial(screen, **sizes.fitting()._asdict(), loudest=loudest)

    return screened


for registry, kind in ((FORMULA, "formula"), (SAMPLED, "sampled")):
    registry.register("random", lambda: None)
    registry.register("screened", _screened(USUAL[kind]))
