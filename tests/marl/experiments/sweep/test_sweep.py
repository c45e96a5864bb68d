"""The command of sweeps: through real processes, killed and resumed, and where it refuses."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from marl.commands import sweep
from marl.commands.sweep import PROGRAM, main
from marl.experiments.sweep import clusters, plan
from marl.experiments.sweep.tasks import TOGETHER, Ended, Task, run_task
from meta import RunDirectory
from meta.runs.formatting import duration
from tests.nightly import nightly

TINY = (
    "--evolution.population_size 8 --meta_steps 4 --trials 2 --hidden_units 4 --evaluation_trials 4 --start random"
    " --evolution.checkpoint_seconds 0 --discount 0"
)
SLOW = "--evolution.generations 1500"


def start(*arguments):
    line = [sys.executable, "-m", "marl.sweep", *arguments]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def descendants(number):
    """The numbers of the processes that a process has begun."""
    found = []
    for task in Path(f"/proc/{number}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def rows_in(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_sweep_that_is_killed_goes_on_and_repeats_nothing(tmp_path):
    out = tmp_path / "sweep"
    points = [out / f"evolution.sigma={sigma}" for sigma in ("0.1", "0.3")]
    values = ["--evolution.sigma", "0.1,0.3", "--tracker", "tensorboard"]
    first = start("mfos", "ipd", *TINY.split(), *SLOW.split(), *values, "--out", str(out))
    while not all((one / "checkpoints").is_dir() and any((one / "checkpoints").iterdir()) for one in points):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    for number in (*descendants(first.pid), first.pid):
        os.kill(number, signal.SIGKILL)
    first.communicate()
    done = len(rows_in(points[0]))
    assert 0 < done < 1500

    second = start("--resume", str(out))
    said, wrong = second.communicate()
    assert (second.returncode, wrong) == (0, "")
    assert said.startswith("mfos ipd: 2 points\npart 1 of 3: training of several points in one program\n")
    for one in points:
        assert [row["generation"] for row in rows_in(one)] == list(range(1, 1501))
        # The tracker has the rows of the common training too.
        assert json.loads((one / "tracker.json").read_text())["rows"] == {"tensorboard": {"": 1500}}
        assert list((one / "tensorboard").glob("events*"))
    with open(out / "sweep.csv") as file:
        table = list(csv.DictReader(file))
    assert [row["evolution.sigma"] for row in table] == ["0.1", "0.3"]
    for row, one in zip(table, points, strict=True):
        summary = json.loads((one / "summary.json").read_text())
        assert float(row["mean"]) == summary["shaper_return"]
        assert float(row["standard_error"]) == summary["shaper_standard_error"]
        assert float(row["control_mean"]) == summary["own_kind"]["shaper"]["mean"]
        assert f"{summary['shaper_return']:.3f} ± {summary['shaper_standard_error']:.3f}" in said
    assert (out / "sweep.png").stat().st_size > 10_000

    before = {file: file.read_bytes() for one in points for file in one.rglob("*") if file.is_file()}
    third = start("--resume", str(out), "--quiet")
    assert third.communicate() == ("", "")
    assert third.returncode == 0
    assert {file: file.read_bytes() for one in points for file in one.rglob("*") if file.is_file()} == before

    # The first point as its own run begins again, and fails because another has its directory.
    (points[0] / "summary.json").unlink()
    (points[0] / "config.yaml").write_text("# python -m marl.train\n")
    fourth = start("--resume", str(out), "--quiet")
    _, wrong = fourth.communicate()
    assert fourth.returncode == 1
    assert wrong.startswith("python -m marl.sweep: evolution.sigma=0.1: failed; ")
    assert wrong.count("\n") == 1


def task(out, *points):
    """A task whose points are calls of a command that ends at once."""
    return Task(str(out), "marl.agents", (), tuple((name, words) for name, words in points), False, (), str(out))


@pytest.mark.system
def test_points_are_trained_alone_where_one_program_fails(tmp_path):
    begun, ended = [], []
    both = task(tmp_path, ("good", ("--help",)), ("bad", ("--nonsense",)))
    run_task(both._replace(together=True), begun.append, ended.append)  # no sweep is in that directory
    assert begun == [TOGETHER, "good", "bad"]
    assert [bool(one.problem) for one in ended] == [True, False, True]
    assert "sweep.yaml" in ended[0].problem


@pytest.mark.system
@pytest.mark.parametrize(
    ("kept", "together"),
    [
        (([], [], []), True),
        (([20], [20], []), True),  # a stop in the midst of the first save
        (([390, 400, 410], [380, 390, 400]), True),
        (([380, 390, 400], [250]), False),  # the first one was trained alone
        (([380, 390, 400], []), False),
    ],
)
def test_points_are_trained_together_only_if_none_loses_what_it_did_alone(tmp_path, kept, together):
    folders = [tmp_path / str(number) for number in range(len(kept))]
    for folder, generations in zip(folders, kept, strict=True):
        (folder / "checkpoints").mkdir(parents=True)
        for generation in generations:
            (folder / "checkpoints" / f"{generation:08d}").touch()
    assert sweep.stopped_together(folders) == together


@pytest.mark.system
def test_a_stop_ends_the_running_process_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "sweep"
    run = out / "seed=0"
    line = ["mfos", "ipd", *TINY.split(), *SLOW.split(), "--seed", "0,1", "--quiet", "--out", str(out)]
    sweep = start(*line)
    rows = run / "metrics.jsonl"
    while not (rows.exists() and b"\n" in rows.read_bytes()):
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.05)
    sweep.send_signal(signal.SIGINT)
    said = sweep.communicate()
    assert (sweep.returncode, *said) == (130, "", f"{PROGRAM}: stopped; go on with {PROGRAM} --resume {out}\n")
    newest = max(int(file.name) for file in (run / "checkpoints").iterdir())
    assert newest == len(rows_in(run))  # what was trained is saved, and no process trains any more
    with RunDirectory(run):
        pass  # which would raise FileExistsError if another process had it


@pytest.fixture
def tasks(tmp_path):
    """Two tasks, of which each has a point that fails; the others print their help instead of a training."""
    return [
        task(tmp_path, ("good", ("--help",)), ("bad", ("--nonsense",))),
        task(tmp_path, ("worse", ("--again",)), ("fine", ("--help",))),
    ]


def check(found):
    assert {one.name: one.problem.partition(";")[0] for one in found} == {
        "good": "",
        "bad": "unknown option --nonsense",
        "worse": "--again: no value is given",
        "fine": "",
    }
    assert all(isinstance(one, Ended) and one.seconds > 0 for one in found)


@nightly
def test_tasks_run_as_jobs_of_submitit(tasks, tmp_path):
    pytest.importorskip("submitit")
    found = []
    clusters.on_slurm(tasks, found.append, tmp_path / "slurm", ["timeout_min=5"], cluster="local")
    check(found)


@nightly
def test_the_jobs_of_a_stopped_sweep_are_cancelled(tasks, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    from submitit.local.local import LocalJob

    cancelled = []
    monkeypatch.setattr(LocalJob, "cancel", lambda job, check=True: cancelled.append(job.job_id))

    def stop(ended):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clusters.on_slurm(tasks, stop, tmp_path / "slurm", ["timeout_min=5"], cluster="local")
    assert len({*cancelled}) == 2


@nightly
def test_tasks_run_on_ray(tasks, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    found = []
    clusters.on_ray(tasks, found.append)
    check(found)


def test_unknown_settings_of_slurm_are_refused(tmp_path):
    pytest.importorskip("submitit")
    with pytest.raises(ValueError, match="slurm: got nonsense=1"):
        clusters.on_slurm([], print, tmp_path, ["nonsense=1"], cluster="local")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "command: none given; one of mfos, train, distributed, discover, act is needed"),
        ("reproduce zd", "command: got 'reproduce'"),
        ("mfos", "preset"),
        ("mfos ipd --trials 0,1", "trials: got 0"),
        ("mfos ipd --samples x", "--samples: got 'x'"),
        ("mfos ipd --on moon", "--on: got 'moon'"),
        ("mfos ipd --on slurm --trials 1,2", "on: got slurm"),
        ("mfos ipd --opponent naive,nonsense", "opponent: got 'nonsense'"),
        ("mfos ipd --opponent naive,tft --opponent.learning_rate 0.1,1", "opponent: tft has no setting"),
        ("mfos ipd --opponent.learning_rate 0.1,-1", "learning_rate: got -1"),
        ("train CartPole-v1 --learner ppo,nonsense", "learner: got 'nonsense'"),
        ("--resume nowhere", "--resume: got 'nowhere'; the directory of a sweep is needed"),
        ("--resume nowhere --samples 3", "--resume: got --samples beside it"),
        ("--file nowhere.yaml", "nowhere.yaml: cannot be read"),
        ("--file a.yaml mfos", "unknown argument mfos"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(line, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("python -m marl.sweep: ")
    assert message in said.err
    assert not list(tmp_path.iterdir())


def test_a_directory_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("text")
    assert main(["mfos", "ipd", "--seed", "0,1", "--out", str(tmp_path)]) == 2
    assert "already holds something" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_a_directory_with_nothing_but_a_lock_is_used(tmp_path, monkeypatch):
    """So a sweep leaves it that is killed before it writes its points."""
    (tmp_path / sweep.LOCK).touch()
    monkeypatch.setattr(sweep, "_run", lambda planned: 0)
    assert main(["mfos", "ipd", *TINY.split(), "--seed", "0,1", "--out", str(tmp_path)]) == 0
    assert plan.from_file(tmp_path / plan.FILE).options["seed"] == [["0"], ["1"]]


def test_the_time_left_is_of_parts_of_the_same_kind(tmp_path, monkeypatch, capsys):
    """A common training takes minutes, and the evaluation of one of its points seconds."""
    now = [0.0]

    def run(tasks, begin, end):
        for name, seconds in ((TOGETHER, 600.0), ("a", 10.0), ("b", 20.0), (TOGETHER, 600.0), ("c", 9.0), ("d", 9.0)):
            begin(name)
            now[0] += seconds
            end(Ended(name, "", seconds))

    monkeypatch.setattr(sweep, "here", run)
    monkeypatch.setattr(sweep.time, "perf_counter", lambda: now[0])
    groups = [task(tmp_path, (one, ()), (other, ()))._replace(together=True) for one, other in ("ab", "cd")]
    planned = SimpleNamespace(options=SimpleNamespace(on="here"), out=tmp_path)
    sweep._Parts(Console(highlight=False, width=120), planned, groups).run()
    assert capsys.readouterr().out.splitlines() == [
        "part 1 of 6: training of several points in one program",
        "part 2 of 6: a",
        f"part 3 of 6: b; about {duration(600 + 3 * 10)} left in all",
        f"part 4 of 6: training of several points in one program; about {duration(600 + 2 * 15)} left in all",
        f"part 5 of 6: c; about {duration(2 * 15)} left in all",
        f"part 6 of 6: d; about {duration(13)} left in all",
    ]


def test_a_point_that_a_cluster_ended_is_no_measure_of_time(tmp_path):
    planned = SimpleNamespace(options=SimpleNamespace(on="ray"), out=tmp_path)
    parts = sweep._Parts(Console(quiet=True), planned, [task(tmp_path, (name, ())) for name in "abc"])
    parts._end(Ended("a", "the worker died", 0.0))
    assert parts._left() == ""
    parts._end(Ended("b", "", 10.0))
    assert parts._left().endswith(" left in all")


def test_a_sweep_of_a_stranger_names_no_other_command(tmp_path, capsys):
    (tmp_path / plan.FILE).write_text("command: os\nfirst: ''\noptions: {}\n")
    assert main(["--resume", str(tmp_path)]) == 2
    assert "command: got 'os'" in capsys.readouterr().err
