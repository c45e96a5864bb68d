"""Actors whose environments fail or hang, and runs that are stopped."""

import os
import signal
import time

import jax
import numpy as np
import pytest

from games import make
from marl import make_learner
from marl.distributed.actors.actor import check_finite
from marl.distributed.adapters.maker import EnvMaker, make_env
from marl.distributed.dispatcher import Broken
from marl.distributed.learner_group import LearnerGroup
from marl.distributed.runtime import train
from marl.distributed.system import System
from marl.distributed.vector_env import EnvStep
from meta import RunDirectory, process
from tests.marl.distributed.vector_envs import Faulty

pytestmark = pytest.mark.system

GAME = make("CartPole-v1")
OURS = make_env("games(CartPole-v1)", 4)
UPDATES = 6
IMPALA = make_learner("impala(hidden=[8])", GAME)


def settings(**changes):
    system = System(**{name: changes.pop(name) for name in System._fields if name in changes})
    return {"key": jax.random.key(3), "num_updates": UPDATES, "steps_per_update": 5, "system": system} | changes


@pytest.mark.parametrize("what", ["raise", "nan"])
@pytest.mark.parametrize("where", ["here", "threads"])
def test_an_actor_whose_environment_fails_restarts(tmp_path, what, where, monkeypatch):
    monkeypatch.setattr("marl.distributed.dispatcher.REST", 0.05)
    said = []
    learner = make_learner("impala(hidden=[8])", GAME)
    hosts = [Faulty(str(tmp_path), what, times=2), EnvMaker("gymnasium", "CartPole-v1", 2)]
    found = train([learner], hosts, **settings(num_updates=16, where=where, lag=1), say=said.append)
    assert found.statistics["actors_restarted"] == 2
    assert found.statistics["steps"] == 16 * 10  # nothing but what was in flight is missing
    words = "RuntimeError: the pole broke" if what == "raise" else "a reward that is no finite number"
    assert len(said) == 2
    assert all(words in one and one.startswith("actor 0: ") for one in said)


def test_a_last_observation_that_is_not_finite_is_a_failure():
    one, none = {"agent_0": np.zeros((1, 2))}, np.zeros(1, bool)
    step = EnvStep(one, one, {"agent_0": np.zeros(1)}, ~none, none)
    check_finite(step)
    with pytest.raises(ValueError, match="an observation that is no finite number"):
        check_finite(step._replace(last_obs={"agent_0": np.full((1, 2), np.nan)}))


class Enough(Exception):
    """Raised to end a training when the awaited event has happened."""


def test_a_hanging_actor_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("marl.distributed.dispatcher.FIRST_PATIENCE", 20.0)
    hosts, said = [Faulty(str(tmp_path), "hang"), EnvMaker("gymnasium", "CartPole-v1", 2)], []
    late = "actor 0: nothing came in 1 s; it restarts in 1 s"

    def look(received):
        if late in said:
            raise Enough

    with pytest.raises(Enough):
        train([IMPALA], hosts, **settings(num_updates=10**6, where="threads", patience=1.0), say=said.append, look=look)


@pytest.mark.parametrize("where", ["here", "threads"])
def test_other_actors_go_on_until_a_failed_one_is_back(tmp_path, where, monkeypatch):
    """With a barrier, the number of steps in an update shows which actors took part."""
    monkeypatch.setattr("marl.distributed.dispatcher.REST", 0.01)
    hosts, steps = [EnvMaker("gymnasium", "CartPole-v1", 2), Faulty(str(tmp_path), "raise", at=1, times=5)], []

    def look(received):
        steps.append(int(received["steps"]))
        if steps[-1] == 20:
            raise Enough

    with pytest.raises(Enough):
        train([IMPALA], hosts, **settings(num_updates=10**6, where=where, path="barrier"), look=look)
    assert len(list(tmp_path.iterdir())) == 5  # more often in a row than an actor that never plays is restarted
    assert len(steps) > 1
    assert set(steps[:-1]) == {10}


def test_a_failing_actor_is_left_out_of_turns(tmp_path):
    hosts = [EnvMaker("gymnasium", "CartPole-v1", 2), Faulty(str(tmp_path), "raise", at=1, times=99)]
    said = []
    found = train([IMPALA], hosts, **settings(num_updates=8), say=said.append)
    assert found.statistics["steps"] == 8 * 10
    assert found.statistics["mean_lag"] == 0
    assert said[0] == "actor 1: RuntimeError: the pole broke; it restarts in 1 s"


def test_with_a_lag_all_actors_wait_for_a_failing_one_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("marl.distributed.dispatcher.REST", 0.001)
    whole, (once, always) = EnvMaker("gymnasium", "CartPole-v1", 2), (tmp_path / "once", tmp_path / "always")
    once.mkdir()
    always.mkdir()
    hosts = [whole, Faulty(str(once), "raise", at=3, times=9)]
    found = train([IMPALA], hosts, **settings(lag=2))
    assert found.statistics["steps"] == UPDATES * 10  # nothing but what was in flight is missing
    assert found.statistics["actors_restarted"] == 9
    hosts = [whole, Faulty(str(always), "raise", at=3, times=99)]
    with (
        RunDirectory.create(tmp_path / "run", {}) as run,
        pytest.raises(Broken, match="the pole broke; so in each of 10"),
    ):
        train([IMPALA], hosts, **settings(lag=2), store=run)
    assert (tmp_path / "run/checkpoints/00000001").exists()  # the first update used the other actor's rollout


