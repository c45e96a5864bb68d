"""`python -m marl.mfos PRESET [options]`: train a shaper and see whom it shapes.

PRESET is one of the presets below or the path of a YAML file: an exact game or, with a field `environment`, a sampled
one. Each kind of game has options of its own; `python -m marl.mfos PRESET --help` shows them. A stopped run goes on
with `python -m marl.mfos --resume DIR`.
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
    from marl.experiments.shaping.experiment import Shaping


def _prepare(config: ShapingConfig) -> Shaping:
    from marl.experiments.shaping.jobs import make_shaping  # here, because --help needs none of it

    if config.is_sampled or config.screening:
        claim_cores()
    return make_shaping(config)


def _train(shaping: Shaping, run: RunDirectory, console: Console) -> None:
    from meta.runs.experiment import run_and_print

    run_and_print(shaping, run, console)


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
