"""The report on few weights: its rows, operations and claims."""

import json

import numpy as np
import pytest

from marl.experiments.reproduce import rlx2
from meta import RunDirectory
from meta.runs.reports.claims import passes
from tests.nightly import nightly

pytestmark = pytest.mark.system

PARTS = rlx2.make_configs(seeds=8, seed=0, fast=False)


@nightly
def test_every_row_is_a_learner_with_the_stated_number_of_weights():
    for name, rows in PARTS.items():
        task = rlx2.TASKS[name]
        assert set(rows) == {rlx2.RANDOM, *task.rows}
        dense = rlx2.sizes(task.environment, rows[rlx2.DENSE].learner)
        for row, config in rows.items():
            found = rlx2.sizes(config.environment, config.learner)
            if row in (rlx2.DENSE, rlx2.RANDOM):
                assert found == dense
            elif row == rlx2.TINY:  # dense, so that the numbers are only about equal
                assert found.actor + found.critics == pytest.approx(
                    task.density * (dense.actor + dense.critics), rel=0.05
                )
            else:
                assert found.actor == round(task.density * dense.actor)
                assert found.critics == round(task.density * dense.critics)


def test_operations_by_hand():
    td3 = rlx2.sizes("Pendulum-v1", PARTS["pendulum"][rlx2.DENSE].learner)
    assert (td3.actor, td3.critics) == (3 * 64 + 64 * 64 + 64, 2 * (4 * 64 + 64 * 64 + 64))
    assert td3.inference == 2 * 4_352
    # The target takes the actor and both critics, and an update both critics three times; every second update takes the
    # actor three times and one critic twice.
    assert td3.training == 256 * (8_704 + 17_664 + 3 * 17_664 + (3 * 8_704 + 2 * 8_832) / 2)
    sac = rlx2.sizes("cart_pole_swing_up", PARTS["swing-up"][rlx2.DENSE].learner)
    assert (sac.actor, sac.critics) == (5 * 64 + 64 * 64 + 64 * 2, 2 * (6 * 64 + 64 * 64 + 64))
    assert sac.training == 256 * (9_088 + 18_176 + 3 * 18_176 + 3 * 9_088 + 2 * 18_176)


def test_claims_compare_the_returns_by_hand():
    returns = {rlx2.DENSE: (-145, 3), rlx2.STATIC: (-261, 25), rlx2.RIGL: (-157, 7), rlx2.ALL: (-250, 10)}
    returns = {row: {"mean": mean, "standard_error": error} for row, (mean, error) in returns.items()}
    shares = {row: ((x["mean"] + 1200) / 1055, 0.01) for row, x in returns.items()}
    of_dense, rigl, dense, whole = rlx2._claims("pendulum", returns, shares)
    assert of_dense.ours == pytest.approx(1043 / 1055)
    assert rigl.ours == pytest.approx(104 / np.hypot(7, 25))
    assert dense.ours == pytest.approx(116 / np.hypot(3, 25))
    assert [passes(claim) for claim in (of_dense, rigl, dense, whole)] == [True, True, True, None]
    assert whole.ours == pytest.approx(-93 / np.hypot(7, 10))
    assert "hurts" in whole.comment
    assert "neither helps nor hurts" in rlx2._apart("", returns[rlx2.RIGL], returns[rlx2.DENSE], None).comment
    balanced = {row: {"mean": mean, "standard_error": 30} for row, mean in ((rlx2.RIGL, 400), (rlx2.TRUE, 490))}
    (true,) = rlx2._claims("balance", balanced, shares)
    assert true.ours == pytest.approx(90 / np.hypot(30, 30))
    assert passes(true) is False  # 2.1 standard errors
    diverged = {"mean": None, "standard_error": None}
    assert passes(rlx2._apart("", diverged, returns[rlx2.STATIC], 2.0)) is False


def test_true_values_are_an_oracle_that_never_wins_and_whose_steps_are_not_counted(tmp_path):
    run = RunDirectory.create(tmp_path / "run", PARTS["balance"][rlx2.DENSE])
    means = {rlx2.RANDOM: 10.0, rlx2.DENSE: 500.0, rlx2.RIGL: 400.0, rlx2.TRUE: 490.0}
    rows = {row: PARTS["balance"][row] for row in means}
    (tmp_path / "metrics.jsonl").write_text('{"training_return": [1.0, 2.0]}\n' * 40)
    results = {
        row: {"returns": {"mean": mean, "standard_error": 5.0}, "steps_per_second": 500.0}
        for row, mean in means.items()
    }
    section = rlx2._section(run, "balance", rows, dict.fromkeys(rows, tmp_path), results)
    assert section.answer.startswith("With 3% of the weights RigL gets the largest return, 400.0")
    assert "With true values the returns of 100 steps" in section.text
    cells = {line.split("|")[1].strip(): line.split("|")[6:8] for line in section.tables[0].splitlines()}
    assert [cell.strip() for cell in cells[rlx2.RIGL]] == ["0.030", "0.030"]
    assert [cell.strip() for cell in cells[rlx2.TRUE]] == ["0.030", ""]


def test_the_report_shows_all_rows_in_percent_of_dense(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "run", PARTS["pendulum"][rlx2.DENSE])
    rows = {row: PARTS["pendulum"][row] for row in (rlx2.RANDOM, rlx2.DENSE, rlx2.STATIC, rlx2.RIGL)}
    means = dict(zip(rows, (-1200.0, -150.0, -360.0, -160.5), strict=True))
    paths, results = {}, {}
    for row in rows:
        paths[row] = tmp_path / row.replace(" ", "-")
        paths[row].mkdir()
        lines = [{"training_return": [means[row] + i, None if i % 2 else means[row]]} for i in range(40)]
        (paths[row] / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
        results[row] = {"returns": {"mean": means[row], "standard_error": 21.0}, "steps_per_second": 500.0}
    drawn, draw = [], rlx2.draw_mean_and_error
    monkeypatch.setattr(rlx2, "draw_mean_and_error", lambda axes, x, *rest: (drawn.append(x), draw(axes, x, *rest)))
    section = rlx2._section(run, "pendulum", rows, paths, results)
    # Every second of the forty parts has no episode of the second training; the others are drawn at their ends.
    for x in drawn:
        np.testing.assert_allclose(x, rows[rlx2.DENSE].total_steps * np.arange(1, 41, 2) / 40)
    assert drawn
    (table,) = section.tables
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:]] for line in table.splitlines()}
    assert cells["static"][1] == "80.0 ± 2.6"  # 2 from its own error, and 1.6 from dense's
    assert cells["dense"][1] == "100.0 ± 0.0"
    assert cells["RigL"][:3] == ["-160.5 ± 21.0", "99.0 ± 2.8", "348"]
    assert cells["RigL"][4:6] == ["0.080", "0.080"]
    assert cells["untrained"][2] == ""
    assert section.answer == (
        "With 8% of the weights RigL gets the largest return, -160.5: 99.0 % of the way from an untrained actor to "
        "dense (-150.0)."
    )
    for name in ("returns", "curves"):
        assert (run.figures / f"pendulum-{name}.png").stat().st_size > 5000
