"""`python -m marl.reproduce in_context`: exact best responses, its claims by hand, a smoke run and its refusals."""

import json

import numpy as np
import pytest

import games
from marl.experiments.reproduce import in_context_games, in_context_play, in_context_report
from marl.experiments.reproduce.config import InContextConfig
from marl.experiments.reproduce.in_context_play import Play, exact_payoff
from meta.runs.reports.claims import passes
from tests.nightly import nightly

TIT_FOR_TAT, COOPERATES, DEFECTS, GRIM = ([1, 1, 0, 1, 0], [1] * 5, [0] * 5, [1, 1, 0, 0, 0])


def test_exact_payoffs_by_hand():
    policies = np.array([TIT_FOR_TAT, COOPERATES, DEFECTS, GRIM])
    # In four rounds tit for tat pays -1 for cooperation and 0 for a defection at the end; the others are plain.
    np.testing.assert_allclose(exact_payoff(policies, 4), np.array([-3, 0, -8, -3]) / 4)
    np.testing.assert_allclose(exact_payoff(policies, 4, actions=(1,)), np.array([-6, 0, -8, -6]) / 4)


def test_the_best_response_is_that_of_all_deterministic_policies_of_long_games():
    policies = np.random.default_rng(0).uniform(size=(8, 5))
    own = [[(i >> k) & 1 for k in range(5)] for i in range(32)]
    exact = [games.zd.exact_payoffs(games.prisoners_dilemma, np.array(one), policies, discount=0.999)[0] for one in own]
    np.testing.assert_allclose(exact_payoff(policies, 4000), np.max(exact, 0), atol=0.01)


def test_all_pools_have_observations_of_one_shape():
    parts = InContextConfig().parts()
    assert list(parts) == [f"ppi, {pool}" for pool in in_context_games.DILEMMAS["ipd"].pools] + [
        "a2c, mixed pool",
        "a2c, learners only",
    ]
    assert {config.game.observation_space("agent_0").shape for config in parts.values()} == {(11,)}
    shares = {config.pool: config.game.share for config in parts.values()}
    assert shares == {"mixed pool": 0.5, "learners only": 0.0, "identified": 0.5, "memory-one only": 1.0}
    assert {config.pool for config in parts.values() if config.game.identified} == {"identified"}


def test_policies_that_extort_are_among_those_that_are_tried():
    policies = in_context_play.extortioners(64)
    assert policies.shape == (64, 5)
    assert ((policies >= 0) & (policies <= 1)).all()
    found = games.zd.fit(games.prisoners_dilemma, policies[:16], discount=0.99)
    assert found.extortionate.all()


def found(cooperation, paid):
    three = np.array([-0.01, 0.0, 0.01])
    play = Play(np.full((3, 4, 2), cooperation), np.full((3, 4, 2), -1.0))
    numbers = {
        "cooperation": cooperation + three,
        "late cooperation": cooperation + three,
        "payoff": three,
        "cooperation with policies": 0.1 + three,
        "with policies": paid + three,
        "late with policies": paid + three,
        "best response": np.full(3, -0.8),
        "always defects": np.full(3, -1.0),
        "extorted": -1.5 + three,
        "extortioner": -0.9 + three,
        "extorts": np.ones(3),
    }
    curves = {"apart": np.full((5, 3), 0.1), "together": np.full((5, 3), cooperation)}
    return in_context_report.Found(curves, play, numbers, np.full((3, 4), paid))


def test_an_error_of_pairs_counts_what_neighbours_share():
    """Pairs of independent learners, and of learners of one level in each training, in 4,000 draws of 10 trainings."""
    first, second = np.random.default_rng(0).normal(size=(2, 4000, 10))
    for one, other, exact in ((first, second, np.sqrt(2 / 10)), (first, first, 2 / np.sqrt(10))):
        pairs = one + np.roll(other, -1, 1)
        assert pairs.mean(1).std() == pytest.approx(exact, rel=0.05)
        found = np.mean([in_context_report.error_of_pairs(x) ** 2 for x in pairs])
        assert exact**2 < found < 1.6 * exact**2  # of two estimates it is the larger one
    assert np.isnan(in_context_report.error_of_pairs(np.ones(1)))


