"""Specialists and generalists: shapers of one learner and of many, against learners seen in training and others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

import configs
from games import InfinitelyRepeated
from marl.core.learner import Learner
from marl.experiments.reproduce import figures
from marl.experiments.shaping.config import ExactShapingConfig
from marl.learners.registry import make_learner
from marl.shapers.trial import play
from meta import scalarize
from meta.loop import compiler_options
from meta.process import check_stop
from meta.run_keys import RunBranch
from meta.runs.formatting import many, say
from meta.runs.reports.claims import Claim, Section, table
from meta.statistics import mean_and_error, or_nan, rounded, standard_error, with_error

# REINFORCE with an eighth of its rounds: it takes most of the time all the same.
SEEN = ("naive", "lola", "mmaml", "sos", "reinforce(episodes=8, rounds=25)")
POPULATION = " + ".join(("naive(learning_rate=[0.1, 3])", *SEEN[1:]))
UNSEEN = (
    "naive(learning_rate=0.03)",
    "naive(learning_rate=10)",
    "lookahead",
    "exact_lola",
    "hola2",
    "pola",
    "cgd",
    "sga",
    "cola",
    "q_learning",
    "tabular_ppo",
    "best_response",
)
SHAPERS = ("mfos", "shaper")
CONTROLS = {"a naive learner": "naive", "mfos, untrained": "mfos", "shaper, untrained": "shaper"}
# Smaller than the default of one learner, for there are twelve searches.
SIZE: dict[str, Any] = {"population_size": 128, "generations": 300}
TRIALS = 256  # fresh ones, of each training against each learner: those that sample take most of the time

Payoffs = dict[
    str, dict[str, np.ndarray]
]  # by row and column: `[trainings]`, or `[trials]` of players without training


def make_configs(*, seeds: int, seed: int, fast: bool) -> dict[str, ExactShapingConfig]:
    """The trainings by name: specialists for each learner that is seen, and the generalists."""
    preset = configs.load(ExactShapingConfig, "mfos", "ipd")
    evolution = dataclasses.replace(preset.evolution, **SIZE)
    learners = columns(fast)

    def make(shaper: str, opponent: str) -> ExactShapingConfig:
        others = tuple(name for name in learners if name != opponent)
        config = dataclasses.replace(preset, shaper=shaper, opponent=opponent, unseen=others, seed=seed, seeds=seeds)
        config = dataclasses.replace(config, evolution=evolution, evaluation_trials=TRIALS)
        return config.small() if fast else config

    seen, shapers = (SEEN[:2], SHAPERS[:1]) if fast else (SEEN, SHAPERS)
    found = {f"{shaper} of {name.partition('(')[0]}": make(shaper, name) for shaper in shapers for name in seen}
    population = " + ".join(seen) if fast else POPULATION
    return found | {f"{shaper} of all": make(shaper, population) for shaper in shapers}


def columns(fast: bool) -> list[str]:
    """The learners of the evaluation."""
    return [*SEEN[:2], UNSEEN[0]] if fast else [*SEEN, *UNSEEN]


def controls(config: ExactShapingConfig, console: Console, *, learners: Sequence[str], seed: int) -> Payoffs:
    """Payoffs of untrained players in the shaper's seat, in fresh trials."""
    game, key = config.make_game(), jax.random.fold_in(jax.random.key(seed), RunBranch.EVALUATION)
    keys = jax.random.split(key, config.evaluation_trials)
    found: Payoffs = {name: {} for name in CONTROLS}
    for learner in learners:
        check_stop()
        say(console, f"{many(config.evaluation_trials, 'fresh trial')} of each untrained player: {learner}")
        for name, spec in CONTROLS.items():
            players = make_learner(spec, game, 0), make_learner(learner, game, 1)
            found[name][learner] = np.asarray(_payoffs(game, *players, config.meta_steps)(keys))
    return found


def _payoffs(game: InfinitelyRepeated, row: Learner, column: Learner, meta_steps: int) -> Any:
    def trial(key: jax.Array) -> jax.Array:
        return play(key, game, row, column, meta_steps=meta_steps).rewards[0][1:].mean()

    return jax.jit(jax.vmap(scalarize(trial)), compiler_options=compiler_options())


