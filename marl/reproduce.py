"""`python -m marl.reproduce EXPERIMENT [options]`: are the papers' figures met?

mfos: the matrix games of Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447: learners head to head in
three games, shapers evolved against each of them, meta-self-play. zd: whether a shaper of the prisoner's dilemma plays
zero-determinant extortion. generalists: shapers of one learner and of many against learners that they met in training
and others. shaper: Khan et al., Scaling Opponent Shaping to High Dimensional Games (2023),
arXiv:2312.12568: shapers of learners that sample, in repeated games, the coin game and in the matrix. coin_game: the
learners of the last years, each trained with its kind, then all against all, as in Duque et al., Advantage Alignment
Algorithms (2024), arXiv:2406.14662. discovery: drifts of PPO and distances of values that are evolved, as in Lu et al.,
Discovered Policy Optimisation (2022), arXiv:2210.05639, against PPO that is tuned as long. rlx2:
TD3 with a twelfth of its weights, as in Tan et al., RLx2 (2023), arXiv:2205.15043. sparse: shapers of learners with few
weights. Each says beforehand how long it will take, and writes report.md, report.json and figures. A stopped run goes
on with --resume DIR, and does nothing twice.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.reproduce")  # before what takes seconds to import

from marl.experiments.reproduce.papers import (
    CoinGameConfig,
    DiscoveryClaimsConfig,
    GeneralistsConfig,
    MfosConfig,
    Rlx2Config,
    ShaperConfig,
    SparseConfig,
    ZdConfig,
    checked,
    reproduce,
)
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.reproduce",
    description=__doc__ or "",
    config={
        "mfos": MfosConfig,
        "zd": ZdConfig,
        "generalists": GeneralistsConfig,
        "shaper": ShaperConfig,
        "coin_game": CoinGameConfig,
        "discovery": DiscoveryClaimsConfig,
        "rlx2": Rlx2Config,
        "sparse": SparseConfig,
    },
    prepare=checked,
    run=reproduce,
    name=lambda experiment, config: f"reproduce-{experiment}",
    first="experiment",
    evolves=True,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
