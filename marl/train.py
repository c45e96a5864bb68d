"""`python -m marl.train ENVIRONMENT [options]`: train a learner alone and see how well it plays.

ENVIRONMENT is a game of one player such as CartPole-v1, with parameters in brackets, one of the presets below, which
are known to learn, or the path of a YAML file. A stopped run goes on with `python -m marl.train --resume DIR`.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.train")  # before what takes seconds to import

from marl.experiments.single_agent import SingleAgent, TrainConfig, choose_devices, config_of
from meta.runs import command
from meta.runs.experiment import run_and_print

COMMAND = command.Command(
    program="python -m marl.train",
    description=__doc__ or "",
    config=TrainConfig,
    prepare=SingleAgent,
    choose_devices=choose_devices,
    run=run_and_print,
    name=lambda first, config: f"{first}-{config.learner_name}-{config.seed}",
    presets="train",
    first="environment",
    choice="a game's name such as CartPole-v1,",
    load=config_of,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
