"""The assignment of chunks to workers that join, die, come back, are late, or answer wrongly."""

import threading
import time
from concurrent.futures import Future

import pytest

from meta.cluster import scheduler
from meta.cluster.scheduler import Failed, NoWorkers, Report, Scheduler

VERSIONS = {"jax": "1"}
HERE = Report(VERSIONS, "here", "avx2")


class Simulated:
    """A worker that answers the square of the chunk's number, unless `behaviour(calls so far)` says otherwise."""

    def __init__(self, behaviour=lambda calls: "well", seconds=0.0, report=HERE):
        self.behaviour, self.seconds, self.report = behaviour, seconds, report
        self.calls, self.joins, self.left = [], 0, False

    def join(self):
        self.joins += 1
        done = Future()
        done.set_result(self.report)
        return done

    def evaluate(self, generation, chunk):
        self.calls.append(chunk)
        future, how = Future(), self.behaviour(len(self.calls))

        def answer():
            if how in ("dies", "fails"):
                future.set_exception(ConnectionError("gone") if how == "dies" else Failed("too large"))
            else:
                future.set_result((float("nan") if how == "nonsense" else generation * chunk**2, self.seconds))

        if how != "hangs":
            threading.Timer(self.seconds, answer).start()
        return future

    def leave(self):
        self.left = True


def scheduled(*workers, **options):
    """A scheduler whose workers are there from the beginning."""
    return Scheduler(lambda there: workers[there:], VERSIONS, **options)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(scheduler, "TICK", 0.02)
    monkeypatch.setattr(scheduler, "REST", 0.05)
    monkeypatch.setattr(scheduler, "LEAST_LATE", 60.0)  # so that no pause of this machine makes an answer late


@pytest.fixture
def impatient(hurried, monkeypatch):
    monkeypatch.setattr(scheduler, "LEAST_LATE", 0.1)


SQUARES = [2 * chunk**2 for chunk in range(12)]


def test_all_chunks_come_back_in_order_and_all_workers_work():
    workers = [Simulated(seconds=0.01) for _ in range(3)]
    found = scheduled(*workers)
    assert found.evaluate(2, 12) == SQUARES
    assert all(worker.calls for worker in workers)
    assert sorted(chunk for worker in workers for chunk in worker.calls) == list(range(12))
    assert found.statistics()["workers"] == 3
    assert found.statistics()["chunks_repeated"] == found.statistics()["workers_lost"] == 0


def test_chunks_of_a_dead_worker_go_to_others_and_it_comes_back():
    dying = Simulated(lambda calls: "dies" if calls <= 2 else "well", seconds=0.01)
    found = scheduled(dying, Simulated(seconds=0.03))
    assert found.evaluate(2, 12) == SQUARES
    assert dying.joins >= 2
    assert len(dying.calls) > 2  # it works again
    assert found.statistics()["workers_lost"] == 1
    assert 1 <= found.statistics()["chunks_repeated"] <= 2


def test_a_chunk_that_fails_everywhere_ends_the_evaluation():
    workers = [Simulated(lambda calls: "fails") for _ in range(2)]
    with pytest.raises(NoWorkers, match="a chunk cannot be evaluated: too large"):
        scheduled(*workers).evaluate(2, 2)
    assert sum(len(worker.calls) for worker in workers) <= 6


def test_a_chunk_that_fails_once_is_evaluated_by_another_worker():
    found = scheduled(Simulated(lambda calls: "fails" if calls == 1 else "well"), Simulated(seconds=0.01))
    assert found.evaluate(2, 12) == SQUARES


def test_a_dead_worker_is_not_asked_at_once():
    dying = Simulated(lambda calls: "dies")
    found, began = scheduled(dying, alone=0.3), time.monotonic()
    with pytest.raises(NoWorkers, match="no worker has been there for 0 s"):
        found.evaluate(1, 2)
    assert dying.joins <= (time.monotonic() - began) / 0.05 + 2


