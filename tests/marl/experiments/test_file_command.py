"""Commands that train one small file: resumed after a stop at any time they write the file of an unbroken run."""

import signal
import subprocess
import sys

import pytest

from meta import RunDirectory
from meta.runs.array_files import load_arrays
from tests.nightly import MARKS, nightly

pytestmark = pytest.mark.system

SMALL = {
    "marl.cola": ["--iterations=300", "--hidden", "4", "--evaluation-trials=8"],
    "marl.mmaml": ["--initialisations=2", "--meta-steps=3", "--evaluation-trials=8"],
    "marl.bound": ["--meta-steps=3", "--num-states=2", "--evaluation-trials=8"],
}
# A process that dies as by `kill -9` as soon as it has saved for the second time.
DIES = """
import os, signal, sys
from meta import RunDirectory
save = RunDirectory.save
def save_and_die(run, generation, *rest):
    save(run, generation, *rest)
    if generation > 1:
        os.kill(os.getpid(), signal.SIGKILL)
RunDirectory.save = save_and_die
from marl.cola import main
main(sys.argv[1:])
"""


@pytest.fixture
def trained(within, tmp_path):
    """Runs a command on `chicken`, and reads the file that it wrote."""

    def run(module, *arguments):
        result = within(*arguments, cwd=tmp_path, module=module)
        assert result.returncode == 0, result.stderr
        arrays, metadata = load_arrays(tmp_path / result.stdout.splitlines()[-1].removeprefix("written to "))
        return {name: array.tobytes() for name, array in arrays.items()}, metadata

    return run


@pytest.mark.parametrize(
    ("module", "shorter", "longer"), [("marl.mmaml", 3, 6), pytest.param("marl.bound", 6, 6, marks=MARKS)]
)
def test_a_stopped_run_writes_the_file_of_a_whole_run(module, shorter, longer, trained, within, tmp_path, monkeypatch):
    """Without a schedule over its iterations, a run may be resumed with more of them."""
    options = ["chicken", *SMALL[module]]
    whole = trained(module, *options, f"--iterations={longer}", "--out=whole")
    append, calls = RunDirectory.append, []

    def stop(run, rows):
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(append(run, rows))

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "append", stop)
        stopped = within(*options, f"--iterations={shorter}", "--out=part", cwd=tmp_path, module=module)
    assert stopped.returncode == 130
    assert stopped.stderr == f"python -m {module}: stopped; go on with python -m {module} --resume part.run\n"
    assert [path.name for path in (tmp_path / "part.run" / "checkpoints").iterdir()] == ["00000001"]
    assert not (tmp_path / "part").exists()
    assert trained(module, "--resume=part.run", f"--iterations={longer}") == whole
    assert trained(module, "chicken", "--resume=part.run") == whole  # nothing is left to do
    assert not list(tmp_path.glob(".*"))


@nightly
def test_a_killed_run_writes_the_file_of_a_whole_run(trained, environment, tmp_path):
    options = ["chicken", *SMALL["marl.cola"], "--checkpoint-seconds=0", "--quiet"]
    line = [sys.executable, "-c", DIES, *options, "--out=part"]
    killed = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "part").exists()
    options.remove("--quiet")
    part, whole = trained("marl.cola", "--resume=part.run"), trained("marl.cola", *options, "--out=whole")
    assert part == whole
