"""The end of a command: its report, whose libraries are imported there, because the start of a command needs none."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from meta.runs.formatting import say


def print_report(console: Console, path: Path) -> None:
    """Writes the report of a run that has ended, and prints where it is, or why there is none.

    Args:
      console: where to.
      path: the run directory.

    Raises:
      OSError: if the file cannot be written.
    """
    from meta.runs.reports.run_report import write_run_report

    try:
        say(console, f"report: {write_run_report(path)}")
    except ValueError as error:  # of a file that is damaged or missing; the results of the run are there
        say(console, f"report: none is written ({error})")
