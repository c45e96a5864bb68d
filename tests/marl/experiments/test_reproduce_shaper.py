"""`python -m marl.reproduce shaper` and `sparse`: pairs of shapers and opponents, and the reports."""

import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import configs
from marl.blocks.sparse import kernels
from marl.experiments.reproduce import papers
from marl.experiments.reproduce import shaper as reproduce_shaper
from marl.experiments.reproduce import sparse as reproduce_sparse
from marl.experiments.shaping.config import ShapingConfig
from marl.learners.registry import make_learner
from meta import RunDirectory
from meta.runs.reports.claims import passes

pytestmark = pytest.mark.system


def test_every_shaper_is_reproduced_in_every_game():
    parts = papers.ShaperConfig(seed=7).parts()
    pairs = [(name.split("-")[0], config.shaper) for name, config in parts.items()]
    for game in ("ipd_sampled", "imp_sampled", "coin_game", "ipd_in_the_matrix", "three_player_ipd"):
        for shaper in ("shaper", "good_shepherd", "mfos"):
            assert (game, shaper) in pairs
    assert ("ipd_sampled", "shaper(memory='episode')") in pairs
    assert ("ipd_sampled", "shaper(averaging=False)") in pairs
    assert [name for name, config in parts.items() if config.num_shapers == 2] == ["three_player_ipd-two-shapers"]
    assert {(config.seed, config.seeds) for config in parts.values()} == {(7, 3)}
    preset = configs.load(ShapingConfig, "mfos", "ipd_sampled")
    assert parts["ipd_sampled-shaper"].generations == preset.generations
    small = papers.ShaperConfig(games=("coin_game",), fast=True).parts()
    assert {config.generations * config.trials_per_generation for config in small.values()} == {4}


def test_given_shapers_and_opponents_all_meet(tmp_path):
    learners = ("loqa", "ppo(hidden=[16])", "reinforce")
    parts = papers.ShaperConfig(games=("ipd_sampled",), shapers=("mfos",), opponents=learners, seeds=2).parts()
    names = [f"ipd_sampled-mfos-of-{name}" for name in ("loqa", "ppo-hidden=-16", "reinforce")]
    assert list(parts) == names
    for config in parts.values():
        assert {config.opponent, *config.unseen} == set(learners)
        assert config.opponent not in config.unseen

    def value(mean, error):
        return {"mean": mean, "standard_error": error}

    def result(own, others):
        against = {"x": {"shaper": value(own, 0.1), "opponent": value(others, 0.1)}}
        returns = {"shaper_return": value(own, 0.1), "opponent_return": value(others, 0.1)}
        alone = {"shaper": value(-1.9, 0.1), "opponent": value(-1.8, 0.1)}
        gain = {"gain_over_own_kind": value(own + 1.9, 0.2), "num_trials": 4, "untrained": {"shaper": value(-2, 0.1)}}
        return {**returns, **gain, "own_kind": alone, "against": against}

    results = dict(zip(names, (result(-0.5, -2.5), result(-1.0, -1.0), result(-1.5, -1.2)), strict=True))
    run = RunDirectory.create(tmp_path / "run", parts[names[0]])
    overview, *each = reproduce_shaper.sections(run, parts, results)
    assert len(each) == 3
    others = "-2.000 ± 0.100 | -1.900 ± 0.100 | -1.800 ± 0.100 | 1.400 ± 0.200"
    row = f"| mfos | loqa | -0.500 ± 0.100 | -2.500 ± 0.100 | {others} |"
    assert row in overview.tables[0]
    assert "2 trainings each; ± between trainings." in overview.text
    assert overview.answer == (
        "The gain over learners alone in a step is largest for mfos of loqa (1.400 ± 0.200), and smallest for mfos of "
        "reinforce (0.400 ± 0.200)."
    )
    assert each[0].answer == (
        "The shaper and its opponent get -0.500 and -2.500 in a step; learners alone get -1.900 and -1.800."
    )
    assert (run.path / overview.pictures[0][1]).is_file()
    (shaper,) = (claim for claim in each[0].claims if claim.name == "shaper")
    assert shaper.least is None  # the game's target is for its own learner