def test_an_idle_worker_evaluates_the_chunk_of_a_hanging_one(impatient):
    hanging = Simulated(lambda calls: "hangs" if calls == 1 else "well")
    found = scheduled(hanging, Simulated(seconds=0.01))
    assert found.evaluate(2, 12) == SQUARES
    assert found.statistics()["chunks_repeated"] >= 1
    assert found.statistics()["workers_lost"] == 0


def test_late_answers_of_an_earlier_generation_are_not_taken_for_those_of_this_one(impatient):
    slow = Simulated(lambda calls: "well", seconds=0.4)
    found = scheduled(slow, Simulated(seconds=0.001))
    for generation in (1, 2, 3):
        assert found.evaluate(generation, 4) == [generation * chunk**2 for chunk in range(4)]


def test_workers_may_join_during_an_evaluation():
    late, began = Simulated(seconds=0.01), time.monotonic()
    first = Simulated(seconds=0.02)

    def find(there):
        return [first] if there == 0 else [late] if there == 1 and time.monotonic() - began > 0.1 else []

    found = Scheduler(find, VERSIONS)
    assert found.evaluate(2, 40) == [2 * chunk**2 for chunk in range(40)]
    assert late.calls
    assert found.statistics()["workers"] == 2


def test_a_worker_with_another_version_is_refused_in_one_line():
    said, other = [], Simulated(report=Report({"jax": "2"}, "there", "avx2"))
    found = scheduled(other, Simulated(), say=said.append)
    assert found.evaluate(2, 12) == SQUARES
    assert not other.calls
    assert said == ["a worker on there has jax 2 and not 1, and is not used"]


def test_the_lack_of_a_fitting_worker_is_reported_at_once():
    found = scheduled(Simulated(report=Report({}, "there", "avx2")))
    with pytest.raises(NoWorkers, match="no worker fits: a worker on there has jax none and not 1"):
        found.evaluate(2, 12)


def test_a_nan_answer_counts_if_another_worker_confirms_it():
    def wrong(calls):
        return "nonsense"

    found = scheduled(Simulated(wrong), Simulated(wrong), wrong=lambda x: x != x)
    (x,) = found.evaluate(2, 1)
    assert x != x
    assert found.statistics()["wrong_answers"] == 0
    assert found.statistics()["chunks_repeated"] == 1


def test_the_only_worker_left_confirms_an_answer_alone(impatient):
    """The chunk has no fitness anywhere, and the other worker hangs."""
    hanging, nonsense = Simulated(lambda calls: "hangs"), Simulated(lambda calls: "nonsense", seconds=0.01)
    found = scheduled(hanging, nonsense, wrong=lambda outcome: outcome != outcome)
    assert all(outcome != outcome for outcome in found.evaluate(2, 4))
    assert found.statistics()["wrong_answers"] == 0


def test_a_worker_with_unconfirmed_answers_is_used_no_more():
    said, broken = [], Simulated(lambda calls: "nonsense")
    found = scheduled(broken, Simulated(), wrong=lambda x: x != x, say=said.append)
    assert found.evaluate(2, 12) == SQUARES
    assert broken.left
    assert len(said) == 1
    assert found.statistics()["wrong_answers"] == 1
    calls = len(broken.calls)
    assert found.evaluate(2, 12) == SQUARES
    assert len(broken.calls) == calls


def test_time_without_work_is_counted():
    found = scheduled(Simulated(seconds=0.05), Simulated(seconds=0.05))
    found.evaluate(1, 1)  # the other worker is idle
    assert found.statistics()["seconds_waited"] > 0.03


def test_mixed_processors_are_reported():
    said = []
    found = scheduled(Simulated(), Simulated(report=Report(VERSIONS, "there", "avx512f")), say=said.append)
    found.evaluate(1, 12)
    assert found.statistics()["processors"] == ["avx2", "avx512f"]
    assert said == ["the workers have several kinds of processors (avx2, avx512f): last bits depend on the worker"]


def test_the_idle_callback_may_end_an_evaluation():
    def gone():
        raise EOFError

    with pytest.raises(EOFError):
        scheduled(Simulated(lambda calls: "hangs")).evaluate(1, 1, gone)
