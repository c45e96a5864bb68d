"""`python -m marl.bound PRESET [options]`: how much could any shaper get, by ascent through an opponent's learning.

PRESET is one of the presets below or the path of a YAML file. The file that is written is what reports call the bound
when it lies in marl/trained/.

From a given initial state the opponent's learning is a differentiable function of the shaper's sequence of policies,
which is ascended with Adam from several starts; the best of them is an estimate, from below, of what the best shaper
could get there. A shaper that reacts is a way to choose such a sequence, so that none gets more than the true bound.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.bound")  # before what takes seconds to import

from marl.experiments.bound import BoundConfig, file_name, find_bound
from marl.experiments.file_command import checked
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.bound",
    description=__doc__ or "",
    config=BoundConfig,
    prepare=checked,
    run=find_bound,
    output=command.ToFile,
    name=lambda preset, config: file_name(config.game, config.opponent),
    presets="bound",
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
