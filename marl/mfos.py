"""`python -m marl.mfos PRESET [options]`: train a shaper and see whom it shapes.

PRESET is one of the presets below or the path of a YAML file. A stopped run goes on with
`python -m marl.mfos --resume DIR`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STARTED = time.perf_counter()

from rich.console import Console  # noqa: E402

from marl import command, report  # noqa: E402
from marl.config import ShapingConfig  # noqa: E402
from marl.experiment import train_and_evaluate  # noqa: E402
from meta import RunDirectory  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Options(ShapingConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show neither progress nor tables."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    return command.main(COMMAND, arguments)


def _train(config: ShapingConfig, run: RunDirectory, console: Console) -> None:
    report.print_header(console, config)
    summary, files = train_and_evaluate(config, run, console, started=STARTED)
    report.print_result(console, config, summary, run.path, files)


COMMAND = command.Command(
    program="python -m marl.mfos",
    description=(__doc__ or "").strip(),
    presets="mfos",
    config=ShapingConfig,
    options=Options,
    name=lambda preset, config: f"{Path(preset).stem}-{config.opponent}-{config.seed}",
    run=_train,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
