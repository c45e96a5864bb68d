"""Amounts in words, names of runs, and progress off a terminal."""

import io
import re

import numpy as np
import pytest
from hypothesis import given, strategies
from rich.console import Console

from meta.runs.command import directory_name
from meta.runs.formatting import amount, many
from meta.runs.progress import Progress


def test_counts_have_singular_and_plural():
    assert [many(n, "agent") for n in (0, 1, 2, 4096)] == ["0 agents", "1 agent", "2 agents", "4,096 agents"]


def test_amounts_have_units_by_their_size():
    words = {0: "0", 3.21: "3.2", 450.4: "450", 99_999: "99,999", 450_000: "0.45 M", 2_345_678: "2.35 M"}
    words |= {12_345_678: "12.3 M", 1.2e9: "1,200 M"}
    assert {x: amount(x) for x in words} == words


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("ipd-naive(learning_rate=[0.1, 3]) + lola-0", "ipd-naive,learning_rate=0.1,3+lola-0"),
        ("CartPole-v1(max_steps_in_episode=200)-ppo-1", "CartPole-v1,max_steps_in_episode=200-ppo-1"),
        ("ipd-axelrod(name='Win-Stay: D')-0", "ipd-axelrod,name=Win-Stay-D-0"),
        ("ipd-0.9,1,0,1,0-0", "ipd-0.9,1,0,1,0-0"),
        ("ipd-naive()-0", "ipd-naive-0"),
        ("a/../b", "a-..-b"),
        (200 * "é", 100 * "é"),
    ],
)
def test_names_of_runs_are_readable(words, name):
    assert directory_name(words) == name


@pytest.mark.system
@given(strategies.text(max_size=12) | strategies.sampled_from(["aux", "NUL.x", "con-1", "com7", "..", "lpt1."]))
def test_names_of_runs_are_valid_on_windows(words):
    name = directory_name(words)
    assert name
    assert not re.search(r'[<>:"/\\|?*\x00-\x1f]|[. ]$', name)
    assert name.split(".")[0].lower() not in {"con", "prn", "aux", "nul", "com7", "lpt1"}


def show(**options):
    console = Console(file=io.StringIO(), width=100, **options)
    described = lambda metrics: f"return {metrics['x']}"  # noqa: E731
    with Progress(console, 2, 400, "steps", described) as progress:
        before = console.file.getvalue()
        progress(1, {"x": np.float32(1)}, 0.0)
        progress(2, {"x": np.float32(3)}, 2.0)
    return before, console.file.getvalue()


def test_compilation_is_reported_off_a_terminal():
    before, words = show()
    assert before == "compiling\n"
    lines = words.splitlines()
    assert re.fullmatch(r"compiling took 0\.\d s", lines[1])
    assert lines[-1] == "generation 2/2  return 3.0  200 steps/s  0:00 left"
    assert show(quiet=True) == ("", "")
