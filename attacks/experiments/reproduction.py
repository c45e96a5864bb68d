"""The claims of Adversarial Cheap Talk: the attacks that are evolved for them, and the report with the verdicts."""

from __future__ import annotations

import dataclasses
import itertools
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

import configs
from attacks import control
from attacks.experiments import figures
from attacks.experiments.attack import resolve
from attacks.experiments.attack_experiment import ROWS, TITLES
from attacks.experiments.config import EXPERT_TRAININGS, EXPERTS, AttackConfig, Goal
from attacks.experiments.evaluation import VictimTrainings
from attacks.experiments.message_experiment import VICTIMS_FILE
from attacks.experiments.preparation import make_experiment
from attacks.experiments.transfer import COLUMNS, ExaminationConfig, examine
from games.registry import make_game
from games.wrappers.goals import has_goals
from meta import Evolution, RunDirectory, evolve
from meta.runs.directory import read_record
from meta.runs.formatting import amount, duration, say
from meta.runs.gpu_defaults import with_gpu_defaults
from meta.runs.jobs import Job, experiment_job, finished, run_jobs
from meta.runs.reports.claims import Claim, Section, table, write_claims
from meta.runs.reports.ending import print_report
from meta.statistics import mean_and_error, or_nan, rounded, with_error

STANDARD_ERRORS = 5.0  # beyond random messages, for a claim of harm or help
CONTROL_RATIO = 1.5  # of the goal reward, to the best baseline without a controller trained on its victim
CONTROL_ERRORS = 2.0  # beyond that
SECONDS_TO_COMPILE = 45.0  # of the programs of one attack
PICTURES = {  # of an attack, and what is seen
    "evolution.png": "progress of the search",
    "training_curves.png": "return of victims during training",
    "message.png": "the message over entries of the observation",
    "goal_rewards.png": "goal rewards of the evolved pair and of baselines",
    "steered.gif": "a victim under the controller",
}


@dataclasses.dataclass(frozen=True)
class ReproduceConfig(configs.CommandConfig):
    """The claims of Lu et al., Adversarial Cheap Talk (2023)."""

    environments: tuple[str, ...] = ("cartpole", "pendulum", "reacher", "breakout")
    """Presets of `attacks.act`."""
    goals: tuple[Goal, ...] = ("harm", "help", "control")
    """What is evolved in each: harm, help, and control where there are goals."""
    searches: int = 3
    """Searches for each attack, with the seeds seed, seed + 1, ...; errors are between them."""
    examine: bool = True
    """Try other learners and defences on the first search for harm and for help in the first environment."""
    seed: int = 0
    """Seed of all draws of the run."""
    fast: bool = False
    """A smoke run: tiny."""

    def __post_init__(self) -> None:
        known = configs.presets("act")
        for name in self.environments:
            if name not in known:
                raise ValueError(f"environments: got {name!r}; {configs.one_of(name, known)}")
        if not self.environments or len(set(self.environments)) < len(self.environments):
            got = configs.shown(self.environments) if self.environments else "none"
            raise ValueError(f"environments: got {got}; some of {', '.join(known)} are needed, each once")
        if not self.goals or len(set(self.goals)) < len(self.goals):
            raise ValueError(
                f"goals: got {configs.shown(self.goals)}; some of harm, help and control are needed, each once"
            )
        configs.check(self, "a whole number from 1 to 1000", lambda x: 1 <= x <= 1000, "searches")
        configs.check_seed(self.seed, 31)


class Part(NamedTuple):
    """One search for an attack."""

    environment: str
    config: AttackConfig
    path: Path

    @property
    def is_done(self) -> bool:
        """True if the part has its summary."""
        return bool(finished(self.path, self.config))

    @property
    def steps(self) -> int:
        """Environment steps in all, evaluations included."""
        config, judged, steered = self.config, self.config.judged_steps, self.config.goal == "control"
        training = config.steps_of_a_training + judged
        shared = config.shared_trainings if steered else 0
        trained = (config.trained - shared) * training
        trained += shared * (training + (config.warm_up.population_size - 1) * judged)
        expert = config.begin == "expert"
        tried = 1 + expert + (not expert if steered else bool(config.warm_up_updates))
        judges = config.num_judges * tried * (tried > 1)
        kinds = control.NUM_TRAININGS if steered else 3 + expert
        trainings = (
            config.evaluation_trials * kinds + judges + (steered + 1) * expert * EXPERTS * EXPERT_TRAININGS
        ) * training
        oracles = 2 * config.evaluation_trials * config.oracle_updates * config.steps_per_update * config.num_envs
        return trained + trainings + (oracles if steered else 0)


