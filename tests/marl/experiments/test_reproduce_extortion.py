"""The report on when extortion is learned: its settings, its searches and what play alone shows."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.exact.zd import zd_policy
from marl.experiments.reproduce import extortion, extortion_report
from marl.experiments.reproduce.extortion import CHANGING, DILEMMA, FIXED, Study, donation, from_play, make_studies
from marl.shapers.trial import Trials

STUDY = Study(FIXED, seeds=2, population_size=4, generations=2, trials=1, evaluation_trials=8, meta_steps=5)


def trials_of(policies, others):
    return Trials(None, None, policies, others, None, {}, ())


def test_donation_games_have_one_range_and_the_papers_dilemma_is_one():
    reward, sucker, temptation, punishment = donation(2.0)
    assert np.allclose(np.array([reward, sucker, temptation, punishment]) - 2, DILEMMA)
    for ratio in (1.2, 5.0):
        reward, sucker, temptation, punishment = donation(ratio)
        assert temptation - sucker == pytest.approx(3)
        assert temptation > reward > punishment == 0 > sucker
        assert temptation / -sucker == pytest.approx(ratio)


def test_every_setting_has_a_study_with_the_same_steps_of_the_learner():
    studies = make_studies(seeds=10, seed=0, fast=False)
    for name in ("discount-0.9", "discount-0.99", "discount-0.999"):
        (rate,) = studies[name].learning_rates
        assert rate / (1 - studies[name].discount) == pytest.approx(1 / (1 - 0.96))
    lengths = {study.meta_steps for study in studies.values() if study.shaper == "mfos"}
    assert lengths == {100, 300, 1000, 3000}
    assert set(make_studies(seeds=2, seed=0, fast=True)) < set(studies)


def test_play_alone_shows_an_extortioner_and_clears_others():
    game, generator = STUDY.game, np.random.default_rng(0)
    others = np.broadcast_to(generator.uniform(size=(50, 1, 5)), (50, 20, 5))
    extortioner = zd_policy(game.payoffs, 3.0, discount=game.discount)
    for policy, chi, share in (
        (extortioner, extortion.fit(game.payoffs, extortioner, discount=1.0).chi, 1.0),
        (np.array([1, 1, 0, 1, 0.0]), None, 0.0),  # tit for tat: chi 1 and not more
        (np.array([0.9, 0.9, 0.9, 0.9, 0.9]), None, 0.0),
    ):
        found = from_play(game, trials_of(np.broadcast_to(policy, (50, 20, 5)), others), generator)
        assert found["share"] == pytest.approx(share, abs=0.1)
        if chi:
            assert found["chi"] == pytest.approx(chi, rel=0.1)
            assert found["error"] < extortion.MAX_ERROR


def test_histories_are_played_by_both_policies():
    """The second player's state is its own view: against tit for tat of both, one deviation alternates for ever."""
    game, tft = STUDY.game, np.array([1, 1, 0, 1, 0.0])
    first = np.array([0, 1, 0, 1, 0.0])
    found = from_play(game, trials_of(first[None, None], tft[None, None]), np.random.default_rng(0))
    # C after DC, D after CD; CC and DD are not visited and get the share of cooperation, one half.
    assert found["error"] == pytest.approx(4 * extortion.fit(
        game.payoffs, np.array([0, 0.5, 0, 1, 0.5]), discount=1.0).residual ** 2)  # fmt: skip


def test_the_best_extortioner_is_one_and_beats_others_of_its_family():
    study = dataclasses.replace(STUDY, generations=10, meta_steps=20)
    best = extortion._search_family(study)
    assert best["trials"]["mean"] == 1.0
    play = extortion._player(study)
    for chi in (1.5, 3.0, 20.0):
        policy = zd_policy(study.game.payoffs, chi, discount=study.discount)
        other = play(jnp.asarray(extortion.logits_of(policy)), None).shaper_payoffs.mean()
        assert best["shaper"]["mean"] > other - 0.05  # other trials than those of the search