def test_a_training_without_a_first_rollout_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("marl.distributed.dispatcher.REST", 0.01)
    folders = [tmp_path / "first", tmp_path / "second"]  # one each, because each actor has to fail
    for folder in folders:
        folder.mkdir()
    with pytest.raises(Broken, match="the pole broke; so in each of 3 tries"):
        train([IMPALA], [Faulty(str(x), "raise", at=1, times=99) for x in folders], **settings(where="threads"))
    assert all(len(list(folder.iterdir())) >= 3 for folder in folders)


class Steps:
    """A tracker that keeps the numbers of the updates."""

    def __init__(self):
        self.steps = []

    def begin(self, run):
        assert run.name == "run"

    def log(self, row):
        assert row.metrics["update"] == row.step
        self.steps.append(row.step)

    def finish(self, summary, files):
        self.steps.append(summary["update"])


def test_a_stored_training_is_resumed(tmp_path):
    before, after = Steps(), Steps()
    learner = make_learner("impala(hidden=[8])", GAME)
    with RunDirectory.create(tmp_path / "run", {}) as run:
        first = train([learner], [OURS], **settings(num_updates=4), store=run, tracker=before)
    said = []
    with RunDirectory(tmp_path / "run", said.append) as run:
        second = train([learner], [OURS], **settings(num_updates=7), store=run, tracker=after)
    assert said == []  # the metrics agree with the checkpoint
    assert second.history.rewards[0].shape == (7,)
    np.testing.assert_array_equal(second.history.rewards[0][:4], first.history.rewards[0])
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 7
    assert (before.steps, after.steps) == ([1, 2, 3, 4, 4], [5, 6, 7, 7])


@pytest.mark.parametrize("deleted", [False, True])
def test_an_interrupted_update_is_not_stored(tmp_path, monkeypatch, deleted):
    """The states' buffers may have been donated by then; the checkpoint before stays valid."""
    update = LearnerGroup.update

    def interrupted(self, run_key, number, states, rollouts):
        if number < 3:
            return update(self, run_key, number, states, rollouts)
        if deleted:
            update(self, run_key, number, states, rollouts)
        raise KeyboardInterrupt

    monkeypatch.setattr(LearnerGroup, "update", interrupted)
    with RunDirectory.create(tmp_path / "run", {}) as run, pytest.raises(KeyboardInterrupt):
        train([IMPALA], [OURS], **settings(), store=run, checkpoint_seconds=0 if deleted else 1e9)
    monkeypatch.undo()
    assert sorted(one.name for one in (tmp_path / "run/checkpoints").iterdir())[-1] == "00000003"
    with RunDirectory(tmp_path / "run", print) as run:
        found = train([IMPALA], [OURS], **settings(), store=run)
    assert found.history.rewards[0].shape == (UPDATES,)


@pytest.mark.parametrize("moment", ["in an update", "as another error"])
def test_a_signal_saves_the_updates_whose_metrics_are_written(tmp_path, monkeypatch, moment):
    update = LearnerGroup.update

    def signalled(self, run_key, number, *rest):
        if number == 3 and moment == "in an update":
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, run_key, number, *rest)

    def look(metrics):
        if moment == "as another error":
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            except KeyboardInterrupt:
                raise RuntimeError("the compiler has failed") from None

    monkeypatch.setattr(LearnerGroup, "update", signalled)
    said = []
    with RunDirectory.create(tmp_path / "run", {}) as run, process.running():
        process.stop_on_signals()
        with pytest.raises(KeyboardInterrupt):
            train([IMPALA], [OURS], **settings(), store=run, checkpoint_seconds=1e9, look=look)
    done = {"in an update": 4, "as another error": 1}[moment]
    assert [one.name for one in (tmp_path / "run/checkpoints").iterdir()] == [f"{done:08d}"]
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == done
    with RunDirectory(tmp_path / "run", said.append) as run:
        train([IMPALA], [OURS], **settings(), store=run)
    assert not said


def test_slow_checkpoints_are_rare(tmp_path, monkeypatch):
    saved, clock = [], [0.0]

    def save(number, state, metrics):
        saved.append(number)
        clock[0] += 1.0

    def tell(metrics):
        clock[0] += 1.0  # an update takes the same time

    monkeypatch.setattr("marl.distributed.runtime.time.perf_counter", lambda: clock[0])
    with RunDirectory.create(tmp_path / "run", {}) as run:
        monkeypatch.setattr(run, "save", save)
        train([IMPALA], [OURS], **settings(num_updates=25), store=run, checkpoint_seconds=2.0, look=tell)
    assert saved == [2, 12, 22, 25]
