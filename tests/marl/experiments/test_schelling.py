"""Schelling diagrams: exact payoffs by hand, verdicts, a small gridworld, and the command."""

import json

import numpy as np
import pytest

from games import SocialMetrics
from marl.experiments.schelling import Payoffs, SchellingConfig, conclusion, inequalities, measure, prepare
from marl.experiments.single_agent import LEARNER_FILE
from meta.runs import array_files
from meta.runs.execution import execute
from tests.nightly import MARKS

STRIP = "harvest(layout=['AAAAAA', '.AAAA.', 'P....P'], num_agents=2, view_size=3, episode_length=60)"


def measured(environment, **fields):
    return measure(prepare(SchellingConfig(environment, **{"episodes": 3} | fields)), lambda *_: None)


def verdicts(payoffs):
    return {name: one.verdict for name, one in inequalities(payoffs).items()}


def test_the_payoffs_of_public_goods_are_exact():
    payoffs = measured("public_goods(num_agents=4, multiplier=1.6, episode_length=7)")
    others = np.arange(4)
    np.testing.assert_allclose(payoffs.cooperator.mean(1), 0.4 * (others + 1), rtol=1e-6)
    np.testing.assert_allclose(payoffs.defector.mean(1), 0.4 * others + 1, rtol=1e-6)
    np.testing.assert_allclose(payoffs.cooperator.std(1), 0, atol=1e-6)
    assert set(verdicts(payoffs).values()) == {"holds"}
    # Together four players have 4 + 0.6 for each cooperator.
    np.testing.assert_allclose(payoffs.metrics.efficiency.mean(1), 4 + 0.6 * np.arange(5), rtol=1e-6)


@pytest.mark.parametrize(
    ("environment", "fear", "greed"),
    [
        ("ipd", "holds", "holds"),
        ("stag_hunt", "holds", "fails"),
        ("chicken", "fails", "holds"),
    ],
)
def test_dilemmas_of_two_have_fear_and_greed_as_in_the_textbook(environment, fear, greed):
    """Leibo et al. (2017): the prisoner's dilemma has both, the stag hunt fear alone, and chicken greed alone."""
    payoffs = measured(environment, steps=5)
    found = verdicts(payoffs)
    assert found == {"cooperation": "holds", "no_exploitation": "holds", "fear": fear, "greed": greed}
    reasons = " and ".join(name for name in ("fear", "greed") if found[name] == "holds")
    assert f"{environment} is a social dilemma with {reasons}: " in conclusion(
        environment, payoffs, inequalities(payoffs)
    )


def fixed(cooperator, defector, noise=0.0):
    """Payoffs with two episodes, `noise` above and below the mean."""
    rows = [np.array([[x - noise, x + noise] for x in values]) for values in (cooperator, defector)]
    return Payoffs(*rows, SocialMetrics(*[np.zeros(2)] * 4, {}))


def test_a_difference_within_two_standard_errors_decides_nothing():
    # Means 3 and 2, each with a standard error of the noise: the difference is 1 with an error of sqrt(2) noise.
    assert verdicts(fixed([0, 3], [2, 4], 0.3))["cooperation"] == "holds"
    undecided = fixed([0, 3], [2, 4], 0.4)
    assert verdicts(undecided)["cooperation"] == "undecided"
    assert conclusion("x", undecided, inequalities(undecided)).startswith("These episodes do not decide whether x is a")
    alone = fixed([0, 3], [-1, 2])
    assert "because there is neither fear nor greed: " in conclusion("x", alone, inequalities(alone))
    worse = fixed([0, 3], [4, 5])
    assert "it is false that mutual cooperation beats mutual defection: " in conclusion("x", worse, inequalities(worse))


def test_agents_that_see_observations_take_every_seat():
    """Tit for tat beside a defector is exploited in the first of four rounds alone."""
    payoffs = measured("ipd(episode_length=4)", cooperator="tft", defector="always_defect")
    np.testing.assert_allclose(payoffs.cooperator.mean(1), [-(3 + 3 * 2) / 4, -1])
    np.testing.assert_allclose(payoffs.defector.mean(1), [-2, -3 * 2 / 4])


