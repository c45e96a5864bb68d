"""Trackers of a user in `evolve` and `train`, names, rows, and positions that are kept."""

import json
import threading
import time

import jax
import jax.numpy as jnp
import pytest

import meta
from configs import ConfigError
from meta import Evolution, Outcome, RunDirectory, evolve
from meta.runs.execution import execute
from meta.trackers import export, follower, names
from meta.trackers.follower import Rows
from meta.trackers.position import Position
from meta.trackers.tracker import make_row
from meta.trackers.tracker_process import chosen
from tests.meta.trackers.walk import COMMAND


class Kept:
    """A tracker that keeps what it gets."""

    def __init__(self):
        self.rows, self.ended = [], []

    def begin(self, run):
        self.run = run

    def log(self, row):
        self.rows.append(row)

    def finish(self, summary, files):
        self.ended.append((summary, files))


class Hangs(Kept):
    def __init__(self, call):
        super().__init__()
        self._call, self.let = call, threading.Event()

    def begin(self, run):
        super().begin(run)
        if self._call == "begin":
            self.let.wait()

    def log(self, row):
        super().log(row)
        if self._call == "log":
            self.let.wait()

    def finish(self, summary, files):
        if self._call == "finish":
            self.let.wait()


class Raises(Kept):
    def log(self, row):
        if row.step == 3:
            raise OSError("no\nspace")
        super().log(row)


@pytest.fixture(scope="module")
def search():
    """`evolve` of a parabola, whose trial has a metric of its own."""

    def trial(parameters, key):
        loss = jnp.sum(parameters**2)
        return Outcome(-loss, {"loss": loss})

    def run(generations=6, keys=2, **how):
        settings = Evolution(population_size=4, generations=generations, chunk_size=4)
        return evolve(
            trial, lambda key: jnp.ones(2), jax.random.split(jax.random.key(0), keys), settings, num_trials=1, **how
        )

    return run


@pytest.fixture(scope="module")
def untracked(search):
    return search().metrics


def test_a_tracker_of_a_user_gets_each_generation_and_changes_nothing(search, untracked):
    tracker = Kept()
    found = search(tracker=tracker)
    assert {name: x.tolist() for name, x in found.metrics.items()} == {
        name: x.tolist() for name, x in untracked.items()
    }
    assert [row.step for row in tracker.rows] == [1, 2, 3, 4, 5, 6]
    for i, row in enumerate(tracker.rows):
        assert row.metrics["loss/1"] == untracked["loss"][i, 1]
        assert row.metrics["generation"] == i + 1
    assert tracker.run.config["population_size"] == 4
    assert not tracker.run.resumed
    [(summary, files)] = tracker.ended
    assert summary["loss"] == untracked["loss"][-1].tolist()
    assert files == []


@pytest.mark.parametrize("call", ["begin", "log", "finish"])
def test_a_tracker_that_hangs_is_given_up_after_the_run(call, search, untracked, monkeypatch):
    monkeypatch.setattr(export, "PATIENCE", 0.2)
    tracker = Hangs(call)
    with pytest.warns(
        RuntimeWarning, match=r"tracker: it was still busy 0.2 s after the end, and was given up; it has"
    ):
        found = search(tracker=tracker)
    assert found.metrics["fitness"].tolist() == untracked["fitness"].tolist()
    tracker.let.set()


def test_a_tracker_that_raises_gets_no_more_calls(search, untracked):
    tracker = Raises()
    with pytest.warns(RuntimeWarning, match="tracker: OSError: no space; it has 2 rows of the run"):
        found = search(tracker=tracker)
    assert found.metrics["fitness"].tolist() == untracked["fitness"].tolist()
    assert ([row.step for row in tracker.rows], tracker.ended) == ([1, 2], [])


def test_a_tracker_that_is_far_behind_is_given_up_and_holds_no_more_rows(search, monkeypatch):
    monkeypatch.setattr("meta.trackers.tracked_store.MOST_BATCHES", 1)
    monkeypatch.setattr("meta.loop.MAX_ITERATIONS_PER_CALL", 1)
    tracker = Hangs("begin")
    with pytest.warns(RuntimeWarning, match="1 batches of rows behind"):
        search(tracker=tracker)
    tracker.let.set()


def test_a_failing_evolution_ends_its_tracker(search):
    def stop(*_):
        raise KeyboardInterrupt

    tracker = Kept()
    with pytest.raises(KeyboardInterrupt):
        search(tracker=tracker, report=stop)
    assert tracker.ended == [(None, [])]


def test_a_resumed_evolution_sends_only_rows_that_the_tracker_has_not_had(search, tmp_path):
    first, second, third = Kept(), Kept(), Raises()
    with RunDirectory.create(tmp_path / "run", {"seed": 3}, "python -m mine") as run:
        search(generations=2, store=run, tracker=third)
        search(generations=4, store=run, tracker=first)
        search(generations=6, store=run, tracker=second)
    assert [row.step for row in third.rows] == [1, 2]
    assert ([row.step for row in first.rows], [row.step for row in second.rows]) == ([3, 4], [5, 6])
    assert first.run.id == second.run.id
    assert (second.run.name, second.run.command, second.run.config) == ("run", "python -m mine", {"seed": 3})
    assert (second.run.rows, second.run.resumed, second.run.path) == ({"": 4}, True, tmp_path / "run")
    assert Position.read(tmp_path / "run").rows == {"own": {"": 6}}
    assert second.ended[0][1] == [tmp_path / "run" / "config.yaml"]


