"""`python -m marl.reproduce`: the arithmetic of its verdicts, by hand, and both of its experiments as smoke runs."""

import dataclasses
import json
import math
import re

import jax
import numpy as np
import pytest

from games import prisoners_dilemma
from games.exact.zd import random_policies, zd_policy
from marl.experiments.bound import KnownBound
from marl.experiments.reproduce import discovery as reproduce_discovery
from marl.experiments.reproduce import generalists as reproduce_generalists
from marl.experiments.reproduce import mfos as reproduce_mfos
from marl.experiments.reproduce import papers
from marl.experiments.reproduce import zd as reproduce_zd
from marl.experiments.reproduce.mfos import antisymmetry_claims, fraction, head_to_head_claims
from marl.experiments.shaping import jobs, runtime_estimate
from marl.experiments.shaping.agents import Agent
from marl.experiments.shaping.config import ExactShapingConfig
from meta.runs.reports.claims import difference, passes, summary
from tests.nightly import nightly

pytestmark = pytest.mark.system

DISCOUNT = 0.96
ALL_C, ALL_D, TFT = ([1.0] * 5, [0.0] * 5, [1.0, 1.0, 0.0, 1.0, 0.0])


def test_the_fraction_of_the_way_to_the_bound():
    # From -2 to 0, at -0.5: three quarters; errors 0.03 and 0.75 x 0.04 on a way of 2.
    way, error = fraction(-0.5, 0.03, KnownBound(-2.0, 0.0, 0.04, 0.0))
    assert (way, error) == pytest.approx((0.75, math.sqrt(2) * 0.03 / 2))
    assert fraction(-0.5, 0.03, KnownBound(-2.0, 0.0, math.nan, 0.0))[1] == pytest.approx(0.015)
    for nothing in (
        fraction(1.0, 0.1, KnownBound(1.0, 1.0, 0.0, 0.0)),  # nothing to gain
        fraction(-0.5, 0.03, KnownBound(-2.0, 0.0, 0.04, 0.05)),  # the second half of the starts went on
        fraction(0.1, 0.03, KnownBound(-2.0, 0.0, 0.04, 0.0)),  # a return above the bound disproves it
    ):
        assert nothing == (None, None)


def cell(row, column, returns, errors=(0.001, 0.001)):
    found = {"row": row, "column": column, "num_trials": 1024}
    for side, value, error in zip(("row", "column"), returns, errors, strict=True):
        found |= {f"{side}_return": value, f"{side}_standard_error": error}
    return found


def test_public_figures_pass_against_themselves_and_fail_in_exchanged_seats():
    public = reproduce_mfos.PUBLIC
    assert len(public) == 9
    same = head_to_head_claims([cell(*pair, returns) for pair, returns in public.items()])
    # One claim for each seat, and M-MAML's claims to gain at least as much.
    assert summary(same) == (21, 21)
    swapped = head_to_head_claims([cell("naive", "lola", public["lola", "naive"])])
    assert [passes(claim) for claim in swapped] == [False, False]  # -1.309 for -1.516, and -1.527 for -1.299
    # Each figure has its own error: with a quarter of the pairs ours is twice as large as the reference's.
    assert [claim.reference_error for claim in swapped] == pytest.approx([0.0005, 0.0005])
    assert difference(swapped[0]) == pytest.approx(0.207 / math.hypot(0.001, 0.0005))
    worse = head_to_head_claims([cell("mmaml", "naive", (-1.3, -1.276))])
    assert [passes(claim) for claim in worse] == [True, True, False]  # within the spread, but not better
    (first, second) = head_to_head_claims([cell("naive", "lola", public["naive", "lola"], (0.006, 0.004))])
    assert (first.reference_error, second.reference_error) == pytest.approx((0.003, 0.002))


