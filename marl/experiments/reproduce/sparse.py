"""Shaping of opponents with few weights: a Shaper for each kind, evaluated against all kinds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import configs
from marl.experiments.reproduce import figures
from marl.experiments.shaping.config import SampledShapingConfig
from meta.runs.gpu_defaults import with_gpu_defaults
from meta.runs.reports.claims import Claim, Section, table
from meta.statistics import with_error

PRESET = "ipd_sampled"
DENSITIES = (1.0, 0.2)
MARGIN = 3.0  # standard errors
SEATS = ("shaper", "opponent")


def opponent(density: float) -> str:
    """A learner of which so many of the weights are there, always the same ones."""
    sparsity = f", sparsity='static(density={density:g})'" if density < 1 else ""
    return f"ppo(hidden=[16], learning_rate=0.01{sparsity})"


def make_configs(*, seeds: int, seed: int, fast: bool) -> dict[str, SampledShapingConfig]:
    """The trainings by name, one for each density; each shaper is tried before the opponents of the others too."""
    preset = with_gpu_defaults(configs.load(SampledShapingConfig, "mfos", PRESET))
    found = {}
    for density in DENSITIES:
        others = tuple(opponent(other) for other in DENSITIES if other != density)
        own = dataclasses.replace(preset, opponent=opponent(density), seeds=seeds, seed=seed)
        found[f"density-{density:g}"] = dataclasses.replace(own.small() if fast else own, unseen=others)
    return found


def sections(folder: Path, trained: dict[str, SampledShapingConfig], results: dict[str, Any]) -> list[Section]:
    """The report: payoffs of a shaper against each kind, and of two learners without a shaper.

    Args:
      folder: of figures.
      trained: as of `make_configs`.
      results: the summaries of the trainings, by name.
    """
    claims = []
    for name, found in results.items():
        gain = found["gain_over_own_kind"]
        apart = gain["mean"] / gain["standard_error"] if gain["standard_error"] else None
        words = f"{name.replace('-', ' ')}: gain over learners alone"
        claims.append(Claim(f"{words}, in standard errors", apart, None, least=MARGIN))
        claims.append(Claim(words, gain["mean"], gain["standard_error"]))
    rows = []
    for name, found in results.items():
        alone = [with_error(found["own_kind"][seat]) for seat in SEATS]
        rows.append([name.replace("-", " "), *(with_error(found[f"{seat}_return"]) for seat in SEATS), *alone])
    titles = ["opponent", "shaper", "opponent's own", "alone: first seat", "alone: opponent"]
    learners = [config.opponent for config in trained.values()]
    crossed = [
        [name.replace("-", " "), *(with_error(found["against"][learner]["shaper"]) for learner in learners)]
        for name, found in results.items()
    ]
    columns = ["a Shaper of / against", *(name.replace("-", " ") for name in trained)]
    text = (
        f"`shaper` in `{next(iter(trained.values())).environment}`, against `{opponent(DENSITIES[0])}`, and against "
        "the same with a part of its weights, always the same ones. Errors are between trainings."
    )
    series = {
        "shaper": [found["shaper_return"] for found in results.values()],
        "opponent": [found["opponent_return"] for found in results.values()],
        "learners alone, shaper's seat": [found["own_kind"]["shaper"] for found in results.values()],
        "learners alone, opponent's seat": [found["own_kind"]["opponent"] for found in results.values()],
    }
    places = [f"{float(name.removeprefix('density-')):.0%} of the weights" for name in results]
    title = "Payoffs of a shaper and of opponents that have a part of their weights"
    picture = figures.draw_payoffs(folder / "payoffs-by-density.png", places, series, "between trainings", title)
    tables = [table(titles, rows), table(columns, crossed)]
    gains = [
        f"{with_error(found['gain_over_own_kind'], 2)} with {place}"
        for place, found in zip(places, results.values(), strict=True)
    ]
    answer = f"A Shaper's gain over learners alone is {', and '.join(gains)} of its opponent."
    pictures = [("payoffs by density", f"figures/{picture.name}")]
    return [Section("Opponents with few weights", text, claims, tables, pictures, answer)]
