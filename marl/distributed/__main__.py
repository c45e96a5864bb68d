"""`python -m marl.distributed ENVIRONMENT [options]`: train learners by actors, in environments of other libraries.

ENVIRONMENT is one of Gymnasium's such as CartPole-v1 or ALE/Pong-v5, one of PettingZoo's such as pistonball_v6, one of
our own games, one of the presets below, each a system of the literature, or the path of a YAML file. envpool(NAME) and
games(NAME) choose a library where several have it. A stopped run goes on with
`python -m marl.distributed --resume DIR`.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.distributed")  # before what takes seconds to import

from marl.distributed.config import DistributedConfig, choose_devices, config_of
from marl.distributed.experiment import DistributedExperiment
from meta.runs import command
from meta.runs.experiment import run_and_print

COMMAND = command.Command(
    program="python -m marl.distributed",
    description=__doc__ or "",
    config=DistributedConfig,
    prepare=DistributedExperiment,
    choose_devices=choose_devices,
    connects=("address",),
    run=run_and_print,
    name=lambda first, config: f"{first}-{config.learner_name}-{config.seed}",
    presets="distributed",
    first="environment",
    choice="an environment's name such as CartPole-v1,",
    load=config_of,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
