"""The coin game, all against all: shares, errors, claims and the command."""

import json

import jax
import numpy as np
import pytest

from games import CoinGame
from marl import learn, make_learner
from marl.experiments.reproduce import coin_game
from marl.experiments.reproduce.coin_game import LEARNERS, SHAPING, SelfPlay, _claims, between, play_all, train_pair
from meta import RunDirectory
from meta.runs.reports.claims import passes
from meta.statistics import mean_and_error
from tests.nightly import nightly

pytestmark = pytest.mark.system

GAME = CoinGame(episode_length=16)
SMALL = "ppo(network='recurrent', hidden=[4], memory=4, epochs=1, minibatches=1)"


def test_cooperators_take_their_own_coins_only():
    pairs = {}
    for names in (("always_cooperate", "always_cooperate"), ("always_defect", "always_cooperate")):
        players = tuple(make_learner(name, GAME, seat) for seat, name in enumerate(names))
        pairs[names[0]] = play_all(GAME, players, ((), ()), jax.random.key(0), 2)
    kind, greedy = pairs.values()
    assert kind.reward.shape == kind.own.shape == (2, 2, 2)
    np.testing.assert_array_equal(kind.own, 1)
    assert (greedy.own[..., 1] == 1).all()
    assert (greedy.own[..., 0] < 0.7).all()
    assert (greedy.reward[..., 0] > kind.reward[..., 0]).all()
    # A cooperator gets 1 for each coin of its own, and loses 2 for each that the other takes: -0.26 a step.
    np.testing.assert_allclose(greedy.reward[..., 1], -0.26, atol=0.03)


def test_errors_are_between_the_trainings_of_both_and_partners_are_left_out():
    values = np.array([[9.0, 1.0, 2.0], [3.0, 9.0, 4.0], [5.0, 6.0, 9.0]])
    found = between(values, same=True)
    assert found["mean"] == pytest.approx(3.5)
    # Without a training one pair of the others is left, in both orders: 5, 3.5 and 2.
    assert found["standard_error"] == pytest.approx(2 * np.std([5.0, 3.5, 2.0], ddof=1) / np.sqrt(3))
    assert between(values[:2, :2], same=True) == {"mean": 2.0, "standard_error": 2.0}
    other = between(values, same=False)
    over_rows, over_columns = np.std([4.0, 16 / 3, 20 / 3], ddof=1), np.std([17 / 3, 16 / 3, 5.0], ddof=1)
    assert other["mean"] == pytest.approx(values.mean())
    assert other["standard_error"] == pytest.approx(np.sqrt((over_rows**2 + over_columns**2) / 3))


def test_an_error_between_pairs_of_the_same_trainings_is_that_of_the_trainings():
    """A level of its own in each of ten trainings, in both learners, moves the mean of all pairs by 2 / sqrt(10)."""
    levels = np.random.default_rng(0).normal(size=(4000, 10))
    pairs = levels[:, :, None] + levels[:, None, :]
    found = [between(one, same=True)["standard_error"] for one in pairs]
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(2 / np.sqrt(10), rel=0.02)


@nightly
def test_a_training_has_the_results_of_learn_and_is_not_repeated(tmp_path):
    config, seen = SelfPlay(SMALL, updates=3, num_envs=2, episode_length=16, seeds=2, seed=1), []

    def run():
        return train_pair(config, store=RunDirectory(tmp_path), report=lambda *now: seen.append(now))

    trained = run()
    assert seen[-1][0] == 3
    seen.clear()
    again = run()
    assert not seen
    for one, other in zip(jax.tree.leaves(trained.state), jax.tree.leaves(again.state), strict=True):
        np.testing.assert_array_equal(one, other)
    length = {"num_updates": 3, "steps_per_update": 16, "num_envs": 2}
    history = jax.jit(lambda key: learn(key, GAME, config.make_learners(), **length))(jax.random.key(2))
    np.testing.assert_allclose(trained.metrics["reward"][:, 1], np.stack(history.rewards, -1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trained.metrics["own_coin"][:, 1], history.infos["own_coin"], rtol=1e-4, atol=1e-5)


def test_claims_are_about_cooperation_and_about_defectors():
    def known(value):
        return mean_and_error(np.array([value - 0.01, value + 0.01]))

    partners = {
        name: {"own": known(share), "reward": known(0.2)}
        for name, share in (("advantage alignment", 0.9), ("LOQA", 0.7), ("PPO", 0.52))
    }
    rewards = {
        name: {"always defects": known(reward)}
        for name, reward in (("advantage alignment", -0.1), ("LOQA", -0.2), ("PPO", -0.15), ("always cooperates", -0.3))
    }
    claims = {claim.name: passes(claim) for claim in _claims(partners, rewards)}
    assert claims["advantage alignment: share of own coins"] is True
    assert claims["LOQA: share of own coins"] is False
    assert claims["PPO: share of own coins"] is True
    assert claims["advantage alignment: reward in a step"] is None
    assert [claims[f"{name} against one that always defects"] for name in SHAPING] == [True, False]


@nightly
def test_the_command_resumes_and_reports_every_learner(within, tmp_path, monkeypatch):
    # Few operations, because each meeting is compiled; one learner has a memory, as all have in the full run.
    monkeypatch.setitem(
        LEARNERS, "advantage alignment", "proximal_advantage_alignment(hidden=[4], shared=True, epochs=1)"
    )
    monkeypatch.setitem(LEARNERS, "PPO", SMALL)
    monkeypatch.setattr(coin_game, "EPISODES", 1)
    monkeypatch.setattr(coin_game, "ENVS", 8)
    result = within("coin_game", "--fast", "--out=run", cwd=tmp_path, module="marl.reproduce")
    assert result.returncode == 0, result.stderr
    report = (tmp_path / "run" / "report.md").read_text()
    assert all(f"**{name}**" in report for name in ("advantage alignment", "PPO", "always defects"))
    for picture in ("rewards", "own_coins", "own_coins_in_training"):
        assert (tmp_path / "run" / "figures" / f"{picture}.png").stat().st_size > 10_000
        assert f"figures/{picture}.png" in report
    data = json.loads((tmp_path / "run" / "report.json").read_text())
    selfish, other = "PPO", "advantage alignment"
    shares = {claim["name"].split(":")[0]: claim["ours"] for claim in data["claims"] if "share" in claim["name"]}
    own = f"{shares[other]:.2f} for {other}, {shares[selfish]:.2f} for {selfish}"
    row, column = (np.array(data["reward"][one][two]) for one, two in ((selfish, other), (other, selfish)))
    assert row.shape == (2, 2, 2)
    (tmp_path / "run" / "report.md").unlink()
    resumed = within("coin_game", "--resume=run", cwd=tmp_path, module="marl.reproduce")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("done before") == 2
    assert f"among those that a learner takes: {own}; without a preference it is 0.50." in resumed.stdout
    assert (tmp_path / "run" / "report.md").read_text() == report
    np.testing.assert_array_equal(row[..., 0], column[..., 1].T)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-envs=129"], "num_envs: got 129; an even number is needed"),
        (["--num-envs=1000000000"], "num_envs: got 1000000000, which needs"),
        (["--seeds=1"], "seeds: got 1; a whole number of at least 2 is needed"),
        (["--paper", "--updates=3"], "updates: has no effect with --paper, which has its own"),
    ],
)
def test_bad_input_gets_one_line(arguments, message, within, tmp_path):
    result = within("coin_game", *arguments, cwd=tmp_path, module="marl.reproduce")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert not list(tmp_path.iterdir())
