"""Several processes that evolve together, on this machine, and what becomes of them when one is lost."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from meta.cluster import peers
from meta.cluster.hosts import connect
from tests.sockets import free_port

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def _no_job(monkeypatch):
    """Whoever starts the tests may do so in a job."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "KUBERNETES_", "JAX_COORDINATOR_")):
            monkeypatch.delenv(name)


@pytest.fixture
def start():
    """Starts the processes of a job."""
    begun = []

    def processes(number, tasks, devices=1, heartbeat=60.0):
        address = f"127.0.0.1:{free_port()}"
        for i in range(number):
            where = {"coordinator": address, "processes": number, "process_id": i}
            told = json.dumps({"where": where, "devices": devices, "heartbeat": heartbeat, "tasks": tasks})
            begun.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.meta.cluster.job", told],
                    stdout=-1,
                    stderr=-1,
                    text=True,
                )
            )
        return begun[-number:]

    yield processes
    for process in begun:
        process.kill()
        process.communicate()


def ends(processes):
    """(exit status, stdout, stderr) of each."""
    found = [process.communicate(timeout=120) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, found, strict=True)]


def test_any_number_of_processes_gives_equal_bits_and_they_go_on_with_each_others_runs(start, tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")  # as for users: what makes tests compile faster also rounds in fewer ways

    def stored(name, **changes):
        return ["stored", {"folder": str(tmp_path / name), "generations": 12} | changes]

    two = ends(start(2, [["together", {}], stored("begun", stop_at=1)], devices=2))
    assert [status for status, _, _ in two] == [130, 130]  # stopped by a signal, which process 0 alone has got
    assert (tmp_path / "begun" / "checkpoints" / "00000001").exists()
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
    ("number", "victim", "number_of_signal", "words"),
    [
        (3, 2, signal.SIGKILL, "cluster: a process of the job was lost: process 2 is not there any more"),
        (2, 1, signal.SIGSTOP, "cluster: a process of the job was lost: process 1 has been silent for 4 s"),
        (2, 0, signal.SIGKILL, "cluster: process 0 is not there any more"),
        (2, 0, signal.SIGSTOP, "cluster: process 0 has been silent for 4 s"),
    ],
)
def test_a_process_is_lost(start, tmp_path, number, victim, number_of_signal, words):
    run = tmp_path / "run"
    heartbeat = 4.0 if number_of_signal == signal.SIGSTOP else 60.0  # who is killed is missed at once
    processes = start(number, [["stored", {"folder": str(run), "generations": 10**6}]], heartbeat=heartbeat)
    until, metrics = time.monotonic() + 100, run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_bytes()):
        assert time.monotonic() < until
        assert processes[0].poll() is None
        time.sleep(0.05)
    for other in processes[1:victim]:  # those are for process 0 to decide
        other.send_signal(signal.SIGINT)
        other.send_signal(signal.SIGTERM)
    processes[victim].send_signal(number_of_signal)
    rest = processes[:victim] + processes[victim + 1 :]
    (status, _, text), *others = ends(rest)
    assert (status, text) == (1, f"job: {words}\n")
    assert others == [(1, "", "")] * (number - 2)
    if victim:  # what was done is kept
        (saved,) = (run / "checkpoints").iterdir()
        assert int(saved.name) == metrics.read_bytes().count(b"\n") > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processes": 0}, "processes: got 0; a whole number from 1 is needed"),
        ({"processes": None}, "processes: got none; their number is needed where no job of SLURM"),
        ({"process_id": 2}, "process_id: got 2; a whole number from 0 to 1 is needed"),
        ({"process_id": -1}, "process_id: got -1; a whole number from 0 to 1 is needed"),
        ({"process_id": None}, "process_id: got none; a whole number from 0 to 1 is needed where no job of SLURM"),
        ({"coordinator": None}, "coordinator: got none; HOST:PORT of process 0 is needed where no job of SLURM"),
        ({"coordinator": "here"}, "coordinator: got 'here'; HOST:PORT is needed"),
        ({"coordinator": "here:70000"}, "coordinator: got 'here:70000'; HOST:PORT is needed"),
        ({"coordinator": "no.invalid:80"}, "coordinator: got 'no.invalid:80'; process 0 does not answer there in 1 s"),
        ({}, "coordinator: got '127.0.0.1:{port}'; process 0 does not answer there in 1 s .Connection refused"),
        ({"process_id": 0}, "processes: got 2; 1 came within 1 s"),
    ],
)
def test_what_does_not_fit_is_one_line(changes, message):
    port = free_port()
    where = {"coordinator": f"127.0.0.1:{port}", "processes": 2, "process_id": 1} | changes
    with pytest.raises(ValueError, match=f"^{message.format(port=port)}") as refused:
        connect(**where, timeout=1.0)
    assert "\n" not in str(refused.value)


def test_a_job_of_slurm_says_where_and_who(monkeypatch):
    slurm = {"JOB_ID": "7", "STEP_NODELIST": "localhost", "NTASKS": "3", "PROCID": "1", "LOCALID": "0"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    with pytest.raises(ValueError, match=r"^coordinator: got 'localhost:61447'; process 0 does not answer there"):
        connect(timeout=0.1)


def test_an_address_that_somebody_else_has():
    with socket.create_server(("", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"^coordinator: got '{address}'; process 0 cannot listen there: "):
            connect(address, 2, 0, timeout=1.0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([(0, 2), (1, 3)], "processes: got 3 by process 1; the 2 of process 0 are needed"),
        ([(0, 3), (1, 3), (1, 3)], "process_id: got 1 from two processes; each needs its own"),
        ([(0, 2), (1, 2)], "cluster: process 1 has jax other; the same of process 0 is needed"),
    ],
)
def test_processes_that_do_not_fit_each_other_all_say_why(monkeypatch, said, message):
    monkeypatch.setattr(peers, "versions", lambda: {"jax": threading.current_thread().name})
    port, found = free_port(), []

    def gather(process_id, processes):
        try:
            peers.gather(peers.Place(f"127.0.0.1:{port}", processes, process_id), 30.0, 30.0)
        except ValueError as error:
            found.append(str(error))

    names = ["same" if "jax" not in message or who == 0 else "other" for who, _ in said]
    threads = [threading.Thread(target=gather, args=one, name=name) for one, name in zip(said, names, strict=True)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")  # who speaks of something else is not counted
    for thread in threads:
        thread.join()
    assert found == [message] * len(said)
