"""The white-box bound of a shaper's payoff: the bounds that come with the library, and the command."""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from games import InfinitelyRepeated
from marl.core.learner import Learner
from marl.experiments.file_command import TrainingConfig, write
from marl.experiments.trajectory_ascent import curve, start_names, white_box_bound
from marl.learners.exact.trained import game_metadata, read_by
from marl.learners.registry import make_learner
from marl.shapers.trial import play
from marl.trained import folder
from meta import RunDirectory, scalarize
from meta.loop import compiler_options
from meta.runs.array_files import Arrays, load_arrays
from meta.runs.formatting import many, say
from meta.runs.progress import Progress
from meta.runs.reports.tables import keep_tables
from meta.statistics import standard_error

CONVERGED = 0.01  # of the way from naive play: what the second half of the starts may add where a bound has converged


class KnownBound(NamedTuple):
    """A bound that comes with the library, and its comparisons, as mean payoffs of the shaper over a trial."""

    naive_return: float  # of a naive learner in the shaper's seat
    bound: float
    bound_standard_error: float  # over initial states
    gain: float  # what the second half of the starts has added: by so much or more the bound may be too low

    @property
    def converged(self) -> bool:
        """True if further starts would add little, because only then a share of the way to the bound is meaningful."""
        return self.gain <= CONVERGED * (self.bound - self.naive_return)

    def way(self, shaper_return: float | None) -> float | None:
        """A shaper's payoff on the scale from naive play (0) to the bound (1).

        None where nothing finite came of it, where there is no way, where the bound has not converged, and where the
        shaper gets more than it.
        """
        if shaper_return is None:
            return None
        there_is = self.bound > self.naive_return and self.converged and shaper_return <= self.bound
        return (shaper_return - self.naive_return) / (self.bound - self.naive_return) if there_is else None


def known_bound(game: InfinitelyRepeated, opponent: str, meta_steps: int) -> KnownBound | None:
    """The bound that comes with the library for a game, an opponent and a number of meta-steps; None without."""
    file = folder() / file_name(game.payoffs.name, opponent)
    if not file.is_file():
        return None
    arrays, metadata = load_arrays(file)
    settings, files = metadata["config"], metadata.get("opponent_files", [])
    same = settings["opponent"] == opponent and settings["meta_steps"] == meta_steps
    if not same or metadata["game"] != game_metadata(game) or files != read_by(opponent, game):
        return None
    return _known(arrays)


