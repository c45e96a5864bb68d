"""The console script: one table of all commands."""

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from marl.commands import COMMANDS, main, overview
from tests.nightly import grid, nightly

ROOT = Path(__file__).parents[2]


def test_the_table_has_every_command_that_is_described():
    described = {
        f"{module.split('.')[0]}.{name}"
        for module in ("marl.commands.descriptions", "attacks.commands")
        for name, made in vars(importlib.import_module(module)).items()
        if inspect.isfunction(made) and made.__module__ == module
    }
    own = {"games", "marl.sweep", "marl.bench"}  # of a kind of their own
    assert described | own == {one.module for one in COMMANDS.values()}


@pytest.mark.parametrize("module", sorted({one.module for one in COMMANDS.values()} - {"games"}))
def test_the_module_of_a_command_runs_it(module):
    package = importlib.util.find_spec(module).submodule_search_locations
    assert importlib.import_module(f"{module}.__main__" if package else module).main.args == (module,)


def test_the_list_fits_a_screen():
    lines = overview().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert all(name in overview(one.module.split(".")[0]) for name, one in COMMANDS.items())


def test_an_unknown_command_gets_one_line_and_status_2(capsys):
    assert main(["mfo"]) == 2
    assert capsys.readouterr().err == "marl-shaping: COMMAND: got 'mfo'; did you mean mfos?\n"
    assert main([]) == 0
    assert capsys.readouterr().out.strip() == overview()


@pytest.mark.system
@pytest.mark.parametrize("program", grid(("marl-shaping", "python -m marl"), "marl-shaping"))
def test_a_command_runs_with_the_status_of_its_module(program, environment, tmp_path):
    """The console script is installed beside Python and ignores files of the current directory."""
    folder = Path(sys.executable).parent
    line = [str(folder / program)] if program == "marl-shaping" else [sys.executable, "-m", "marl"]
    if program == "marl-shaping":
        (tmp_path / "games.py").touch()
    for arguments, status in ((["games"], 0), (["games", "nothing"], 2)):
        found = subprocess.run(
            [*line, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert found.returncode == status, found.stderr
        assert ("iterated prisoner's dilemma" in found.stdout) == (status == 0)
        assert len(found.stderr.splitlines()) == (status == 2)


@pytest.mark.system
def test_the_usage_of_a_second_word_names_it(environment, tmp_path):
    line = [str(Path(sys.executable).parent / "marl-shaping"), "bench", "verify", "--help"]
    found = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert found.stdout.startswith("usage: marl-shaping bench verify FILE ")


@nightly
@pytest.mark.parametrize("words", ["marl-shaping mfos", "python -m marl mfos", "python -m marl.mfos"])
def test_messages_name_a_command_as_it_was_called(words, environment, tmp_path):
    first, *rest = words.split()
    folder = Path(sys.executable).parent
    line = [str(folder / first) if first == "marl-shaping" else sys.executable, *rest]

    def run(*arguments):
        return subprocess.run([*line, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert run("nowhere").stderr.startswith(f"{words}: preset: got 'nowhere'")
    assert run("ipd", "--help").stdout.startswith(f"usage: {words} ipd ")
    small = (
        "--evolution.generations=2",
        "--evolution.population-size=4",
        "--trials=2",
        "--meta-steps=2",
        "--discount=0",
        "--quiet",
    )
    done = run("ipd", *small, "--evaluation-trials=4", "--hidden-units=2", "--out=run")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run/config.yaml").read_text().startswith("# python -m marl.mfos ipd ")
    assert run("--resume", "run", "--evolution.generations=3", "--quiet").returncode == 0


def test_the_list_ends_quietly_on_a_closed_pipe():
    """`marl-shaping | head -1` closes the pipe early."""
    line = f"{sys.executable} -m marl | head -1"
    shown = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (shown.returncode, shown.stderr) == (0, "")
