"""The process of a command: what comes before its imports, which take a second, and after everything else."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from meta import interrupt, streams


def begin(program: str) -> None:
    """Begins a command's process: it can be stopped, and it has somewhere to print to."""
    interrupt.leave_on_signals(program)
    streams.open_closed()


def leave(status: int) -> NoReturn:
    """Ends this process with a status.

    An interrupt that passes through the execution of a string, as where a dataclass is made, has Python kill itself by
    SIGINT in the end, even though it was handled: so a process that was stopped leaves at once.
    """
    interrupt.ignore_signals()
    if status == interrupt.STOPPED:
        with contextlib.suppress(OSError):  # a stream that nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