@pytest.mark.parametrize(("game", "least"), [("ipd_in_the_matrix", 3.0), ("ipd_sampled", None)])
def test_in_the_matrix_claims_that_the_learner_cooperates_more_than_learners_alone(game, least, tmp_path):
    (config,) = papers.ShaperConfig(games=(game,), shapers=("shaper",)).parts().values()

    def value(mean, error):
        return {"mean": mean, "standard_error": error}

    returns = {"shaper": value(0.06, 0.01), "opponent": value(0.04, 0.01)}
    met = returns | {"cooperation": [value(0.1, 0.1), value(0.6, 0.03)]}  # the shaper's, and the learner's
    found = {
        "against": {config.opponent: met},
        "own_kind": returns | {"cooperation": [value(0.9, 0.1), value(0.4, 0.04)]},
    }
    found |= {"shaper_return": returns["shaper"], "opponent_return": returns["opponent"], "num_trials": 4}
    found |= {"gain_over_own_kind": value(0.02, 0.01)}
    claims = reproduce_shaper._section(tmp_path, f"{game}-shaper", config, found).claims
    above, own, alone = (claim for claim in claims if "cooperation" in claim.name)
    assert (above.ours, above.least) == (pytest.approx(0.2 / 0.05), least)
    assert (own.ours, own.standard_error, alone.ours, alone.standard_error) == (0.6, 0.03, 0.4, 0.04)


def test_shapers_against_each_density_meet_all_densities(tmp_path):
    parts = reproduce_sparse.make_configs(seeds=3, seed=7, fast=False)
    learners = [config.opponent for config in parts.values()]
    assert learners[0] == "ppo(hidden=[16], learning_rate=0.01)"
    assert learners[1] == "ppo(hidden=[16], learning_rate=0.01, sparsity='static(density=0.2)')"
    assert all({config.opponent, *config.unseen} == set(learners) for config in parts.values())
    assert {(config.seeds, config.seed) for config in parts.values()} == {(3, 7)}
    game = parts["density-0.2"].make_game()
    states = [make_learner(learner, game).init(jax.random.key(0)) for learner in learners]
    counts = [sum(np.count_nonzero(kernel) for kernel in kernels(state.params)) for state in states]
    assert counts == [208, 42]  # 5 x 16 and 16 x 2 weights of the policy, 5 x 16 and 16 of the values

    def value(mean, error):
        return {"mean": mean, "standard_error": error}

    def result(gain, error):
        against = {learner: {"shaper": value(-1.0, 0.1)} for learner in learners}
        alone = {"shaper": value(-1.9, 0.1), "opponent": value(-1.9, 0.1)}
        returns = {"shaper_return": value(-1.9 + gain, error), "opponent_return": value(-2.0, 0.1)}
        return {**returns, "gain_over_own_kind": value(gain, error), "own_kind": alone, "against": against}

    gains = [(0.9, 0.1), (0.2, 0.1)]
    results = {name: result(*gain) for name, gain in zip(parts, gains, strict=True)}
    (section,) = reproduce_sparse.sections(tmp_path, parts, results)
    assert [claim.ours for claim in section.claims[::2]] == pytest.approx([9, 2])
    assert [passes(claim) for claim in section.claims[::2]] == [True, False]
    assert section.answer == (
        "A Shaper's gain over learners alone is 0.90 ± 0.10 with 100% of the weights, and 0.20 ± 0.10 with 20% of the "
        "weights of its opponent."
    )
    assert "| density 0.2 | -1.700 ± 0.100 | -2.000 ± 0.100 |" in section.tables[0]
    assert (tmp_path / "payoffs-by-density.png").is_file()


def test_reproduce_refuses_games_that_it_does_not_have(within, tmp_path):
    result = within("shaper", "--games", "ipd_sampeld", cwd=tmp_path, module="marl.reproduce")
    assert result.returncode == 2
    assert "games: got 'ipd_sampeld'; did you mean ipd_sampled" in result.stderr
    result = within("shaper", "--games", "ipd_sampled", "--opponents", "lqoa", cwd=tmp_path, module="marl.reproduce")
    assert result.returncode == 2
    assert "opponent: got 'lqoa'; did you mean loqa" in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_smoke_run_of_the_reproduction_reports_every_part(environment, tmp_path):
    line = [sys.executable, "-m", "marl.reproduce", "shaper", "--fast", "--games", "ipd_sampled", "--out=run"]
    result = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert re.search(r"this will take about \d+ (s|min) on this machine", result.stdout)
    path = tmp_path / "run"
    text, found = (path / "report.md").read_text(), json.loads((path / "report.json").read_text())
    assert "smoke run" in text
    parts = ["shaper", "good_shepherd", "mfos", "no-context", "no-averaging"]
    assert set(found["shapers"]) == {f"ipd_sampled-{part}" for part in parts}
    links = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(links) == len(parts) * 5 + 1
    assert all((path / link).stat().st_size > 1000 for link in links)
    verdicts = [claim for claim in found["claims"] if claim["passes"] is not None]
    assert len(verdicts) == len(parts) + 1  # the gain of each, and the shaper's return in the dilemma
    again = subprocess.run(
        [*line[:4], "--resume=run"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done before") == len(parts)
