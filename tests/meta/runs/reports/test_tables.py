"""Tables and lines that a command prints, as data."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from meta.runs.reports.tables import keep_tables, read_tables


@pytest.mark.parametrize("quiet", [False, True])
def test_what_is_printed_is_kept_as_it_reads(quiet, tmp_path):
    table = Table("against", "shaper", title="payoffs [bold]per round")
    table.add_row("naive,\nseed 0", "-0.450 ± 0.010")
    table.add_row("[bold]alone")
    console = Console(file=io.StringIO(), quiet=quiet)
    console.print("before")
    with keep_tables(console, tmp_path):
        console.print(table)
        console.print("[3] of <b>", markup=False)
    console.print("after")
    payoffs = {"title": "payoffs per round", "columns": ["against", "shaper"]}
    payoffs["rows"] = [["naive, seed 0", "-0.450 ± 0.010"], ["alone", ""]]
    assert read_tables(tmp_path) == [payoffs, "[3] of <b>"]
    assert (console.file.getvalue() == "") == quiet


def test_nothing_is_written_where_printing_fails(tmp_path):
    with pytest.raises(KeyError), keep_tables(Console(quiet=True), tmp_path):
        raise KeyError
    assert read_tables(tmp_path) == []
    (tmp_path / "tables.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tables.json: got {}; a JSON list is needed"):
        read_tables(tmp_path)
