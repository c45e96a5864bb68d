"""`python -m attacks.act PRESET [options]`: evolve talk that makes a learner fail, thrive or obey.

PRESET is one of the presets below or the path of a YAML file. A stopped run goes on with
`python -m attacks.act --resume DIR`.
"""

from __future__ import annotations

import sys
from functools import partial

from meta import process

if __name__ == "__main__":
    process.begin("python -m attacks.act")  # before what takes seconds to import

from attacks.experiments.config import AttackConfig
from attacks.experiments.preparation import prepare
from meta.runs import command
from meta.runs.experiment import run_and_print

COMMAND = command.Command(
    program="python -m attacks.act",
    description=__doc__ or "",
    config=AttackConfig,
    prepare=prepare,
    prepare_again=partial(prepare, begun=True),
    run=run_and_print,
    name=lambda preset, config: f"{preset}-{config.goal}-{config.seed}",
    presets="act",
    all_cores=True,
    evolves=True,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
