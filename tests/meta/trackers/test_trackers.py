"""Runs in real trackers of this machine: whole, killed in the middle, longer, and with trackers that fail."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import jax
import jax.numpy as jnp
import pytest

from meta import Evolution, Outcome, evolve, make_tracker
from tests.meta.trackers import readers
from tests.nightly import grid, nightly
from tests.sockets import free_port

pytestmark = pytest.mark.system

GENERATIONS = 8
TRACKERS = ["wandb", "trackio", "tensorboard", "mlflow"]
ATTACHED = {
    "wandb": {"config generations", "run/config.yaml", "run/summary.json", "last"},
    "trackio": {"config generations", "figures/walk", "figures/film"},
    "tensorboard": {"config/text_summary", "summary/text_summary", "figures/walk", "figures/film"},
    "mlflow": {"config generations", "config.yaml", "summary.json", "figures/walk.png", "figures/film.gif"},
}


def until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an MLflow server on loopback."""
    folder, address = tmp_path_factory.mktemp("mlflow"), f"http://127.0.0.1:{(port := free_port())}"
    line = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    line += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")]

    def answers():
        try:
            return urllib.request.urlopen(f"{address}/health", timeout=1).status == 200
        except OSError:
            return False

    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(line, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        until(answers)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Walk:
    """The command of `walk.py` in a folder, with a tracker."""

    def __init__(self, folder, tracker, environment, server):
        self.folder, self.tracker, self.run, self._server = folder, tracker, folder / "run", server
        places = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(folder / "trackio"), "MLFLOW_TRACKING_URI": server}
        self.environment = environment | places | {"PYTHONPATH": os.getcwd(), "WANDB_DIR": str(folder)}

    def begin(self, *arguments, **variables):
        line = [sys.executable, "-m", "tests.meta.trackers.walk", *arguments]
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(line, cwd=self.folder, env=self.environment | variables, **how)

    def whole(self, *arguments, **variables):
        process = self.begin(*arguments, **variables)
        out, err = process.communicate(timeout=600)
        return process.returncode, out, err

    @property
    def rows(self):
        """The numbers of rows in `tracker.json`."""
        file = self.run / "tracker.json"
        return json.loads(file.read_text())["rows"].get(self.tracker, {}) if file.exists() else {}

    def read(self):
        kinds = {"wandb": readers.offline_wandb, "trackio": readers.trackio_database}
        kinds |= {"tensorboard": lambda folder: readers.event_files(self.run)}
        kinds |= {"mlflow": lambda folder: readers.mlflow_server(self._server)}
        return kinds[self.tracker](self.folder)


@pytest.fixture
def walk(tmp_path, environment, request):
    def make(tracker):
        server = request.getfixturevalue("server") if tracker == "mlflow" else ""
        return Walk(tmp_path, tracker, environment, server)

    return make


def expected(run):
    """{name: [(row, value)]} of the files of metrics."""
    series = {}
    for file in run.rglob("metrics.jsonl"):
        part = "" if file.parent == run else f"{file.parent.name}/"
        for line in file.read_text().splitlines():
            row = json.loads(line)
            flat = {"generation": row["generation"], "mean": row["mean"], "x/0": row["x"][0], "x/1": row["x"][1]}
            for name, x in flat.items():
                series.setdefault(f"{part}{name}", []).append((row["generation"], x))
    return series


