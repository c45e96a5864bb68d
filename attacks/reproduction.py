"""The claims of Adversarial Cheap Talk: the attacks that are evolved for them, and the report with the verdicts."""

from __future__ import annotations

import dataclasses
import itertools
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

import configs
from attacks import control, figures
from attacks.config import AttackConfig, Goal
from attacks.evaluation import Lives
from attacks.examination import COLUMNS, ExaminationConfig, examine
from attacks.experiment import NUM_JUDGES, VICTIMS_FILE, attack, make_init, make_trial
from games.wrappers.goals import has_goals
from meta import Evolution, RunDirectory, evolve
from meta.runs.claims import Claim, Section, table, write_report
from meta.runs.jobs import Job, duration, finished, open_run, run_jobs, say
from meta.runs.statistics import with_error
from meta.runs.words import amount

STANDARD_ERRORS = 5.0  # from silence, for a claim of harm or help
CONTROL_RATIO = 1.5  # of the goal reward, to the best of what needs nobody who controls
SECONDS_TO_COMPILE = 45.0  # of the programs of one attack


@dataclasses.dataclass(frozen=True)
class ReproduceConfig:
    """The claims of Lu et al., Adversarial Cheap Talk (2023)."""

    environments: tuple[str, ...] = ("cartpole", "pendulum", "reacher", "breakout")
    """Presets of `attacks.act`."""
    examine: bool = True
    """Try other learners and defences, in the first environment."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    fast: bool = False
    """A smoke run: tiny."""

    def __post_init__(self) -> None:
        known = configs.presets("act")
        for name in self.environments:
            if name not in known:
                raise ValueError(f"environments: got {name!r}; {configs.one_of(name, known)}")
        if not self.environments:
            raise ValueError(f"environments: got none; some of {', '.join(known)} are needed")
        configs.check_seed(self.seed, 31)


class Part(NamedTuple):
    """One attack."""

    environment: str
    config: AttackConfig
    path: Path

    @property
    def is_done(self) -> bool:
        """Whether it has its summary."""
        return bool(finished(self.path, self.config))

    @property
    def steps(self) -> int:
        """Environment steps in all, evaluations included."""
        config, judged = self.config, self.config.judged_steps
        trained = config.trained * (config.steps_of_a_life + judged)
        judges = min(NUM_JUDGES, config.num_victims) * 2 * bool(config.warm_up_updates)
        lives = (config.num_victims * 3 + judges) * (config.steps_of_a_life + judged)
        oracles = 2 * config.num_victims * config.oracle_updates * config.steps_per_update * config.num_envs
        return trained + lives + (oracles if config.goal == "control" else 0)


def reproduce(config: ReproduceConfig, run: RunDirectory, console: Console) -> None:
    """Runs what has not been run yet, and writes the report."""
    if config.fast:  # programs that run for a blink take a third of the time to compile without
        jax.config.update("jax_disable_most_optimizations", True)
    parts = make_parts(config, run.path)
    seconds = _estimate([part for part in parts if not part.is_done], console)

    def job(part: Part) -> Job:
        return Job(
            part.path,
            part.config,
            seconds.get(part.path.name, 0.0),
            lambda: attack(part.config, open_run(part.path, part.config, console), console),
        )

    summaries = run_jobs([job(part) for part in parts], console)
    examinations = {}
    for part in parts if config.examine else []:
        if part.environment == config.environments[0] and part.config.goal != "control":
            say(console, f"{part.path.name}: other learners and defences")
            examinations[part.path.name] = _examine(part.path, config, console)
    sections = list(itertools.chain.from_iterable(_sections(run, part, summaries, examinations) for part in parts))
    note = (
        f"Harm and help have to lie {STANDARD_ERRORS:g} standard errors from silence, paired by victim; control has to "
        f"reach {CONTROL_RATIO:g} times the goal reward of the best baseline: the best constant message, nothing that "
        "moves, a random shaper with a random controller, silence."
    )
    data = {"config": configs.plain(config), "attacks": summaries, "examinations": examinations}
    say(console, write_report(run, "Adversarial Cheap Talk", note, sections, data, fast=config.fast))
    say(console, f"written to {run.path}: report.md, report.json, figures")


def make_parts(config: ReproduceConfig, folder: Path) -> list[Part]:
    """The attacks, in their order."""
    parts = []
    for environment in config.environments:
        preset = configs.load(AttackConfig, "act", environment)
        goals: list[Goal] = ["harm", "help"]
        if has_goals(preset.make_game()):
            goals.append("control")
        for goal in goals:
            own = dataclasses.replace(preset, goal=goal, seed=config.seed)
            own = small(own) if config.fast else own
            parts.append(Part(environment, own, folder / f"{environment}-{goal}"))
    return parts


def small(config: AttackConfig) -> AttackConfig:
    """The same in a size that shows only that it runs."""
    evolution = Evolution(population_size=2, generations=1)
    return dataclasses.replace(
        config,
        num_updates=1,
        steps_per_update=8,
        num_envs=2,
        evaluation_episodes=2,
        evaluation_steps=8,
        warm_up_updates=0,
        evolution=evolution,
        num_victims=2,
        oracle_updates=1,
    )


def _examine(path: Path, config: ReproduceConfig, console: Console) -> dict[str, Any]:
    number = 2 if config.fast else 256
    return examine(ExaminationConfig(str(path), num_victims=number, seed=config.seed + 1), console)


def _estimate(parts: Sequence[Part], console: Console) -> dict[str, float]:
    """Seconds that each part will take, from the speed of a small evolution in each environment."""
    if not parts:
        return {}
    say(console, "measuring the speed of this machine, half a minute for each environment")
    speeds: dict[str, float] = {}
    for part in parts:
        if part.environment not in speeds:
            config = dataclasses.replace(part.config, num_updates=2, warm_up_updates=0)
            evolution = dataclasses.replace(config.evolution, population_size=16, generations=2, chunk_size=0)
            key = jax.random.key(0)
            found = evolve(make_trial(config), make_init(config), key, evolution, num_trials=1)
            judged = config.evaluation_episodes * config.evaluation_steps
            speeds[part.environment] = 32 * (config.steps_of_a_life + judged) / found.seconds_to_run
    seconds = {part.path.name: SECONDS_TO_COMPILE + part.steps / speeds[part.environment] for part in parts}
    say(console, f"this will take about {duration(sum(seconds.values()))} on this machine")
    for part in parts:
        words = f"{part.path.name}: {duration(seconds[part.path.name])}, {amount(part.steps)} environment steps"
        say(console, f"  {words} at {amount(speeds[part.environment])}/s")
    return seconds


def _sections(run: RunDirectory, part: Part, summaries: dict[str, Any], examinations: dict[str, Any]) -> list[Section]:
    name, found = part.path.name, summaries[part.path.name]
    pictures = [(file.stem.replace("_", " "), f"{name}/figures/{file.name}") for file in _pictures(part.path)]
    text = f"Victim: `{part.config.victim}`; {found['num_victims']} fresh ones of each kind."
    if part.config.goal == "control":
        rewards = found["goal_reward"]
        claims = [
            Claim(f"goal reward, times that of {rewards['best_baseline']}", rewards["ratio"], None, least=CONTROL_RATIO)
        ]
        claims += [
            Claim(row.replace("_", " "), rewards[row]["mean"], rewards[row]["standard_error"]) for row in control.ROWS
        ]
        return [Section(f"{part.environment}: control", text, claims, pictures=pictures)]
    sign = 1 if part.config.goal == "help" else -1
    difference = found["difference_from_silent"]
    apart = sign * difference["mean"] / difference["standard_error"] if difference["standard_error"] else 0.0
    claims = [Claim("difference from silence, in standard errors", apart, None, least=STANDARD_ERRORS)]
    claims += [Claim(row, found[row]["mean"], found[row]["standard_error"]) for row in ("evolved", "silent", "random")]
    if part.config.goal == "help":  # both are there now
        pictures = [("training curves", f"figures/{_all_four(run, part)}"), *pictures]
    tables = []
    for kind, rows in examinations.get(name, {}).items():
        if kind in ("transfer", "defences"):
            titles = [kind, *(" ".join(title.split()) for title in COLUMNS.values())]
            tables.append(table(titles, _cells(rows)))
            pictures.append((kind, f"{name}/figures/{kind}.png"))
    return [Section(f"{part.environment}: {part.config.goal}", text, claims, tables, pictures)]


def _cells(rows: dict[str, Any]) -> list[list[str]]:
    return [[name, *(with_error(row[column], 1) for column in COLUMNS)] for name, row in rows.items()]


def _pictures(path: Path) -> list[Path]:
    wanted = ("evolution.png", "training_curves.png", "message.png", "goal_rewards.png", "steered.gif")
    return [path / "figures" / name for name in wanted if (path / "figures" / name).is_file()]


def _all_four(run: RunDirectory, part: Part) -> str:
    """One figure of the victims under messages evolved to harm, to help, silent and random; its name."""
    groups = {}
    for goal in ("harm", "help"):
        for name, lives in _read_lives(part.path.with_name(f"{part.environment}-{goal}") / VICTIMS_FILE).items():
            groups[f"evolved to {goal}" if name == "evolved" else name] = lives
    figures.draw_curves(run.figures, groups, part.config.steps_per_update * part.config.num_envs)
    file = run.figures / "training_curves.png"
    return file.replace(file.with_name(f"{part.environment}.png")).name


def _read_lives(file: Path) -> dict[str, Lives]:
    """What `attack` kept of its victims.

    Raises:
      ValueError: if it is not there, or damaged; one line.
    """
    try:
        with np.load(file) as arrays:
            names = ("evolved", "silent", "random")
            return {name: Lives(*(arrays[f"{name}_{field}"] for field in Lives._fields)) for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{file}: cannot be read ({reason}); its part is made anew where it is removed") from None
