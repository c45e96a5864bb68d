"""The protocol of Shaping Bench, version 0: sizes and forms, and games, opponents and budgets of the exact track.

Nothing here changes without a new version, because results of one version are compared with each other.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from games import InfinitelyRepeated, MatrixGame, battle_of_the_sexes, matching_pennies, prisoners_dilemma, stag_hunt
from games.exact.matrix import symmetric
from marl.core.learner import Learner
from marl.learners.exact.mmaml import MetaLearned, begin_from
from marl.learners.registry import make_learner
from marl.trained import folder
from meta.runs.array_files import load_arrays

VERSION = 0
TRAININGS = 5  # of a method, at least
META_STEPS = 100  # learning steps of an opponent in a trial
DISCOUNT = 0.96
TRIALS = 64  # fresh ones of each training against each form of each opponent
RANDOM = "random"  # the task of random games: each training has one of its own
SEEDS_OF_GAMES = 5  # random games; training s plays number s mod 5
Size = Literal["small", "standard", "paper"]
SIZES = get_args(Size)
ROOM = 0.05  # of the range of payoffs: a task with less between its 0 and its 1 measures nothing
APART = 0.05  # of the range of payoffs, by which trainings on other processors differ on average

CHICKEN = symmetric("chicken", ((3.0, 1.0), (4.0, 0.0)))
GAMES = {game.name: game for game in (prisoners_dilemma, matching_pennies, CHICKEN, stag_hunt, battle_of_the_sexes)}

# Learners that sample are given fewer draws than by default, because these take nearly all the time of the bench.
OPPONENTS = {
    "naive": "naive",
    "lola": "lola",
    "sos": "sos",
    "cgd": "cgd",
    "mmaml": "mmaml",
    "q_learning": "q_learning(episodes=8, rounds=25)",
    "reinforce": "reinforce(episodes=8, rounds=25)",
}
SAMPLING = ("q_learning", "reinforce")
LEARNING_RATES = {"q_learning": 0.1}  # of the others 1

TRAINED = "training"  # the form of the opponents in the training of a method
SLOWER, FASTER, LONGER = "slower", "faster", "longer"  # held out: half and twice the step size, twice as many steps
WIDER = "wider"  # held out in the sampled track: a network of twice the width
RATES = {TRAINED: 1.0, SLOWER: 0.5, FASTER: 2.0}  # times the learning rate
FORMS = (TRAINED, SLOWER, FASTER, LONGER)
# Seconds of one core: of the fresh trials with their compilation, and of a trial of a training, measured with M-FOS.
SECONDS = {
    "naive": (12, 27e-6),
    "lola": (17, 24e-6),
    "sos": (29, 29e-6),
    "cgd": (58, 56e-6),
    "mmaml": (9, 26e-6),
    "q_learning": (21, 370e-6),
    "reinforce": (19, 270e-6),
}


class Payoffs(NamedTuple):
    """Mean payoffs per round over fresh trials, of each form `[tasks, trainings]`, NaN where a method does not play."""

    method: dict[str, np.ndarray]
    opponent: dict[str, np.ndarray]


class Budget(NamedTuple):
    """The trials of one training of a method against one opponent in one game, as an evolution would use them.

    Attributes:
      size: small, standard or paper.
      generations: of an evolution.
      population: candidates of a generation.
      trials: of each candidate in a generation.
      meta_steps: learning steps of the opponent in a trial.
      episode_length: steps of a sampled game before each of them.
      num_envs: environments of a sampled game in which the opponent learns at once.

    Example:
      >>> from marl.bench import Budget
      >>> Budget("small", generations=100, population=64, trials=4).training_trials
      25600
    """

    size: str
    generations: int
    population: int
    trials: int
    meta_steps: int = META_STEPS
    episode_length: int = 1
    num_envs: int = 1

    @property
    def training_trials(self) -> int:
        """Trials in all."""
        return self.generations * self.population * self.trials

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths of a trial, as keywords of `marl.shaping_trial`."""
        return {"meta_steps": self.meta_steps, "episode_length": self.episode_length, "num_envs": self.num_envs}


