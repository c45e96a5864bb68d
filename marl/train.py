"""`python -m marl.train GAME [options]`: train a learner alone and see how well it plays.

GAME is a game of one player such as CartPole-v1, with parameters in brackets, one of the presets below, which are known
to learn, or the path of a YAML file. A stopped run goes on with `python -m marl.train --resume DIR`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STARTED = time.perf_counter()

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import configs  # noqa: E402
from games import names  # noqa: E402
from marl import command  # noqa: E402
from marl.alone import LEARNER_FILE, train_and_evaluate  # noqa: E402
from marl.train_config import TrainConfig  # noqa: E402
from meta import RunDirectory  # noqa: E402
from meta.devices import use_all_cores  # noqa: E402

PRESETS = "train"


@dataclasses.dataclass(frozen=True)
class Options(TrainConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show neither progress nor tables."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    use_all_cores()
    return command.main(COMMAND, arguments)


def _load(first: str) -> Options:
    """The options from a preset, a file, or a game by its name; a preset comes before a game of its name."""
    presets = configs.presets(PRESETS)
    if first in presets or first.endswith((".yaml", ".yml")) or Path(first).is_file():
        return configs.load(Options, PRESETS, first)
    if first.split("(")[0].strip() not in names():
        raise configs.ConfigError(f"game: got {first!r}; {configs.one_of(first, [*presets, *names()])}")
    return configs.build(Options, {"game": first}, "game")


def _train(config: TrainConfig, run: RunDirectory, console: Console) -> None:
    steps = config.num_updates * config.steps_of_an_update
    several = f"each of {config.seeds} seeds, " if config.seeds > 1 else ""
    console.print(
        f"{config.game}, {config.learner}: {steps:,} environment steps, {several}{config.num_updates} updates of "
        f"{config.num_envs} environments x {config.steps_per_update} steps",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    summary, files = train_and_evaluate(config, run, console, started=STARTED)
    table = Table("", "return")
    last = "last tenth of the training"
    for words, name in ((f"{config.evaluation_episodes} fresh episodes", "returns"), (last, "training_return")):
        found = summary[name]
        table.add_row(f"[bold]{words}", _with_error(found))
        if config.seeds > 1:
            for one in found["seeds"]:
                table.add_row(f"  seed {one['seed']}", _words(one["mean"]))
    console.print(table)
    speed = summary["steps_per_second"]
    words = f"{speed:,.0f} environment steps/s; " if speed else ""
    words += f"compiling {summary['seconds_to_compile']:.1f} s, all in all {summary['wall_seconds']:.1f} s"
    console.print(words, highlight=False)
    names = f"summary.json, {LEARNER_FILE}, metrics.jsonl, config.yaml, checkpoints"
    console.print(f"written to {run.path}: {names}", highlight=False, soft_wrap=True)
    for file in files:
        console.print(f"  {file}", highlight=False, soft_wrap=True)


def _with_error(found: dict[str, float | None]) -> str:
    error = found["standard_error"]
    return _words(found["mean"]) + (f" ± {error:.2f}" if error is not None else "")


def _words(x: float | None) -> str:
    return "not known" if x is None else f"{x:.2f}"


COMMAND = command.Command(
    program="python -m marl.train",
    description=(__doc__ or "").strip(),
    presets=PRESETS,
    config=TrainConfig,
    options=Options,
    name=lambda first, config: f"{re.sub('[.]ya?ml$', '', Path(first).name)}-{config.learner_name}-{config.seed}",
    run=_train,
    first="game",
    choice="a game's name such as CartPole-v1,",
    load=_load,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
