"""`python -m attacks.examine DIR [options]`: does an attack work on other learners, and what helps against it?

DIR is a finished run of `python -m attacks.act` with the goal harm or help. Victims of other algorithms, sizes and
learning rates, on which nothing was evolved, and victims that defend themselves learn under its messages and in
silence. Writes examination.json and figures/transfer.png and figures/defences.png there. What was found before it was
stopped is kept: called again, it goes on.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m attacks.examine")  # before what takes seconds to import

from attacks.experiments.transfer import ExaminationConfig, checked, examine_and_show
from meta.runs import command

COMMAND = command.Command(
    program="python -m attacks.examine",
    description=__doc__ or "",
    config=ExaminationConfig,
    prepare=checked,
    run=examine_and_show,
    output=command.Quiet,
    first="",
    all_cores=True,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