@pytest.mark.system
def test_an_ascent_gets_more_than_where_it_begins():
    study = dataclasses.replace(STUDY, meta_steps=3, evaluation_trials=64)
    found = extortion._ascend(study)
    play = extortion._player(study)
    starts = 2.0 * jax.random.normal(jax.random.fold_in(jax.random.key(study.seed), 1), (2, 5))
    assert found["shaper"]["mean"] > max(play(start, None).shaper_payoffs.mean() for start in starts)
    assert extortion._ascend(dataclasses.replace(study, opponent="best_response")) is None


def described(payoff, share, chi, rate=None):
    def of(mean):
        return {"mean": mean, "standard_error": 0.01}

    found = {"shaper": of(payoff), "opponent": of(-1.8), "trials": of(share), "meta_steps": of(share)}
    found |= {"chi": chi, "residual": 0.03, "policy": [0.0, 0.7, 0.0, 0.6, 0.0], "learning_rate": rate}
    return found | {"play": {"error": 0.002, "chi": 5.0, "share": share, "rising": 1.0}}


def test_the_report_says_what_the_summaries_hold(tmp_path):
    """One training of three does not extort; in one of four settings the policy that is kept gets more."""
    studies = {"naive": Study(FIXED, seeds=3), "discount-0.9": Study(FIXED, seeds=2, discount=0.9)}
    runs = [described(-0.75, 1.0, 6.0), described(-0.77, 1.0, 5.0), described(-1.3, 0.0, None)]
    searches = {"gradient": described(-0.70, 1.0, 6.5), "family": described(-0.76, 1.0, 4.0) | {"phi": 0.1}}
    results = {"naive": {"runs": runs, **searches}, "discount-0.9": {"runs": runs[:2], **searches, "gradient": None}}
    payoffs = {(FIXED, 100): (-0.8, -0.7), (CHANGING, 100): (-0.4, -0.3), (FIXED, 300): (-0.7, -0.6)}
    payoffs[(CHANGING, 300)] = -0.5, -0.65
    for (shaper, length), (slow, fast) in payoffs.items():
        name, rates, share = f"{shaper}-{length}", (0.1, 1.0), float(shaper == FIXED)
        studies[name] = Study(shaper, meta_steps=length, learning_rates=rates, seeds=2, searches=False)
        own = zip(rates, (slow, fast), strict=True)
        results[name] = {"runs": [described(payoff, share, 3.0, rate) for rate, payoff in own for _ in range(2)]}
    policies = np.broadcast_to(zd_policy(STUDY.game.payoffs, 3.0, discount=0.96), (4, 5, 5))
    played = {"the shaper": trials_of(policies, np.full((4, 5, 5), 0.5))}
    folder = SimpleNamespace(figures=tmp_path)
    kept, over_time, from_play = extortion_report.sections(folder, studies, results, played, STUDY.game, 0)
    assert "67% are zero-determinant extortion (chi 5.5)" in kept.answer
    assert "they get -0.940 ± 0.180 per round, the best extortioner -0.760" in kept.answer
    verdicts = {claim.name: (claim.ours, claim.least) for claim in kept.claims}
    assert verdicts["naive: share of trainings that extort"] == (pytest.approx(2 / 3), 0.9)
    assert verdicts["naive: by gradient, less the best extortioner"][0] == pytest.approx(0.06)
    assert "| naive, discount 0.9 | -0.760 ± 0.010 |" in kept.tables[0]
    assert "in 3 of 4 settings, by 0.20 to 0.40; its policy is extortion in 0.0% to 0.0%" in over_time.answer
    assert "| 300 | 1 | -0.600 ± 0.000 | -0.600 | -0.650 ± 0.000 | 100.0% | 0.0% |" in over_time.tables[0]
    assert (tmp_path / "extortion.png").is_file()
    assert "From play alone 67% of the trials of kept policies are extortion" in from_play.answer
    results["naive"]["runs"] = [described(-1.3, 0.0, None)] * 3
    for name in results.keys() - {"naive", "discount-0.9"}:
        for run in results[name]["runs"]:
            run["shaper"] = {"mean": -0.5, "standard_error": 0.01}
    kept, over_time, _ = extortion_report.sections(folder, studies, results, played, STUDY.game, 0)
    assert "0% are zero-determinant extortion; they get" in kept.answer
    assert "in 0 of 4 settings; its policy is extortion" in over_time.answer
