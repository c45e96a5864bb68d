"""Results of Shaping Bench: scores by hand, tables, and what of a result is verified; nothing is played."""

import copy
import json

import numpy as np
import pytest

from marl.bench import scores, table, tracks, verify
from marl.bench.experiment import conclusion
from marl.bench.tracks import TRACKS, track_of
from meta.runs.reports.aggregates import interquartile_mean


def known(rows):
    """The scores of tasks in one array, without the trainings that are left out of a task."""
    every = np.concatenate(list(rows))
    found = every[np.isfinite(every)]
    assert len(found)
    return found


def result_of(payoff, **more):
    """A result whose payoffs are a function of (the scale, side, form)."""
    found = {"seed": 0, "trainings": 5, "method": "x", "kind": "learner", "size": "small", "bench": 0, "trials": 0}
    found |= {"track": "exact", "seconds": 1.0, "versions": {}, "tasks": {}} | more
    track = track_of(found["track"])
    for name, opponent in ((task, part.opponent) for part in track.parts for task in part.tasks):
        rows = [track.reference(name, opponent, i) for i in range(5)]
        forms = track.forms(name, opponent)
        payoffs = {f: [[payoff(row, side, f) for row in rows] for side in (0, 1)] for f in forms}
        found["tasks"].setdefault(name, {})[opponent] = {"payoffs": payoffs}
    return found


@pytest.mark.parametrize("track", TRACKS)
def test_the_opponents_own_kind_scores_0_and_the_most_that_is_known_1(track, monkeypatch):
    if track == "sampled":  # where nothing better than the own kind is known, there is no scale
        table = copy.deepcopy(tracks.references())
        for row in (row for by_opponent in table[track].values() for row in by_opponent.values()):
            row["one"] = row["zero"]["training"][0] + 1
        monkeypatch.setattr(tracks, "references", lambda: table)
    zero = scores.scores_of(result_of(lambda row, side, form: row.zero[form][side], track=track))
    assert not any(known(row.values()).any() for row in zero.values())
    one = scores.scores_of(result_of(lambda row, side, form: row.one if side == 0 else row.zero[form][1], track=track))
    np.testing.assert_allclose(known(x for name, x in one["gain"].items() if name.endswith("/training")), 1)
    # Half of the unit is taken from the opponent.
    unit = lambda row: row.one - row.zero["training"][0]  # noqa: E731
    taken = scores.scores_of(
        result_of(lambda row, side, form: row.zero[form][side] - 0.5 * side * unit(row), track=track)
    )
    np.testing.assert_allclose(known(taken["welfare"].values()), -0.5)


def test_a_part_without_a_form_is_not_chosen_to_be_verified(tmp_path):
    result = result_of(lambda row, side, form: row.zero[form][side], method="tft")
    for by_opponent in result["tasks"].values():
        for opponent, one in by_opponent.items():
            if opponent != "sos":
                del one["payoffs"]["longer"]
    (tmp_path / "result.json").write_text(json.dumps(result))
    chosen = verify.prepare(verify.VerifyConfig(str(tmp_path / "result.json"))).parts
    assert {part.opponent for part in chosen} == {"sos"}


def test_a_task_with_numbers_is_always_among_those_that_are_verified(tmp_path):
    """An agent plays the game of its training alone; the other tasks have no number that could differ."""
    result = result_of(lambda row, side, form: row.zero[form][side], method="tft")
    for task, by_opponent in result["tasks"].items():
        for one in by_opponent.values():
            if task != "chicken":
                one["payoffs"] = {
                    form: [[None] * len(side) for side in sides] for form, sides in one["payoffs"].items()
                }
    (tmp_path / "result.json").write_text(json.dumps(result))
    found = list[set[str]]()
    for seed in range(20):
        parts = verify.prepare(verify.VerifyConfig(str(tmp_path / "result.json"), seed=seed)).parts
        found.append({task for part in parts for task in part.tasks})
    assert all("chicken" in tasks for tasks in found)
    assert len(set.union(*found)) > 3  # a task that was left out of a result may be one of them
    for by_opponent in result["tasks"].values():
        for one in by_opponent.values():
            one["payoffs"] = {form: [[None] * len(side) for side in sides] for form, sides in one["payoffs"].items()}
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(ValueError, match="without a whole task that can be played again"):
        verify.prepare(verify.VerifyConfig(str(tmp_path / "result.json")))


def test_a_result_without_a_scale_says_so():
    nothing = {m: dict.fromkeys(("value", "low", "high")) for m in scores.MEASURES}
    payoffs = {"training": [[1.0, 2.0], [0.0, 1.0]]}
    result = {"method": "x", "trainings": 2, "scores": dict.fromkeys(scores.GROUPS, nothing)}
    result["tasks"] = {"chicken": {"naive": {"payoffs": payoffs}}}
    assert conclusion(result) == "x has payoffs and no scores, because none of its tasks has a scale yet."
    result["tasks"]["stag_hunt"] = {"naive": {"payoffs": {"training": [[None, None], [None, None]]}}}  # not played
    assert "scale" in conclusion(result)
    payoffs["training"][1][0] = None
    assert conclusion(result) == "x has payoffs and no scores, because some payoffs are not finite."


