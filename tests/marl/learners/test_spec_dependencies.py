"""Files that an agent reads beside its spec: a run compares their digests."""

import pytest

from attacks.experiments.config import AttackConfig
from marl.experiments.shaping.config import ExactShapingConfig
from marl.learners.spec_dependencies import digests
from meta import RunDirectory


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ("naive + lola(learning_rate=0.3)", 0),  # files of bounds do not count
        ("ppo(value_loss='huber(delta=1)')", 0),
        ("cola", 3),  # one for each game
        ("meva(learning_rate=0.5)", 3),
        ("naive + mmaml", 3),
        ("ppo(objective='classic')", 2),  # one of each kind
    ],
)
def test_files_of_the_library_count_for_the_agents_that_read_them(spec, number):
    assert len(digests(spec)) == number


def test_a_run_whose_files_changed_is_refused(tmp_path):
    file = tmp_path / "initial.safetensors"
    file.write_text("one")
    config = ExactShapingConfig(opponent=f"mmaml(file='{file}')", unseen=("naive",))
    run = RunDirectory.create(tmp_path / "run", config)
    attack = AttackConfig(victim=f"ppo(objective='{file}')")
    assert attack.reads in config.reads
    run.check_reads(config.reads)
    run.check_reads(config.reads)
    file.write_text("two")
    assert attack.reads in config.reads
    with pytest.raises(ValueError, match=r"run: files that its config names have changed since; a new run"):
        run.check_reads(config.reads)
