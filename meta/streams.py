"""Standard streams of a command. Where nobody reads them any more it falls silent, and goes on with what it does."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO


class Forgiving:
    """A text stream that falls silent, once and for good, where it cannot be written to."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes what can be written: of a character that its encoding lacks, a question mark."""
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


def open_closed() -> None:
    """Gives a process that was started without standard streams some that lead nowhere.

    The next file to be opened would get the number of one that is missing, and what XLA's own code prints.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def forgiving() -> Iterator[None]:
    """Inside, what is printed raises nothing. The streams belong to all threads: only the main one changes them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.ExitStack() as stack:
        for stream, redirect in (
            (sys.stdout, contextlib.redirect_stdout),
            (sys.stderr, contextlib.redirect_stderr),
        ):
            mine: Any = Forgiving(stream)
            stack.enter_context(redirect(mine))
            stack.callback(mine.flush)
        yield