def test_antisymmetry_is_of_a_pair_in_both_seats():
    errors = (0.003, 0.003), (0.004, 0.004)
    cells = [cell("lola", "naive", (0.2, -0.2), errors[0]), cell("naive", "lola", (-0.19, 0.19), errors[1])]
    cells += [cell(name, name, (0.002, -0.002)) for name in ("naive", "lola")]
    claims = antisymmetry_claims(cells)
    assert len(claims) == 3
    assert [round(difference(claim), 6) for claim in claims] == [2.0, 2.0, 2.0]  # 0.01 / 0.005, 0.002 / 0.001 twice
    assert all(map(passes, claims))
    cells[1] = cell("naive", "lola", (0.19, -0.19), errors[1])  # both gain from the seat
    assert [passes(claim) for claim in antisymmetry_claims(cells)] == [False, True, True]
    answer = "2 of 3 pairs are antisymmetric to within 3 standard errors; the largest departure is 78.0."
    assert reproduce_mfos._antisymmetry_section(cells).answer == answer  # 0.2 and 0.19 are 0.39 / 0.005 apart


def test_lines_that_strategies_enforce_on_random_co_players():
    co_players = random_policies(np.random.default_rng(0))
    assert co_players.shape == (10_000, 5)
    policy = zd_policy(prisoners_dilemma, 3.0, discount=DISCOUNT)
    found = reproduce_zd.enforced(prisoners_dilemma, policy, co_players, discount=DISCOUNT)
    assert found.slope == pytest.approx(3.0, abs=1e-13)
    assert found.distance < 1e-14
    np.testing.assert_allclose(found.own + 2, 3 * (found.other + 2), rtol=0, atol=1e-13)
    assert (found.below, found.above) == (0.0, 1.0)
    # A defector gets 0 or -2, at least as much as its co-player: s_X - P = -2 (s_Y - P).
    all_d = reproduce_zd.enforced(prisoners_dilemma, np.array(ALL_D), co_players, discount=DISCOUNT)
    assert (all_d.slope, all_d.below) == (pytest.approx(-2.0, abs=1e-12), 0.0)
    all_c = reproduce_zd.enforced(prisoners_dilemma, np.array(ALL_C), co_players, discount=DISCOUNT)
    assert (all_c.below, all_c.above) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mfos", "--seeds=0"], "seeds: got 0; a whole number from 1 to 1000 is needed"),
        (["zd", "--agent=nowhere"], "agent: got 'nowhere'; "),
        (["zd", "--agent=nowhere", "--fast"], "fast: has no effect with an agent that is trained already"),
        (["rlx2", "--cluster=ray"], "cluster: has no effect where nothing is evolved"),
        (["coin_game", "--fast", "--paper"], "paper: has no effect with --fast, which has its own"),
        (["zd", "--agent=nowhere", "--seeds=2"], "seeds: has no effect with an agent that is trained already"),
        (["zd", "--seeds=1"], "seeds: got 1; a whole number of at least 2 is needed"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, within, tmp_path):
    result = within(*arguments, cwd=tmp_path, module="marl.reproduce")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def reproduce(within, tmp_path):
    """Runs `python -m marl.reproduce`."""
    return lambda *arguments: within(*arguments, cwd=tmp_path, module="marl.reproduce")


@pytest.fixture
def constant_speed(monkeypatch):
    """A constant speed of this machine, because its measurement would compile further programs."""
    monkeypatch.setattr(jobs, "measure", lambda config: runtime_estimate.Speed(1e6, 1.0))


def pictures_exist(path):
    links = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (path / "report.md").read_text())
    assert links
    assert all(link.startswith("figures/") and (path / link).read_bytes()[:4] == b"\x89PNG" for link in links)


