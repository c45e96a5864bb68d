"""The process of a command: its start, its signals, its standard streams and its exit.

A signal is Ctrl-C or a polite kill. From `begin` on it ends the process at once, because an exception would be lost in
the midst of an import, or show a traceback. From `delay_signals` on it waits, while the first file is written. From
`stop_on_signals` on it raises KeyboardInterrupt, so that a stopped run keeps what it has. From `ignore_signals` on it
changes nothing. Only the main thread may handle signals: in other threads none of these does anything.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

STOPPED = 130  # the exit status after a signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked, _waits = threading.Event(), threading.Event()
_own = False  # whether this process was started for a command
_words = ""  # that started it, where they are not those of the command's module
_STARTED = time.perf_counter()
_began: contextvars.ContextVar[float | None] = contextvars.ContextVar("began", default=None)  # in another program
_LOCK = threading.Lock()
_borrowers = 0  # commands that run here, in threads of another program
_found: tuple[dict[str, str], dict[str, Any]] = {}, {}  # variables and settings of JAX before the first of them


def start_as(program: str) -> None:
    """Sets the words that messages call the command by, where it was not started as a module."""
    global _words
    _words = program


def called(program: str) -> str:
    """The words that started this process, or `program`, a command's module, if it was started as such.

    Words of `program` after its module, such as `verify` of `python -m marl.bench verify`, stay behind them.
    """
    return " ".join([_words, *program.split()[3:]]) if _words else program


def begin(program: str) -> None:
    """Begins a command's process, before imports that take a second: a signal ends it with one line.

    A process that was started without standard streams gets some that lead nowhere: the next file to be opened would
    have the number of the missing one, and receive what XLA's own code prints.
    """
    global _own
    program = called(program)

    def stop(number: int, frame: Any) -> None:
        with contextlib.suppress(OSError):  # a stream without a reader
            os.write(2, f"{program}: stopped; nothing was written\n".encode())
        os._exit(STOPPED)

    _own = True
    _handle(stop)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def is_own() -> bool:
    """True in a process begun for a command, False in another program that calls one."""
    return _own


def began() -> float:
    """The time by `time.perf_counter` at which the running command began, after what Python had to import before."""
    return _began.get() or _STARTED


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Inside, a command runs, and printing raises nothing; the process of another program is left as it was found.

    Signals, hooks, environment variables and JAX's settings are put back, also after an error. Where commands run in
    several threads, the last one to end puts back what the first one found. The streams belong to all threads: only
    the main one changes them.
    """
    with contextlib.ExitStack() as stack:
        if not _own:
            stack.callback(_began.reset, _began.set(time.perf_counter()))
            if _in_main_thread():
                stack.enter_context(_signals_put_back())
            stack.enter_context(_settings_put_back())
        if _in_main_thread():
            stack.enter_context(forgiving_streams())
        yield


def leave(status: int) -> NoReturn:
    """Ends this process with a status.

    Python remembers an interrupt that has passed through the execution of a string, as where a dataclass is made, and
    kills itself by SIGINT in the end, even if it was handled: a stopped process therefore leaves at once.
    """
    ignore_signals()
    if status == STOPPED:
        with contextlib.suppress(OSError):  # a stream without a reader
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def delay_signals() -> None:
    """From now on a signal waits for `stop_on_signals`."""
    _handle(lambda number, frame: _asked.set())


def stop_on_signals() -> None:
    """From now on a signal raises KeyboardInterrupt; at once, where one has waited."""

    def stop(number: int, frame: Any) -> None:
        _asked.set()
        if not _waits.is_set():
            raise KeyboardInterrupt

    def hook(dropped: Any) -> None:
        """Shows the traceback of an exception that Python drops, but for a stop, which `check_stop` raises again."""
        if dropped.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(dropped)

    if _handle(stop):
        sys.unraisablehook = hook
    check_stop()


def ignore_signals() -> None:
    """From now on a signal changes nothing: all is done."""
    _handle(signal.SIG_IGN)


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
    """Raises what a signal has raised before, because Python drops an exception during an object's removal.

    Raises:
      KeyboardInterrupt: if this process was asked to stop.
    """
    if _asked.is_set():
        raise KeyboardInterrupt


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(handler: Callable[[int, Any], None] | signal.Handlers) -> bool:
    """Installs a handler of signals, if this thread may; returns whether it may."""
    if may := _in_main_thread():
        for number in _SIGNALS:
            signal.signal(number, handler)
    return may


@contextlib.contextmanager
def _signals_put_back() -> Iterator[None]:
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


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Inside, output that cannot be written is dropped, such as that to a pipe without a reader."""
    with contextlib.ExitStack() as stack:
        for stream, redirect in ((sys.stdout, contextlib.redirect_stdout), (sys.stderr, contextlib.redirect_stderr)):
            forgiving: Any = _Forgiving(stream)
            stack.enter_context(redirect(forgiving))
            stack.callback(forgiving.flush)
        yield


class _Forgiving:
    """A text stream that falls silent, once and for good, where it cannot be written to."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text, with a question mark for a character that the encoding lacks."""
        try:
            self._try(self._stream.write, text)
        except UnicodeEncodeError:
            self._try(self._stream.write, text.encode(self._stream.encoding, "replace").decode(self._stream.encoding))
        return len(text)

    def flush(self) -> None:
        """Hands on what was written."""
        self._try(self._stream.flush)

    def _try(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(*arguments)
        except UnicodeEncodeError:
            raise
        except (OSError, ValueError):  # a full disk or a pipe without a reader; a closed stream
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
            with contextlib.suppress(OSError, ValueError):  # what is still in its buffer goes there too
                os.dup2(nowhere.fileno(), self._stream.fileno())
            self._stream = nowhere
