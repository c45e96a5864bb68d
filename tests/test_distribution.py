"""The wheel and the source distribution: checked, and used in an environment that has nothing else of the project."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import marl
import marl_shaping

pytestmark = pytest.mark.system

ROOT = Path(marl_shaping.__file__).parent
LEFT_OUT = {".git", ".venv", ".cache", ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache"}
LEFT_OUT |= {".ruff_cache", "build", "dist", "runs"}


def checked(*line, **options):
    found = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=300, **options)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The source distribution, and the wheel that is built of it."""
    source, made = tmp_path_factory.mktemp("source") / "project", tmp_path_factory.mktemp("dist")
    changing = {"__pycache__"}  # by processes that run at the same time
    left_out = lambda folder, names: {*names} & (changing | LEFT_OUT if Path(folder) == ROOT else changing)  # noqa: E731
    shutil.copytree(ROOT, source, ignore=left_out)
    checked(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, cwd=source)
    return sorted(made.iterdir())


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory):
    """Runs a program of an environment with the wheel, whose dependencies are those of this one."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    folder = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    (folder / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    wheel = next(file for file in distributions if file.suffix == ".whl")
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--quiet", "--no-index"]
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    checked(*pip, "--no-deps", "--disable-pip-version-check", wheel, env=environment)

    def run(program, *arguments, cwd, **options):
        return checked(place / "bin" / program, *arguments, cwd=cwd, env=environment, **options)

    return run


def test_the_distributions_pass_the_checks_of_the_index(distributions):
    assert [file.name.split("-")[0] for file in distributions] == ["marl_shaping", "marl_shaping"]
    checked(sys.executable, "-m", "twine", "check", "--strict", *distributions)


def test_the_wheel_has_the_packages_and_what_they_read(distributions):
    with zipfile.ZipFile(next(file for file in distributions if file.suffix == ".whl")) as wheel:
        files = set(wheel.namelist())
    roots = {name.split("/")[0] for name in files}
    assert {root for root in roots if "dist-info" not in root} == {*marl_shaping.PACKAGES, "marl_shaping.py"}
    for folder, pattern in (("configs", "*.yaml"), ("marl/trained", "*.*"), ("games", "catalogue.csv")):
        read = {str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob(pattern)}
        assert {name for name in read if not name.endswith(".pyc")} <= files
    with tarfile.open(next(file for file in distributions if file.suffix == ".gz")) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "marl/trained/agents.json"} <= names


def test_an_installed_wheel_has_commands_presets_and_trained_agents(installed, tmp_path):
    where = installed("python", "-c", "import marl, sys; print(marl.__file__, sys.prefix, sep='\\n')", cwd=tmp_path)
    assert Path(where.split("\n")[0]).is_relative_to(where.split("\n")[1])
    assert installed("marl-shaping", "--version", cwd=tmp_path).startswith("marl-shaping ")
    listed = installed("marl-shaping", "agents", cwd=tmp_path)
    assert all(name in listed for name in marl.list_agents())
    match = installed("marl-shaping", "play", "ipd", cwd=tmp_path, input="c\nd\nq\n")
    assert "100 rounds against hub:mfos-ipd-naive" in match
    assert "Over 2 rounds you played C in 50%" in match
    program = "import marl; print(marl.load_agent('good_shepherd-ipd-naive').play('tft', 4).cooperation.shape)"
    assert installed("python", "-c", program, cwd=tmp_path).strip() == "(4, 100, 2)"
    tiny = ["--evolution.generations=2", "--evolution.population-size=2", "--trials=1", "--evaluation-trials=2"]
    installed(
        "marl-shaping", "mfos", "ipd", *tiny, "--discount=0", "--meta-steps=2", "--out=run", "--quiet", cwd=tmp_path
    )
    assert marl.load_run(tmp_path / "run").summary["seeds"] == 1


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_are_built_where_there_is_docker_and_linted_anywhere(name):
    file = ROOT / "docker" / name
    checked(Path(sys.executable).with_name("hadolint"), file)
    if shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        checked("docker", "build", "--file", file, ROOT)