@nightly
def test_mfos_goes_on_where_it_was_stopped_and_reports_everything(reproduce, tmp_path, monkeypatch):
    path, first = tmp_path / "run", tmp_path / "run" / "shapers" / "ipd-naive" / "summary.json"

    def stop(jobs, console):
        run_jobs(jobs[:1], console)
        raise KeyboardInterrupt

    run_jobs = papers.run_jobs
    with monkeypatch.context() as patch:
        patch.setattr(papers, "run_jobs", stop)
        stopped = reproduce("mfos", "--fast", "--seeds=2", "--out=run")
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.splitlines()[-1].endswith("go on with python -m marl.reproduce --resume run")
    assert re.search(r"this will take about \d+ (s|min) on this machine", stopped.stdout)
    assert not (path / "report.md").exists()
    written = first.stat().st_mtime_ns
    table = (path / "head_to_head" / "ipd" / "pairs.jsonl").read_text()
    resumed = reproduce("mfos", "--resume=run")
    assert resumed.returncode == 0, resumed.stderr
    assert (path / "head_to_head" / "ipd" / "pairs.jsonl").read_text() == table
    assert "ipd-naive: done before" in resumed.stdout
    assert first.stat().st_mtime_ns == written
    found, text = json.loads((path / "report.json").read_text()), (path / "report.md").read_text()
    assert found["config_digest"] == json.loads((path / "run.json").read_text())["config_digest"]
    claims = {claim["name"]: claim for claim in found["claims"]}
    assert f"{found['passed']} of {found['claimed']} claims pass" in resumed.stdout
    assert found["claimed"] == sum(claim["passes"] is not None for claim in found["claims"])
    assert "smoke run" in text
    naive, *_, mmaml = found["head_to_head"]["ipd"]
    played = (
        f"naive {naive['row_return']:.3f} (public code -1.983), mmaml {mmaml['row_return']:.3f} (public code -1.175)"
    )
    annealed = found["shapers"]["ipd-self-play"]
    both = f"{annealed['shaper_return']:.2f} and {annealed['opponent_return']:.2f} with annealing"
    for answer in (
        f"Against their kind, per round of the prisoner's dilemma: {played}.",
        f"together get {both} (mutual",
    ):
        assert answer in text
        assert answer in resumed.stdout
    # Against targets that are known, with numbers that come from the part's own summary.
    claim = claims["prisoners dilemma against naive"]
    assert claim["ours"] == json.loads(first.read_text())["shaper_return"]
    assert (claim["least"], claim["reference"], claim["passes"]) == (-0.42, -0.40, claim["ours"] >= -0.42)
    assert claims["with annealing, row shaper"]["least"] == -1.10
    assert claims["naive against mmaml, row's payoff"]["reference"] == -1.278
    assert found["versions"]["jax"] in text
    pictures_exist(path)


@pytest.mark.parametrize("fast", [True, False])
def test_every_part_by_ppo_has_the_same_part_by_evolution(fast):
    parts = reproduce_mfos.make_configs(seeds=2, seed=0, ppo=True, fast=fast)
    by_ppo = [name for name, config in parts.items() if config.meta_learner == "ppo"]
    assert by_ppo
    assert {name.removesuffix("-ppo") for name in by_ppo} < set(parts)


@nightly
@pytest.mark.usefixtures("constant_speed")
def test_zd_compares_the_shapers_with_extortioners_and_with_chance(reproduce, tmp_path):
    result = reproduce("zd", "--fast", "--seeds=2", "--seed=4", "--out=run")
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "run" / "report.json").read_text())
    zd = found["zd"]
    assert [step["meta_step"] for step in zd["steps"]] == [1, 2, 3, 4, 5]
    players = zd["players"]
    shapers = [players[f"the shaper, seed {seed}"] for seed in (4, 5)]
    own = [one["shaper"]["mean"] for one in shapers]
    assert zd["shaper"]["shaper"]["mean"] == pytest.approx(np.mean(own))
    assert zd["shaper"]["shaper"]["standard_error"] == pytest.approx(np.std(own, ddof=1) / 2**0.5)
    for chi, name in [
        (1.04 / 0.92, "suspicious tit for tat"),
        *((chi, f"zd(chi={chi:g})") for chi in (1.5, 2, 3, 5, 10)),
    ]:
        assert players[name]["chi"] == pytest.approx(chi, rel=1e-4)
        assert players[name]["residual"] < 1e-6
        assert players[name]["trials"] == {"mean": 1.0, "standard_error": 0.0}
        assert players[name]["beyond"]["mean"] == 0.0  # no extortioner is beyond
    for name in ("a random policy in each meta-step", "always defects"):
        assert players[name]["trials"]["mean"] == 0.0
    assert zd["num_co_players"] == 10_000
    best = max((f"zd(chi={chi:g})" for chi in (1.5, 2, 3, 5, 10)), key=lambda name: players[name]["shaper"]["mean"])
    answer = f"The shaper gets {np.mean(own):.2f} per round and its opponent"
    answer += f" {np.mean([one['opponent']['mean'] for one in shapers]):.2f}; the best extortioner, {best}, gets"
    assert f"Payoffs: {answer} {players[best]['shaper']['mean']:.2f}, and its opponent" in result.stdout
    verdicts = {claim["name"]: claim["passes"] for claim in found["claims"]}
    assert verdicts["chi = 3: slope, less 3"]
    assert verdicts["chi = 3: largest miss of a co-player"]
    pictures_exist(tmp_path / "run")