def checked(config: ReproduceConfig) -> ReproduceConfig:
    """The config, of which it is known that there is something to do; a ValueError otherwise."""
    if not make_parts(config, Path()):
        raise ValueError(f"goals: got control alone; there are no goals in {' and '.join(config.environments)}")
    return config


def reproduce(config: ReproduceConfig, run: RunDirectory, console: Console) -> None:
    """Runs what has not been run yet, and writes the report."""
    if config.fast:  # programs that run for a blink take a third of the time to compile without
        jax.config.update("jax_disable_most_optimizations", True)
    parts = [_with_chunks_begun(part) for part in make_parts(config, run.path)]
    seconds = _estimate([part for part in parts if not part.is_done], console)

    def job(part: Part) -> Job:
        expected = seconds.get(part.path.name, 0.0)
        return experiment_job(
            part.path, part.config, expected, lambda config: make_experiment(resolve(config)), console
        )

    summaries = run_jobs([job(part) for part in parts], console)
    examinations = {}
    for part in parts if config.examine else []:
        first = part.environment == config.environments[0] and part.config.seed == config.seed
        if first and part.config.goal != "control":
            say(console, f"{part.path.name}: other learners and defences")
            examinations[part.path.name] = _examine(part.path, config, console)
    attacks = {kind: list(own) for kind, own in itertools.groupby(parts, lambda x: (x.environment, x.config.goal))}
    sections = [_section(searches, summaries, examinations) for searches in attacks.values()]
    sections += _beside(run.figures, attacks, summaries)
    curves = {name: trainings for name in config.environments if (trainings := _trainings_of(parts, name))}
    schedules = {part.environment: part.config.schedule for part in parts}
    batches = {name: one.steps_per_update * one.num_envs for name, one in schedules.items()}
    if curves:
        picture = figures.draw_all_curves(run.figures, curves, batches)
        pictures = [(PICTURES[picture.name], f"figures/{picture.name}")]
        spoken = next(goal for goal in config.goals if goal != "control")
        text = f"The first search for each goal; random messages are as large as those evolved to {spoken}."
        sections.append(Section("Training curves", text, pictures=pictures))
    note = (
        f"Targets: harm and help exceed by {STANDARD_ERRORS:g} standard errors what random messages do that are as "
        f"large; control exceeds {CONTROL_RATIO:g} times the goal reward of the best baseline by {CONTROL_ERRORS:g} "
        "standard errors. Baselines are controllers evolved for the victims of silence and of random shapers, the "
        "evolved controller before victims of these, the best constant message, no motion, random messages and "
        "silence. In tables of control, *oracle* "
        "is the evolved shaper with a controller that PPO trains on each victim, and *random shaper oracle* the same "
        "with a random shaper. *Silent shaper* and *random shaper* have controllers evolved for their victims; "
        "random shapers are several, and each victim has one of them with its controller; *best random shaper* is the "
        "one of them that came to most, and no baseline. "
        "*Controller alone* and *controller other shaper* are the evolved controller before victims of silence and of "
        f"a random shaper. Errors are between searches, of which there are {config.searches}; with one search, between "
        "its victims."
    )
    data = {"config": configs.plain(config), "attacks": summaries, "examinations": examinations}
    say(console, write_claims(run, "Adversarial Cheap Talk", note, sections, data, fast=config.fast))
    print_report(console, run.path)
    say(console, f"written to {run.path}: report.md, report.json, figures")


def make_parts(config: ReproduceConfig, folder: Path) -> list[Part]:
    """The attacks, in their order."""
    parts, presets = [], configs.presets("act")
    for environment in config.environments:
        for goal in config.goals:
            name = f"{environment}_{goal}"  # of a preset for this goal alone, if there is one
            preset = with_gpu_defaults(configs.load(AttackConfig, "act", name if name in presets else environment))
            if goal == "control" and not has_goals(make_game(preset.environment)):
                continue
            for i in range(config.searches):
                own = dataclasses.replace(preset, goal=goal, seed=config.seed + i)
                own = small(own) if config.fast else own
                parts.append(Part(environment, own, folder / f"{environment}-{goal}-{own.seed}"))
    return parts


