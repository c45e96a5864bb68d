"""`python -m attacks.act PRESET [options]`: evolve talk that makes a learner fail, thrive or obey.

PRESET is one of the presets below or the path of a YAML file. A stopped run goes on with
`python -m attacks.act --resume DIR`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STARTED = time.perf_counter()

from rich.console import Console  # noqa: E402

from attacks import experiment  # noqa: E402
from attacks.config import AttackConfig  # noqa: E402
from marl import command  # noqa: E402
from meta import RunDirectory  # noqa: E402
from meta.devices import use_all_cores  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Options(AttackConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show neither progress nor tables."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    use_all_cores()
    return command.main(
        command.Command(
            program="python -m attacks.act",
            description=(__doc__ or "").strip(),
            presets="act",
            config=AttackConfig,
            options=Options,
            name=lambda preset, config: f"{Path(preset).stem}-{config.goal}-{config.seed}",
            run=_run,
        ),
        arguments,
    )


def _run(config: AttackConfig, run: RunDirectory, console: Console) -> None:
    experiment.print_header(console, config)
    summary, files = experiment.attack(config, run, console, started=STARTED)
    experiment.print_result(console, config, summary, run.path, files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