def test_generalists_meet_every_learner():
    parts = reproduce_generalists.make_configs(seeds=10, seed=3, fast=False)
    learners = set(reproduce_generalists.columns(False))
    assert len(parts) == 2 * (len(reproduce_generalists.SEEN) + 1)
    assert {config.shaper for config in parts.values()} == {"mfos", "shaper"}
    assert [name for name, config in parts.items() if config.preparation] == ["mfos of lola"]  # as the report says
    for config in parts.values():
        assert learners <= {config.opponent, *config.unseen}
        assert (config.seed, config.seeds) == (3, 10)


@nightly
@pytest.mark.usefixtures("constant_speed")
def test_generalists_are_compared_with_untrained_shapers(reproduce, tmp_path):
    result = reproduce("generalists", "--fast", "--seeds=2", "--out=run")
    assert result.returncode == 0, result.stderr
    pictures_exist(tmp_path / "run")
    report = (tmp_path / "run" / "report.md").read_text()
    rows = [line for line in report.splitlines() if line.startswith("| **")]
    assert len(rows) == 6
    assert all(line.count("±") == 5 for line in rows)  # three learners, those met and the others


def test_a_generalist_is_compared_with_the_best_untrained_player_and_the_best_specialist(tmp_path):
    names = reproduce_generalists.columns(True)  # two met, one not

    def summary(*runs):
        each = [dict(zip(names, run, strict=True)) for run in runs]
        return {"runs": [{"against": {name: {"shaper": {"mean": x}} for name, x in one.items()}} for one in each]}

    results = {"mfos of naive": summary(*[(-0.5, -1.5, -1)] * 2), "mfos of lola": summary(*[(-2, -1, -2)] * 2)}
    results["mfos of all"] = summary((-0.75, -1.25, -2), (-0.25, -1.25, -1))
    untrained = {"a naive learner": {name: np.array([-2.0, -1.8]) for name in names}}
    (section,) = reproduce_generalists.sections(tmp_path, results, untrained, True)
    # The generalist has -0.875 and -1.5; the untrained player -1.9, and the better specialist -1.0.
    assert [claim.ours for claim in section.claims] == pytest.approx([1.025, 0.125, 0.4, -0.5])
    errors = [claim.standard_error for claim in section.claims]
    assert section.answer == (
        "Over learners seen in training, mfos of all gets -0.88, the best untrained player (a naive learner) gets "
        "-1.90, the best specialist (mfos of naive) gets -1.00. Over learners not seen in training, mfos of all gets "
        "-1.50, the best untrained player (a naive learner) gets -1.90, the best specialist (mfos of naive) gets -1.00."
    )
    assert errors[1] == pytest.approx(0.125)  # between the trainings' -1 and -0.75; the specialists' are equal
    assert errors[0] == pytest.approx(np.hypot(0.125, 0.1))  # between -2.0 and -1.8
    assert [passes(claim) for claim in section.claims] == [True, True, True, False]


