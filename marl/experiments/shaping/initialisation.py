"""The first parameters of an evolution of shapers, by a name: random, the best of many, or those of an imitation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from configs.specs import Registry, read

if TYPE_CHECKING:
    from marl.shapers.imitation import Imitation

SCREENED: dict[str, Any] = {"sigma": 0.1, "fitness_shaping": "standardize"}  # of an evolution that keeps its start
LARGEST_FACTOR = 20.0  # as of `screen`
REPLAY = 10.0  # time of a gradient through an episode, in those of playing it, on a CPU


class Screening(NamedTuple):
    """Sizes of `meta.screening.screen`."""

    candidates: int
    trials: int
    finalists: int
    final_trials: int

    @property
    def num_trials(self) -> int:
        """Trials before the first generation."""
        return self.candidates * self.trials + self.finalists * self.final_trials

    @property
    def at_once(self) -> int:
        """The largest number of trials that are played together."""
        from meta.screening import num_together

        first, last = num_together(self.candidates, self.finalists)
        return max(first * self.trials, last * self.final_trials)


class Start(NamedTuple):
    """Random parameters, the best of many where there is a screening, or those of an imitation."""

    screening: Screening | None = None
    largest_factor: float = 1.0  # as of `screen`
    judged_by: Literal["best", "mean"] = "best"  # the same
    imitation: Imitation | None = None

    @property
    def preparation(self) -> Screening | Imitation | None:
        """The sizes of what comes before the first generation; None for random parameters."""
        return self.screening or self.imitation

    def trials(self, meta_steps: int) -> float:
        """Trials of `meta_steps` that take as long as what comes before the first generation."""
        one = self.imitation
        replayed = one.steps * one.batch * min(one.episodes, meta_steps) if one else 0
        return (self.preparation.num_trials if self.preparation else 0) + REPLAY * replayed / meta_steps

    @property
    def stage(self) -> str:
        """A name of what comes before the first generation."""
        return "screening of random shapers" if self.screening else "imitation of a learner" if self.imitation else ""

    def describe(self, iteration: int, metrics: Mapping[str, np.ndarray]) -> tuple[float, str]:
        """The share done of what comes before the first generation, and words; from the metrics of its report."""
        if self.imitation:
            likelihood, steps = np.mean(metrics["log_likelihood"]), self.imitation.steps
            return (
                iteration / steps,
                f"step {iteration:,} of {steps:,} of an imitation  log-likelihood {likelihood:.3f}",
            )
        tried, number = int(metrics["tried"]), int(metrics["number"])
        words = f"tried {tried:,} of {number:,} random shapers  best trial {np.max(metrics['best']):.3f}"
        return tried / number, words + ("; the best of them once more" if tried == number else "")

    def make(self, trial: Callable[..., Any], init: Callable[..., Any], **settings: Any) -> Callable[[Any], Any] | None:
        """The `start` of `evolve` for a trial and an init; settings as of `screen`, None for random parameters.

        An imitation needs the game, too: `SampledShaping` makes its start.
        """
        from meta.screening import screen

        assert not self.imitation

        if not (sizes := self.screening):
            return None
        settings |= {**sizes._asdict(), "largest_factor": self.largest_factor, "judged_by": self.judged_by}
        return lambda key: screen(trial, init, key, **settings).parameters


def auto(opponent: str, game: str, shaper: str, strategy: str) -> str:
    """The meaning of `auto` in an exact game: screened where it was measured that it pays.

    LOLA's mistakes in the prisoner's dilemma are too rare for a random shaper to find, with its step size of 1.
    """
    pays = game == "prisoners_dilemma" and shaper.strip().startswith("mfos") and strategy == "open_es"
    return "screened" if pays and _is_plain_lola(opponent) else "random"


def _is_plain_lola(opponent: str) -> bool:
    """True for LOLA with no setting but its defaults."""
    try:
        name, given = read("opponent", opponent, "lola")
    except ValueError:  # of a population, or of what is refused elsewhere
        return False
    if name != "lola" or not given:
        return name == "lola"
    from marl.learners.registry import FORMULA as LEARNERS  # here, because --help needs none of it

    defaults = {setting: default for setting, (_, default) in LEARNERS.settings(name).items()}
    return given.items() <= defaults.items()


def make_start(spec: str, *, sampled: bool) -> Start:
    """A start from its name, or its name with settings.

    Args:
      spec: random, screened or, in a sampled game, imitation; the last two perhaps with settings in brackets.
      sampled: whether the game is sampled.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.
    """
    return (SAMPLED if sampled else FORMULA).make("start", spec)


def _starts(usual: Screening) -> Registry[Start]:
    def screened(
        *,
        candidates: int = usual.candidates,
        trials: int = usual.trials,
        finalists: int = usual.finalists,
        final_trials: int = usual.final_trials,
        largest_factor: float = LARGEST_FACTOR,
        judged_by: Literal["best", "mean"] = "best",
    ) -> Start:
        from games.core import checks  # here, because --help needs none of it
        from meta.screening import BATCH

        sizes = Screening(candidates, trials, finalists, final_trials)
        for size, value in sizes._asdict().items():
            checks.size(size, value, 1, *([BATCH] if size == "finalists" else []))
        checks.number("largest_factor", largest_factor, 1, 1e6)
        if candidates > BATCH and candidates % BATCH:
            raise ValueError(f"candidates: got {candidates}; a multiple of {BATCH}, or fewer, is needed")
        checks.choice("judged_by", judged_by, ("best", "mean"))
        return Start(sizes._replace(finalists=min(finalists, candidates)), largest_factor, judged_by)

    registry: Registry[Start] = Registry("screened")
    registry.register("random", lambda: Start())
    registry.register("screened", screened)
    return registry


def _imitation(
    *, trials: int = 32, episodes: int = 10, steps: int = 400, batch: int = 4, learning_rate: float = 0.003
) -> Start:
    from games.core import checks
    from marl.shapers.imitation import Imitation

    sizes = Imitation(trials, episodes, steps, batch, learning_rate)
    for size in ("trials", "episodes", "steps", "batch"):
        checks.size(size, getattr(sizes, size), 1)
    checks.number("learning_rate", learning_rate, 0, 1, brackets="(]")
    return Start(imitation=sizes)


# A trial of an exact game takes a hundred steps of one policy, a sampled one twenty thousand of many.
FORMULA = _starts(Screening(65_536, 8, 128, 128))
SAMPLED = _starts(Screening(4096, 1, 32, 8))
SAMPLED.register("imitation", _imitation)