def test_claims_and_figures_by_hand(tmp_path):
    pools = {"mixed pool": (0.8, -0.85), "learners only": (0.1, -1.0), "memory-one only": (0.5, -0.95)}
    results = {f"ppi, {pool}": found(*numbers) for pool, numbers in pools.items()}
    parts = {name: InContextConfig().parts()[name] for name in results}
    cooperation, responses, extortion = in_context_report.sections(tmp_path, results, parts)
    assert [passes(claim) for claim in cooperation.claims] == [True, True, False]
    assert [(round(claim.ours, 3), passes(claim)) for claim in responses.claims] == [(0.75, True), (0.25, False)]
    assert [round(claim.ours, 3) for claim in extortion.claims] == [-0.9, 0.6]
    assert [passes(claim) for claim in extortion.claims] == [False, True]
    assert "75 % of the way for ppi, mixed pool" in responses.answer
    assert len(list(tmp_path.glob("in_context_*.png"))) == 3


def test_the_error_of_a_ratio_is_0_where_all_trainings_have_the_same(tmp_path):
    one = found(0.8, -0.85)
    one.numbers["best response"] = np.array([-0.9, -0.8, -0.6])
    one.numbers["with policies"] = -1 + 0.75 * (one.numbers["best response"] + 1)
    results = {"ppi, mixed pool": one}
    parts = {name: InContextConfig().parts()[name] for name in results}
    (claim,) = in_context_report.sections(tmp_path, results, parts)[1].claims
    assert claim.ours == pytest.approx(0.75)
    assert claim.standard_error == pytest.approx(0, abs=1e-12)


def test_claims_in_the_coin_game_by_hand(tmp_path):
    pools = {"mixed pool": (0.85, 0.31), "learners only": (0.7, 0.0), "memory-one only": (0.5, 0.2)}
    results = {f"ppi, {pool}": found(*numbers) for pool, numbers in pools.items()}
    for one in results.values():
        one.numbers.update({"takes all": np.full(3, 0.28), "leaves the other's": np.full(3, 0.03)})
    parts = InContextConfig(game="coin_game").parts()
    assert list(parts) == list(results)
    assert {config.game.observation_space("agent_0").shape for config in parts.values()} == {(36,)}
    cooperation, responses = in_context_report.sections(tmp_path, results, parts)
    # At least 0.8 of the mixed pool and at most 0.6 of the others; payoffs less that of the better of two takers.
    assert [passes(claim) for claim in cooperation.claims] == [True, False, True]
    assert [(round(claim.ours, 2), passes(claim)) for claim in responses.claims] == [(0.03, True), (-0.08, False)]
    # The better of the two is the one with the higher mean, and not another one in each training.
    takers = {"takes all": np.array([0.2, 0.4, 0.3]), "leaves the other's": np.array([0.4, 0.2, 0.25])}
    results["ppi, mixed pool"].numbers.update(takers)
    _, responses = in_context_report.sections(tmp_path, results, parts)
    assert responses.claims[0].ours == pytest.approx(0.31 - 0.3)
    assert len(list(tmp_path.glob("in_context_*.png"))) == 3


@nightly
@pytest.mark.parametrize("game", ["ipd", "coin_game"])
def test_a_report_has_the_summaries_and_repeats_nothing(game, within, tmp_path):
    for arguments in (["in_context", f"--game={game}", "--fast", "--seeds=2", "--out=run"], ["--resume", "run"]):
        done = within(*arguments, cwd=tmp_path, module="marl.reproduce")
        assert done.returncode == 0, done.stderr
        assert ("done before" in done.stdout) == ("--resume" in arguments)
    assert "The shares of cooperation between learners of different trainings" in done.stdout
    data = json.loads((tmp_path / "run" / "report.json").read_text())
    assert set(data["measured"]) == {"ppi, mixed pool", "ppi, learners only"}
    part = tmp_path / "run" / "trainings" / "ppi-mixed-pool"
    summary = json.loads((part / "summary.json").read_text())
    last = json.loads((part / "metrics.jsonl").read_text().splitlines()[-1])  # `[seeds, players, apart and together]`
    for name in ("cooperation", "payoff"):  # a learner that takes no coin has no share, and the mean is None then
        mean = np.array(last[name], float)[..., 1].mean()
        assert summary[name]["together"]["mean"] == (None if np.isnan(mean) else pytest.approx(mean, abs=1e-6))
    assert np.isfinite(summary["payoff"]["together"]["mean"])


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds=1"], "seeds: got 1; a whole number of at least 2 is needed"),
        (["--rounds=1"], "rounds: got 1; a whole number of at least 2 is needed"),
        (["--sharpness=0"], "sharpness: got 0.0; a number above 0 is needed"),
        (["--fast", "--updates=3"], "updates: has no effect with --fast, which has its own"),
        (["--cluster=ray"], "cluster: has no effect where nothing is evolved"),
    ],
)
def test_misfits_are_one_line(arguments, message, within, tmp_path):
    result = within("in_context", *arguments, cwd=tmp_path, module="marl.reproduce")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
