"""Processes that are stopped, at any time, and whose output has no reader: one line, a status, and no traceback."""

import asyncio
import dataclasses
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import weakref

import jax
import pytest

import configs
from meta import process
from meta.runs.command import Command
from meta.runs.execution import execute
from tests.conftest import process_state
from tests.nightly import grid, nightly

pytestmark = pytest.mark.system

STOPS = {  # command: (module at whose import it is stopped, signal)
    "marl.mfos": ("numpy", signal.SIGINT),
    "marl.train": ("jax._src.core", signal.SIGINT),
    "marl.play": ("jax", signal.SIGTERM),
    "marl.crossplay": ("jax._src.config", signal.SIGINT),
    "marl.bound": ("numpy", signal.SIGTERM),
    "marl.reproduce": ("jax._src.config", signal.SIGINT),
    "marl.cola": ("numpy", signal.SIGTERM),
    "marl.meva": ("numpy", signal.SIGTERM),
    "marl.mmaml": ("numpy", signal.SIGINT),
    "marl.report": ("numpy", signal.SIGTERM),
    "marl.compare": ("yaml", signal.SIGINT),
    "marl.sweep": ("numpy", signal.SIGTERM),
    "attacks.act": ("jax", signal.SIGINT),
    "attacks.examine": ("jax._src.config", signal.SIGTERM),
    "attacks.reproduce": ("numpy", signal.SIGINT),
    "games": ("yaml", signal.SIGTERM),
}


STOPPED = """
import os, sys

class Stopper:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(Stopper)
            os.kill(os.getpid(), {signal})

sys.meta_path.insert(0, Stopper)
"""


@pytest.mark.parametrize("module", grid(STOPS, "marl.mfos", "marl.train", "marl.sweep", "attacks.act", "games"))
def test_a_stop_during_imports_is_one_line(module, tmp_path):
    moment, how = STOPS[module]
    (tmp_path / "sitecustomize.py").write_text(STOPPED.format(module=moment, signal=int(how)))
    places = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    line = [sys.executable, "-m", module, "--help"]
    found = subprocess.run(line, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True)
    said = f"python -m {module}: stopped; nothing was written\n"
    assert (found.returncode, found.stdout, found.stderr) == (130, "", said)


INTERRUPTED = """
import os, signal, sys
from meta import process
process.begin("toy")
process.stop_on_signals()
try:
    exec("os.kill(os.getpid(), signal.SIGINT)")
except KeyboardInterrupt:
    print("handled")
"""


@pytest.mark.parametrize(("end", "status"), [("sys.exit(130)", -signal.SIGINT), ("process.leave(130)", 130)])
def test_an_interrupt_handled_within_a_string_does_not_kill_at_exit(end, status, tmp_path):
    """Python remembers the handled interrupt and kills itself at exit."""
    (tmp_path / "toy.py").write_text(INTERRUPTED + end)
    line = [sys.executable, "-m", "toy"]
    found = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (status, "handled\n", "")


TIMES = """
import os, signal, sys
from meta import process
process.begin("toy")
process.delay_signals()
os.kill(os.getpid(), signal.SIGTERM)
print("still here")
try:
    process.stop_on_signals()
except KeyboardInterrupt:
    print("raised")
try:
    with process.recognised():
        raise OSError("what a library makes of an interrupt")
except KeyboardInterrupt:
    print("recognised")
sys.stdout.flush()
process.begin("toy")
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_signal_waits_while_the_first_file_is_written():
    found = subprocess.run([sys.executable, "-c", TIMES], capture_output=True, text=True)
    said = "still here\nraised\nrecognised\n"
    assert (found.returncode, found.stdout) == (130, said)
    assert found.stderr == "toy: stopped; nothing was written\n"


def test_a_stop_in_a_finalizer_is_not_lost_and_prints_nothing(monkeypatch, capsys):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    class Thing:
        pass

    thing = Thing()
    finalizer = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # undone after the test
    try:
        process.check_stop()  # no stop was requested yet
        process.stop_on_signals()
        del thing  # Python would print the exception here, drop it and go on
        with pytest.raises(KeyboardInterrupt):
            process.check_stop()
        assert capsys.readouterr().err == ""
        other = Thing()
        weakref.finalize(other, lambda: 1 // 0)
        del other
        assert "ZeroDivisionError" in capsys.readouterr().err
    finally:
        process._asked.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert finalizer() is None


def test_uninterrupted_work_is_finished_before_the_stop(monkeypatch):
    handlers, done = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}, []
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)

    def asked_meanwhile(word, **how):
        with process.uninterrupted(**how):
            os.kill(os.getpid(), signal.SIGTERM)
            done.append(word)

    try:
        process.stop_on_signals()
        with process.uninterrupted():
            done.append("first")
        with pytest.raises(KeyboardInterrupt):
            asked_meanwhile("second")
        process._asked.clear()
        asked_meanwhile("third", check=False)
        with pytest.raises(KeyboardInterrupt):
            process.check_stop()
        process._asked.clear()
        with pytest.raises(KeyboardInterrupt):  # outside it stops at once
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        process._asked.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert done == ["first", "second", "third"]


@pytest.fixture
def shell(tmp_path, environment):
    def run(line, **variables):
        """A line of bash, where $python is this one: (statuses of the piped commands, stdout, stderr)."""
        line += "; echo ${PIPESTATUS[@]} >statuses"
        environ = environment | {"python": sys.executable} | variables
        found = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environ, capture_output=True, text=True)
        return (tmp_path / "statuses").read_text().split(), found.stdout, found.stderr

    return run


@nightly
def test_help_and_version_end_quietly_on_closed_streams(shell):
    assert shell("$python -m marl.cola --help >&-") == (["0"], "", "")
    assert shell("$python -m games --bad 2>&-") == (["2"], "", "")
    assert shell("$python -m marl.bound --version >&- 2>&-") == (["0"], "", "")
    statuses, out, error = shell("$python -m marl.cola --help | head -1")
    assert (statuses, error) == (["0", "0"], "")
    assert re.fullmatch("usage: python -m marl.cola .*\n", out)


def test_a_command_called_from_python_began_with_its_call():
    before = process.began()
    with process.running():
        assert process.began() > before
    assert process.began() == before


HELP = """
import contextlib, sys
import attacks.act
from marl.mfos import main
with contextlib.suppress(SystemExit):
    main(["--help"])
