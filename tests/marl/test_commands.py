"""The console script: one table of all commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from marl.commands import COMMANDS, main, overview

ROOT = Path(__file__).parents[2]


def test_the_table_has_every_module_that_runs_as_a_command():
    files = [file for package in ("marl", "attacks") for file in (ROOT / package).rglob("*.py")]
    commands = [file.relative_to(ROOT).with_suffix("") for file in files if "command.Command(" in file.read_text()]
    modules = {".".join(file.parts).removesuffix(".__main__") for file in commands}
    assert modules | {"games"} == {one.module for one in COMMANDS.values()}


def test_the_list_fits_a_screen():
    lines = overview().splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 100
    assert all(name in overview(one.module.split(".")[0]) for name, one in COMMANDS.items())


def test_an_unknown_command_gets_one_line_and_status_2(capsys):
    assert main(["mfo"]) == 2
    assert capsys.readouterr().err == "marl-shaping: COMMAND: got 'mfo'; did you mean mfos?\n"
    assert main([]) == 0
    assert capsys.readouterr().out.strip() == overview()


@pytest.mark.system
def test_a_command_runs_from_a_directory_with_files_of_the_same_names(tmp_path):
    (tmp_path / "games.py").touch()
    script = "import sys; sys.path.pop(0); from marl.commands import main; sys.exit(main())"
    line = [sys.executable, "-P", "-c", script, "games"]
    found = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert found.returncode == 0, found.stderr
    assert "iterated prisoner's dilemma" in found.stdout
