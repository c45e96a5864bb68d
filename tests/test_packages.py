"""Installations of the packages: hidden by other files, in a zip file, without POSIX."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import marl_shaping
from tests.nightly import nightly

pytestmark = pytest.mark.system

ROOT = Path(marl_shaping.__file__).parent
TINY = ["--evolution.generations=2", "--evolution.population-size=2", "--trials=1", "--evaluation-trials=2"]
LINE = ["-m", "marl.mfos", "ipd", *TINY, "--meta-steps=2", "--hidden-units=2", "--out=run"]


@pytest.fixture(scope="module")
def python(environment):
    """Runs Python with arguments: (status, stdout, stderr)."""

    def run(*arguments, cwd, **variables):
        line = [sys.executable, *arguments]
        return subprocess.run(line, cwd=cwd, env=environment | variables, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize(
    ("file", "modules"),
    [
        ("games.py", ("marl.mfos", "attacks.act")),
        ("configs/__init__.py", ("marl.play", "games")),
        ("meta.py", ("marl.train", "games")),
        ("marl/__init__.py", ("attacks.act",)),
        ("attacks.py", ("games",)),
    ],
)
def test_a_file_that_hides_a_package_is_named_in_one_line(file, modules, python, tmp_path):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    name = file.split("/")[0].removesuffix(".py")
    line = f"{name}: got {tmp_path / file}, which hides the package of marl-shaping in {ROOT}; "
    line += "rename it, start in another directory, or call Python with -P"
    for module in modules:
        found = python("-m", module, "--help", cwd=tmp_path)
        assert (found.returncode, found.stdout, found.stderr) == (2, "", f"python -m {module}: {line}\n")
    other = "games" if name in ("meta", "configs") else "configs"
    found = python("-c", f"import {other}", cwd=tmp_path)
    assert found.stderr.endswith(f"ImportError: {line}\n")
    assert python("-P", "-c", f"import {other}", cwd=tmp_path).returncode == 0


def test_another_distribution_over_a_package_is_named(python, tmp_path):
    for name in marl_shaping.PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import marl_shaping\n")
    (tmp_path / "marl_shaping.py").write_text((ROOT / "marl_shaping.py").read_text())
    assert python("-c", "import marl", cwd=tmp_path).returncode == 0
    (tmp_path / "games" / "__init__.py").write_text("'''Chess and checkers.'''")  # as from another wheel
    (tmp_path / "chess.dist-info").mkdir()
    (tmp_path / "chess.dist-info" / "METADATA").write_text("Name: chess\nVersion: 1")
    (tmp_path / "chess.dist-info" / "top_level.txt").write_text("games\n")
    found = python("-c", "import marl", cwd=tmp_path)
    file = tmp_path / "games" / "__init__.py"
    assert f"ImportError: games: got {file}, a file that chess installed over marl-shaping's; " in found.stderr


@nightly
def test_a_command_runs_from_a_zip_file_and_every_text_has_an_encoding(python, tmp_path):
    with zipfile.ZipFile(tmp_path / "library.zip", "w") as packed:
        for name in marl_shaping.PACKAGES:
            for file in (ROOT / name).rglob("*"):
                if file.is_file() and file.parent.name != "__pycache__":
                    packed.write(file, file.relative_to(ROOT))
        packed.write(ROOT / "marl_shaping.py", "marl_shaping.py")
    where = {"PYTHONPATH": str(tmp_path / "library.zip")}
    warned = ["-X", "warn_default_encoding", "-W", "always::EncodingWarning"]
    found = python(*warned, *LINE, "--opponent=cola", cwd=tmp_path, **where)  # COLA's parameters come with the library
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "run" / "summary.json").is_file()
    assert "library.zip" not in found.stderr  # JAX itself opens a file without an encoding
    offered = "import games, meta, attacks; print(games.make('ipd').num_agents, meta.evolve, attacks.messages.mlp)"
    assert python("-c", offered, cwd=tmp_path, **where).stdout.startswith("2 <function evolve")


WITHOUT_POSIX = """
import os, signal, sys
import filelock  # which has a lock for Windows
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
hidden = ["O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "killpg", "sched_getaffinity", "setsid"]
if sys.version_info < (3, 13):  # whose own shutil takes it for granted where directories can be opened
    hidden.append("O_NONBLOCK")
for name in hidden:
    delattr(os, name)
del signal.SIGKILL
import runpy
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@nightly
def test_a_command_writes_and_resumes_a_run_without_posix(python, tmp_path):
    (tmp_path / "without.py").write_text(WITHOUT_POSIX)
    for line in ([*LINE[1:], "--discount=0"], ["marl.mfos", "--resume=run", "--evaluation-trials=3"]):
        found = python("without.py", *line, cwd=tmp_path)
        assert (found.returncode, found.stderr) == (0, "")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().count(b"\n") == 2
    found = python("without.py", *LINE[1:-1], "--out=other", "--cluster=ray", cwd=tmp_path)
    line = "cluster: got ray; Linux or macOS is needed (on Windows, its WSL)"
    assert (found.returncode, found.stderr) == (2, f"python -m marl.mfos: {line}\n")
