"""`python -m marl.mmaml PRESET [options]`: meta-learn where a naive learner begins (M-MAML), and write it to a file.

PRESET is one of the presets below or the path of a YAML file. The file is an opponent: "mmaml(file='...')".
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.mmaml")  # before what takes seconds to import

from marl.experiments.file_command import checked
from marl.experiments.mmaml_training import MetaLearningConfig, meta_learn
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.mmaml",
    description=__doc__ or "",
    config=MetaLearningConfig,
    prepare=checked,
    run=meta_learn,
    output=command.ToFile,
    name=lambda preset, config: f"mmaml-{config.game}.safetensors",
    presets="mmaml",
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