def test_an_evolved_objective_has_to_beat_ppo_and_tuned_ppo_and_lose_nowhere():
    """Claims in standard errors: 5 above PPO, 3 above tuned PPO and L2, and at most 2 below in longer trainings."""
    (config,) = reproduce_discovery.make_configs(searches=1, seed=3, fast=True).values()
    assert (config.kind, config.searches, config.seed) == ("drift", 1, 3)

    def value(mean, error):
        return {"mean": mean, "standard_error": error}

    def apart(mean, error):
        better = value(mean + 1, error)
        return {**value(mean, 0.5 * error), "each": [better, value(mean, error), better]}

    arms = {arm: value(1.0, 0.1) for arm in ("plain", "tuned", "dpo", "evolved")}
    longer = {**arms, "difference_from_tuned": apart(-0.3, 0.1)}
    found = {
        "difference_from_plain": apart(0.6, 0.1),
        "difference_from_tuned": apart(0.2, 0.1),
        "environments": {"a": {**arms, "difference_from_tuned": apart(0.2, 0.1)}},
        "transfer": {"longer": longer, "b": {**longer, "difference_from_tuned": apart(-0.1, 0.1)}},
        "scales": {"clip": [0.2]},
    }
    (section,) = reproduce_discovery.sections({"drift": config}, {"drift": found})
    # The worst search has to be better, by errors between trainings; all together no worse, by errors between them.
    assert [claim.ours for claim in section.claims] == pytest.approx([6, 2, -6, -2])
    assert [passes(claim) for claim in section.claims] == [True, False, False, True]
    assert section.answer == (
        "In the games of the search the result is 0.60 ± 0.05 above PPO, and 0.20 ± 0.05 above tuned PPO."
    )
    of_values = dataclasses.replace(config, kind="value_loss")
    beside_l2 = {**found, "difference_from_l2": apart(0.1, 0.1)}
    (section,) = reproduce_discovery.sections({"value-loss": of_values}, {"value-loss": beside_l2})
    assert [claim.ours for claim in section.claims[:3]] == pytest.approx([6, 2, 1])  # 1 is above L2
    beside = {"evolved": value(1.0, 0.1), "tuned": value(1.0, 0.1), "difference": value(0.0, 0.2)}
    of_two = {**found, "beside_tuned": {"a": beside}}
    of_two["environments"]["a"]["difference_from_still"] = apart(0.4, 0.1)
    (section,) = reproduce_discovery.sections({"drift-for-two": config}, {"drift-for-two": of_two})
    assert section.claims[-1].ours == pytest.approx(4)
    assert not passes(section.claims[-1])
    assert set(reproduce_discovery.make_configs(searches=3, seed=0, fast=False)) == set(reproduce_discovery.PARTS)


@nightly
def test_the_report_of_discovery_has_every_picture(reproduce, tmp_path):
    result = reproduce("discovery", "--fast", "--searches=1", "--out=run")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "report.md").is_file()
    for name in ("evolution", "objective", "learning_curves"):
        assert (tmp_path / "run" / "drift" / "figures" / f"{name}.png").is_file()


def test_every_player_in_the_place_of_the_shaper_plays_the_policy_of_its_name():
    config = ExactShapingConfig(meta_steps=3, hidden_units=2)
    shaper = config.make_shaper()
    agent = Agent("", shaper.learner, shaper.init(jax.random.key(1)), config)
    found, played = reproduce_zd.analyse(agent, seed=0, num_trials=4)
    assert list(found["players"]) == list(played)
    for trials in played.values():
        assert trials.shaper_policies.shape == (4, 3, 5)
    np.testing.assert_allclose(played["suspicious tit for tat"].shaper_policies[2, 1], [0, 1, 0, 1, 0], atol=1e-8)
    kept, redrawn = (played[name].shaper_policies for name in (reproduce_zd.KEPT, reproduce_zd.REDRAWN))
    assert len(np.unique(kept[:, :, 0])) == 4
    assert len(np.unique(redrawn[:, :, 0])) == 12


def test_a_shaper_of_a_game_without_feasible_extortioners_is_refused():
    reproduce_zd.check(ExactShapingConfig())
    with pytest.raises(ValueError, match=r"with a discount of 0\.8, at which no extortion factor below 2\.00 can be"):
        reproduce_zd.check(ExactShapingConfig(discount=0.8))
