"""Runs side by side: which trainings are of one method, what is compared, and files that cannot be."""

import csv

import numpy as np
import pytest

from marl.commands import describe
from meta import RunDirectory
from meta.runs.execution import execute
from meta.runs.reports import trainings
from meta.runs.reports.run_report import write_run_report
from meta.runs.reports.trainings import choose_score, read_trainings

ROWS = 6


def make(path, config, summary, metrics=None):
    """A run directory as a command leaves it."""
    with RunDirectory.create(path, config, "python -m marl.train CartPole-v1") as run:
        run.append({"update": i + 1, "training_return": x} for i, x in enumerate(metrics or []))
        run.write_summary(summary)
    return str(path)


def several(path, learner, first, scores, environment="CartPole-v1"):
    """A run of several seeds, whose returns are `scores`."""
    seeds = [{"seed": first + i, "mean": x} for i, x in enumerate(scores)]
    rows = [[i * x if i else None for x in scores] for i in range(ROWS)]
    config = {"environment": environment, "learner": learner, "seed": first, "seeds": len(scores)}
    return make(path, config, {"returns": {"mean": 0.0, "standard_error": 0.0, "seeds": seeds}}, rows)


@pytest.fixture
def runs(tmp_path):
    return [
        several(tmp_path / "a", "ppo", 0, [1.0, 2.0]),
        several(tmp_path / "b", "ppo", 2, [3.0, 6.0]),
        several(tmp_path / "c", "a2c", 0, [0.0, 1.0, 2.0]),
    ]


def compare(*arguments):
    return execute(describe("marl.compare"), list(map(str, arguments)))


def test_runs_that_differ_in_seeds_are_one_method(runs):
    found = read_trainings(runs, ("environment",))
    assert (found.tasks, found.methods) == (["CartPole-v1"], ["ppo", "a2c"])
    scores = {method: [one.scores["returns"] for one in group] for (_, method), group in found.groups.items()}
    assert scores == {"ppo": [1, 2, 3, 6], "a2c": [0, 1, 2]}
    assert [one.seed for one in found.groups["CartPole-v1", "ppo"]] == [0, 1, 2, 3]
    assert found.settings == {"ppo": {"learner": "ppo"}, "a2c": {"learner": "a2c"}}
    metrics = found.groups["CartPole-v1", "ppo"][3].metrics
    np.testing.assert_array_equal(metrics["training_return"], [np.nan, 6, 12, 18, 24, 30])
    assert choose_score(found) == "returns"


def test_runs_that_differ_in_their_evaluation_are_one_method(tmp_path):
    both = [{"seed": i, "shaper": "mfos", "unseen": ["tft"] * i, "evaluation_trials": 8 + i} for i in range(2)]
    both.append({"seed": 0, "shaper": "shaper", "unseen": ["lola"], "evaluation_trials": 8, "alpha": 3})
    paths = [make(tmp_path / str(i), one, {"seed": one["seed"], "returns": 1.0}) for i, one in enumerate(both)]
    found = read_trainings(paths, ())
    assert found.methods == ["mfos", "shaper"]  # and not by alpha
    assert [len(group) for group in found.groups.values()] == [2, 1]


