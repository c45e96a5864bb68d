"""Discovery: objectives that are evolved, against PPO that was tuned as long without one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console

from marl.experiments.discovery.config import DiscoveryConfig, config_of
from marl.experiments.discovery.experiment import discover
from marl.experiments.discovery.figures import NAMES
from marl.experiments.discovery.trial import SCALES
from meta import Evolution
from meta.runs.jobs import Job, open_run
from meta.runs.report import Claim, Section, table
from meta.statistics import with_error

PARTS = {"drift": "drift classic", "value-loss": "value_loss classic", "drift-for-two": "drift ipd"}
TITLES = {
    "drift": "A drift, evolved in two games at once",
    "value-loss": "A value's distance, evolved in two games at once",
    "drift-for-two": "A drift for two players, judged by what they get together",
}
BETTER, THAN_TUNED, NOT_WORSE = 5.0, 3.0, -2.0  # standard errors
STEPS_PER_SECOND = 0.5e6  # two cores
FAST: dict[str, Any] = {
    "environments": ("CartPole-v1(max_steps_in_episode=8)",),
    "unseen": (),
    "learner": "ppo(hidden=[4], minibatches=1, epochs=2, shared=True)",
    "total_steps": 64,
    "num_envs": 2,
    "steps_per_update": 8,
    "hidden": 3,
    "num_seeds": 3,
    "longer": 1,
    "wider": 1,
}


def make_configs(*, searches: int, seed: int, fast: bool) -> dict[str, DiscoveryConfig]:
    """What is searched, by name."""
    found = {}
    for name, preset in list(PARTS.items())[: 1 if fast else None]:
        config = dataclasses.replace(config_of(preset), searches=searches, seed=seed)
        if fast:
            tiny = Evolution(population_size=4, generations=2, shared_trials="pair", fitness_shaping="standardize")
            config = dataclasses.replace(config, **FAST, tuning=tiny, evolution=tiny)
        found[name] = config
    return found


def make_jobs(folder: Path, parts: dict[str, DiscoveryConfig], console: Console) -> list[Job]:
    """The searches, with the seconds that they take on two cores; each measures for itself what it will take."""

    def job(path: Path, config: DiscoveryConfig) -> Job:
        seconds = config.lives * config.total_steps * len(config.environments) / STEPS_PER_SECOND
        return Job(path, config, seconds, lambda: discover(config, open_run(path, config, console), console))

    return [job(folder / name, config) for name, config in parts.items()]


def sections(parts: dict[str, DiscoveryConfig], results: dict[str, dict[str, Any]]) -> list[Section]:
    """The report: what each search is worth where it was made, in longer trainings, and where it never was."""
    return [_section(name, config, results[name]) for name, config in parts.items()]


def _section(name: str, config: DiscoveryConfig, found: dict[str, Any]) -> Section:
    baseline = "PPO tuned as long, with Huber's loss of any width"
    claims = [
        _errors("all that was searched in, more than PPO as it is", found["difference_from_plain"], BETTER),
        _errors(
            f"all that was searched in, more than {baseline}",
            found["difference_from_tuned"],
            BETTER if "beside_tuned" in found else THAN_TUNED,
        ),
    ]
    if "difference_from_l2" in found:
        words = "all that was searched in, more than L2 with the numbers of tuned PPO"
        claims.append(_errors(words, found["difference_from_l2"], THAN_TUNED))
    claims += [
        _errors(f"{place}, not less than {baseline}", one["difference_from_tuned"], NOT_WORSE, worst=False)
        for place, one in found["transfer"].items()
    ]
    claims += [  # what all get together may be most where nobody learns to take from the others
        _errors(
            f"{place}, more than where nobody learns", found["environments"][place]["difference_from_still"], BETTER
        )
        for place in found.get("beside_tuned", ())
    ]
    places = found["environments"] | found["transfer"]
    arms = [arm for arm in next(iter(places.values())) if arm in NAMES]
    rows = [
        [
            place,
            *(with_error(one[arm], 2) if arm in one else "" for arm in arms),
            with_error(one["difference_from_tuned"], 2),
        ]
        for place, one in places.items()
    ]
    header = ["", *(NAMES[arm] for arm in arms), "evolved less tuned"]
    tables = [table(header, rows)]
    if "shape" in found:
        shapes = [[str(i), *(f"{x:.3f}" for x in one.values())] for i, one in enumerate(found["shape"])]
        tables.append(table(["search", *found["shape"][0]], shapes))
    if beside := found.get("beside_tuned"):
        rows = [
            [spec, *(with_error(one[key]) for key in ("evolved", "tuned", "difference"))]
            for spec, one in beside.items()
        ]
        tables.append(table(["one with the drift beside tuned PPO", "with", "without", "difference"], rows))
    several = f"between {config.searches} searches" if config.searches > 1 else "between trainings, of one search"
    text = (
        f"`{config.learner}`, trainings of {config.total_steps:,} steps, {config.num_seeds} fresh ones of each kind; "
        f"errors are {several}. More is claimed of the worst search, by the errors between its trainings; not less, "
        "elsewhere, of all of them, by the errors between searches. PPO as it is clips its values; tuned it has "
        "Huber's loss in place of that, and was tuned from the same start for as many generations, by the same "
        f"evolution, on {', '.join(SCALES[config.kind])} alone, which the search has as far as it depends on them. "
        "The unit of what was searched in is the standard deviation of PPO as it is, where there are several games; of "
        "several players what learning is worth or costs, if that is more."
    )
    pictures = [(words, f"{name}/figures/{file}.png") for words, file in (
        ("the search", "evolution"), ("what was found", "objective"), ("learning curves", "learning_curves")
    )]  # fmt: skip
    return Section(TITLES[name], text, claims, tables, pictures)


def _errors(name: str, difference: dict[str, Any], least: float, *, worst: bool = True) -> Claim:
    """A difference in standard errors: between fresh trainings, of the search that did worst, or between searches."""
    parts = [difference, *difference["each"]]
    value, comment = None, ""
    if all(x["mean"] is not None and x["standard_error"] for x in parts):
        over, *each = (x["mean"] / x["standard_error"] for x in parts)
        value, comment = min(each) if worst else over, with_error(difference, 2)
        if len(each) > 1:
            comment += f" between searches; each, between trainings: {', '.join(f'{x:.1f}' for x in each)}"
    return Claim(f"{name}, in standard errors", value, None, least=least, comment=comment)