def _with_chunks_begun(part: Part) -> Part:
    """The part with the chunks with which it was begun, perhaps on a machine that has others."""
    names = ("warm_up", "evolution")
    try:
        record = read_record(part.path)
        sizes = {name: record.config[name]["chunk_size"] for name in names} if record else {}
        inner = {name: dataclasses.replace(getattr(part.config, name), chunk_size=size) for name, size in sizes.items()}
        return part._replace(config=dataclasses.replace(part.config, **inner))
    except (OSError, ValueError, TypeError, KeyError):  # of a damaged part, which is refused where it goes on
        return part


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
        warm_up=evolution,
        evolution=evolution,
        evaluation_trials=2,
        oracle_updates=1,
        begin="random",
        fitness="auto",  # no training run is long enough for another
        shapers=2,
    )


def _examine(path: Path, config: ReproduceConfig, console: Console) -> dict[str, Any]:
    number = 2 if config.fast else 256
    return examine(ExaminationConfig(str(path), evaluation_trials=number, seed=config.seed + 1), console)


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
            attack = resolve(config)
            found = evolve(attack.trial, attack.init, jax.random.key(0), evolution, num_trials=1)
            steps = config.steps_of_a_training + config.judged_steps
            speeds[part.environment] = 32 * steps / found.seconds_to_run
    seconds = {part.path.name: SECONDS_TO_COMPILE + part.steps / speeds[part.environment] for part in parts}
    say(console, f"this will take about {duration(sum(seconds.values()))} on this machine")
    for part in parts:
        text = f"{part.path.name}: {duration(seconds[part.path.name])}, {amount(part.steps)} environment steps"
        say(console, f"  {text} at {amount(speeds[part.environment])}/s")
    return seconds


def _section(parts: list[Part], summaries: dict[str, Any], examinations: dict[str, Any]) -> Section:
    """The section of one attack: results of its searches, and the figures of the first."""
    first, found = parts[0], [summaries[part.path.name] for part in parts]
    name, goal = first.path.name, first.config.goal
    title = f"{first.environment}: {goal}"
    files = {file: words for file, words in PICTURES.items() if (first.path / "figures" / file).is_file()}
    pictures = [(words, f"{name}/figures/{file}") for file, words in files.items()]
    number = found[0]["num_trials"]
    searches = "one search" if len(parts) == 1 else f"{len(parts)} searches"
    text = f"Victim: `{first.config.victim}`; {number} fresh ones of each kind, {searches}."
    if goal == "control":
        rewards = [summary["goal_reward"] for summary in found]
        rows = {
            row: between(reward[row] for reward in rewards)
            for row in control.ROWS
            if all(row in one for one in rewards)
        }
        best = max(control.BASELINES, key=lambda row: np.nan_to_num(or_nan(rows[row]["mean"]), nan=-np.inf))
        (reached, error), (baseline, its_error) = (
            (or_nan(rows[row]["mean"]), or_nan(rows[row]["standard_error"])) for row in ("evolved", best)
        )
        times = f"{CONTROL_RATIO:g} times that of {best}"
        beyond = (reached - CONTROL_RATIO * baseline) / float(np.hypot(error, CONTROL_RATIO * its_error))
        claims = [
            Claim(f"goal reward beyond {times}, in standard errors", beyond, None, least=CONTROL_ERRORS),
            Claim(f"goal reward, times that of {best}", reached / baseline, None),
        ]
        claims += [Claim(row.replace("_", " "), x["mean"], x["standard_error"]) for row, x in rows.items()]
        goals = {row: rounded(rows[row]["mean"]) for row in ("evolved", best)}
        answer = (
            f"A controlled victim gets a goal reward of {goals['evolved']} with the evolved shaper and controller, and "
            f"{goals[best]} with the best baseline ({best.replace('_', ' ')})."
        )
        return Section(title, text, claims, [], pictures, answer)
    sign = 1 if goal == "help" else -1
    difference = between(summary["evolved"]["difference_from_random"] for summary in found)
    apart = sign * (difference["mean"] or 0.0) / (difference["standard_error"] or np.inf)
    claims = [
        Claim(f"more {goal} than by random messages, in standard errors", apart, None, least=STANDARD_ERRORS),
        Claim("final return: evolved less random", difference["mean"], difference["standard_error"]),
    ]
    spoken = [row for row in ROWS if row in found[0]]
    for row in spoken:
        value = between(summary[row] for summary in found)
        claims.append(Claim(f"final return, {row}", value["mean"], value["standard_error"]))
    for measure, words in {"final": "final return", **TITLES}.items():
        for row in (row for row in spoken if row != "silent"):
            groups = found if measure == "final" else [summary[measure] for summary in found]
            value = between(one[row]["difference_from_silent"] for one in groups)
            claims.append(Claim(f"{words}: {row} less silent", value["mean"], value["standard_error"]))
    tables = []
    for kind, rows in examinations.get(name, {}).items():
        if kind in ("transfer", "defences"):
            titles = [kind, *(" ".join(title.split()) for title in COLUMNS.values())]
            tables.append(table(titles, _cells(rows)))
            pictures.append((f"final returns: {kind}", f"{name}/figures/{kind}.png"))
    evolved, silent, random = (
        rounded(between(summary[row] for summary in found)["mean"], 1) for row in ("evolved", "silent", "random")
    )
    answer = (
        f"A victim's final return is {silent} in silence, {evolved} under messages evolved to {goal}, and {random} "
        "under random messages that are as large."
    )
    return Section(title, text, claims, tables, pictures, answer)


