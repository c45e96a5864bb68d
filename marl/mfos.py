"""`python -m marl.mfos PRESET [options]`: train a shaper and see whom it shapes.

PRESET is one of the presets below or the path of a YAML file: a game that is a formula or, where it names an
`environment`, one that is sampled step by step, against learners with networks or tables. A stopped run goes on with
`python -m marl.mfos --resume DIR`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.mfos")  # before what takes seconds to import

from rich.console import Console

from marl.experiments.shaping.config import ShapingConfig
from meta import RunDirectory
from meta.runs import command
from meta.xla.devices import claim_cores

if TYPE_CHECKING:
    from marl.experiments.shaping.game_kind import GameKind


def _prepare(config: ShapingConfig) -> GameKind:
    from marl.experiments.shaping.game_kind import make_kind  # here, for --help needs none of it

    if config.is_sampled or config.screening:
        claim_cores()
    kind = make_kind(config)
    kind.check()
    return kind


def _train(kind: GameKind, run: RunDirectory, console: Console) -> None:
    from marl.experiments.shaping import experiment, printing

    printing.print_header(console, kind)
    printing.say_how_long(console, kind)
    summary, files = experiment.train_and_evaluate(kind, run, console, started=command.STARTED)
    printing.print_result(console, kind, summary, run.path, files)


COMMAND = command.Command(
    program="python -m marl.mfos",
    description=__doc__ or "",
    config=ShapingConfig,
    prepare=_prepare,
    run=_train,
    name=lambda preset, config: f"{preset}-{config.shaper if config.is_sampled else config.opponent}-{config.seed}",
    presets="mfos",
    evolves=True,
)
main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
