"""`python -m marl.cola PRESET [options]`: train COLA's consistent update functions, and write them to a file.

PRESET is one of the presets below or the path of a YAML file. The file is an opponent: "cola(file='...')".
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.cola")  # before what takes seconds to import

from marl.experiments.cola_training import ConsistencyConfig, make_consistent
from marl.experiments.file_command import checked
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.cola",
    description=__doc__ or "",
    config=ConsistencyConfig,
    prepare=checked,
    run=make_consistent,
    output=command.ToFile,
    name=lambda preset, config: f"cola-{config.game}.safetensors",
    presets="cola",
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
