"""Several processes that evolve together on this machine, and the loss of one."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.nightly import MARKS, nightly
from tests.sockets import free_port

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def _no_job(monkeypatch):
    """Hides the variables of a job in which the tests themselves may run."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "KUBERNETES_", "JAX_COORDINATOR_")):
            monkeypatch.delenv(name)


@pytest.fixture
def start():
    """Starts the processes of a job."""
    begun = []

    def processes(number, tasks, devices=1, heartbeat=60.0, where=None, variables=None, versions=None):
        address = f"127.0.0.1:{free_port()}"
        for i in range(number):
            place = {"coordinator": address, "processes": number, "process_id": i} if where is None else where
            settings = {"where": place, "devices": devices, "heartbeat": heartbeat, "tasks": tasks}
            settings["versions"] = versions and versions[i]
            begun.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.meta.cluster.job", json.dumps(settings)],
                    stdout=-1,
                    stderr=-1,
                    text=True,
                    env=os.environ | (variables[i] if variables else {}),
                )
            )
        return begun[-number:]

    yield processes
    for process in begun:
        process.kill()
        process.communicate()


def ends(processes):
    """(exit status, stdout, stderr) of each."""
    found = [process.communicate(timeout=600) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, found, strict=True)]


@nightly
def test_any_number_of_processes_gives_equal_bits_and_resumes_the_runs_of_others(start, tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")  # compiled as for users, because the options of the tests round in fewer ways

    def stored(name, **changes):
        return ["stored", {"folder": str(tmp_path / name), "generations": 12} | changes]

    # A signal to process 1 alone stops all; process 0 has the run.
    two = ends(start(2, [["together", {}], stored("begun", stop_at=1, stopped=1)], devices=2))
    assert [status for status, _, _ in two] == [130, 130]
    (saved,) = (tmp_path / "begun" / "checkpoints").iterdir()
    assert int(saved.name) == (tmp_path / "begun" / "metrics.jsonl").read_bytes().count(b"\n") < 12
    for copy in ("three", "alone"):
        shutil.copytree(tmp_path / "begun", tmp_path / copy)
    three = start(3, [["together", {}], stored("three")])
    one = start(1, [["together", {}], stored("alone"), stored("unbroken")])
    three, one = ends(three), ends(one)
    lines = [(tmp_path / folder / "metrics.jsonl").read_bytes() for folder in ("three", "alone", "unbroken")]
    assert lines[0] == lines[1] == lines[2]
    assert lines[0].count(b"\n") == 12

    found = []
    for number, ended, devices in ((1, one, 1), (2, two, 4), (3, three, 3)):
        about, *digests = map(json.loads, ended[0][1].splitlines())
        assert (about["processes"], about["devices"]) == (number, devices)
        found.append(digests)
        status, text = (130, "job: stopped\n") if number == 2 else (0, "")
        assert ended == [(status, ended[0][1], text), *[(status, "", "")] * (number - 1)]
    (together, alone, unbroken), of_two, of_three = found
    assert of_two == [together]
    assert of_three == [together, alone]
    assert alone == unbroken


@pytest.mark.parametrize(
    ("number", "victim", "number_of_signal"),
    [
        (3, 2, signal.SIGKILL),
        pytest.param(2, 0, signal.SIGKILL, marks=MARKS),
        pytest.param(2, 1, signal.SIGSTOP, marks=MARKS),
        pytest.param(2, 0, signal.SIGSTOP, marks=MARKS),
    ],
)
def test_all_end_when_a_process_is_lost(start, tmp_path, number, victim, number_of_signal):
    run = tmp_path / "run"
    heartbeat = 4.0 if number_of_signal == signal.SIGSTOP else 6e3  # the loss of a killed process is noticed at once
    processes = start(number, [["stored", {"folder": str(run), "generations": 10**6}]], heartbeat=heartbeat)
    until, metrics = time.monotonic() + 100, run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_bytes()):
        assert time.monotonic() < until
        assert processes[0].poll() is None
        time.sleep(0.05)
    processes[victim].send_signal(number_of_signal)
    rest = ends(processes[:victim] + processes[victim + 1 :])
    assert 0 not in [status for status, _, _ in rest]
    if (victim, number_of_signal) == (2, signal.SIGKILL):  # finished generations are kept
        assert (rest[0][0], rest[0][2].count("\n")) == (1, 1)
        assert rest[0][2].startswith("job: cluster: a process of the job was lost or has failed: ")
        (saved,) = (run / "checkpoints").iterdir()
        assert int(saved.name) == metrics.read_bytes().count(b"\n") > 0


def test_all_end_when_a_process_fails_and_the_reason_is_reported_once(start):
    one, two = ends(start(2, [["fails", {"number": 1}]]))
    assert one[0::2] == (1, "job: cluster: process 1 of the job has failed\n")
    assert two[0::2] == (2, "job: its disk is full\n")
    one, two = ends(start(2, [["fails", {"number": 0}]]))
    assert one[0::2] == (2, "job: its disk is full\n")
    assert two[0::2] == (2, "")


def test_processes_with_other_versions_are_refused(start):
    found = ends(start(2, [], versions=[{"jax": "1"}, {"jax": "2"}]))
    assert found == [(2, "", "job: cluster: process 1 has jax 2; the 1 of process 0 is needed\n")] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process_id": 2}, "with process_id < num_processes. Got process_id=2, num_processes=2; coordinator"),
        ({"coordinator": None}, "coordinator_address should be defined; coordinator, processes and process_id are"),
        pytest.param(
            {"process_id": None},
            "The process id of the current process must be defined; coordinator, processes and",
            marks=MARKS,
        ),
        pytest.param(
            {"processes": None},
            "Number of processes must be defined; coordinator, processes and process_id are",
            marks=MARKS,
        ),
    ],
)
def test_settings_that_do_not_fit_are_one_line(start, changes, message):
    where = {"coordinator": f"127.0.0.1:{free_port()}", "processes": 2, "process_id": 1} | changes
    ((status, printed, said),) = ends(start(1, [], where=where))
    assert (status, printed, said.count("\n")) == (2, "", 1)
    assert said.startswith("job: cluster: the processes were not connected: ")
    assert message in said


def test_an_address_in_use_is_refused(start):
    with socket.create_server(("", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ((status, printed, said),) = ends(start(1, [], where={"coordinator": address, "processes": 2, "process_id": 0}))
    assert (status, printed) == (2, "")
    assert "job: cluster: the processes were not connected: " in said


def test_processes_of_a_slurm_job_find_each_other(start):
    job = {"JOB_ID": str(free_port()), "STEP_NODELIST": "localhost", "NTASKS": "2"}  # JAX derives the port from the ID
    tasks = [job | {"PROCID": str(i), "LOCALID": str(i)} for i in range(2)]
    variables = [{f"SLURM_{name}": value for name, value in task.items()} for task in tasks]
    first, other = ends(start(2, [], where={}, variables=variables))
    assert (first[0], other) == (0, (0, "", ""))
    assert json.loads(first[1])["processes"] == 2
