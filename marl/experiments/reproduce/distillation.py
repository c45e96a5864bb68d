"""Distillation: a unit or a formula in place of an evolved objective, in the games of its search and in others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

import configs
from games.registry import make_game
from marl.blocks.objectives import quadratic_drift
from marl.blocks.value_losses import expectile, huber
from marl.experiments.discovery.distillation import Distilled, distil
from marl.experiments.discovery.evaluation import fresh_trainings
from marl.experiments.discovery.trial import Arena, fresh_trial
from marl.experiments.reproduce import figures
from marl.learners.sampled.objective_registry import Form, Kind, load_objective
from marl.learners.spec_dependencies import digests
from marl.trained import folder
from meta.run_keys import RunBranch
from meta.runs import array_files
from meta.runs.formatting import many, say
from meta.runs.jobs import Job, open_run
from meta.runs.reports.claims import Claim, Section, table
from meta.statistics import mean_and_error, or_nan, with_error

KINDS: tuple[Kind, ...] = ("drift", "value_loss")
SEEN = ("CartPole-v1", "Acrobot-v1")  # of the searches for what is in the package
UNSEEN = ("Breakout-MinAtar", "SpaceInvaders-MinAtar", "pendulum", "reacher")
NUM_ENVS, STEPS, TOTAL_STEPS = 4, 128, 20_480  # of the searches
CONTROL, EVOLVED, UNIT, FORMULA = "settings alone", "evolved", "one unit", "formula"
TITLES = {"drift": "The drift", "value_loss": "The distance of values"}
NOT_WORSE = -2.0  # standard errors
SECONDS = {"CartPole-v1": 120.0, "Acrobot-v1": 240.0}  # of a part on two cores
OTHERS = 240.0


@dataclasses.dataclass(frozen=True)
class Comparison(configs.CommandConfig):
    """Fresh trainings in one game, with an evolved objective and with what is in its place."""

    kind: Kind
    game: str
    trials: int
    total_steps: int
    seed: int

    @property
    def reads(self) -> str:
        return "".join(digests("classic"))


def make_configs(*, seeds: int, seed: int, fast: bool) -> dict[str, Comparison]:
    """The parts by name, as many fresh trainings of each as there are seeds."""
    games, steps = (SEEN[:1], 1024) if fast else ((*SEEN, *UNSEEN), TOTAL_STEPS)
    return {f"{kind}-{game}": Comparison(kind, game, seeds, steps, seed) for kind in KINDS for game in games}


def make_jobs(parent: Path, parts: Mapping[str, Comparison], console: Console) -> list[Job]:
    """The trainings, with the seconds that they took on two cores for 128 seeds."""

    def job(path: Path, part: Comparison) -> Job:
        def run() -> None:
            store = open_run(path, part, console)
            store.write_summary(dataclasses.asdict(part) | play(part, console) | {"reads": part.reads})

        seconds = SECONDS.get(part.game, OTHERS) * part.trials / 128 * part.total_steps / TOTAL_STEPS
        return Job(path, part, seconds, run)

    return [job(parent / name, part) for name, part in parts.items()]


def play(part: Comparison, console: Console) -> dict[str, Any]:
    """Returns of the trainings by arm, and their differences from those of the evolved objective and of the control.

    All arms have the settings of the search, and the same seeds. `settings alone` has the clipped surrogate with the
    clip of the search, or L2.
    """
    form, parameters, clip, spec, settings = _loaded(part.kind)
    arena = Arena(part.game, make_game(part.game), part.total_steps // (NUM_ENVS * STEPS), STEPS, NUM_ENVS)
    numbers: dict[str, Any] = {name: x for name, x in settings.items() if name not in ("delta", "clip")}
    if part.kind == "drift":
        numbers["value_loss"] = huber(delta=settings["delta"])
    found = distilled(part.kind)

    def of_network(parameters: Any) -> dict[str, Any]:
        return numbers | form.settings(parameters, clip)

    def of_formula(parameters: Any) -> dict[str, Any]:
        made: Any = quadratic_drift if part.kind == "drift" else expectile
        return numbers | {form.field: made(**parameters)}

    # Parameters with which the formulas are PPO's clipped surrogate and L2.
    bare = {"penalty": 0.0, "correction": 0.0} if part.kind == "drift" else {"tau": 0.5}
    arms = {
        of_network: {EVOLVED: parameters, UNIT: found.network},
        of_formula: {FORMULA: found.formula, CONTROL: found.formula | bare},
    }
    key = jax.random.fold_in(jax.random.key(part.seed), RunBranch.EVALUATION)
    keys, scores = jax.random.split(key, part.trials), dict[str, Any]()
    for own, several in arms.items():
        say(console, f"{many(part.trials, 'fresh training')} in {part.game}: {', '.join(several)}")
        trial = fresh_trial(arena, spec, own)
        results, _, _ = fresh_trainings([keys] * len(several), trial, list(several.values()))
        scores |= {arm: result.score for arm, result in zip(several, results, strict=True)}
    deviation = float(np.std(scores[CONTROL], ddof=1))
    unit = deviation if math.isfinite(deviation) and deviation else 1.0

    def apart(arm: str, other: str) -> dict[str, float | None]:
        return mean_and_error((scores[arm] - scores[other]) / unit)

    return {
        "returns": {arm: mean_and_error(x) for arm, x in scores.items()},
        "above_control": {arm: apart(arm, CONTROL) for arm in (EVOLVED, UNIT, FORMULA)},
        "above_evolved": {arm: apart(arm, EVOLVED) for arm in (UNIT, FORMULA)},
    }


@cache
def distilled(kind: Kind) -> Distilled:
    """The fits to the objective in the package."""
    form, parameters, clip, *_ = _loaded(kind)
    return distil(form, parameters, clip)


def _file(kind: Kind) -> Path:
    return folder() / f"{kind}-classic.safetensors"


@cache
def _loaded(kind: Kind) -> tuple[Form, Any, float, str, dict[str, float]]:
    """(form, parameters, clip, learner, the settings that the search found beside it)."""
    _, about = array_files.load_arrays(_file(kind))
    return *load_objective(str(_file(kind))), about["learner"], about["settings"]


def sections(figures_in: Path, parts: Mapping[str, Comparison], results: Mapping[str, dict[str, Any]]) -> list[Section]:
    """The report.

    Args:
      figures_in: their folder.
      parts: as of `make_configs`.
      results: the summaries of the parts, by name.
    """
    return [_section(figures_in, kind, [results[name] for name in parts if parts[name].kind == kind]) for kind in KINDS]


def _section(figures_in: Path, kind: Kind, found: Sequence[dict[str, Any]]) -> Section:
    fits, games = distilled(kind), [one["game"] for one in found]
    names = {EVOLVED: "evolved network", UNIT: "network of one unit", FORMULA: _formula(fits), CONTROL: CONTROL}
    rows = [[words, *(with_error(one["returns"][arm], 2) for one in found)] for arm, words in names.items()]
    unseen = [one for one in found if one["game"] not in SEEN] or list(found)
    means = {arm: _mean([one["above_control"][arm] for one in unseen]) for arm in (EVOLVED, UNIT, FORMULA)}
    claims = []
    for arm in (UNIT, FORMULA):
        value = _mean([one["above_evolved"][arm] for one in unseen])
        mean, error = (or_nan(value[key]) for key in ("mean", "standard_error"))
        words = f"{arm} less evolved, games not seen, in standard errors"
        claims.append(
            Claim(words, mean / error if error else None, None, least=NOT_WORSE, comment=with_error(value, 2))
        )
    one = found[0]
    instead = "the clipped surrogate with its clip" if kind == "drift" else "L2"
    scale = "" if kind == "drift" else " The evolved distance scales its gradient to that of L2, the formula does not."
    text = (
        f"{one['trials']} fresh trainings of {one['total_steps']:,} steps in each game with the settings that the "
        f"search found, on the same seeds; the search saw {' and '.join(SEEN)}. *{CONTROL}* has {instead}. The network "
        f"of one unit explains {fits.explained['network']:.3f} of the variance of the evolved one over the points of "
        f"the fit, the formula {fits.explained['formula']:.3f}.{scale} Returns are means over the episodes of a "
        f"training; errors are over trainings. A difference has the standard deviation of the returns of *{CONTROL}* "
        "as its unit."
    )
    file = figures_in / f"distilled_{kind}.png"
    series = {arm: [one["above_control"][arm] for one in found] for arm in (EVOLVED, UNIT, FORMULA)}
    label = f"return above {CONTROL}, in its standard deviations"
    title = f"{TITLES[kind]}: evolved, of one unit, and as a formula"
    figures.draw_payoffs(file, games, series, "over fresh trainings", title, label=label, subject="the objective")
    told = ", ".join(f"{with_error(value, 2)} ({arm})" for arm, value in means.items())
    answer = f"In games not seen the returns are above {CONTROL} by {told} standard deviations."
    tables = [table(["objective", *games], rows)]
    return Section(TITLES[kind], text, claims, tables, [(title, f"figures/{file.name}")], answer)


def _formula(fits: Distilled) -> str:
    settings = ", ".join(f"{name}={x:.2f}" for name, x in fits.formula.items())
    return f"{'quadratic' if 'clip' in fits.formula else 'expectile'}({settings})"


def _mean(values: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """The mean over games, whose errors are independent."""
    mean, error = (np.array([or_nan(value[key]) for value in values]) for key in ("mean", "standard_error"))
    found = {"mean": float(mean.mean()), "standard_error": math.hypot(*error) / len(error)}
    return {name: x if math.isfinite(x) else None for name, x in found.items()}