def followers(run):
    """The processes of trackers of a run."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if f"meta.trackers.follower {run} " in line]


@nightly
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_tracker_has_every_row_once_however_often_the_run_and_the_tracker_are_killed(tracker, walk):
    it = walk(tracker)
    # The run is killed while rows are written: the tracker's process takes the rest and ends by itself.
    first = it.begin("there", "--out", str(it.run), "--tracker", tracker, WALK_SECONDS="0.5", WALK_UNTIL="5")
    until(lambda: it.rows.get("", 0) >= 1)
    first.kill()
    first.communicate()
    until(lambda: not followers(it.run))
    had = it.rows
    assert 1 <= had[""] < GENERATIONS
    # Both are killed while nothing is written.
    second = it.begin("--resume", str(it.run), WALK_UNTIL="7")
    until(lambda: it.rows.get("", 0) >= 7)
    time.sleep(1.0)
    assert second.poll() is None
    for process in (second.pid, *followers(it.run)):
        os.kill(process, signal.SIGKILL)
    second.communicate()
    status, out, err = it.whole("--resume", str(it.run))
    assert (status, err) == (0, ""), err
    assert "tracked, 10 rows: " in out
    series, attached = it.read()
    wanted = expected(it.run)
    assert wanted["x/1"][-1][0] == GENERATIONS
    assert {name: [(step, pytest.approx(x, rel=1e-6)) for step, x in rows] for name, rows in wanted.items()} == series
    assert attached >= ATTACHED[tracker]
    if tracker == "wandb":
        assert any("figures/film" in name and name.endswith(".gif") for name in attached)
    # Longer: only what is new is sent, under the same id.
    status, _, err = it.whole("--resume", str(it.run), "--generations", "10")
    assert (status, err) == (0, ""), err
    series, _ = it.read()
    assert [step for step, _ in series["mean"]] == list(range(1, 11))


@nightly
def test_a_resumed_run_may_have_another_tracker_or_none(walk):
    it = walk("tensorboard")
    assert it.whole("there", "--out", str(it.run))[0] == 0
    assert not (it.run / "tracker.json").exists()
    assert it.whole("--resume", str(it.run), "--tracker", "tensorboard")[0] == 0
    series, _ = it.read()
    assert [step for step, _ in series["mean"]] == list(range(1, GENERATIONS + 1))
    status, out, _ = it.whole("--resume", str(it.run), "--tracker", "none", "--generations", "9")
    assert (status, "tracked" in out) == (0, False)
    assert it.rows[""] == GENERATIONS
    it.tracker = "trackio"
    assert "tracked, 11 rows: trackio" in it.whole("--resume", str(it.run), "--tracker", "trackio")[1]
    assert json.loads((it.run / "tracker.json").read_text())["rows"]["tensorboard"][""] == GENERATIONS
    assert [step for step, _ in it.read()[0]["mean"]] == list(range(1, 10))


FAKES = {
    "hangs": (
        "import time\ndef init(**_): time.sleep(1000)\ndef Settings(**_): pass",
        "was still busy 2 s after the end",
    ),
    "raises": ("def init(**_): raise RuntimeError('no\\nserver')\ndef Settings(**_): pass", "RuntimeError: no server"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "dies": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "its process was killed"),
}


@pytest.mark.parametrize("fault", grid(FAKES, next(iter(FAKES))))
def test_a_tracker_that_fails_stops_no_run_and_is_told_of_in_one_line(fault, walk):
    it = walk("wandb")
    code, words = FAKES[fault]
    (it.folder / "fakes" / "wandb").mkdir(parents=True)
    (it.folder / "fakes" / "wandb" / "__init__.py").write_text(code)
    paths = os.pathsep.join([str(it.folder / "fakes"), os.getcwd()])
    line = ["there", "--out", str(it.run), "--tracker", "wandb"]
    status, _, err = it.whole(*line, PYTHONPATH=paths, WALK_PATIENCE="2")
    assert (status, err.count("\n")) == (0, 1), err
    assert err.startswith(f"python -m tests.meta.trackers.walk: tracker: wandb: {words}")
    assert json.loads((it.run / "summary.json").read_text())["nested"] == {"generations": GENERATIONS}
    assert not followers(it.run)


def test_a_stop_ends_the_tracker_which_goes_on_later(walk):
    it = walk("tensorboard")
    process = it.begin("there", "--out", str(it.run), "--tracker", "tensorboard", WALK_UNTIL="5")
    until(lambda: it.rows.get("", 0) >= 5)
    process.send_signal(signal.SIGINT)
    assert "stopped; go on with" in process.communicate(timeout=600)[1]
    assert not followers(it.run)
    assert it.read()[0]["mean"][-1][0] == expected(it.run)["mean"][-1][0] >= 5
    assert it.whole("--resume", str(it.run))[0] == 0
    assert [step for step, _ in it.read()[0]["mean"]] == list(range(1, GENERATIONS + 1))


@nightly
def test_a_named_tracker_is_one_of_evolve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def trial(parameters, key):
        return Outcome(-jnp.sum(parameters**2), {})

    settings = Evolution(population_size=4, generations=3)
    tracker = make_tracker("tensorboard")
    found = evolve(trial, lambda key: jnp.ones(2), jax.random.key(0), settings, num_trials=1, tracker=tracker)
    series, _ = readers.event_files(next(tmp_path.glob("runs/evolve-*")))
    wanted = [(i + 1, pytest.approx(x, rel=1e-6)) for i, x in enumerate(found.metrics["fitness"].tolist())]
    assert series["fitness"] == wanted
