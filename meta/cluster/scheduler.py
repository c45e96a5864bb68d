"""Scheduler of chunks over workers that join, die, come back, are slow or give wrong results.

A chunk gives the same outcomes wherever it is evaluated, so that the first answer counts and it may be asked for twice.
"""

from __future__ import annotations

import queue
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

IN_HAND = 2  # chunks that a worker has at once: the next is there when one is done
REST = 2.0  # seconds after which one that died is asked whether it is back; at once, it would lose what it is asked
TICK = 0.5  # seconds between two looks at late, new and returning workers
TRIES = 3  # of a chunk that workers fail at which are well
LATE = 3.0  # times the median duration of a chunk, after which an idle worker evaluates it too
LEAST_LATE = 1.0  # seconds
NEVER = float("inf")
ALONE = 600.0  # seconds without any worker after which nothing is waited for any more


class NoWorkers(RuntimeError):
    """Raised when no worker can evaluate anything."""


class Failed(RuntimeError):
    """A worker that is well could not evaluate a chunk."""


class Report(NamedTuple):
    """The properties that a worker reports when it joins."""

    versions: dict[str, str]  # of what has to be the same everywhere, and its platform
    place: str  # the machine
    processor: str  # its kind, which decides how sums are rounded


class Worker(Protocol):
    """Evaluates chunks. Its futures raise `Failed` for a chunk that cannot be evaluated, or anything after a death."""

    def join(self) -> Future[Report]:
        """Makes it ready, for the first time or after it died."""
        ...

    def evaluate(self, generation: Any, chunk: int) -> Future[tuple[Any, float]]:
        """The outcomes of a chunk, and the seconds that it took."""
        ...

    def leave(self) -> None:
        """It is needed no more."""
        ...


class _Member:
    """A worker and what is known of it."""

    def __init__(self, worker: Worker):
        self.worker = worker
        self.ready = False
        self.rests_until = 0.0
        self.joining: Future[Report] | None = None
        self.hand: dict[Future[Any], tuple[_Generation, int, float]] = {}  # -> (of what, chunk, since when)
        self.since = 0.0
        self.busy = 0.0


class _Generation:
    """A generation that is being evaluated: chunks, answers and doubts."""

    def __init__(self, what: Any, chunks: int):
        self.what, self.chunks = what, chunks
        self.waiting = deque(range(chunks))
        self.answers: dict[int, Any] = {}
        self.copies = Counter[int]()  # how often a chunk was asked for
        self.at_work = Counter[int]()  # how many have it in hand
        self.failures = Counter[int]()
        self.doubtful: dict[int, tuple[_Member, float]] = {}  # chunk -> (whose answer may be wrong, since when)

    @property
    def is_done(self) -> bool:
        return len(self.answers) == self.chunks

    def next_for(self, member: _Member, before: float) -> int | None:
        """A chunk that waits, if any, and not what this worker has answered in doubt since then."""
        for _ in range(len(self.waiting)):
            who, since = self.doubtful.get(self.waiting[0], (None, NEVER))
            if who is not member or since < before:
                return self.waiting.popleft()
            self.waiting.rotate(-1)
        return None


