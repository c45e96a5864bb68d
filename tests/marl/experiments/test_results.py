"""Results of whole experiments; minutes, so `-m slow`."""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.slow


def test_the_default_run_exploits_a_naive_learner_on_three_seeds(command, tmp_path):
    found = []
    for seed in range(3):
        result = command("ipd", f"--seed={seed}", "--out", f"run{seed}", "--quiet", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        found.append(json.loads((tmp_path / f"run{seed}" / "summary.json").read_text()))
    assert np.mean([run["shaper_return"] for run in found]) >= -0.42
    assert np.mean([run["opponent_return"] for run in found]) <= -2.10
    assert all(run["zd"]["trials"]["mean"] < 0.1 for run in found)  # not by zero-determinant extortion


@pytest.mark.parametrize(
    ("opponent", "shaper_return", "opponent_return"),
    [("all_c", 0.0, -3.0), ("all_d", -2.0, -2.0), ("tft", -1.0, -1.0), ("grim", -1.0, -1.0)],
)
def test_against_a_fixed_strategy_the_best_reply_is_found(opponent, shaper_return, opponent_return, command, tmp_path):
    arguments = ["ipd", "--opponent", opponent, "--evolution.generations=100", "--out", "run", "--quiet"]
    assert command(*arguments, cwd=tmp_path).returncode == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (found["shaper_return"], found["opponent_return"]) == pytest.approx(
        (shaper_return, opponent_return), abs=0.03
    )


@pytest.mark.parametrize("shaper", ["shaper", "mfos"])
def test_a_shaper_extorts_a_learner_that_samples(shaper, command, tmp_path):
    """Mutual cooperation is worth -1 and mutual defection -2; with ranks as fitness M-FOS stays at defection here."""
    arguments = ["ipd_sampled", "--shaper", shaper, "--seed=2", "--unseen", "--out", "run", "--quiet"]
    assert command(*arguments, cwd=tmp_path, timeout=3600).returncode == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    own, alone = found["shaper_return"], found["own_kind"]["shaper"]
    assert own["mean"] - 3 * own["standard_error"] > -0.75
    assert alone["mean"] + 3 * alone["standard_error"] < -1.85


def test_a_shaper_gains_in_the_coin_game(command, tmp_path):
    arguments = ["coin_game", "--unseen", "--out", "run", "--quiet"]
    assert command(*arguments, cwd=tmp_path, timeout=7200).returncode == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert found["gain_over_own_kind"]["mean"] > 3 * found["gain_over_own_kind"]["standard_error"]
    (against,) = found["against"].values()
    spared, alone = against["own_coin_share"][1], found["own_kind"]["own_coin_share"][1]  # the learner's
    error = np.hypot(spared["standard_error"], alone["standard_error"])
    assert spared["mean"] - alone["mean"] > 3 * error
    assert found["opponent_return"]["mean"] < found["own_kind"]["opponent"]["mean"]
