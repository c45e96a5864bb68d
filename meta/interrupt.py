"""Being stopped by Ctrl-C or by a polite kill, neither of which is lost. For commands; a library leaves signals alone.

A command's process goes through three times. Until it is known what to do, a signal ends it at once: an exception
would be lost in the midst of an import, or show a traceback. While the first file is written, a signal waits. Then it
is an exception, so that a run that is stopped keeps what it has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

STOPPED = 130  # the exit status of whoever was stopped by a signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked, _waits = threading.Event(), threading.Event()


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Inside, signals are a command's; afterwards they do what they did before.

    Only the main thread may handle signals: elsewhere nothing changes.
    """
    if not _may_handle():
        yield
        return
    handlers, hook = {number: signal.getsignal(number) for number in _SIGNALS}, sys.unraisablehook
    _asked.clear()
    try:
        yield
    finally:
        _asked.clear()
        sys.unraisablehook = hook
        for number, handler in handlers.items():
            # None stands for a handler that was not installed by Python, which cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def leave_on_signals(program: str) -> None:
    """From now on a signal ends this process at once, with one line."""

    def stop(number: int, frame: Any) -> None:
        with contextlib.suppress(OSError):  # nobody reads it
            os.write(2, f"{program}: stopped; nothing was written\n".encode())
        os._exit(STOPPED)

    _handle(stop)


def delay_signals() -> None:
    """From now on a signal waits for `stop_on_signals`."""
    _handle(lambda number, frame: _asked.set())


def stop_on_signals() -> None:
    """From now on a signal raises KeyboardInterrupt; at once, where one has waited."""

    def stop(number: int, frame: Any) -> None:
        _asked.set()
        if not _waits.is_set():
            raise KeyboardInterrupt

    _handle(stop)
    if _may_handle():
        sys.unraisablehook = _say_nothing_of_stops
    check_stop()


@contextlib.contextmanager
def uninterrupted(*, check: bool = True) -> Iterator[None]:
    """Inside, a signal waits for the end, in a command; for what may not be left half done. It is not nested.

    Args:
      check: whether it is raised at the end, and not by the next `check_stop`.
    """
    _waits.set()
    try:
        yield
    finally:
        _waits.clear()
    if check:
        check_stop()


@contextlib.contextmanager
def recognised() -> Iterator[None]:
    """Inside, an interrupt is one again, whatever error a library has made of it."""
    try:
        yield
    except Exception:
        check_stop()
        raise


def check_stop() -> None:
    """Raises what a signal has raised before, for Python drops an exception from the midst of an object's removal.

    Raises:
      KeyboardInterrupt: if this process was asked to stop.
    """
    if _asked.is_set():
        raise KeyboardInterrupt


def ignore_signals() -> None:
    """From now on a signal changes nothing: all is done."""
    _handle(signal.SIG_IGN)


def _say_nothing_of_stops(dropped: Any) -> None:
    """Python shows the traceback of an exception that it drops; that of a stop is none of the user's business."""
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)


def _handle(handler: Callable[[int, Any], None] | signal.Handlers) -> None:
    if _may_handle():
        for number in _SIGNALS:
            signal.signal(number, handler)


def _may_handle() -> bool:
    return threading.current_thread() is threading.main_thread()