unneeded = {"evosax", "flax", "optax", "gymnax", "gymnasium", "matplotlib", "orbax", "ray", "meta.cluster.on_ray"}
found = unneeded & sys.modules.keys()
assert not found, found
"""


def test_help_imports_no_library_that_it_does_not_need():
    found = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert "--evolution.population-size" in found.stdout


TOY = """
import dataclasses, sys
from meta import process
process.begin("toy")
from configs import CommandConfig
from meta.runs.command import Command
from meta.runs.execution import execute

@dataclasses.dataclass(frozen=True)
class Config(CommandConfig):
    words: str = "done"

def run(config, directory, console):
    for _ in range(1000):  # until the reader has gone
        console.print(config.words)
    print(config.words, "flush", flush=True)
    directory.write("summary.json", config.words)

toy = Command(program="toy", description="Plays.", config={"ball": Config}, run=run, first="toy")
process.leave(execute(toy, sys.argv[1:]))
"""


@pytest.mark.parametrize("end", ["| head -1", ">/dev/full 2>&1", ">&- 2>&-"])
def test_a_run_with_closed_streams_goes_on_to_its_end(shell, tmp_path, end):
    (tmp_path / "toy.py").write_text(TOY)
    statuses, out, error = shell(f"$python toy.py ball --out run {end}")
    assert (set(statuses), out, error) == ({"0"}, "done\n" * ("head" in end), "")
    assert (tmp_path / "run" / "config.yaml").read_text() == "# toy ball --out run\nwords: done\n"
    assert (tmp_path / "run" / "summary.json").read_text() == "done"


STREAM = """
import sys
from rich.console import Console
from meta import process
with process.running():
    Console(width=20).print("[bold]mean ± error")
    print("plain ±")
"""


def test_characters_that_a_terminal_cannot_write_are_question_marks(environment):
    ascii = environment | {"PYTHONIOENCODING": "ascii"}
    found = subprocess.run([sys.executable, "-c", STREAM], env=ascii, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "mean ? error\nplain ?\n", "")


@dataclasses.dataclass(frozen=True)
class Toy(configs.CommandConfig):
    """A command's config."""

    how: str = "done"


def play(config, run, console):
    """Changes all state that a command may change, and ends as in its config."""
    os.environ["TOY"], os.environ["HOME"] = "1", "/toy"
    jax.config.update("jax_disable_most_optimizations", True)
    if config.how == "stopped":
        os.kill(os.getpid(), signal.SIGINT)
    if config.how == "failed":
        raise OSError("no space")


TOYS = Command(program="toy", description="Plays.", config={"ball": Toy}, run=play, first="toy")


@pytest.mark.parametrize(("how", "status"), [("done", 0), ("failed", 1), ("stopped", 130)])
def test_a_command_restores_the_process_of_another_program(how, status, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = process_state()
    for _ in range(2):  # a stop ends with its command
        assert execute(TOYS, ["ball", "--how", how]) == status
        assert process_state() == before
        assert execute(TOYS, ["ball", "--how", "done"]) == 0
    assert capsys.readouterr().err.count("go on with toy --resume") == 2 * (how != "done")


def test_commands_in_threads_restore_the_process_after_the_last_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, both, statuses = process_state(), threading.Barrier(2), []
    meeting = TOYS._replace(run=lambda *arguments: (both.wait(60), play(*arguments), both.wait(60)))
    threads = [threading.Thread(target=lambda: statuses.append(execute(meeting, ["ball"]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (statuses, process_state()) == ([0, 0], before)


def test_a_whole_command_runs_in_a_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--evolution.generations=2", "--evolution.population-size=2", "--trials=1", "--evaluation-trials=2"]
    line = ["ipd", *tiny, "--discount=0", "--meta-steps=2", "--hidden-units=2", "--quiet", "--out=run"]
    assert asyncio.run(asyncio.to_thread(importlib.import_module("marl.mfos").main, line)) == 0
    assert (tmp_path / "run" / "summary.json").is_file()


def test_the_list_of_games_leaves_the_process_as_it_was(within, tmp_path):
    assert within("ipd", "--steps=2", cwd=tmp_path, module="games.__main__").returncode == 0
