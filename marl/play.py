"""`python -m marl.play PRESET AGENT`, or `python -m marl.play DIR`: play against an agent, as its opponents see it.

PRESET is one of the presets below or the path of a YAML file. AGENT is the file or the run directory of a trained
shaper, or any opponent's name, such as tft or "lola(learning_rate=0.5)". DIR, a run directory or an agent's file, is
both: the game is that of the training.

You sit where the learner sits that a shaper is trained against: the agent is the row player, you are the column. In
every round the agent draws its action from a policy of memory one: probabilities of C (the first action) at the start
and after each joint action, its own action first. You choose c or d, or q to stop.

Such agents answer a policy and not an action. Yours is not known, and so it is estimated after every round by how
often you have played C in each situation, (C + 1) / (rounds + 2); it is a half where you have not been yet. With this
estimate the agent takes its next step: a shaper is asked for its next policy, and a learner learns once. Before the
first round there is one such step with nothing known.

With --environment, or where DIR was trained in one, the game is sampled: you sit in the second seat of a game of two
players, choose the number of an action in every step, and see the board. The agent acts on what it sees, and learns
after every --episode-length steps.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.play")  # before what takes seconds to import

from marl.experiments.play import PRESETS, PlayConfig, load_match, make_match, play_match
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.play",
    description=__doc__ or "",
    config=PlayConfig,
    prepare=make_match,
    run=play_match,
    output=None,
    presets=PRESETS,
    choice="a run directory,",
    load=load_match,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
