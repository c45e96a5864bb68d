"""Discovery: objectives that are evolved, against PPO that was tuned as long without one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console

from marl.experiments.discovery.config import DiscoveryConfig, config_of
from marl.experiments.discovery.experiment import Discovery
from marl.experiments.discovery.figures import NAMES
from marl.experiments.discovery.trial import SCALES
from meta import Evolution
from meta.runs.jobs import Job, experiment_job
from meta.runs.plotting import PANELS
from meta.runs.reports.claims import Claim, Section, table
from meta.statistics import with_error

PARTS = {"drift": "drift classic", "value-loss": "value_loss classic", "drift-for-two": "drift ipd"}
TITLES = {
    "drift": "A drift, evolved in two games at once",
    "value-loss": "A value's distance, evolved in two games at once",
    "drift-for-two": "A drift for two players, judged by the sum of their returns",
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
    "evaluation_trials": 3,
    "longer": 1,
    "wider": 1,
}


def make_configs(*, searches: int, seed: int, fast: bool) -> dict[str, DiscoveryConfig]:
    """Configs of the searches, by name."""
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

    def seconds(config: DiscoveryConfig) -> float:
        return config.num_trainings * config.total_steps * len(config.environments) / STEPS_PER_SECOND

    return [experiment_job(folder / name, one, seconds(one), Discovery, console) for name, one in parts.items()]


def sections(parts: dict[str, DiscoveryConfig], results: dict[str, dict[str, Any]]) -> list[Section]:
    """The report: what each search is worth where it was made, in longer trainings, and where it never was."""
    return [_section(name, config, results[name]) for name, config in parts.items()]


def _section(name: str, config: DiscoveryConfig, found: dict[str, Any]) -> Section:
    claims = [
        _errors("games of the search, above PPO", found["difference_from_plain"], BETTER),
        _errors(
            "games of the search, above tuned PPO",
            found["difference_from_tuned"],
            BETTER if "beside_tuned" in found else THAN_TUNED,
        ),
    ]
    if "difference_from_l2" in found:
        words = "games of the search, above L2 with the settings of tuned PPO"
        claims.append(_errors(words, found["difference_from_l2"], THAN_TUNED))
    claims += [
        _errors(f"{place}, not below tuned PPO", one["difference_from_tuned"], NOT_WORSE, worst=False)
        for place, one in found["transfer"].items()
    ]
    claims += [  # the sum of the returns may be largest without learning, because no player learns to exploit the other
        _errors(f"{place}, above no learning", found["environments"][place]["difference_from_still"], BETTER)
        for place in found.get("beside_tuned", ())
    ]
    tables = [_returns(places) for places in (found["environments"], found["transfer"]) if places]
    if "shape" in found:
        shapes = [[str(i), *(f"{x:.3f}" for x in one.values())] for i, one in enumerate(found["shape"])]
        tables.append(table(["search", *found["shape"][0]], shapes))
    if beside := found.get("beside_tuned"):
        rows = [
            [spec, *(with_error(one[key]) for key in ("evolved", "tuned", "difference"))]
            for spec, one in beside.items()
        ]
        tables.append(table(["a player with the drift against tuned PPO", "drift", "tuned PPO", "difference"], rows))
    several = f"between {config.searches} searches" if config.searches > 1 else "between trainings, of one search"
    text = (
        f"`{config.learner}`, trainings of {config.total_steps:,} steps, {config.evaluation_trials} fresh ones of each "
        f"kind; errors are {several}. Claims of *above* are about the worst search, by the errors between its "
        "trainings; claims of *not below* are about the mean, by the errors between searches. PPO clips its values. "
        "Tuned PPO has Huber's loss of any width in place of that clip, and was tuned from the same start for as many "
        f"generations, by the same evolution, on {', '.join(SCALES[config.kind])} alone; the search evolves these "
        "numbers too, as far as its result depends on them. Where the search has several games, their unit is the "
        "standard deviation of PPO; for several players it is the gain or loss by learning if that is more."
    )
    pictures = [(words, f"{name}/figures/{file}.png") for words, file in (
        ("the search", "evolution"), ("the evolved objective", "objective"), ("learning curves", "learning_curves")
    )]  # fmt: skip
    if len(found["environments"] | found["transfer"]) > PANELS:
        pictures.append(("learning curves of further games", f"{name}/figures/learning_curves_2.png"))
    above = {rival: with_error(found[f"difference_from_{rival}"], 2) for rival in ("plain", "tuned")}
    answer = (
        f"In the games of the search the result is {above['plain']} above PPO, and {above['tuned']} above tuned PPO."
    )
    return Section(TITLES[name], text, claims, tables, pictures, answer)


def _returns(places: dict[str, dict[str, Any]]) -> str:
    """A table of returns: one row for each kind of training, one column for each game."""
    arms = [arm for arm in NAMES if any(arm in one for one in places.values())]
    rows = [[NAMES[arm], *(with_error(one[arm], 2) if arm in one else "" for one in places.values())] for arm in arms]
    rows.append(["evolved less tuned", *(with_error(one["difference_from_tuned"], 2) for one in places.values())])
    return table(["", *places], rows)


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
