"""Options of a cluster on a command line, and a job whose processes all run the same line."""

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest

from configs.flags import parse_known
from meta.cluster import connection, multi_process
from meta.cluster.connection import OnCluster
from tests.sockets import free_port

pytestmark = pytest.mark.system

SMALL = shlex.split(
    "--discount 0 --meta-steps 5 --trials 2 --hidden-units 4 --evaluation-trials 16 --evolution.population-size 8"
    " --evolution.generations 40 --evolution.checkpoint-seconds 0 --quiet"
)


@pytest.fixture
def job(environment):
    """Starts the processes of a job, which the end of the test ends."""
    begun = []
    yield lambda *arguments, **options: begun.extend(started(environment, *arguments, **options)) or begun[-2:]
    for process in begun:
        process.kill()
        process.communicate()


def started(environment, cwd, *arguments, others=()):
    """Two processes of `python -m marl.mfos ...`, each with its number; the second one gets further options."""
    address = f"127.0.0.1:{free_port()}"
    line = [sys.executable, "-m", "marl.mfos", *arguments, "--cluster", "jax", "--coordinator", address]
    found = []
    for i in range(2):
        folder = cwd / f"process{i}"
        folder.mkdir(exist_ok=True)
        numbered = [*line, "--processes", "2", "--process-id", str(i), *(others if i else ())]
        how = {"env": environment | {"JAX_NUM_CPU_DEVICES": "1"}, "text": True, "start_new_session": True}
        found.append(subprocess.Popen(numbered, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how))
    return found


def test_a_job_writes_the_files_of_one_process_which_can_resume_it(command, job, tmp_path):
    first, other = job(tmp_path, "ipd", *SMALL, "--out", "run")
    run = tmp_path / "process0" / "run"
    until = time.monotonic() + 120
    while time.monotonic() < until and first.poll() is None and not list((run / "checkpoints").glob("0*")):
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    (_, said), (printed, others) = first.communicate(timeout=600), other.communicate(timeout=600)
    if first.returncode:  # stopped before its end
        assert said.endswith("stopped; go on with python -m marl.mfos --resume run\n")
        assert (first.returncode, other.returncode) == (130, 130)
        resumed = command("--resume", "run", "--quiet", cwd=tmp_path / "process0")
        assert resumed.returncode == 0, resumed.stderr
    assert (printed, others) == ("", "")
    assert not list((tmp_path / "process1").iterdir())
    chunk = ["--evolution.chunk-size", "1"]  # the chunk size on a cluster, a sixteenth of eight rounded up
    assert command("ipd", *SMALL, *chunk, "--out", "whole", cwd=tmp_path).returncode == 0
    for name in ("metrics.jsonl", "agent.safetensors"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert "cluster" not in json.loads((tmp_path / "whole" / "summary.json").read_bytes())


def test_the_first_process_reports_an_error_and_all_end(job, tmp_path):
    first, other = job(tmp_path, "--resume", "nowhere")
    (_, said), (_, others) = first.communicate(timeout=600), other.communicate(timeout=600)
    assert said == "python -m marl.mfos: --resume: got 'nowhere'; the directory of a run is needed\n"
    assert others == ""
    assert (first.returncode, other.returncode) == (2, 2)


def test_processes_that_do_not_run_the_same_command_are_refused(job, tmp_path):
    first, other = job(tmp_path, "ipd", *SMALL, "--out", "run", others=["--seed", "3"])
    (_, said), (_, others) = first.communicate(timeout=600), other.communicate(timeout=600)
    assert said == "python -m marl.mfos: cluster: process 1 has other options or input files than process 0\n"
    assert (others, first.returncode, other.returncode) == ("", 2, 2)
    assert not list((tmp_path / "process0").iterdir())


def test_processes_on_several_kinds_of_processors_are_told_of(monkeypatch):
    group = mock.Mock(first=True, processors={"avx2", "avx512"})
    monkeypatch.setattr(multi_process, "connect", lambda *place: group)
    monkeypatch.setattr(connection, "use_all_cores", lambda: None)
    said = []
    with contextlib.ExitStack() as stack:
        assert connection._join_processes(OnCluster(), stack, said.append) is group
    expected = (
        "the processes have several kinds of processors (avx2, avx512): last bits depend on the evaluating process"
    )
    assert said == [expected]


def test_a_job_without_an_address_is_refused_in_one_line(command, tmp_path):
    found = command("ipd", "--cluster", "jax", "--processes", "2", cwd=tmp_path)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert found.stderr.startswith("python -m marl.mfos: cluster: the processes were not connected: coordinator")
    assert not list(tmp_path.iterdir())


def test_cluster_options_are_found_among_other_arguments():
    words = "--resume runs/x --cluster=jax --evolution.generations 9 --processes 3 --process-id 1"
    found = parse_known(OnCluster(), words.split())
    assert (found.cluster, found.processes, found.process_id, found.coordinator) == ("jax", 3, 1, "")
    assert parse_known(OnCluster(), ["--resume", "runs/x"]).cluster == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--cluster spark", "cluster: got 'spark'; ray, ray://HOST:PORT or jax is needed"),
        ("--cluster ray://nowhere", "cluster: got 'ray://nowhere'; ray://HOST:PORT is needed"),
        ("--cluster ray://127.0.0.1:9", "cluster: got 'ray://127.0.0.1:9'; no answer there: [Errno 111]"),
        ("--cluster ray --cluster-workers 0", "cluster_workers: got 0; a whole number from 1 to 65536 is needed"),
        ("--cluster ray --cluster-cpus 0", "cluster_cpus: got 0; a whole number from 1 to 65536 is needed"),
        ("--cluster-workers 2", "cluster_workers: has no effect without --cluster ray"),
        ("--cluster ray --processes 2", "processes: has no effect without --cluster jax"),
        ("--cluster jax --processes 0", "processes: got 0; a whole number from 1 is needed"),
        ("--cluster jax --coordinator nowhere", "coordinator: got 'nowhere'; HOST:PORT is needed"),
        ("--cluster jax --processes 2 --process-id 2", "process_id: got 2; a whole number from 0 to 1 is needed"),
        ("--coordinator 127.0.0.1:1", "coordinator: has no effect without --cluster jax"),
    ],
)
def test_bad_cluster_options_are_refused_in_one_line(within, options, message, tmp_path):
    found = within("ipd", *options.split(), cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith(f"python -m marl.mfos: {message}")
    assert found.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
