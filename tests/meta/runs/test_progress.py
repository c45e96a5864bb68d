"""Progress off a terminal and in a notebook, and one estimate of the time for all stages of a command."""

import io
import itertools
import re

import numpy as np
import pytest
from rich.console import Console

from meta.runs import progress
from meta.runs.progress import LINES, Line, Progress, Stages


@pytest.fixture
def clock(monkeypatch):
    """A clock whose seconds a test sets."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=100)


def lines(console):
    return console.file.getvalue().splitlines()


def run(console, clock, generations, seconds_each, stages=None, first=0):
    """A stage whose compilation takes 4 s."""
    with Progress(console, generations, 10, "steps", lambda metrics: "fine", stages=stages) as report:
        clock[0] += 4.0
        for i in range(1, generations - first + 1):
            clock[0] += seconds_each
            report(first + i, {"x": np.float32(1)}, i * seconds_each)


@pytest.mark.parametrize("seconds_each", [0.01, 1.0, 30.0])
def test_a_long_stage_has_few_lines(console, clock, seconds_each):
    run(console, clock, 1000, seconds_each)
    shown = [line for line in lines(console) if line.startswith("generation")]
    assert shown[0].startswith("generation 1/1000")
    assert shown[-1].endswith("0:00 left")
    assert len(shown) <= max(LINES + 2, 1000 * seconds_each / progress.LONGEST_SILENCE + 2)


def test_a_line_is_written_at_least_every_ten_minutes(console, clock):
    line = Line(console)
    for i in range(1, 8):
        clock[0] += 301.0
        line.show(i / 1000, f"{i}")
    assert lines(console) == ["1", "3", "5", "7"]


def test_a_notebook_has_one_line_that_moves(monkeypatch, clock, capsys):
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    run(notebook, clock, 50, 1.0)
    moved = [line for line in capsys.readouterr().out.split("\n") if "generation" in line]
    assert len(moved) == 1
    shown = moved[0].split("\r")[1:]
    assert [line.split("  ")[0] for line in shown] == [f"generation {i}/50" for i in range(1, 51)]
    assert all(len(later) >= len(line.rstrip()) for line, later in itertools.pairwise(shown))  # overwritten
    run(Console(quiet=True, force_jupyter=True), clock, 50, 1.0)
    assert capsys.readouterr().out == ""


def test_the_time_left_is_that_of_all_stages(console, clock):
    """Estimates of 100, 300 and 50 at 2 s for 10, and 4 s to compile each: by hand."""
    stages = Stages(console, {"tuning": 100.0, "search": 300.0, "evaluation": 50.0})
    stages.begin("tuning")
    run(console, clock, 10, 2.0, stages)
    shown = lines(console)
    assert shown[0] == "stage 1 of 3: tuning"
    left = [re.search(r"(\S+) left", line)[1] for line in shown if " left" in line]
    assert left[-1] == "1:18"  # 300 / 5 + 4 and 50 / 5 + 4
    stages.begin("search", "a long search")
    assert lines(console)[-1] == "stage 2 of 3: a long search; about 78 s left in all"
    run(console, clock, 10, 12.0, stages)  # half as fast as the stage before
    # 140 s for 400 units of work, and 4 s to compile.
    assert re.search(r"(\S+) left", lines(console)[-1])[1] == "0:22"
    clock[0] += 30.0
    stages.begin("evaluation")
    assert lines(console)[-1] == "stage 3 of 3: evaluation; about 22 s left in all"
    stages.begin("evaluation")
    assert lines(console)[-1] != lines(console)[-2]


def test_a_stage_that_was_done_before_does_not_change_the_speed(console, clock):
    stages = Stages(console, {"tuning": 100.0, "search": 300.0})
    stages.begin("tuning")
    run(console, clock, 10, 2.0, stages, first=10)
    stages.begin("search")
    assert lines(console)[-1] == "stage 2 of 2: search"
    run(console, clock, 10, 2.0, stages, first=6)  # 4 of 10 generations, in 8 s
    assert lines(console)[-1].endswith("0:00 left")


def test_a_stage_without_reports_counts_by_its_duration(console, clock):
    stages = Stages(console, {"silent messages": 50.0, "random messages": 50.0})
    stages.begin("silent messages")
    clock[0] += 12.0
    stages.begin("random messages")
    assert lines(console)[-1] == "stage 2 of 2: random messages; about 12 s left in all"
