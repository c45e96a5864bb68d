"""Parts of a long experiment: finished parts are not repeated, and other results are not taken for them."""

import dataclasses
import io

import pytest
from rich.console import Console

from configs import CommandConfig
from meta import RunDirectory
from meta.runs.jobs import Job, finished, open_run, run_jobs

pytestmark = pytest.mark.system


@dataclasses.dataclass(frozen=True)
class Config(CommandConfig):
    """A part."""

    seed: int = 0
    """Its result."""


@pytest.fixture
def run(tmp_path):
    """Runs a part of this config: (its summary, number of real runs, console output)."""

    def run_one(config):
        def work():
            ran.append(config)
            open_run(tmp_path / "part", config, console).write_summary({"found": config.seed + 0.1, "nothing": None})

        ran, console = [], Console(file=io.StringIO(), record=True, width=200)
        summaries = run_jobs([Job(tmp_path / "part", config, 1.0, work)], console)
        return summaries["part"], len(ran), console.export_text()

    return run_one


def test_a_finished_part_is_not_repeated(run, tmp_path):
    first, ran, _ = run(Config())
    assert (first["found"], first["nothing"], ran) == (0.1, None, 1)
    again, ran, said = run(Config())
    assert (again, ran) == (first, 0)
    assert "part: done before" in said


def test_a_part_with_other_input_files_is_not_finished(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class WithFiles(Config):
        reads = "abc"

    part = open_run(tmp_path / "part", WithFiles(), Console(file=io.StringIO()))
    part.write_summary({"reads": "abd"})
    assert not finished(tmp_path / "part", WithFiles())
    part.write_summary({"reads": "abc"})
    assert finished(tmp_path / "part", WithFiles())


def test_a_part_of_other_settings_is_refused_and_kept(run, tmp_path):
    run(Config())
    before = {file.name: file.read_bytes() for file in (tmp_path / "part").iterdir()}
    with pytest.raises(ValueError, match=r"^\S+part: was begun with other settings; it has to be removed$"):
        run(Config(seed=1))
    (tmp_path / "part" / "config.yaml").write_text((tmp_path / "part" / "config.yaml").read_text().replace("0", "1"))
    with pytest.raises(ValueError, match="was begun with other settings"):
        run(Config(seed=1))
    assert {file.name: file.read_bytes() for file in (tmp_path / "part").iterdir()}.items() >= before.items() - {
        ("config.yaml", before["config.yaml"])
    }


@pytest.mark.parametrize(
    "damage", [lambda text: "", lambda text: text[:-9], lambda text: text.replace("0.1", "0.7"), lambda text: "[1]"]
)
def test_a_damaged_summary_is_computed_again(damage, run, tmp_path):
    first, _, _ = run(Config())
    file = tmp_path / "part" / "summary.json"
    file.write_text(damage(file.read_text()))
    assert finished(tmp_path / "part", Config()) is None
    again, ran, said = run(Config())
    assert (again, ran) == (first, 1)
    assert "part: its summary.json is damaged or of other settings" in said


def test_a_part_may_be_the_run_of_another_command(run, tmp_path):
    own = RunDirectory.create(tmp_path / "part", Config(), command="python -m marl.mfos ipd")
    own.write_summary({"found": 1.1})
    again, ran, _ = run(Config())
    assert (again["found"], ran) == (1.1, 0)
    assert finished(tmp_path / "part", Config(seed=1)) is None


def test_the_summary_of_another_run_does_not_count(run, tmp_path):
    first, _, _ = run(Config())
    other = RunDirectory.create(tmp_path / "other", Config(seed=1))
    other.write_summary({"found": 1.1})
    (tmp_path / "part" / "summary.json").write_bytes((tmp_path / "other" / "summary.json").read_bytes())
    again, ran, _ = run(Config())
    assert (again, ran) == (first, 1)


def test_files_in_a_directory_that_is_no_part_are_kept(run, tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "notes").write_text("mine")
    with pytest.raises(ValueError, match="part"):
        run(Config())
    assert (tmp_path / "part" / "notes").read_text() == "mine"