def test_one_training_of_each_has_no_probability(tmp_path, capsys):
    paths = [several(tmp_path / one, one, 0, [score]) for one, score in (("ppo", 1.0), ("a2c", 2.0))]
    assert not compare(*paths, "--out", tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert "a2c has the highest interquartile mean of returns, 2" in said
    assert "with probability" not in said


def test_a_sweep_is_no_run(tmp_path, capsys):
    (tmp_path / "sweep.yaml").touch()
    assert compare(tmp_path) == 2
    assert "a sweep; its runs, " in capsys.readouterr().err


def test_scores_of_a_run_of_one_training_are_those_of_its_summary(tmp_path):
    summary = {"seed": 4, "shaper_return": {"mean": 0.5, "standard_error": 0.1}, "num_trials": 3, "wall_seconds": 2.0}
    path = make(tmp_path / "run", {"seed": 4, "shaper": "mfos"}, summary | {"zd": {"trials": {"mean": 0.25}}})
    (group,) = read_trainings([path], ()).groups.values()
    assert [(one.seed, one.scores) for one in group] == [(4, {"shaper_return": 0.5, "zd.trials": 0.25})]
    each = [{"seed": 7 + i, "shaper_return": float(i), "against": {"naive": {"shaper": {"mean": i}}}} for i in range(2)]
    path = make(tmp_path / "two", {"seed": 7, "shaper": "mfos"}, {"shaper_return": 9.0, "runs": each})
    (group,) = read_trainings([path], ()).groups.values()
    assert [one.scores["against.naive.shaper"] for one in group] == [0, 1]


def test_a_label_has_the_fields_that_tell_methods_apart_and_no_others(tmp_path):
    configs = [
        {"learner": "ppo", "rate": 1, "follows": "x", "seed": 0},
        {"learner": "a2c", "rate": 1, "follows": "y", "seed": 0},
        {"learner": "ppo", "rate": 2, "follows": "x", "seed": 0},
    ]
    paths = [make(tmp_path / str(i), config, {"seed": 0, "returns": 1.0}) for i, config in enumerate(configs)]
    methods = read_trainings(paths, ()).methods
    assert methods == ["learner=ppo, rate=1", "learner=a2c, rate=1", "learner=ppo, rate=2"]


def test_long_names_that_differ_in_their_middle_are_several_methods(tmp_path):
    names = [f"ppo({'a' * 180}, entropy_coefficient={x}, {'b' * 40})" for x in (0.01, 0.05)]
    paths = [several(tmp_path / str(i), name, i, [1.0, 2.0]) for i, name in enumerate(names)]
    found = read_trainings(paths, ("environment",))
    first, second = found.methods
    assert second == f"{first} (2)"
    assert [settings["learner"] for settings in found.settings.values()] == names


def test_runs_that_differ_in_how_often_they_are_saved_are_one_method(tmp_path):
    saved = [{"seed": i, "evolution": {"sigma": 0.1, "checkpoint_seconds": 15 + 45 * i}} for i in range(2)]
    paths = [make(tmp_path / str(i), config, {"seed": i, "returns": 1.0}) for i, config in enumerate(saved)]
    assert len(read_trainings(paths, ()).methods) == 1


def test_players_of_a_training_are_no_trainings(tmp_path):
    """Two pairs of shapers in self-play, row and column in turn, and one run in a game of two players."""
    config = {"opponent": "self_play", "seed": 4, "seeds": 2}
    with RunDirectory.create(tmp_path / "pairs", config, "python -m marl.mfos ipd") as run:
        run.append({"generation": i, "shaper_return": [i, 10 + i, 20 + i, 30 + i]} for i in range(3))
        run.write_summary({"payoff": {"seeds": [{"seed": 4, "mean": 1.0}, {"seed": 5, "mean": 2.0}]}})
    (group,) = read_trainings([str(tmp_path / "pairs")], ("environment",)).groups.values()
    found = [[one.metrics[f"shaper_return_{seat}"][0] for seat in (0, 1)] for one in group]
    assert found == [[0, 10], [20, 30]]
    with RunDirectory.create(tmp_path / "players", {"seed": 0}, "python -m marl.distributed coin_game") as run:
        run.append({"update": i, "return_0": 2.0 * i, "info_coin": [3.0 * i, 5.0 * i]} for i in range(3))
        run.write_summary({"evaluation_return": {"mean": 1.0, "standard_error": 0.5}})
    ((one,),) = read_trainings([str(tmp_path / "players")], ("environment",)).groups.values()
    assert {name: x.tolist() for name, x in one.metrics.items()} == {
        "update": [0, 1, 2],
        "return_0": [0, 2, 4],
        "info_coin_0": [0, 3, 6],
        "info_coin_1": [0, 5, 10],
    }
    page = write_run_report(tmp_path / "players").read_text()
    assert ("One run." in page, "Mean of" in page) == (True, False)
    assert "Mean of 2 runs" in write_run_report(tmp_path / "pairs").read_text()


def test_a_number_of_seeds_in_a_summary_is_no_list_of_them(tmp_path):
    path = make(tmp_path / "run", {"seed": 4}, {"seed": 4, "returns": 1.0, "config": {"seeds": 10}})
    (group,) = read_trainings([path], ()).groups.values()
    assert [one.seed for one in group] == [4]


def test_the_files_have_the_values_by_hand(runs, tmp_path, capsys):
    assert not compare(*runs, "--out", tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    value = {(row["quantity"], row["method"], row["against"], row["seed"]): float(row["value"]) for row in rows}
    assert value["interquartile_mean", "ppo", "", ""] == 2.5  # of 2 and 3
    assert value["mean", "ppo", "", ""] == 3
    assert value["interquartile_mean", "a2c", "", ""] == 1
    assert value["score", "ppo", "", "3"] == 6
    # Of twelve pairs nine are higher (1: 1, 2: 2, 3: 3, 6: 3), and two tie.
    assert value["probability_of_improvement", "ppo", "a2c", ""] == pytest.approx(10 / 12)
    (mean,) = [row for row in rows if row["quantity"] == "mean" and row["method"] == "ppo"]
    error = np.std([1, 2, 3, 6], ddof=1) / 2
    assert float(mean["standard_error"]) == pytest.approx(error)
    assert mean["low"] == mean["high"] == ""  # 95 % bounds, of other quantities
    said = capsys.readouterr().out
    assert not compare(*runs, "--out", tmp_path / "out", "--quiet")  # in place of the one before
    assert list(csv.DictReader((tmp_path / "out.csv").open())) == rows
    assert said.startswith("ppo has the highest interquartile mean of returns, 2.5 (")
    assert "3 or 4 of each method and game" in said


def test_a_page_repeats_the_options_that_are_not_the_usual_ones(runs, tmp_path):
    options = ("--resamples", "100", "--seed", "3", "--tasks", "environment")
    assert not compare(*runs, "--out", tmp_path / "out", "--quiet", *options)
    assert "--tasks environment --resamples 100 --seed 3 --out" in (tmp_path / "out.html").read_text()


def test_a_conclusion_about_one_game_of_several_says_so(tmp_path, capsys):
    paths = [several(tmp_path / "a", "ppo", 0, [1.0, 2.0], "one"), several(tmp_path / "b", "dqn", 0, [5.0, 6.0], "two")]
    assert not compare(*paths, "--out", tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert "dqn has an interquartile mean of returns over two (no method was played in every game) of 5.5" in said


def test_games_of_other_scales_are_scaled_before_they_are_joined(tmp_path):
    paths = [
        several(tmp_path / "a", "ppo", 0, [0.0, 10.0], "one"),
        several(tmp_path / "b", "a2c", 0, [10.0, 10.0], "one"),
        several(tmp_path / "c", "ppo", 0, [-3.0, -3.0], "two"),
        several(tmp_path / "d", "a2c", 0, [-3.0, -1.0], "two"),
    ]
    assert not compare(*paths, "--out", tmp_path / "out", "--quiet")
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    found = {(row["game"], row["method"]): row for row in rows if row["quantity"] == "interquartile_mean"}
    assert float(found["all games, scaled", "ppo"]["value"]) == 0.0  # of 0, 1, 0, 0 the middle half
    assert float(found["all games, scaled", "a2c"]["value"]) == 1.0  # of 1, 1, 0, 1
    assert float(found["two", "a2c"]["value"]) == -2
    (better,) = [row for row in rows if row["quantity"].startswith("prob") and row["method"] == "a2c"]
    assert float(better["value"]) == pytest.approx(0.75)  # 0.75 and 0.75: the pairs of 10 and 10 tie


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "runs: none given; the directories of finished runs are needed"),
        (["nowhere"], "runs: got 'nowhere'; the directory of a run (with config.yaml) is needed"),
        (["a", "a"], "runs: got 'a'; seed 0 of this method is in a too, and each training is needed once"),
        (["a", "--score", "return"], "score: got 'return'; did you mean returns?"),
        (["a", "open"], "runs: got 'open', which has not finished; a finished run is needed"),
        (["a", "other"], "score: none given; runs whose summaries share a number are needed"),
        (["a", "--out", "no/where"], "out: got 'no/where'; a name in a directory that exists is needed"),
        (["a", "--tasks", "gam"], "tasks: got 'gam'; did you mean game?"),
        (["a", "--resamples", "0"], "resamples: got 0; a whole number of at least 1 is needed"),
        (["a", "--out", "mine"], "out: mine.csv already exists, and is no comparison; another name is needed"),
        (["damaged"], "damaged/summary.json: cannot be read (Expecting value: line 1 column 1 (char 0))"),
    ],
)
def test_what_cannot_be_compared_is_one_line(arguments, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("a,b\n")
    several(tmp_path / "a", "ppo", 0, [1.0])
    make(tmp_path / "other", {"seed": 0}, {"elsewhere": 1.0})
    make(tmp_path / "open", {"seed": 0}, {})
    (tmp_path / "open/summary.json").unlink()
    make(tmp_path / "damaged", {"seed": 0}, {})
    (tmp_path / "damaged/summary.json").write_text("nothing")
    assert compare(*arguments) == 2
    assert capsys.readouterr().err == f"python -m marl.compare: {line}\n"
    assert not list(tmp_path.glob("comparison*"))
    assert (tmp_path / "mine.csv").read_text() == "a,b\n"


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["lola", "naive"], ["lola", "naive"]),
        ([0.1, 0.2], ["sigma=0.1", "sigma=0.2"]),  # a number does not say what it is
        ([None, "zero"], ["sigma=None", "sigma=zero"]),
    ],
)
def test_a_method_is_named_by_the_field_that_tells_it_apart(values, labels):
    assert trainings._labels([{"sigma": value, "same": 1} for value in values], ["same", "sigma"], "alone") == labels


def test_each_search_of_a_run_is_a_training(tmp_path):
    config, results = {"seed": 0, "searches": 3}, {"evolved": {"mean": 2.0, "standard_error": 0.1}, "searches": 3}
    each = [{"seed": i, "evolved": {"mean": float(i), "standard_error": 0.1}} for i in (1, 2, 3)]
    path = make(tmp_path / "new", config, results | {"runs": each})
    (group,) = read_trainings([path], ()).groups.values()
    assert [(one.seed, one.scores) for one in group] == [(i, {"evolved": i}) for i in (1, 2, 3)]
    old = make(tmp_path / "old", config, results)
    with pytest.raises(ValueError, match="without a result for each of its searches"):
        read_trainings([old], ())
