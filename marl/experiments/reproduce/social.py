"""Sequential social dilemmas: the collective return of each learner in each game, with one network for all players."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from games.registry import make_game
from marl.experiments.learner_training import TrainConfig, train
from marl.experiments.reproduce.figures import draw_learning
from marl.experiments.returns import read_returns
from marl.experiments.team import make_experiment
from meta.runs.formatting import say
from meta.runs.jobs import Job, experiment_job, finished
from meta.runs.reports.claims import Section, table
from meta.statistics import with_error

GAMES = (
    "harvest(episode_length=256)",
    "cleanup(episode_length=256)",
    "coop_mining(episode_length=256)",
    "coin_game",
)
_SIZES = "hidden=[64, 64], activation='relu', learning_rate=1e-3, anneal=True"
_PPO = f"ppo({_SIZES}, minibatches=8)"
LEARNERS = {
    "ippo": _PPO,
    "ippo_common": _PPO,
    "mappo": f"mappo({_SIZES}, minibatches=8)",
    "pqn": f"pqn({_SIZES}, minibatches=32, epsilon_steps={{}})",  # of all players, in half of the training
    "random": "random",
}
WRAPPERS = {"ippo_common": "common_reward(game={!r})"}
# Seconds of a training as a multiple of those of `ippo`, measured in harvest.
RELATIVE = {"ippo": 1.0, "ippo_common": 1.0, "mappo": 2.3, "pqn": 0.6, "random": 0.1}
METRICS = ("efficiency", "equality", "sustainability", "peace")
MEASURED = 3  # updates


def make_configs(
    *, games: Sequence[str], total_steps: int, seeds: int, seed: int, fast: bool
) -> dict[str, dict[str, TrainConfig]]:
    """The trainings of each game, by learner."""
    sizes: dict[str, Any] = {"num_envs": 32, "steps_per_update": 64, "total_steps": total_steps}
    if fast:
        sizes = {"num_envs": 2, "steps_per_update": 16, "total_steps": 64, "evaluation_episodes": 2}
    learners = {name: LEARNERS[name] for name in ("ippo", "random")} if fast else LEARNERS
    return {
        game: {
            name: TrainConfig(
                environment=WRAPPERS.get(name, "{}").format(game),
                learner=spec.format(total_steps // 2 * make_game(game).num_agents),
                seeds=seeds,
                seed=seed,
                **sizes,
            )
            for name, spec in learners.items()
        }
        for game in (games[-1:] if fast else games)
    }


def folder_of(game: str, name: str) -> str:
    """The name of a training's directory: the game with its parameters, and the learner.

    Args:
      game: with parameters in brackets.
      name: of the learner, in `LEARNERS`.
    """
    return f"{re.sub('[^A-Za-z0-9.]+', '_', game).strip('_')}-{name}"


def make_jobs(
    folder: Path, parts: Mapping[str, Mapping[str, TrainConfig]], console: Console, *, fast: bool
) -> list[Job]:
    """The trainings with the seconds that each will take; PPO alone is measured, because compiling takes long."""
    jobs = []
    for game, row in parts.items():
        paths = {name: folder / folder_of(game, name) for name in row}
        left = not fast and not all(finished(paths[name], config) for name, config in row.items())
        unit = _measured(row["ippo"], console) if left else 0.0
        for name, config in row.items():
            jobs.append(experiment_job(paths[name], config, RELATIVE[name] * unit, make_experiment, console))
    return jobs


def _measured(config: TrainConfig, console: Console) -> float:
    say(console, f"measuring the speed of this machine: {config.environment}, {config.learner.partition('(')[0]}")
    loop = train(dataclasses.replace(config, total_steps=MEASURED * config.steps_of_an_update)).loop
    return loop.seconds_to_compile + loop.seconds_to_run / MEASURED * config.num_updates


def sections(
    figures: Path, parts: Mapping[str, Mapping[str, TrainConfig]], results: Mapping[str, Mapping[str, Any]]
) -> list[Section]:
    """The report: collective returns of the last tenth of the trainings and of fresh episodes, and social metrics.

    Args:
      figures: directory of the pictures.
      parts: as of `make_configs`.
      results: summaries by directory, as of `run_jobs`, all of them there.
    """
    found = {(game, name): results[folder_of(game, name)] for game, row in parts.items() for name in row}

    def rows(figure: str) -> list[list[str]]:
        return [[f"`{game}`", *(with_error(found[game, name][figure]) for name in row)] for game, row in parts.items()]

    first = next(iter(parts.values()))
    one = next(iter(first.values()))
    text = (
        "The sum of the returns of all players in an episode; they share one network. The first table is of the last "
        "tenth of the trainings, and the second of fresh episodes without exploration. Errors are between "
        f"{one.seeds} trainings of {one.total_steps:,} steps. With a common reward each player is paid the mean of all "
        "rewards. Settings: "
    )
    text += "; ".join(f"{name} `{config.learner}`" for name, config in first.items()) + "."
    tables = [table(["game", *first], rows(figure)) for figure in ("training_return", "returns")]
    measured = [
        [f"`{game}`", name, *(_metric(found[game, name]["social"].get(metric)) for metric in METRICS)]
        for game, row in parts.items()
        for name in row
    ]
    curves = {
        game: {
            name: read_returns(figures.parent / "trainings" / folder_of(game, name) / "metrics.jsonl") for name in row
        }
        for game, row in parts.items()
    }
    picture = draw_learning(figures, curves, one.steps_of_an_update)
    social = (
        "Metrics of all players in fresh episodes, of the rewards of the game itself. Peace is the number of players "
        "that are not zapped away."
    )
    returns = Section(
        "Collective returns",
        text,
        tables=tables,
        pictures=[("collective returns during training", f"figures/{picture.name}")],
        answer=_answer({game: {name: found[game, name]["returns"] for name in row} for game, row in parts.items()}),
    )
    return [
        returns,
        Section("Social metrics", social, tables=[table(["game", "learner", *METRICS], measured)]),
    ]


def _answer(returns: Mapping[str, Mapping[str, dict[str, Any]]]) -> str:
    """The best learner of each game beside random play."""
    words = []
    for game, row in returns.items():
        finite = [name for name in row if name != "random" and row[name]["mean"] is not None]
        if not finite:
            continue
        best = max(finite, key=lambda name: row[name]["mean"])
        words.append(f"in `{game}` {best} gets {with_error(row[best])}, random play {with_error(row['random'])}")
    return "The highest collective returns: " + "; ".join(words) + "." if words else ""


def _metric(found: Mapping[str, Any] | None) -> str:
    return "" if found is None else with_error(dict(found))
