"""`python -m marl.export DIR [options]`: a trained policy as a file of C that needs nothing else.

DIR is a run directory of marl.train or marl.distributed, or its learner.safetensors. The file has one function, which
takes an observation and gives the action without exploration. Layers with less than half of their weights, as
`sparsity` leaves them, are kept in compressed rows. Where there is a C compiler, what it does is compared with the
learner, and measured.
"""

from __future__ import annotations

import sys

from meta import process

if __name__ == "__main__":
    process.begin("python -m marl.export")  # before what takes seconds to import

from marl.experiments.export import ExportConfig, checked, export
from meta.runs import command

COMMAND = command.Command(
    program="python -m marl.export",
    description=__doc__ or "",
    config=ExportConfig,
    prepare=checked,
    run=export,
    output=None,
    first="",
)

main = COMMAND.main

if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
