"""`python -m tests.fault_injection.commands [--lines 500] [--seed 0]`: bad command lines, which have to be refused.

Lines are drawn for all commands and all fields of their configs. Each has to end with status 2, within half a
minute, after one line on stderr alone. The line names the field, shows its value in 200 characters at most and says
what is allowed; and nothing may have been written. Most run in forks of one process, so that an abort or a hang is seen
and Python need not start again; one of `REAL` runs as a process of its own. Prints a table and the failures; the
status is 1 if there are any.

A fork may hang on locks that other threads held when it was made; such a line is tried again as a process.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import configs
from marl.commands import describe
from tests.fault_injection import lines, texts
from tests.fault_injection.lines import FIRST, Line

SECONDS = 30.0  # of processor time, because other processes may use it too
PATIENCE = 60.0, 240.0  # after which a fork and a process are stopped
REAL = 25  # one line of so many
TOO_LONG = "too long"
AT_ONCE = os.cpu_count() or 1
ALLOWED = ("needed", "did you mean", "has no effect", "--help", "takes", "has ", "already", "cannot be")


class Ended(NamedTuple):
    """The end of a command line."""

    status: int | str  # or the signal that killed it
    out: str
    error: str
    written: list[str]
    seconds: float


def draw(seed: int, number: int) -> list[Line]:
    """This number of bad lines, all kinds of them in turn for random commands."""
    draws = random.Random(seed)
    kinds = (lines.KINDS | texts.KINDS).items()
    found: list[Line] = []
    for kind, make in itertools.cycle(kinds):
        if len(found) == number:
            return found
        # Not every command has lines of every kind.
        line = next(filter(None, (make(draws, draws.choice(list(FIRST))) for _ in itertools.count())))
        found.append(line._replace(kind=kind))
    raise AssertionError("there is always another one")


def faults(line: Line, ended: Ended) -> list[str]:
    """Faults in the refusal of a bad line; empty if there are none."""
    message, found = ended.error, []
    if ended.status != 2:
        found.append(f"status {ended.status}")
    if ended.seconds > SECONDS:
        found.append(f"{ended.seconds:.0f} s")
    if message.count("\n") != 1 or not message.endswith("\n"):
        found.append(f"{message.count(chr(10))} lines")
    if "Traceback" in message or ended.out:
        found.append("a traceback, or an output")
    if not message.startswith(f"python -m {line.module}: "):
        found.append("does not begin with the command")
    names = (*line.names, *["argument"] * any("\0" in word for word in line.arguments))
    if not any(name in message for name in names):
        found.append(f"names none of {', '.join(name[:30] for name in line.names)}")
    if not any(word in message for word in ALLOWED):
        found.append("does not say what is allowed")
    if len(message) > 2000 or any(len(word) > configs.LONGEST + 20 for word in message.split()):
        found.append(f"a value at length, {len(message)} characters")
    if ended.written:
        found.append(f"wrote {', '.join(ended.written)}")
    return found


def prepare(line: Line, folder: Path) -> list[Path]:
    """Makes the files that a line finds; returns all paths in the folder."""
    for name, contents in line.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)
    return written(folder)


def written(folder: Path) -> list[Path]:
    """All paths in a folder."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


class Running(NamedTuple):
    """A line that runs in a fork."""

    line: Line
    process: int
    folder: Path
    before: list[Path]
    began: float


def start(line: Line, folder: Path) -> Running:
    """Runs a line in a fork, in a directory of its own."""
    work = folder / "work"
    work.mkdir(parents=True)
    before = prepare(line, work)
    process = os.fork()
    if process:
        return Running(line, process, folder, before, time.monotonic())
    try:
        os.chdir(work)
        for number, name in ((1, "out"), (2, "error")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
        try:
            status = main_of(line)
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    finally:
        os._exit(99)


def main_of(line: Line) -> int:
    """Runs the command of a line in this process; returns its exit status."""
    module = "games.__main__" if line.module == "games" else line.module
    status: int = importlib.import_module(module).main(list(line.arguments))
    return status


def end(running: Running) -> Ended | None:
    """The end of a fork; None if it still runs. A fork that runs for too long is killed."""
    too_long = time.monotonic() - running.began > PATIENCE[0]
    if too_long:
        os.kill(running.process, signal.SIGKILL)
    process, code, used = os.wait4(running.process, 0 if too_long else os.WNOHANG)
    if not process:
        return None
    out, error = ((running.folder / name).read_text(errors="replace") for name in ("out", "error"))
    status = os.waitstatus_to_exitcode(code)
    new = sorted(set(written(running.folder / "work")) ^ set(running.before))
    how = TOO_LONG if too_long else status if status >= 0 else f"signal {-status}"
    return Ended(how, out, error, list(map(str, new)), used.ru_utime + used.ru_stime)


def in_forks(lines: Sequence[Line], folder: Path) -> Iterator[tuple[Line, Ended]]:
    """Runs lines in forks, some at once."""
    running: list[Running] = []
    left = list(enumerate(lines))
    while left or running:
        while left and len(running) < AT_ONCE:
            number, line = left.pop(0)
            running.append(start(line, folder / str(number)))
        for one in list(running):
            if ended := end(one):
                running.remove(one)
                again = as_processes([one.line], one.folder) if ended.status == TOO_LONG else [(one.line, ended)]
                yield from again
        time.sleep(0.005)


def as_processes(lines: Sequence[Line], folder: Path) -> Iterator[tuple[Line, Ended]]:
    """Runs lines as a user does, each in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    for number, line in enumerate(lines):
        work = folder / f"process-{number}"
        work.mkdir()
        before, began = prepare(line, work), os.times()
        called = [sys.executable, "-m", line.module, *line.arguments]
        try:
            done = subprocess.run(
                called, cwd=work, env=environment, capture_output=True, text=True, timeout=PATIENCE[1]
            )
            status: int | str = done.returncode
            out, error = done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            status, out, error = TOO_LONG, "", ""
        new, now = sorted(set(written(work)) ^ set(before)), os.times()
        used = now.children_user + now.children_system - began.children_user - began.children_system
        yield line, Ended(status, out, error, list(map(str, new)), used)


def main(arguments: Sequence[str]) -> int:
    """Runs the script; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--seed", type=int, default=0, help="of the lines (default 0)")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message=".*fork.*")
    drawn = draw(options.seed, options.lines)
    for module in FIRST:
        describe(module)  # imports it once, for all forks
    # No process is handed a NUL.
    numbers = {i for i, line in enumerate(drawn) if i % REAL == 0 and "\0" not in "".join(line.arguments)}
    real, forked = ([line for i, line in enumerate(drawn) if (i in numbers) is wanted] for wanted in (True, False))
    tried, failed, slowest = Counter[str](), Counter[str](), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for runs in (in_forks(forked, Path(folder)), as_processes(real, Path(folder))):
            for line, ended in runs:
                tried[line.kind] += 1
                slowest = max(slowest, ended.seconds)
                if found := faults(line, ended):
                    failed[line.kind] += 1
                    shown = [configs.shown(word) for word in line.arguments]
                    print(
                        f"{line.module} {' '.join(shown)}\n  {'; '.join(found)}\n  {ended.error[-600:]!r}", flush=True
                    )
    table = Table("kind", "lines", "failed", box=None)
    for kind, count in tried.items():
        table.add_row(kind, str(count), str(failed[kind]))
    Console().print(table)
    total, wrong = tried.total(), failed.total()
    how = f"{len(real)} of them processes of their own; the slowest took {slowest:.1f} s"
    print(f"{total - wrong} of {total} were refused as they should be, {how}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
