"""Tables that a command prints, kept as data."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.table import Table
from rich.text import Text

from meta.atomic_files import write_whole
from meta.runs.reading import read_list

FILE = "tables.json"
OF_EXAMINATION = "examination_tables.json"  # of `attacks.examine`, in the directory of the attack's run


@contextlib.contextmanager
def keep_tables(console: Console, run: Path, name: str = FILE) -> Iterator[None]:
    """Inside, the tables and the lines that a command prints go to a JSON file too, which is written at the end.

    Each entry is a line, or a table as `{"title": ..., "columns": [...], "rows": [[...], ...]}`, all of plain text.

    Args:
      console: where the command prints; it may be quiet.
      run: the run directory.
      name: of the file.
    """
    hook = _Hook()
    console.push_render_hook(hook)
    try:
        yield
    finally:
        console.pop_render_hook()
    write_whole(run / name, (json.dumps(hook.found, indent=1, ensure_ascii=False) + "\n").encode())


def read_tables(run: Path, name: str = FILE) -> list[Any]:
    """The tables and lines that `keep_tables` has written in a run directory; none without the file.

    Args:
      run: the directory.
      name: of the file.

    Raises:
      ValueError: if the file is damaged; one line that names it.
    """
    return read_list(run / name) if (run / name).exists() else []


class _Hook(RenderHook):
    def __init__(self) -> None:
        self.found: list[Any] = []

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        for one in renderables:
            if isinstance(one, Table):
                self.found.append(_data(one))
            elif isinstance(one, Text):
                self.found.append(one.plain)
        return renderables


def _data(table: Table) -> dict[str, Any]:
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return {
        "title": _plain(table.title or ""),
        "columns": [_plain(column.header) for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }


def _plain(cell: Any) -> str:
    text = cell if isinstance(cell, Text) else Text.from_markup(str(cell))
    return text.plain.replace("\n", " ").rstrip()