_BUDGETS = {
    "small": ((100, 64, 4), (20, 32, 2)),
    "standard": ((300, 256, 8), (100, 64, 4)),
    "paper": ((1024, 512, 8), (300, 256, 8)),
}


def budget_of(size: str, opponent: str) -> Budget:
    """The budget of a training: a smaller one against learners that sample.

    Args:
      size: one of `SIZES`.
      opponent: one of `OPPONENTS`.
    """
    return Budget(size, *_BUDGETS[size][opponent in SAMPLING])


class Games(NamedTuple):
    """Games as arrays, so that one program plays them all; leading axes are those of `jax.vmap`.

    Attributes:
      payoffs: `[2, 4]`, of row and column after CC, CD, DC, DD, the row's action first.
      beginnings: of M-MAML in each seat, `[2, beginnings, logits]`; zeros in a random game.
    """

    payoffs: Any
    beginnings: Any

    @property
    def game(self) -> InfinitelyRepeated:
        """One game, whose payoffs may be traced."""
        return InfinitelyRepeated(MatrixGame.of("bench", *self.payoffs), DISCOUNT)


def random_game(number: int) -> MatrixGame:
    """A random general-sum game: eight payoffs, uniform in [-3, 0] and rounded to hundredths.

    Args:
      number: of the game; seed of NumPy's generator.
    """
    row, column = np.random.default_rng(number).uniform(-3, 0, (2, 4)).round(2).tolist()
    return MatrixGame.of(f"{RANDOM}_{number}", row, column)


def all_games() -> dict[str, MatrixGame]:
    """The named games and the random ones, by their names."""
    return GAMES | {game.name: game for game in map(random_game, range(SEEDS_OF_GAMES))}


def tasks(opponent: str = "", training: int = 0) -> dict[str, MatrixGame]:
    """The game of each task against an opponent, by the name of the task; M-MAML has no beginnings for random games.

    Args:
      opponent: one of `OPPONENTS`; any if empty.
      training: the number of the training.
    """
    return GAMES | ({} if opponent == "mmaml" else {RANDOM: random_game(training % SEEDS_OF_GAMES)})


def games_of(chosen: list[MatrixGame]) -> Games:
    """Arrays `[K, ...]` of games of the protocol."""
    arrays = load_arrays(folder() / "bench-mmaml.safetensors")[0]
    beginnings = [arrays.get(game.name, np.zeros_like(arrays["chicken"])) for game in chosen]
    payoffs = np.array([[game.row_payoffs, game.column_payoffs] for game in chosen], np.float32)
    return Games(jnp.asarray(payoffs), jnp.asarray(np.stack(beginnings)))


def make_opponent(name: str, games: Games, seat: int = 1, rate: Any = 1.0) -> Learner:
    """An opponent of the protocol in one game.

    Args:
      name: one of `OPPONENTS`.
      games: the game.
      seat: 1; or 0, where its own kind takes the place of a method.
      rate: times its learning rate; may be traced.
    """
    rate = rate * LEARNING_RATES.get(name, 1.0)
    if name == "mmaml":
        beginnings = games.beginnings[seat]
        learned = MetaLearned(beginnings[None, None], jnp.ones((1, 1, len(beginnings))))
        return begin_from(learned, games.game, seat, learning_rate=rate)
    return make_learner(OPPONENTS[name], games.game, seat, traced={"learning_rate": rate})


def root_key(seed: int, task: str, opponent: str) -> jax.Array:
    """The key of one training in one task.

    Args:
      seed: of the training.
      task: one of `tasks()`.
      opponent: one of `OPPONENTS`.
    """
    place = [*tasks()].index(task) * len(OPPONENTS) + [*OPPONENTS].index(opponent)
    return jax.random.fold_in(jax.random.key(seed), place)