def test_a_tracker_may_say_itself_how_many_rows_it_has(search, tmp_path):
    class Forgets(Kept):
        def begin(self, run):
            return {"": 1}

    with RunDirectory.create(tmp_path / "run", {}) as run:
        search(generations=4, store=run, tracker=Kept())
        search(generations=4, store=run, tracker=(tracker := Forgets()))
    assert [row.step for row in tracker.rows] == [2, 3, 4]


def test_an_object_without_the_calls_is_no_tracker(search):
    with pytest.raises(TypeError, match="tracker: got 3, without begin; a meta"):
        search(tracker=3)


def test_rows_have_a_name_for_every_number():
    row = make_row(
        7, {"update": 7, "return": [[1.0, float("nan")], [3, None]], "a": {"b": 2.5}, "le ß:x": 1, "word": "x"}
    )
    wanted = {"update": 7, "return/0/0": 1.0, "return/1/0": 3, "a.b": 2.5, "le __x": 1}
    assert (row.step, row.metrics, row.named) == (7, wanted, wanted)
    assert make_row(1, {"x": 1}, "mfos:naive/seed 0").named == {"mfos_naive/seed 0/x": 1}


def test_files_are_followed_through_half_lines_and_a_replacement(tmp_path):
    def line(i):
        return json.dumps({"generation": i}) + "\n"

    def new():
        return [(row.part, row.step) for row in rows.new(0)]

    rows, file = Rows(tmp_path, {"": 1}), tmp_path / "metrics.jsonl"
    assert new() == []
    file.write_text(line(1) + line(2) + line(3)[:5])
    assert new() == [("", 2)]
    with file.open("a") as more:
        more.write(line(3)[5:])
    assert new() == [("", 3)]
    (tmp_path / "new").write_text(line(1))
    (tmp_path / "new").replace(file)  # from a checkpoint
    assert new() == []
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "metrics.jsonl").write_text(line(1))
    with file.open("a") as more:
        more.write(line(2) + line(3) + line(4))
    assert new() == [("", 4), ("part", 1)]
    assert list(rows.new(time.time_ns() + 10**12)) == []
    with file.open("a") as more:
        more.write("{\n")
    with pytest.raises(ValueError, match="line 5 is damaged"):
        new()


def test_a_part_that_is_removed_after_it_was_listed_has_no_rows(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(follower.os, "walk", lambda folder: [(str(folder / "gone"), [], ["metrics.jsonl"])])
        assert list(Rows(tmp_path, {}).new(0)) == []


@pytest.mark.parametrize("name", ["summary.json", "crossplay.json", "report.json"])
def test_the_results_of_every_kind_of_run_are_sent(tmp_path, name):
    assert follower._summary(tmp_path) == {}
    (tmp_path / name).write_text(json.dumps({"gain": 0.5}))
    assert follower._summary(tmp_path) == {"gain": 0.5}


ID = "0123456789abcdef"
DAMAGED = [{"id": "../x", "tracker": "wandb", "rows": {}}, {"id": ID, "tracker": "evil"}]
DAMAGED += [{"id": ID, "tracker": "wandb", "rows": {"wandb": {"": x}}} for x in (-1, "x", [])]


@pytest.mark.parametrize("text", ["", "{", "[1]", *map(json.dumps, DAMAGED)])
def test_a_damaged_position_is_none(text, tmp_path):
    (tmp_path / "tracker.json").write_text(text)
    assert Position.read(tmp_path) is None
    said = []
    assert chosen(None, tmp_path, said.append) == ""
    assert said == ["tracker: tracker.json is damaged; the run goes on without its tracker"]


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: None)


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_written(missing, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in names.NAMES:
        assert execute(COMMAND, ["there", "--tracker", name]) == 2
        words = f"got {name}, which is not installed; pip install marl-shaping[{name}] is needed"
        assert capsys.readouterr().err == f"{COMMAND.program}: --tracker: {words}\n"
        with pytest.raises(ValueError, match="name: got"):
            meta.make_tracker(name)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_goes_on_without_a_tracker_that_is_gone(missing, tmp_path):
    Position(tracker="mlflow").write(tmp_path)
    said = []
    assert chosen(None, tmp_path, said.append) == ""
    assert said == ["tracker: mlflow is not installed; the run goes on without its tracker"]
    with pytest.raises(ConfigError, match="--tracker: got mlflow"):
        chosen("mlflow", tmp_path, said.append)


def test_unknown_trackers_are_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"name: got 'wandbb'; did you mean wandb\?"):
        meta.make_tracker("wandbb")
    assert execute(COMMAND, ["there", "--out", str(tmp_path / "run"), "--tracker", "wandbb"]) == 2
    assert "tracker: got 'wandbb'" in capsys.readouterr().err


def test_messages_have_no_passwords():
    error = ConnectionError("no answer of https://me:secret@host:5000/api,\nnor of a@b")
    assert export.words_of(error) == "ConnectionError: no answer of https://host:5000/api, nor of a@b"


def test_a_folder_that_wandb_writes_to_is_not_its_package(tmp_path, monkeypatch):
    (tmp_path / "no_such_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not names.is_installed("no_such_package")
    assert names.is_installed("json")
