"""What a shaping run says on the terminal: what will happen, and what came of it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from marl.experiments.shaping.agents import AGENT_FILE
from marl.experiments.shaping.evaluation_result import IN_PLACE, controls_of
from marl.experiments.shaping.game_kind import GameKind
from marl.experiments.shaping.runtime_estimate import measure
from meta.runs.formatting import amount, duration, many, say
from meta.runs.provenance import devices
from meta.statistics import with_error

LONG = 2e9  # environment steps of a run that is measured beforehand, for its first generation may take an hour


def print_header(console: Console, kind: GameKind) -> None:
    """What is about to run, and how much of it."""
    config = kind.config
    shapes = jax.eval_shape(config.make_shaper().init, jax.random.key(0))
    num_parameters = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(shapes))
    seeds = "" if config.seeds == 1 else f" x {config.seeds} seeds"
    pairs = " x 2 seats" if config.is_self_play else ""
    if config.meta_learner == "ppo":
        trained = f"ppo, {many(config.generations, 'iteration')} of "
        trained += f"{many(config.trials_per_generation, 'trial')}{seeds}{pairs}"
    else:
        evolution = config.evolving
        trained = f"{evolution.strategy}, {many(evolution.generations, 'generation')} of "
        trained += f"{many(evolution.population_size, 'candidate')} x {many(config.trials, 'trial')}{seeds}{pairs}"
        if config.screening:
            trained += f", sigma {evolution.sigma:g}, {evolution.fitness_shaping}; start: {config.starting}"
    fresh = config.evaluation_trials * (2 + len(config.unseen) + (not config.is_self_play))
    counts = [trials * kind.steps * config.seeds for trials in (config.training_trials, fresh)]
    training, evaluation = map(amount, counts)
    several = f", {config.num_shapers} of them" if config.num_shapers > 1 else ""
    table = Table.grid(padding=(0, 2))
    for name, text in {
        **kind.header(),
        "shaper": f"{config.shaper}, {many(num_parameters, 'parameter')}{several}",
        "opponent": config.opponent,
        "training": trained,
        "in all": f"{training} {kind.unit}, then {evaluation} in fresh trials",
        "devices": ", ".join(devices()),
    }.items():
        table.add_row(f"[bold]{name}", text)
    console.print(table)


def say_how_long(console: Console, kind: GameKind) -> None:
    """Measures the speed of this machine where a run may take so long that its first line comes late."""
    config = kind.config
    steps = config.training_trials * kind.steps * config.seeds
    if config.environment and steps > LONG and not console.quiet:
        say(console, "measuring the speed of this machine")
        speed = measure(config)
        pace = f"{amount(speed.steps_per_second)} steps/s"
        say(console, f"{pace}: the whole run takes about {duration(speed.seconds(config))} on this machine")


def print_result(console: Console, kind: GameKind, summary: dict[str, Any], path: Path, files: list[Path]) -> None:
    """The tables that end a run."""
    config = kind.config
    sides = ("row shaper", "column shaper") if config.is_self_play else ("shaper", "opponent")
    span = "the trial" if config.is_self_play else "the opponent's learning"
    title = f"average payoff per round, over {span}"
    table = Table("against", *sides, title=title, title_justify="left", box=None)
    for run in summary["runs"] if config.seeds > 1 else []:
        found = run["against"][config.opponent]
        table.add_row(
            f"{config.opponent}, seed {run['seed']}", with_error(found["shaper"]), with_error(found["opponent"])
        )
    for name, found in summary["against"].items():
        table.add_row(textwrap.fill(name, 40), with_error(found["shaper"]), with_error(found["opponent"]))
    table.add_row(f"[bold]{IN_PLACE}")
    for name, found in controls_of(summary).items():
        table.add_row(textwrap.fill(name, 40), with_error(found["shaper"]), with_error(found["opponent"]))
    console.print(table)
    over = "trainings, of one seed over its fresh trials" if config.seeds > 1 else "fresh trials"
    trials = f"{config.evaluation_trials:,} fresh trials each"
    say(
        console,
        f"{f'mean of {config.seeds} seeds, ' if config.seeds > 1 else ''}{trials}; ± one standard error over {over}",
    )
    kind.print_result(console, summary)
    unit = "meta_steps" if kind.unit == "meta-steps" else "environment_steps"
    speed = summary[f"{unit}_per_second"]
    pace = f"{amount(speed)} {kind.unit}/s; " if speed else ""
    pace += f"compiling {summary['seconds_to_compile']:.1f} s, all in all {summary['wall_seconds']:.1f} s"
    say(console, pace)
    say(console, f"written to {path}: summary.json, {AGENT_FILE}, metrics.jsonl, config.yaml, checkpoints")
    for file in files:
        say(console, f"  {file}")