@pytest.mark.system
@pytest.mark.parametrize(
    ("learner", "head"), [("mappo", "params.0._Heads_0"), pytest.param("ppo", "params._Heads_0", marks=MARKS)]
)
def test_a_run_of_marl_train_takes_every_seat(learner, head, within, tmp_path):
    """Its head is changed so that it gives always, and the payoffs are those of givers beside scripted keepers."""
    game = "public_goods(num_agents=3, multiplier=1.5, episode_length=4)"
    small = [f"--learner={learner}(hidden=[4], epochs=1, minibatches=2)", "--num-envs=2", "--evaluation-episodes=2"]
    small += ["--steps-per-update=8", "--total-steps=16", "--out=run", "--quiet"]
    assert within(game, *small, cwd=tmp_path, module="marl.train").returncode == 0
    arrays, metadata = array_files.load_arrays(tmp_path / "run" / LEARNER_FILE)
    arrays[f"{head}.Dense_0.bias"] = np.array([[1e3, -1e3]], np.float32)
    array_files.replace_arrays(tmp_path / "run" / LEARNER_FILE, arrays, metadata)
    for spec in (tmp_path / "run", tmp_path / "run" / LEARNER_FILE):
        payoffs = measured(game, cooperator=str(spec))
        np.testing.assert_allclose(payoffs.cooperator.mean(1), 0.5 * (np.arange(3) + 1), rtol=1e-6)
        np.testing.assert_allclose(payoffs.defector.mean(1), 1 + 0.5 * np.arange(3), rtol=1e-6)
    with pytest.raises(ValueError, match=r"^cooperator: got .*run', which saw and did "):
        measured("public_goods(num_agents=4)", cooperator=str(tmp_path / "run"))


@pytest.mark.system
def test_a_small_harvest_is_measured_from_seeds():
    payoffs = measured(STRIP, episodes=8)
    assert payoffs.cooperator.shape == payoffs.defector.shape == (2, 8)
    assert payoffs.metrics.equality.shape == (3, 8)
    assert payoffs.cooperator[1].mean() > payoffs.defector[0].mean() > 0
    assert len(np.unique(payoffs.defector[0])) > 1
    assert (payoffs.metrics.peace == 2).all()  # no player zaps
    np.testing.assert_array_equal(payoffs.defector, measured(STRIP, episodes=8).defector)


def test_a_run_is_kept(tmp_path):
    from marl.commands import describe

    arguments = ["public_goods(episode_length=3)", "--episodes=2", f"--out={tmp_path / 'run'}", "--quiet"]
    assert execute(describe("marl.schelling"), arguments) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["conclusion"].startswith("public_goods(episode_length=3) is a social dilemma with fear and greed: ")
    assert [one["mean"] for one in summary["payoffs"]["defector"]] == pytest.approx([1, 1.4, 1.8, 2.2])
    assert summary["inequalities"]["greed"]["verdict"] == "holds"
    assert (tmp_path / "run" / "figures" / "schelling.png").stat().st_size > 1000
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["harves"], "environment: got 'harves'; did you mean harvest"),
        (["pendulum"], "environment: got 'pendulum', of 1 player; a game of 2 to 64 players is needed"),
        (["ultimatum"], "environment: got Ultimatum, which has no scripted policies; a game with them is needed"),
        (["ipd", "--cooperator=nothing"], "cooperator: got 'nothing'; one of ppo, "),
        (["ipd", "--episodes=1"], "episodes: got 1; a whole number of at least 2 is needed"),
        (["matrix_game(payoffs=[[[1, 1], [2, 2], [3, 3]]])", "--cooperator=random"], "cooperator: got 'random' in "),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, within, tmp_path):
    found = within(*arguments, cwd=tmp_path, module="marl.schelling")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"python -m marl.schelling: {message}"), found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
