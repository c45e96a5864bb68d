"""Trainings of several runs as data: scores and metrics of each, grouped by method and by game."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import configs
from configs import shown
from meta.atomic_files import check_folder
from meta.runs.reading import RunFiles

SCORES = ("shaper_return", "returns", "evaluation_return", "evolved")  # in a summary: the first that all have
# Fields that make no other method: of the number of trainings, and of the evaluation.
_OF_EVALUATION = ("unseen", "longer", "wider", "evaluation_trials", "sampled_evaluation_trials")
UNLIKE = ("seed", "seeds", "searches", "checkpoint_seconds", *_OF_EVALUATION)
NAMES = ("method", "shaper", "learner", "opponent", "victim", "message", "goal")  # that say best what a method is
TASKS = ("game", "environment", "row_payoffs", "column_payoffs")  # fields that name a game
_COUNTS = re.compile(r"(.*[._])?(seeds?|searches|num_\w+|standard_error|\w+_standard_error|\w*seconds|\w+_per_second)")


class Training(NamedTuple):
    """One training of a run."""

    run: Path
    seed: int
    scores: dict[str, float]  # numbers of the summary, by name
    metrics: dict[str, np.ndarray]  # by name, `[rows]`; the first counts the rows


class Compared(NamedTuple):
    """Trainings by (game, method), with the names of both in the order of the runs."""

    groups: dict[tuple[str, str], list[Training]]
    tasks: list[str]
    methods: list[str]
    settings: dict[str, dict[str, Any]]  # of each method, the fields in which methods differ


def read_trainings(paths: Sequence[str], task_fields: Sequence[str]) -> Compared:
    """Reads finished runs, and groups their trainings.

    Runs that differ in their seeds or in their evaluation alone are of one method, and those that differ in
    `task_fields` of several tasks.

    Args:
      paths: run directories.
      task_fields: fields of configs, by their names in full.

    Returns:
      The groups.

    Raises:
      ValueError: for no run, for one that has not finished, and for a training that is there twice; one line.
    """
    if not paths:
        raise ValueError("runs: none given; the directories of finished runs are needed")
    runs = [_read(path) for path in paths]
    fields = [
        {"command": " ".join(run.command.split()[:3]), **configs.full_names(run.config)} for run in runs
    ]  # python -m marl.mfos
    every = dict.fromkeys(name for one in fields for name in one)
    if unknown := next((name for name in task_fields if name not in (*every, *TASKS)), None):
        raise ValueError(f"tasks: got {shown(unknown)}; {configs.one_of(unknown, [*TASKS, *every])}")
    names = [name for name in every if _last(name) not in UNLIKE]
    differing = [name for name in names if any(one.get(name) != fields[0].get(name) for one in fields)]
    tasks = _labels(fields, [name for name in differing if name in task_fields], _game(runs[0]))
    everywhere = [name for name in every if _last(name) in NAMES and all(name in one for one in fields)]
    of_method = sorted((x for x in differing if x not in task_fields), key=lambda name: name not in everywhere)
    methods = _labels(fields, of_method, _own_name(runs[0]))
    groups: dict[tuple[str, str], list[Training]] = {}
    for run, task, method in zip(runs, tasks, methods, strict=True):
        for one in _trainings(run):
            group = groups.setdefault((task, method), [])
            if other := next((x for x in group if x.seed == one.seed), None):
                raise ValueError(
                    f"runs: got {shown(str(run.path))}; seed {one.seed} of this method is in {other.run} too, and each "
                    "training is needed once"
                )
            group.append(one)
    kept = dict(zip(methods, fields, strict=True))
    settings = {method: {name: found.get(name) for name in of_method} for method, found in kept.items()}
    return Compared(groups, list(dict.fromkeys(tasks)), list(dict.fromkeys(methods)), settings)


def choose_score(compared: Compared, name: str = "") -> str:
    """The name of the score by which trainings are compared.

    Args:
      compared: the trainings.
      name: the one that is asked for; empty for the first of `SCORES` that all trainings have.

    Raises:
      ValueError: if a training lacks it; one line.
    """
    every = [one.scores for group in compared.groups.values() for one in group]
    common = [score for score in every[0] if all(score in one for one in every)]
    if name in common or (not name and (name := next((score for score in SCORES if score in common), ""))):
        return name
    got = f"got {shown(name)}" if name else "none given"
    needed = configs.one_of(name, common) if common else "runs whose summaries share a number are needed"
    raise ValueError(f"score: {got}; {needed}")


def _read(path: str) -> RunFiles:
    run = RunFiles(Path(path), "runs")
    check_folder(run.path)
    if not run.summary:
        raise ValueError(f"runs: got {shown(path)}, which has not finished; a finished run is needed")
    return run


def _game(run: RunFiles) -> str:
    """The name of the game where there is one alone."""
    return next((str(x) for x in map(run.config.get, ("environment", "environments", "game")) if x), "all")


def _own_name(run: RunFiles) -> str:
    """The name of the method where there is one alone."""
    found = next((run.config[name] for name in ("shaper", "learner", "message") if name in run.config), None)
    return str(found) if found else " ".join(run.command.split()[2:4]) or run.path.name


def _labels(fields: Sequence[dict[str, Any]], names: Sequence[str], alone: str) -> list[str]:
    """A label for each run, of the first of its fields that tell the runs apart."""
    kinds = [_key(one, names) for one in fields]
    chosen: list[str] = []
    for name in names:
        if len({_key(one, [*chosen, name]) for one in fields}) > len({_key(one, chosen) for one in fields}):
            chosen.append(name)
        if len({_key(one, chosen) for one in fields}) == len(set(kinds)):
            break
    if not chosen:
        return [alone] * len(fields)
    if len(chosen) == 1 and all(isinstance(one.get(chosen[0]), str) for one in fields):
        labels = [str(one[chosen[0]]) for one in fields]  # a name says by itself what it is; a number does not
    else:
        labels = [", ".join(f"{name}={one.get(name)}" for name in chosen) for one in fields]
    short: dict[str, str] = {}
    for label in labels:
        number = sum(other != label and configs.short(other) == configs.short(label) for other in short)
        short.setdefault(label, configs.short(label) + (f" ({number + 1})" if number else ""))
    return [short[label] for label in labels]


def _last(name: str) -> str:
    """The last part of a name such as `evolution.checkpoint_seconds`."""
    return name.rpartition(".")[2]


def _key(fields: dict[str, Any], names: Sequence[str]) -> str:
    return repr([fields.get(name) for name in names])


def _trainings(run: RunFiles) -> list[Training]:
    """Each training of a run, with the scores that the summary has of it."""
    summary, (count, metrics) = run.summary, run.by_training()

    def of(number: int, seed: Any, found: dict[str, Any]) -> Training:
        series = {name: x[:, number] if x.ndim == 2 and number < count else x for name, x in metrics.items()}
        return Training(run.path, seed, _scores(found), {name: x for name, x in series.items() if x.ndim == 1})

    each = summary.get("runs")
    if isinstance(each, list) and each and all(isinstance(one, dict) and "seed" in one for one in each):
        return [of(i, one["seed"], one) for i, one in enumerate(each)]
    of_seeds = {name: x.get("seeds") for name, x in summary.items() if isinstance(x, dict)}
    if several := {name: rows for name, rows in of_seeds.items() if isinstance(rows, list)}:
        rows = list(zip(*several.values(), strict=False))
        return [of(i, row[0]["seed"], dict(zip(several, row, strict=True))) for i, row in enumerate(rows)]
    seed = summary.get("seed", run.config.get("seed", 0))
    if int(summary.get("searches", 1)) > 1:
        got = f"got {shown(str(run.path))}, without a result for each of its searches"
        raise ValueError(f"runs: {got}; a run by the present version is needed")
    return [of(0, seed, summary)] if count == 1 else [of(0, seed, summary)._replace(metrics={})]


def _scores(found: dict[str, Any]) -> dict[str, float]:
    """The numbers of a training by their names, without counts and errors."""
    flat = {re.sub(r"\.mean$", "", name): x for name, x in configs.full_names(found).items()}
    return {
        name: float(x)
        for name, x in flat.items()
        if isinstance(x, int | float) and not isinstance(x, bool) and not _COUNTS.fullmatch(name)
    }