def _beside(folder: Path, attacks: dict[tuple[str, Goal], list[Part]], summaries: dict[str, Any]) -> list[Section]:
    """Victims of several presets in one game, beside each other: what the same search does to each kind."""
    found: dict[tuple[str, Goal], dict[str, dict[str, Any]]] = {}
    for (preset, goal), parts in attacks.items():
        if goal != "control":
            own = [summaries[part.path.name] for part in parts]
            found.setdefault((parts[0].config.environment, goal), {})[preset] = {
                column: between(summary[row]["difference_from_silent"] for summary in own)
                for column, row in (("difference", "evolved"), ("random_difference", "random"))
            }
    sections: list[Section] = []
    for (game, goal), rows in found.items():
        if len(rows) > 1:
            picture = figures.draw_differences(folder / f"beside-{goal}-{len(sections)}.png", rows, goal)
            titles = ["victims of", "evolved less silent", "random less silent"]
            cells = [[name, *(with_error(one, 1) for one in row.values())] for name, row in rows.items()]
            pictures = [("differences", f"figures/{picture.name}")]
            shown = [f"{rounded(row['difference']['mean'], 1)} for {name}" for name, row in rows.items()]
            answer = f"Evolved messages change the final return by {', '.join(shown)}."
            title = f"{goal}, beside each other"
            sections.append(Section(title, f"In {game}.", [], [table(titles, cells)], pictures, answer))
    return sections


def between(searches: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The mean of several searches and its error between them; of one search its own, between its victims."""
    found = list(searches)
    if len(found) == 1:
        return found[0]
    return mean_and_error(np.array([or_nan(one["mean"]) for one in found]))


def _cells(rows: dict[str, Any]) -> list[list[str]]:
    return [[name, *(with_error(row[column], 1) for column in COLUMNS)] for name, row in rows.items()]


def _trainings_of(parts: Sequence[Part], environment: str) -> dict[str, VictimTrainings]:
    """The victims of the first searches in an environment: under messages evolved to harm, to help, silent, random."""
    groups = {}
    first = {part.config.goal: part for part in reversed(parts) if part.environment == environment}
    for goal, part in first.items():
        if goal == "control":
            continue
        for name, trainings in _read_trainings(part.path / VICTIMS_FILE).items():
            groups[f"evolved to {goal}" if name == "evolved" else name] = trainings  # random ones of the first goal
    return groups


def _read_trainings(file: Path) -> dict[str, VictimTrainings]:
    """Reads the file of victims that an attack kept.

    Raises:
      ValueError: if it is not there, or damaged; one line.
    """
    try:
        with np.load(file) as arrays:
            names = ("evolved", "silent", "random")
            return {
                name: VictimTrainings(*(arrays[f"{name}_{field}"] for field in VictimTrainings._fields))
                for name in names
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{file}: cannot be read ({reason}); its part is computed again where it is removed") from None
