"""Runs as objects: what `load_run` returns is what the files of the directory hold."""

import json
import shutil

import jax
import numpy as np
import pytest
import yaml

import marl
from marl.mfos import main
from meta import RunDirectory

TINY = [
    *("--meta-steps=3", "--trials=1", "--hidden-units=2", "--evaluation-trials=4", "--discount=0"),
    *("--evolution.generations=4", "--evolution.population-size=4", "--seeds=2", "--quiet"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert not main(["ipd", *TINY, f"--out={folder}"])
    return folder


@pytest.mark.system
def test_a_run_has_the_contents_of_its_files(path):
    run = marl.load_run(path)
    assert run.summary == json.loads((path / "summary.json").read_text())
    assert run.config == yaml.safe_load((path / "config.yaml").read_text())
    assert run.command.startswith("python -m marl.mfos ipd ")
    assert repr(run) == f"<run {path}: {run.command}, finished>"
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == run.num_rows == 4
    np.testing.assert_array_equal(run.metrics["fitness"], [row["fitness"] for row in rows])
    np.testing.assert_array_equal(run.metrics["generation"], [1, 2, 3, 4])
    assert set(run.figures) == {file.stem for file in (path / "figures").iterdir()}


def test_its_agent_is_that_of_the_directory(path):
    jax.tree.map(
        np.testing.assert_array_equal, marl.load_run(path).agent().parameters, marl.load_agent(path).parameters
    )


def test_metrics_are_drawn_over_generations(path):
    figure = marl.load_run(path).plot()
    (axes,) = figure.axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    for name in ("shaper_return", "opponent_return"):
        values = marl.load_run(path).metrics[name]
        np.testing.assert_allclose(drawn[name.replace("_", " ")], values.mean(1))
    with pytest.raises(ValueError, match="names: got 'fitnes'; one of generation, fitness"):
        marl.load_run(path).plot(["fitnes"])


def test_a_frame_has_a_row_for_each_generation_and_seed(path):
    pytest.importorskip("pandas")
    run = marl.load_run(path)
    frame = run.frame()
    assert len(frame) == 8
    of_second = frame[frame.seed == 1]
    np.testing.assert_array_equal(of_second.fitness, run.metrics["fitness"][:, 1])
    np.testing.assert_array_equal(of_second.generation, [1, 2, 3, 4])


def test_a_frame_has_a_column_for_each_player(tmp_path):
    pytest.importorskip("pandas")
    cases = (("train", {"seeds": 1}, (2,)), ("train", {"seeds": 3}, (3, 2)), ("distributed", {}, (2,)))
    for number, (command, config, shape) in enumerate(cases):
        path, seeds = tmp_path / str(number), config.get("seeds", 1)
        coins = np.arange(4 * np.prod(shape), dtype=float).reshape(4, *shape)
        with RunDirectory.create(path, config, f"python -m marl.{command} coin_game") as run:
            run.append({"update": i, "own_coin": x.tolist()} for i, x in enumerate(coins))
        frame = marl.load_run(path).frame()
        found = frame[["own_coin_0", "own_coin_1"]].to_numpy()
        np.testing.assert_array_equal(found, coins.reshape(-1, 2))
        np.testing.assert_array_equal(frame["update"], np.repeat(np.arange(4), seeds))
        assert ("seed" in frame) == (seeds > 1)
    # In self-play each seed has two seats.
    returns = np.arange(12.0).reshape(3, 4)  # of two seeds, row and column in turn
    config = {"seeds": 2, "opponent": "self_play(annealing=0.5)"}
    with RunDirectory.create(tmp_path / "seats", config, "python -m marl.mfos ipd") as run:
        run.append({"generation": i, "shaper_return": x.tolist()} for i, x in enumerate(returns))
    frame = marl.load_run(tmp_path / "seats").frame()
    assert frame.seed.tolist() == [0, 1] * 3
    np.testing.assert_array_equal(frame[["shaper_return_0", "shaper_return_1"]].to_numpy(), returns.reshape(6, 2))
    # A run of the bench counts its trainings by games and seeds.
    with RunDirectory.create(tmp_path / "bench", {"seeds": 5}, "python -m marl.bench mfos") as run:
        run.append({"generation": i, "fitness": list(range(30))} for i in range(2))
    frame = marl.load_run(tmp_path / "bench").frame()
    assert frame.shape == (60, 3)
    assert frame.seed.tolist() == [*range(30)] * 2


def test_an_unfinished_run_and_a_last_row_that_was_cut_are_read(path, tmp_path):
    shutil.copytree(path, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join([*lines[:2], lines[2][:50]]))
    run = marl.load_run(tmp_path / "run")
    assert (run.summary, run.num_rows) == ({}, 2)
    assert "stopped after 2 rows" in repr(run)


def test_a_metric_that_begins_late_is_nan_before(path, tmp_path):
    shutil.copytree(path, tmp_path / "run")
    rows = [{"generation": 1}, {"generation": 2, "more": {"late": [1.0, 2.0]}}]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    np.testing.assert_array_equal(marl.load_run(tmp_path / "run").metrics["more.late"], [[np.nan, np.nan], [1.0, 2.0]])


def test_damaged_and_foreign_directories_are_refused_in_one_line(path, tmp_path):
    shutil.copytree(path, tmp_path / "run")
    (tmp_path / "run" / "summary.json").write_text("{")
    with pytest.raises(ValueError, match=r"summary.json: cannot be read") as error:
        marl.load_run(tmp_path / "run")
    assert "\n" not in str(error.value)
    shutil.copy(path / "summary.json", tmp_path / "run" / "summary.json")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"generation": 1}\n{"gen\n{"generation": 3}\n')
    with pytest.raises(ValueError, match="line 2 is damaged"):
        _ = marl.load_run(tmp_path / "run").metrics
    for foreign in (tmp_path, tmp_path / "none", 3):
        with pytest.raises(ValueError, match="the directory of a run"):
            marl.load_run(foreign)