def sections(folder: Path, results: dict[str, Any], untrained: Payoffs, fast: bool) -> list[Section]:
    """The report: payoffs of all shapers against all learners, and the worth of a generalist beside specialists.

    Args:
      folder: of figures.
      results: the summaries of the trainings, by name.
      untrained: as of `controls`.
      fast: whether it is a smoke run.
    """
    learners = columns(fast)
    seen = [name for name in learners if name in SEEN]
    unseen = [name for name in learners if name not in SEEN]

    def trained(summary: dict[str, Any]) -> dict[str, np.ndarray]:
        each = [one["against"] for one in summary["runs"]]
        return {name: np.array([or_nan(against[name]["shaper"]["mean"]) for against in each]) for name in learners}

    all_payoffs = {name: trained(summary) for name, summary in results.items()} | untrained
    rows = [
        [
            f"**{name}**",
            *(_cell(payoffs[column]) for column in learners),
            *(_cell(_over(payoffs, some)) for some in (seen, unseen)),
        ]
        for name, payoffs in all_payoffs.items()
    ]
    means = np.array([[payoffs[column].mean() for column in learners] for payoffs in all_payoffs.values()])
    names = [_short(name) for name in learners]
    picture = figures.draw_generalists(folder, list(all_payoffs), names, means, len(seen))
    claims, answers = [], []
    specialists = [name for name in results if not name.endswith("of all")]
    generalists = [name for name in results if name not in specialists]
    for kind, some in (("seen in training", seen), ("not seen in training", unseen)):
        means_of = {name: float(_over(payoffs, some).mean()) for name, payoffs in all_payoffs.items()}
        rivals = max(untrained, key=lambda name: means_of[name]), max(specialists, key=lambda name: means_of[name])
        shown = [f"{name} gets {rounded(means_of[name])}" for name in generalists]
        for rival, about in zip(rivals, ("the best untrained player", "the best specialist"), strict=True):
            shown.append(f"{about} ({rival}) gets {rounded(means_of[rival])}")
        answers.append(f"Over learners {kind}, {', '.join(shown)}.")
        for name in generalists:
            own = _over(all_payoffs[name], some)
            for rival, about in zip(rivals, ("the best that is not trained", "the best specialist"), strict=True):
                value, error = _apart(own, _over(all_payoffs[rival], some))
                words = f"{name}, mean over learners {kind}, less {about}"
                comment = f"{own.mean():.3f}, and {rival} {means_of[rival]:.3f}"
                claims.append(Claim(words, value, error, least=0.0, comment=comment))
    text = (
        "M-FOS and Shaper, trained against one learner or against a population of all, of which each trial draws one "
        "member, a naive learner with a step size from 0.1 to 3. Average payoff per round over the learning of the "
        "learner in the column, in fresh trials; ± is a standard error between trainings, and over trials for "
        f"untrained players. Seen in training were {', '.join(f'`{_short(name)}`' for name in seen)}, and no others. "
        f"`{SEEN[-1]}` has an eighth of its default's rounds. The searches are of half the population and three fifths "
        "of the generations of `python -m marl.mfos ipd`. That for `mfos of lola` begins at the best of many random "
        "shapers, as it does there; all others begin at random."
    )
    header = ["shaper", *names, "seen", "unseen"]
    pictures = [("payoffs of the row", f"figures/{picture.name}")]
    return [Section("Specialists and generalists", text, claims, [table(header, rows)], pictures, " ".join(answers))]


def _over(payoffs: dict[str, np.ndarray], learners: Sequence[str]) -> np.ndarray:
    """The mean over learners, of each training or trial."""
    return np.mean([payoffs[name] for name in learners], axis=0)


def _apart(own: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The difference of two means with its standard error, not paired: there may be other numbers of them."""
    return float(own.mean() - other.mean()), float(np.hypot(standard_error(own), standard_error(other)))


def _cell(values: np.ndarray) -> str:
    return with_error(mean_and_error(values), 2) if len(values) > 1 else f"{values[0]:.2f}"


def _short(name: str) -> str:
    return name.removesuffix("(episodes=8, rounds=25)")
