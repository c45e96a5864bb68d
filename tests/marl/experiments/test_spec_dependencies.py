"""What an agent reads beside its spec: digests of files, by which a run knows that they are still the same."""

import pytest

from marl.experiments.shaping.config import ExactShapingConfig
from marl.experiments.shaping.experiment import _check_files
from marl.experiments.spec_dependencies import digests
from meta import RunDirectory


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ("naive + lola(learning_rate=0.3)", 0),  # whatever bounds are known against them
        ("ppo(value_loss='huber(delta=1)')", 0),
        ("cola", 3),  # one for each game
        ("naive + mmaml", 3),
        ("ppo(objective='classic')", 2),  # of either kind
    ],
)
def test_files_that_come_with_the_library_count_for_whom_they_are_of(spec, number):
    assert len(digests(spec)) == number


def test_a_run_does_not_go_on_with_other_files(tmp_path):
    file = tmp_path / "initial.safetensors"
    file.write_text("one")
    config = ExactShapingConfig(opponent=f"mmaml(file='{file}')", unseen=("naive",))
    run = RunDirectory.create(tmp_path / "run", config)
    _check_files(config, run)
    _check_files(config, run)
    file.write_text("two")
    with pytest.raises(ValueError, match=r"run: files that the opponents read have changed since; it has to be begun"):
        _check_files(config, run)