def _known(arrays: Arrays) -> KnownBound:
    payoffs = arrays["shaper_payoffs"]
    error = float(standard_error(payoffs))
    best = curve(arrays["by_start"])
    gain = float(best[-1] - best[(len(best) - 1) // 2])
    return KnownBound(float(arrays["naive_payoffs"].mean()), float(payoffs.mean()), error, gain)


def file_name(game: str, opponent: str) -> str:
    """The name of the file of a bound."""
    return f"bound-{game}-{re.sub(r'[^A-Za-z0-9.=]+', '-', opponent).strip('-')}.safetensors"


@dataclasses.dataclass(frozen=True)
class BoundConfig(TrainingConfig):
    """The ascent of a shaper's sequences of policies."""

    opponent: str = "naive"
    """Any opponent of python -m marl.mfos whose update is differentiable by the co-player's policy."""
    meta_steps: int = 100
    """Learning steps of the opponent in a trial."""
    num_states: int = 64
    """Initial states."""
    num_starts: int = 16
    """Sequences from which the ascent begins in each state: tit for tat with more and less noise, extortion, defection,
    random ones, a plan (the eighth), and from the ninth on each time what the best of 8,192 random shapers plays."""
    iterations: int = 600
    """Steps of Adam from each start."""
    learning_rate: float = 0.1
    """Of Adam, on logits; it falls to zero along half a cosine."""
    evaluation_trials: int = 4096
    """Trials of a naive learner in the shaper's place, for comparison."""

    def __post_init__(self) -> None:
        super().__post_init__()
        opponent = make_learner(self.opponent, self.make_game(), 1, field="opponent")
        if not hasattr(jax.eval_shape(opponent.init, jax.random.key(0)), "logits"):
            raise ValueError(f"opponent: got {self.opponent!r}; a learner that is one policy is needed")
        if blind := re.search(r"\b(best_response|q_learning|reinforce|tabular_ppo)\b", self.opponent):
            raise ValueError(f"opponent: got {self.opponent!r}; no gradient comes through the learning of {blind[0]}")
        configs.check_least(self, num_states=2, num_starts=2)

    def needed(self) -> dict[str, float]:
        of_logits = 20.0 * self.meta_steps
        sequences = 4 * self.num_starts * self.num_states * of_logits  # with their gradients and Adam's two moments
        return {"num_states": sequences, "evaluation_trials": 8.0 * self.evaluation_trials * self.meta_steps}

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the ascent's length, and the fields that fall over it."""
        return {"iterations": ["learning_rate"]}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_trials",)

    def positive(self) -> tuple[str, ...]:
        return "meta_steps", "iterations", "learning_rate", "evaluation_trials"


def find_bound(config: BoundConfig, run: RunDirectory, console: Console) -> None:
    """Finds the bound of a setting, says where it came from, and writes it to a file."""
    game, key = config.make_game(), jax.random.key(config.seed)
    opponent = make_learner(config.opponent, game, 1, field="opponent")
    steps = config.num_starts * config.num_states * config.meta_steps
    console.print(
        f"{many(config.iterations, 'ascent')} of {config.num_starts} x {config.num_states} sequences of "
        f"{config.meta_steps} {'policy' if config.meta_steps == 1 else 'policies'}; first what they begin with is made",
        highlight=False,
    )

    def describe(metrics: dict[str, np.ndarray]) -> str:
        return f"mean of the best sequences {metrics['shaper_return']:.4f}"

    with Progress(console, config.iterations, steps, "meta-steps", describe) as progress:
        found = white_box_bound(key, game, opponent, **config.settings(white_box_bound), store=run, report=progress)
    arrays = {
        "shaper_payoffs": np.asarray(found.shaper_payoffs),
        "opponent_payoffs": np.asarray(found.opponent_payoffs),
        "by_start": np.asarray(found.by_start),
        "naive_payoffs": _naive_payoffs(key, game, opponent, config),
    }
    known = _known(arrays)
    summary = {"conclusion": conclusion(known, config.opponent), "opponent": config.opponent, **known._asdict()}
    say(console, summary["conclusion"])
    with keep_tables(console, run.path):
        table = Table(title="shaper's average payoff per round, over the opponent's learning", title_justify="left")
        for column in ("", "payoff", "better than the other starts"):
            table.add_column(column, justify="left" if not column else "right")
        names = start_names(config.num_starts)
        best = np.bincount(np.asarray(found.start), minlength=len(names)) / config.num_states
        for name, payoffs, share in zip(names, arrays["by_start"], best, strict=True):
            table.add_row(f"from {name}", f"{payoffs.mean():.3f}", f"{share:.0%} of the states")
        by_number = curve(arrays["by_start"])
        for number in [2**i for i in range(10) if 2**i < len(names)]:
            table.add_row(f"any {many(number, 'start')}", f"{by_number[number - 1]:.3f}", "")
        table.add_row(
            "[bold]bound: the best of each state", f"{known.bound:.3f} ± {known.bound_standard_error:.3f}", ""
        )
        table.add_row("a naive learner in the shaper's place", f"{known.naive_return:.3f}", "")
        console.print(table)
        words = "has converged" if known.converged else "has not converged"
        say(console, f"the second half of the starts added {known.gain:.3f}; the bound {words}")
    about = {"jax": jax.__version__, "opponent_files": read_by(config.opponent, game)}
    write(run, console, "bound", config, arrays, about, summary)


def conclusion(known: KnownBound, opponent: str) -> str:
    """The bound and naive play in one sentence."""
    more = "" if known.converged else "; more starts would lead higher"
    return (
        f"Against {opponent} the best policies found in hindsight get {known.bound:.3f} ± "
        f"{known.bound_standard_error:.3f} per round, and a naive learner in their place gets {known.naive_return:.3f}"
        f"{more}."
    )


def _naive_payoffs(key: jax.Array, game: InfinitelyRepeated, opponent: Learner, config: BoundConfig) -> np.ndarray:
    def payoff(key: jax.Array) -> jax.Array:
        history = play(key, game, make_learner("naive", game), opponent, meta_steps=config.meta_steps)
        return history.rewards[0][1:].mean()

    program = jax.jit(jax.vmap(scalarize(payoff)), compiler_options=compiler_options())
    return np.asarray(program(jax.random.split(key, config.evaluation_trials)))
