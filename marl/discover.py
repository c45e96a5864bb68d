"""`python -m marl.discover drift|value_loss ENVIRONMENT [options]`: evolve the objective inside a learner.

drift: what holds PPO's policy back from the one that gathered the data, as in Lu et al., Discovered Policy Optimisation
(2022), arXiv:2210.05639. value_loss: how far a value is from its target. ENVIRONMENT is a game such as CartPole-v1, one
of the presets below, or the path of a YAML file; in a game of several players all have the objective, which is judged
by what they get together. A stopped run goes on with `python -m marl.discover --resume DIR`.

`ppo(objective='DIR')`, or `ppo(value_loss='DIR')`, is a learner with what was found.
"""

from __future__ import annotations

import re
import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.discover")  # before what takes seconds to import

from marl.experiments.discovery.config import DiscoveryConfig, config_of
from marl.experiments.discovery.experiment import Discovery
from meta.runs import command
from meta.runs.experiment import run_and_print

COMMAND = command.Command(
    program="python -m marl.discover",
    description=__doc__ or "",
    config=DiscoveryConfig,
    prepare=Discovery,
    run=run_and_print,
    name=lambda first, config: f"{re.sub(' ', '-', first)}-{config.seed}",
    presets="discover",
    first="kind and environment",
    words=2,
    choice="drift or value_loss, and then a game's name such as CartPole-v1,",
    load=config_of,
    all_cores=True,
    evolves=True,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
