"""`python -m marl.mfos PRESET [options]`: train a shaper and see whom it shapes.

PRESET is one of the presets below or the path of a YAML file. Those that name an `environment` play a sampled game
against learners with networks or tables, and have options of their own: `python -m marl.mfos coin_game --help`. The
others play an exact game. A stopped run goes on with `python -m marl.mfos --resume DIR`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STARTED = time.perf_counter()

from rich.console import Console  # noqa: E402

import configs  # noqa: E402
from marl import command, experiment, report, sampled_experiment  # noqa: E402
from marl.config import ShapingConfig  # noqa: E402
from marl.sampled_config import SampledConfig  # noqa: E402
from meta import RunDirectory  # noqa: E402
from meta.devices import use_all_cores  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Options(ShapingConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show neither progress nor tables."""


@dataclasses.dataclass(frozen=True)
class SampledOptions(SampledConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show neither progress nor tables."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    named = [x.removeprefix("--resume=") for x in arguments if not x.startswith("--") or x.startswith("--resume=")]
    resumed = any(x.split("=")[0] == "--resume" for x in arguments)
    source = str(Path(named[0]) / "config.yaml") if named and resumed else "".join(named[:1])
    if not configs.has_field("mfos", source, "environment"):
        return command.main(COMMAND, arguments)
    use_all_cores()
    return command.main(SAMPLED, arguments)


def _train(config: ShapingConfig, run: RunDirectory, console: Console) -> None:
    report.print_header(console, config)
    summary, files = experiment.train_and_evaluate(config, run, console, started=STARTED)
    report.print_result(console, config, summary, run.path, files)


def _train_sampled(config: SampledConfig, run: RunDirectory, console: Console) -> None:
    sampled_experiment.print_header(console, config)
    summary, files = sampled_experiment.train_and_evaluate(config, run, console, started=STARTED)
    sampled_experiment.print_result(console, config, summary, run.path, files)


COMMAND = command.Command(
    program="python -m marl.mfos",
    description=(__doc__ or "").strip(),
    presets="mfos",
    config=ShapingConfig,
    options=Options,
    name=lambda preset, config: f"{Path(preset).stem}-{config.opponent}-{config.seed}",
    run=_train,
)

SAMPLED = COMMAND._replace(
    config=SampledConfig,
    options=SampledOptions,
    name=lambda preset, config: f"{Path(preset).stem}-{config.shaper}-{config.seed}",
    run=_train_sampled,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