def test_forms_of_an_opponent_have_the_same_trainings_and_so_have_all_tasks_of_a_method_that_trains_once():
    """Four copies of four trainings have the interval of the four; of two tasks it is narrower, unless they are one."""
    values = np.array([0.0, 1.0, 3.0, 7.0])
    forms = {f"{task}/naive/{form}": values for task in ("chicken", "imp") for form in scores.GROUPS["held-out"]}
    alone = {name: x for name, x in forms.items() if name.startswith("chicken")}
    expected = interquartile_mean([values], resamples=scores.RESAMPLES)
    assert scores.aggregate(alone, "held-out") == pytest.approx(expected)
    assert scores.aggregate(forms, "held-out", once=True) == pytest.approx(expected)
    apart = scores.aggregate(forms, "held-out")
    assert apart.high - apart.low < 0.9 * (expected.high - expected.low)


def test_a_method_improves_on_itself_in_half_of_the_pairs_and_two_halves_overlap():
    generator = np.random.default_rng(0)
    noisy = scores.scores_of(result_of(lambda row, side, form: row.zero[form][side] + 0.1 * generator.normal()))["gain"]
    same = scores.improvement(noisy, noisy, "held-out")
    assert same.value == pytest.approx(0.5)
    assert same.low < 0.5 < same.high
    halves = [{k: x[part] for k, x in noisy.items() if np.isfinite(x).all()} for part in (slice(0, 2), slice(2, 5))]
    first, second = (scores.aggregate(half, "held-out") for half in halves)
    assert first.low < second.high
    assert second.low < first.high
    levels = np.array([-np.inf, np.inf])
    np.testing.assert_array_equal(scores.profile(noisy, "training", levels), [1, 0])


def test_a_result_without_a_scale_is_refused(monkeypatch, tmp_path):
    (tmp_path / "zero.json").write_text(json.dumps(result_of(lambda row, side, form: row.zero[form][side])))
    flat = copy.deepcopy(tracks.references())
    for row in (row for by_opponent in flat["exact"].values() for row in by_opponent.values()):
        row["one"] = row["zero"]["training"][0]
    monkeypatch.setattr(tracks, "references", lambda: flat)
    with pytest.raises(ValueError, match="which has no scores; one with a scale of its tasks is needed"):
        table.load_results(table.TableConfig((str(tmp_path / "zero.json"),)))


def test_a_result_without_a_task_is_refused_and_a_table_ranks_the_others(within, tmp_path):
    zero = result_of(lambda row, side, form: row.zero[form][side], method="zero")
    one = result_of(lambda row, side, form: row.one + 1, method="above")
    lacking = result_of(lambda row, side, form: 0.0, method="lacking")
    del lacking["tasks"]["chicken"]["sos"]
    few = json.loads(json.dumps(zero)) | {"trainings": 4}
    for payoffs in (one["payoffs"] for row in few["tasks"].values() for one in row.values()):
        for sides in payoffs.values():
            sides[:] = [side[:4] for side in sides]
    other = zero | {"bench": 1}
    played = result_of(lambda row, side, form: row.zero[form][side], track="sampled")
    short, holes = (json.loads(json.dumps(zero)) for _ in range(2))
    short["tasks"]["chicken"]["lola"]["payoffs"]["training"][0].pop()
    holes["tasks"]["random"]["cgd"]["payoffs"]["longer"][1][2] = float("nan")
    strange = json.loads(json.dumps(zero))
    strange["tasks"]["chess"] = strange["tasks"]["chicken"]
    for name, result in {
        "zero": zero,
        "one": one,
        "lacking": lacking,
        "few": few,
        "other": other,
        "short": short,
        "holes": holes,
        "strange": strange,
        "played": played,
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    (tmp_path / "cut.json").write_text(json.dumps(zero)[:-1])
    for names, message in (
        (["lacking"], "results: got 'lacking.json', which lacks some of chicken/sos; a finite payoff of each of its"),
        (["short"], "results: got 'short.json', which lacks some of chicken/lola; a finite payoff of each of its"),
        (["holes"], "results: got 'holes.json', which lacks some of random/cgd; a finite payoff of each of its"),
        (["strange"], "results: got 'strange.json', with chess/naive, which is no task of the bench"),
        (["few"], "of 4 training(s); one of at least 5 is needed"),
        (["other"], "of version 1; one of version 0 is needed"),
        (["zero", "played"], "results: got 'played.json', of the sampled track; one of the exact track is needed"),
        (["zero", "zero"], "results: got two of zero (small); one is needed"),
        (
            ["nothing"],
            "results: got 'nothing.json', which cannot be read; the result of python -m marl.bench is needed",
        ),
        (["cut"], "results: got 'cut.json', which is no whole JSON; the result of python -m marl.bench is needed"),
        ([], "results: got none; files of results are needed"),
    ):
        files = [f"{name}.json" for name in names]
        refused = within("table", *files, cwd=tmp_path, module="marl.bench.__main__")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert message in refused.stderr
    done = within("table", "zero.json", "one.json", "--out=t", cwd=tmp_path, module="marl.bench.__main__")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    rows = (tmp_path / "t" / "table.md").read_text().splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["above", "zero"]
    assert {file.name for file in (tmp_path / "t").iterdir()} == {"table.md", "scores.png", "profiles.png"}
