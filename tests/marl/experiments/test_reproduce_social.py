"""`python -m marl.reproduce social`: a smoke run, what it goes on with, and its refusals."""

import json

import pytest

from marl.experiments.reproduce.config import SocialConfig
from tests.nightly import nightly

pytestmark = pytest.mark.system


@nightly
def test_a_report_has_the_returns_of_the_summaries_and_repeats_nothing(within, tmp_path):
    for arguments in (["social", "--fast", "--seeds=2", "--out=run"], ["--resume", "run"]):
        done = within(*arguments, cwd=tmp_path, module="marl.reproduce")
        assert done.returncode == 0, done.stderr
        assert ("done before" in done.stdout) == ("--resume" in arguments)
    text = (tmp_path / "run" / "report.md").read_text()
    for name in ("coin_game-ippo", "coin_game-random"):
        summary = json.loads((tmp_path / "run" / "trainings" / name / "summary.json").read_text())
        assert (summary["players"], summary["seeds"]) == (2, 2)
        assert f"{summary['returns']['mean']:.3f}" in text


def test_every_game_has_every_learner_in_as_many_steps():
    parts = SocialConfig(total_steps=40_960).parts()
    assert [game.partition("(")[0] for game in parts] == ["harvest", "cleanup", "coop_mining", "coin_game"]
    assert all(list(row) == ["ippo", "ippo_common", "mappo", "pqn", "random"] for row in parts.values())
    assert parts["coin_game"]["ippo_common"].environment == "common_reward(game='coin_game')"
    assert {one.total_steps for row in parts.values() for one in row.values()} == {40_960}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--games", "harvets"], "harvets"),
        (["--games", "harvest", "harvest"], "some different games are needed"),
        (["--seeds=1"], "seeds: got 1; a whole number of at least 2 is needed"),
        (["--total-steps=3"], "total_steps: got 3"),
        (["--cluster=ray"], "cluster: has no effect where nothing is evolved"),
    ],
)
def test_misfits_are_one_line(arguments, message, within, tmp_path):
    result = within("social", *arguments, cwd=tmp_path, module="marl.reproduce")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
