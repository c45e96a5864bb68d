"""Distillation: fits against closed solutions, the report by hand, and a smoke run of the command."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl.blocks.objectives import quadratic_drift
from marl.blocks.value_losses import distance_of
from marl.experiments.discovery.distillation import SAMPLES, SPREAD, distil
from marl.experiments.reproduce import distillation
from marl.learners.sampled.objective_registry import Form
from meta.runs.reports.claims import passes
from tests.nightly import nightly

HIDDEN = 4


def of_one_unit(form, **values):
    """Parameters of which one unit is not 0."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape), jax.eval_shape(form.network().init, jax.random.key(0)))
    return {name: zeros[name].at[..., 0].set(jnp.asarray(values[name])) for name in zeros}


def points(number):
    return np.random.default_rng(0).normal(size=(2, SAMPLES)).astype(np.float32)[:number]


def test_a_distance_of_one_unit_is_found_and_its_expectile_is_the_ratio_of_two_regressions():
    form = Form("value_loss", "l2", HIDDEN)
    parameters = of_one_unit(form, w1=1.5, b1=0.3, w2=0.8)
    found = distil(form, parameters)
    assert found.explained["network"] > 0.9999
    (s,) = points(1)
    np.testing.assert_allclose(distance_of(found.network, s), distance_of(parameters, s), atol=0.02)
    assert all((np.asarray(x)[..., 1:] == 0).all() for x in jax.tree.leaves(found.network))
    s = s.astype(np.float64)
    distance = 0.5 * s**2 * np.exp(0.8 * np.tanh(1.5 * s + 0.3))
    above, below = (np.sum(distance * s**2 * side) / np.sum(0.5 * s**4 * side) for side in (s > 0, s <= 0))
    assert found.formula["tau"] == pytest.approx(below / (above + below), rel=1e-3)
    residual = distance - 0.5 * s**2 * np.where(s > 0, above, below)
    assert found.explained["formula"] == pytest.approx(1 - np.mean(residual**2) / distance.var(), abs=1e-4)


def test_a_drift_of_one_unit_is_found_and_a_formula_that_is_near_to_it():
    form, clip = Form("drift", "ppo", HIDDEN), 0.5
    w1 = np.zeros(8)
    w1[[3, 6]] = 0.7 / 0.3, 0.25 / 0.3  # of (1 - rho)^2 and of (1 - rho) A: the formula itself
    parameters = of_one_unit(form, w1=w1, w2=0.3)
    found = distil(form, parameters, clip)
    expected = {"penalty": 0.7, "correction": 0.25, "scale": 0.3, "clip": clip}
    assert found.formula == pytest.approx(expected, rel=2e-3)
    assert min(found.explained.values()) > 0.9999
    log_ratio, advantage = points(2) * np.array([[SPREAD], [1.0]], np.float32)
    drift = np.exp(log_ratio) * advantage - quadratic_drift(**found.formula)(log_ratio, advantage)
    np.testing.assert_allclose(drift, form.network(clip).apply(parameters, log_ratio, advantage), atol=1e-3)


def test_an_objective_that_sees_the_time_or_is_zero_is_refused():
    with pytest.raises(ValueError, match=r"form: got one that depends on the time; one without it is needed"):
        distil(Form("drift", "ppo", HIDDEN, timed=True), {})
    form = Form("drift", "zero", HIDDEN)
    with pytest.raises(ValueError, match=r"hidden: got 5; 1 to 4 is needed"):
        distil(form, of_one_unit(form, w1=np.ones(8), w2=0.1), hidden=5)
    with pytest.raises(ValueError, match=r"parameters: got those of an objective that is 0 everywhere"):
        distil(form, of_one_unit(form, w1=np.zeros(8), w2=0.0))


def test_what_is_in_the_package_is_one_unit_and_its_distance_an_expectile():
    drift, distance = (distillation.distilled(kind) for kind in distillation.KINDS)
    assert min(drift.explained["network"], distance.explained["network"]) > 0.99
    assert distance.explained["formula"] > 0.98
    assert 0.2 < distance.formula["tau"] < 0.3
    assert 0.85 < drift.explained["formula"] < drift.explained["network"]


def test_the_report_by_hand(tmp_path):
    parts = distillation.make_configs(seeds=4, seed=0, fast=False)
    assert [part.game for part in parts.values()] == [*distillation.SEEN, *distillation.UNSEEN] * 2

    def result(part):
        def value(mean):
            return {"mean": mean, "standard_error": 0.1}

        found = {"returns": {arm: value(1.0) for arm in ("evolved", "one unit", "formula", "settings alone")}}
        found["above_control"] = {"evolved": value(1.0), "one unit": value(0.5), "formula": value(0.9)}
        found["above_evolved"] = {"one unit": value(-0.5), "formula": value(-0.1 if part.game == "pendulum" else 0.0)}
        return {"game": part.game, "trials": part.trials, "total_steps": part.total_steps, **found}

    results = {name: result(part) for name, part in parts.items()}
    drift, _ = distillation.sections(tmp_path, parts, results)
    assert [round(claim.ours, 2) for claim in drift.claims] == [-10, -0.5]  # -0.5 and -0.025 over an error of 0.05
    assert [passes(claim) for claim in drift.claims] == [False, True]
    assert "1.00 ± 0.05 (evolved), 0.50 ± 0.05 (one unit), 0.90 ± 0.05 (formula)" in drift.answer
    assert sorted(file.name for file in tmp_path.iterdir()) == ["distilled_drift.png", "distilled_value_loss.png"]


@nightly
def test_the_command_compares_four_objectives_on_the_same_seeds_and_repeats_nothing(within, tmp_path):
    for arguments in (["distillation", "--fast", "--seeds=3", "--out=run"], ["--resume", "run"]):
        done = within(*arguments, cwd=tmp_path, module="marl.reproduce")
        assert done.returncode == 0, done.stderr
        assert ("done before" in done.stdout) == ("--resume" in arguments)
    summary = json.loads((tmp_path / "run" / "trainings" / "drift-CartPole-v1" / "summary.json").read_text())
    assert summary["reads"] == distillation.Comparison("drift", "CartPole-v1", 3, 1024, 0).reads != ""
    assert set(summary["returns"]) == {"evolved", "one unit", "formula", "settings alone"}
    assert all(8 <= one["mean"] <= 500 for one in summary["returns"].values())
