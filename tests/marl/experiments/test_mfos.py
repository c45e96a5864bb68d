"""`python -m marl.mfos` in real processes: stops and resumption."""

import contextlib
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import jax
import pytest

from tests.nightly import nightly

pytestmark = pytest.mark.system

SMALL = [
    "--discount=0",  # policies of one logit, which are traced and compiled sooner than those of five
    "--evolution.population-size=8",
    "--evolution.generations=40",
    "--evolution.checkpoint-seconds=0",
    "--trials=2",
    "--meta-steps=5",
    "--hidden-units=4",
    "--evaluation-trials=16",
]
# Without a schedule, the number of generations determines only the end, so that it may change.
STEADY = [one for one in SMALL if "generations" not in one]
STEADY += ["--evolution.learning-rate-end=1", "--evolution.sigma-end=1"]
LONG = [*STEADY, "--evolution.generations=4000"]  # seconds, in which there is time to stop
TIMINGS = ("wall_seconds", "seconds_to_compile", "meta_steps_per_second", "digest")


def summary(path):
    found = json.loads((path / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMINGS}


def checkpoints(path):
    return [folder for folder in path.glob("checkpoints/*") if folder.name.isdigit()]


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(environment, tmp_path_factory):
    """A small whole run in a terminal: (directory, output of the terminal)."""
    folder = tmp_path_factory.mktemp("finished")
    terminal, end = pty.openpty()
    line = [sys.executable, "-m", "marl.mfos", "ipd", *SMALL, "--out", "run"]
    variables = environment | {"TERM": "xterm-256color", "COLUMNS": "110"}
    process = subprocess.Popen(line, cwd=folder, stdout=end, stderr=end, env=variables)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # a terminal raises it when the writer has closed it
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    assert process.wait(timeout=600) == 0, shown.decode()
    return folder / "run", shown.decode()


@nightly
def test_a_terminal_shows_a_live_bar(finished):
    _, text = finished
    assert "compiling" in text
    assert re.search(r"generation 40/40 .*━+.* shaper .* opponent .* meta-steps/s .*left", text)
    assert "\x1b[" in text  # redrawn in place


def stop(process, path, how):
    """Sends a signal as soon as there is a further checkpoint; (exit status, stderr)."""
    before, deadline = reached(path), time.time() + 120
    while reached(path) <= before and time.time() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(how)
    errors = process.communicate(timeout=600)[1]
    return process.returncode, errors


def reached(path):
    return max((int(folder.name) for folder in checkpoints(path)), default=0)


@nightly
def test_a_stopped_run_ends_as_an_unbroken_one(environment, within, tmp_path):
    path = tmp_path / "run"
    arguments = ["ipd", *LONG, "--out", "run"]
    variables = environment | {"JAX_NUM_CPU_DEVICES": "1"}  # the number of this process, which compiles for it too
    for how in (signal.SIGTERM, signal.SIGINT):  # SIGKILL is tested in test_shaping.py
        line = [sys.executable, "-m", "marl.mfos", *arguments]
        process = subprocess.Popen(
            line, cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        found, errors = stop(process, path, how)
        assert found == 130, errors
        assert not (path / "summary.json").exists()
        assert errors.strip().splitlines()[-1].endswith("--resume run")
        arguments = ["--resume", "run"]
    whole = within("ipd", *LONG, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    resumed = within("--resume", "run", "--quiet", cwd=tmp_path)
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (0, "", "")
    assert summary(path) == summary(tmp_path / "whole")
    assert rows(path) == rows(tmp_path / "whole")


@nightly
def test_a_start_is_screened_once_and_a_resumed_run_ends_as_an_unbroken_one(within, tmp_path):
    start = ["--start=screened(candidates=64, trials=2)"]
    whole = within("ipd", *SMALL, *start, "--out", "run", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert "start: screened(candidates=64, trials=2)" in " ".join(whole.stdout.split())
    assert re.search(r"tried 64 of 64 random shapers  best trial -\d\.\d+; the best of them", whole.stdout)
    before = summary(tmp_path / "run"), rows(tmp_path / "run")
    for newest in sorted(checkpoints(tmp_path / "run"))[1:]:
        shutil.rmtree(newest) if newest.is_dir() else newest.unlink()
    (tmp_path / "run" / "summary.json").unlink()
    resumed = within("--resume", "run", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "tried" not in resumed.stdout
    assert re.search(r"stage 2 of \d: training", resumed.stdout)
    assert (summary(tmp_path / "run"), rows(tmp_path / "run")) == before
    other = within("ipd", *SMALL, "--start=random", "--out", "other", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert rows(tmp_path / "other")[0] != rows(tmp_path / "run")[0]


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    newest = max(checkpoints(path))
    assert len(checkpoints(path)) >= 2
    os.truncate(newest, newest.stat().st_size // 2)
    (path / "summary.json").unlink()
    result = within("--resume", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"checkpoint {newest.name} is damaged" in result.stderr
    assert summary(path) == summary(finished[0])
    assert rows(path) == rows(finished[0])


def test_changed_bytes_in_a_checkpoint_are_noticed(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    newest = max(checkpoints(path))
    contents = bytearray(newest.read_bytes())
    contents[-1] ^= 0xFF
    newest.write_bytes(contents)
    result = within("--resume", "run", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "is damaged" in result.stderr
    assert summary(path) == summary(finished[0])


@pytest.fixture
def full_disk():
    """A context in which no file gets larger than 40 KiB."""

    @contextlib.contextmanager
    def full():
        before, least = resource.getrlimit(resource.RLIMIT_FSIZE), "jax_persistent_cache_min_compile_time_secs"
        jax.config.update(least, 1e9)  # the compilation cache is not part of the run
        resource.setrlimit(resource.RLIMIT_FSIZE, (40 * 1024, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            jax.config.update(least, 0)

    return full


def test_a_disk_that_fills_up_ends_in_one_line_and_keeps_what_was_saved(full_disk, within, tmp_path):
    with full_disk():
        result = within("ipd", *STEADY, "--evolution.generations=1000", "--out", "run", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.strip().count("\n") == 0, result.stderr
    assert "--resume run" in result.stderr
    assert "File too large" in result.stderr or "could not be written" in result.stderr
    assert checkpoints(tmp_path / "run")
    assert within("--resume", "run", cwd=tmp_path).returncode == 0


def test_two_runs_never_share_a_directory(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    before = sorted((file, file.stat().st_mtime) for file in path.rglob("*"))
    result = within("ipd", *SMALL, "--out", "run", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--resume run" in result.stderr
    assert sorted((file, file.stat().st_mtime) for file in path.rglob("*")) == before

    import fcntl

    with (path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = within("--resume", "run", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "another run is writing there" in result.stderr


def test_a_directory_is_chosen_where_none_is_named_and_a_yaml_path_is_a_preset(within, tmp_path):
    (tmp_path / "mine.yaml").write_text("game: hawk_dove\nopponent: wsls\ntrials: 1\n")
    for name in ("mine-wsls-7", "mine-wsls-7-2"):
        result = within("mine.yaml", *SMALL[1:-1], "--evaluation-trials=4", "--seed=7", "--quiet", cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        found = summary(tmp_path / "runs" / name)
        assert (found["game"], found["opponent"], found["seed"]) == ("hawk_dove", "wsls", 7)
        assert found["zd"] is None


def test_a_game_played_once(within, tmp_path):
    small = ["--trials=2", "--meta-steps=5", "--hidden-units=4", "--evaluation-trials=16"]
    evolution = ["--evolution.population-size=8", "--evolution.generations=2"]
    result = within("chicken", *small, *evolution, "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(summary(tmp_path / "run")["policy"]["end"]) == 1
