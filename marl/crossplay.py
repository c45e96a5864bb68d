"""`python -m marl.crossplay PRESET --agents naive,lola,mfos`: everybody against everybody, in both seats.

PRESET is one of the presets below or the path of a YAML file. Who has to be trained is trained, once: named again with
the same --out, or by --resume DIR, a directory keeps its agents and every pair that it has already played, and goes on
with a training that was stopped. A table grows and loses nobody: all agents that it has are named again beside new
ones, and what is played stays the same, but for more pairs.

Agents, with commas between them: any opponent of marl.mfos, such as "lola(learning_rate=0.5)"; the shapers mfos,
good_shepherd and shaper, trained against a naive learner, or against another as in mfos:lola; the file or the run
directory of a trained shaper; all for one of every kind.

With --environment the game is one of two players that is sampled step by step, and the agents are opponents of
marl.mfos there, such as tabular_ppo or "ppo(hidden=[16])", shapers that are trained now, as in shaper:reinforce, and
files or run directories of trained ones.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.crossplay")  # before what takes seconds to import

from marl.experiments.crossplay.config import CrossplayConfig
from marl.experiments.crossplay.experiment import line_up, play_table
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.crossplay",
    description=__doc__ or "",
    config=CrossplayConfig,
    prepare=line_up,
    run=play_table,
    output=command.ToTable,
    name=lambda preset, config: f"crossplay-{preset}-{config.seed}",
    presets="crossplay",
    evolves=True,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
