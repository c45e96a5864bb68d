"""`python -m attacks.reproduce act [options]`: the claims of Adversarial Cheap Talk, and whether they hold.

An adversary and an ally are evolved in each environment, and a puppeteer where there are goals; then fresh victims show
what came of it, learners on which nothing was evolved, and victims that defend themselves. Says beforehand how long it
will take, and writes report.md, report.json and figures. A stopped run goes on with --resume DIR, and does nothing
twice.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m attacks.reproduce")  # before what takes seconds to import

from attacks.experiments.reproduction import ReproduceConfig, checked, reproduce
from meta.runs import command

COMMAND = command.Command(
    program="python -m attacks.reproduce",
    description=__doc__ or "",
    config=ReproduceConfig,
    run=reproduce,
    prepare=checked,
    name=lambda experiment, config: f"reproduce-{experiment}",
    presets="reproduce",
    first="experiment",
    all_cores=True,
    evolves=True,
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