class Scheduler:
    """Has chunks evaluated by the workers that are there.

    Args:
      find_workers: `(how many there are) -> further ones`, called again and again.
      versions: that a worker has to have.
      say: takes messages for the user, one line each.
      wrong: `outcomes -> bool`, whether these may be of a worker that is broken; not if another one says so too.
      alone: seconds without any worker after which nothing is waited for any more.
    """

    def __init__(
        self,
        find_workers: Callable[[int], Sequence[Worker]],
        versions: dict[str, str],
        say: Callable[[str], None] = lambda words: None,
        wrong: Callable[[Any], bool] = lambda outcomes: False,
        alone: float = ALONE,
    ):
        self._find, self._versions, self._say, self._wrong, self._alone = find_workers, versions, say, wrong, alone
        self._members: list[_Member] = []
        self._events: queue.SimpleQueue[tuple[_Member, Future[Any]]] = queue.SimpleQueue()
        self._durations: deque[float] = deque(maxlen=64)
        self._looked = self._last_seen = 0.0
        self._refused: set[str] = set()
        self._processors: set[str] = set()
        self.repeated = self.lost = self.wrong_answers = 0
        self.waited = 0.0  # worker-seconds without work, of those that left

    @property
    def workers(self) -> int:
        """The number of workers that are ready."""
        return sum(member.ready for member in self._members)

    def statistics(self) -> dict[str, Any]:
        """Counts of the work so far."""
        now = time.monotonic()
        waited = self.waited + sum(max(now - one.since - one.busy, 0.0) for one in self._members if one.ready)
        return {
            "workers": self.workers,
            "chunks_repeated": self.repeated,
            "seconds_waited": round(waited, 3),
            "workers_lost": self.lost,
            "wrong_answers": self.wrong_answers,
            "processors": sorted(self._processors),
        }

    def evaluate(self, generation: Any, chunks: int, idle: Callable[[], None] = lambda: None) -> list[Any]:
        """The outcomes of all chunks of a generation, in their order.

        Args:
          generation: handed to the workers.
          chunks: how many there are.
          idle: called now and then; may raise.

        Raises:
          NoWorkers: if no worker of the same versions has been there for long, or if several could not evaluate a
            chunk.
        """
        this = _Generation(generation, chunks)
        self._last_seen = time.monotonic()
        self._give_to_all(this)
        while not this.is_done:
            if time.monotonic() - self._looked >= TICK:
                self._look(idle)
                self._give_to_all(this)
            try:
                member, future = self._events.get(timeout=TICK)
            except queue.Empty:
                continue
            if future is member.joining:
                self._joined(member, future)
            elif future in member.hand:
                self._answered(member, future, this)
            self._give(member, this, IN_HAND)
        return [this.answers[chunk] for chunk in range(chunks)]

    def close(self) -> None:
        """Releases all workers."""
        for member in self._members:
            member.worker.leave()
        self._members.clear()

    def _answered(self, member: _Member, future: Future[Any], this: _Generation) -> None:
        """Takes what a worker says of a chunk, or that it has died."""
        of, chunk, since = member.hand.pop(future)
        of.at_work[chunk] -= 1
        if error := future.exception():
            self._died(member)
            this.failures[chunk] += of is this and isinstance(error, Failed)
            if this.failures[chunk] >= TRIES:
                words = str(error).strip().split("\n")[-1]  # Ray puts before them where it happened
                raise NoWorkers(f"a chunk cannot be evaluated: {words.split(f'{Failed.__name__}: ')[-1]}")
            if of is this and chunk not in this.answers and not this.at_work[chunk]:
                this.waiting.appendleft(chunk)
            return
        outcomes, seconds = future.result()
        member.busy += seconds
        self._durations.append(time.monotonic() - since)
        if of is not this or chunk in this.answers:
            return
        if not self._wrong(outcomes):
            if chunk in this.doubtful:
                self._broken(this.doubtful[chunk][0])
            this.answers[chunk] = outcomes
        elif chunk in this.doubtful or self.workers == 1:  # confirmed by another worker, or there is no other one
            this.answers[chunk] = outcomes
        else:
            this.doubtful[chunk] = member, time.monotonic()
            this.waiting.appendleft(chunk)

    def _look(self, idle: Callable[[], None]) -> None:
        """Looks for workers that have joined or come back."""
        self._looked = now = time.monotonic()
        idle()
        self._members += map(_Member, self._find(len(self._members)))
        for member in self._members:
            if not member.ready and not member.joining and now >= member.rests_until:
                member.joining = self._when_done(member, member.worker.join())
        if self.workers:
            self._last_seen = now
        elif now - self._last_seen > self._alone:
            raise NoWorkers(f"no worker has been there for {self._alone:.0f} s")
        elif self._refused and all(member.rests_until == NEVER for member in self._members):
            raise NoWorkers(f"no worker fits: {min(self._refused)}")

    def _when_done(self, member: _Member, future: Future[Any]) -> Future[Any]:
        future.add_done_callback(lambda done: self._events.put((member, done)))
        return future

    def _joined(self, member: _Member, future: Future[Any]) -> None:
        member.joining, now = None, time.monotonic()
        if future.exception():
            member.rests_until = now + REST
            return
        report = future.result()
        for name, version in self._versions.items():
            if (theirs := report.versions.get(name, "none")) != version:
                words = f"a worker on {report.place} has {name} {theirs} and not {version}, and is not used"
                if words not in self._refused:
                    self._refused.add(words)
                    self._say(words)
                member.rests_until = NEVER
                return
        if self._processors and report.processor not in self._processors:
            kinds = ", ".join(sorted({*self._processors, report.processor}))
            self._say(f"the workers have several kinds of processors ({kinds}): last bits depend on the worker")
        self._processors.add(report.processor)
        member.ready, member.since, member.busy = True, now, 0.0

    def _died(self, member: _Member) -> None:
        """Marks a worker as dead; its chunks go to others as its futures fail."""
        if member.ready:
            now = time.monotonic()
            self.waited += max(now - member.since - member.busy, 0.0)
            self.lost += 1
            member.ready, member.rests_until = False, now + REST

    def _broken(self, member: _Member) -> None:
        """Marks a worker as broken, because no other worker confirms its results."""
        if member.rests_until == NEVER:
            return
        self.wrong_answers += 1
        self._say("a worker gave an outcome that is no number where another gives one; it is not used any more")
        member.ready, member.rests_until = False, NEVER
        member.worker.leave()

    def _give(self, member: _Member, this: _Generation, most: int) -> None:
        """Hands a worker what waits, until it has so many chunks."""
        before = time.monotonic() - self._late  # unconfirmed since then, because no other worker is there
        while member.ready and len(member.hand) < most and (chunk := this.next_for(member, before)) is not None:
            self._ask(member, this, chunk)

    @property
    def _late(self) -> float:
        """Seconds after which a chunk should have been evaluated."""
        return max(LATE * statistics.median(self._durations), LEAST_LATE) if self._durations else LEAST_LATE

    def _ask(self, member: _Member, this: _Generation, chunk: int) -> None:
        this.copies[chunk] += 1
        this.at_work[chunk] += 1
        self.repeated += this.copies[chunk] > 1
        future = member.worker.evaluate(this.what, chunk)
        member.hand[future] = this, chunk, time.monotonic()
        self._when_done(member, future)

    def _give_to_all(self, this: _Generation) -> None:
        """Gives every worker a chunk: one that waits, or one that another worker is late with."""
        for full in range(1, IN_HAND + 1):  # each worker has one before any gets a second
            for member in self._members:
                self._give(member, this, full)
        if this.waiting or not self._durations:
            return
        now = time.monotonic()
        behind = sorted(
            (since, chunk)
            for member in self._members
            for of, chunk, since in member.hand.values()
            if of is this and chunk not in this.answers and this.at_work[chunk] < 2 and now - since > self._late
        )
        idle = (member for member in self._members if member.ready and not member.hand)
        for member, (_, chunk) in zip(idle, behind, strict=False):
            self._ask(member, this, chunk)
