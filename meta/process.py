"""The process of a command: its own, which begins before imports that take a second, or that of another program."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

from meta import interrupt, streams

_LOCK = threading.Lock()
_own = False  # whether this process was started for a command
_borrowers = 0  # commands that run here, in threads of another program
_found: tuple[dict[str, str], dict[str, Any]] = {}, {}  # variables and settings of JAX before the first of them


def begin(program: str) -> None:
    """Begins a command's process: it can be stopped, and it has somewhere to print to."""
    global _own
    _own = True
    interrupt.leave_on_signals(program)
    streams.open_closed()


def is_own() -> bool:
    """True in a process begun for a command, False in another program that calls one."""
    return _own


@contextlib.contextmanager
def borrowed() -> Iterator[None]:
    """Inside, a command runs; if another program has called it, the process is left as it was found.

    Signals, hooks, environment variables and JAX's settings are put back, also after an error. Where commands run in
    several threads, the last one to end puts back what the first one found.
    """
    if _own:
        yield
        return
    with interrupt.put_back(), _settings_put_back():
        yield


@contextlib.contextmanager
def _settings_put_back() -> Iterator[None]:
    global _borrowers, _found
    with _LOCK:
        if not _borrowers:  # a command that does not import JAX changes nothing of it
            _found = dict(os.environ), dict(sys.modules["jax"].config.values) if "jax" in sys.modules else {}
        _borrowers += 1
    try:
        yield
    finally:
        with _LOCK:
            _borrowers -= 1
            if not _borrowers:
                variables, settings = _found
                for name in os.environ.keys() - variables.keys():
                    del os.environ[name]
                os.environ.update({name: x for name, x in variables.items() if os.environ.get(name) != x})
                for name, value in settings.items():
                    config = sys.modules["jax"].config
                    if config.values[name] != value:
                        with contextlib.suppress(RuntimeError):  # such as a number of devices that are in use now
                            config.update(name, value)


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
