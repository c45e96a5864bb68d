"""Dispatcher of rollouts: which actor plays which rollout, and what happens after a failure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from marl.distributed.actors.actor_pools import Pool
from marl.distributed.actors.rollouts import Failure, Rollout, RolloutRequest
from marl.distributed.system import Setup
from meta.process import check_stop

TRIES = 3  # without a first rollout of any actor, after which the run ends: something is wrong with it
MOST_TRIES = 10  # later; they take four minutes and more
REST = 1.0  # seconds before an actor that failed is tried again, doubled each time
DOUBLINGS = 6  # at most: a minute
FIRST_PATIENCE = 300.0  # seconds for the first rollout of an actor, which is compiled


class Broken(ValueError):
    """No actor can play its environments."""


class Dispatcher:
    """Asks actors for rollouts, and hands them to updates.

    Args:
      pool: the actors.
      setup: of the training.
      first: number of updates that are done.
      num_updates: number of updates in the end.
      say: called with a line about each actor that fails.
    """

    def __init__(self, pool: Pool, setup: Setup, first: int, num_updates: int, say: Callable[[str], Any]):
        system, num_actors = setup.system, setup.num_actors
        self._pool, self._actors, self._lag, self._patience = pool, num_actors, system.lag, system.patience
        self._barrier = system.path == "barrier"
        self._turns = system.where == "here" and not self._barrier
        self._updates, self._say = num_updates, say
        self._first = self._version = self._next = first  # number of updates done, and of rollouts asked for
        self._published: dict[int, Any] = {}
        self._asked: dict[int, deque[RolloutRequest]] = {actor: deque() for actor in range(num_actors)}
        self._since = dict.fromkeys(range(num_actors), time.monotonic())  # when an actor began what it does
        self._played = dict.fromkeys(range(num_actors), 0)  # since its last start
        self._failed = dict.fromkeys(range(num_actors), 0)  # in a row
        self._resting: dict[int, float] = {}  # until this time
        self._came: dict[tuple[int, int], Rollout] = {}  # by number and actor, as they come
        self._tries = TRIES
        self.restarted = 0

    def publish(self, policies: Any) -> None:
        """Takes new policies; actors that wait for them begin."""
        self._version = self._version + 1 if self._published else self._first
        self._published[self._version] = policies
        for old in [version for version in self._published if version < self._version - (self._lag or 0)]:
            del self._published[old]
        self._ask()

    def take(self, number: int) -> list[Rollout]:
        """The rollouts of update `number`. Behind a barrier the rollouts that came stand in for missing ones."""
        while not (found := self._complete(number)):
            check_stop()
            self._wake()
            self._look_at_clock()
            if answer := self._pool.next(0.2):
                self._hear(*answer)
        rollouts = [self._came.pop(one) for one in found]
        missing = self._actors - len(rollouts) if self._barrier else 0
        return rollouts + [_again(rollouts[i % len(rollouts)]) for i in range(missing)]

    def _complete(self, number: int) -> list[tuple[int, int]]:
        """Numbers and actors of the rollouts of an update; empty until they are there."""
        if self._lag is not None:
            wanted = [(number, actor) for actor in (range(self._actors) if self._barrier else [number % self._actors])]
            return wanted if all(one in self._came for one in wanted) else []
        if not self._barrier:
            return list(self._came)[:1]
        waited = any(asked and not self._failed[actor] for actor, asked in self._asked.items())
        return [] if waited else sorted(self._came)

    def _ask(self) -> None:
        if self._lag is not None:
            while self._next < self._updates and self._next - self._lag <= self._version:
                request = self._request(self._next, max(self._next - self._lag, self._first))
                for actor in range(self._actors) if self._barrier else [self._next % self._actors]:
                    self._start(actor, request)
                self._next += 1
            return
        if self._version + (0 if self._barrier else len(self._came)) >= self._updates:
            return  # the last updates have their rollouts
        idle = [actor for actor in range(self._actors) if not self._asked[actor] and actor not in self._resting]
        if self._barrier:
            for actor in idle:
                if (self._version, actor) not in self._came:
                    self._start(actor, self._request(self._version, self._version))
            return
        if self._turns:  # one after the other
            idle.sort(key=lambda actor: (actor - self._next) % self._actors)
            idle = [] if self._came or any(self._asked.values()) else idle[:1]
        for actor in idle:
            self._start(actor, self._request(self._next, self._version))
            self._next += 1

    def _request(self, number: int, version: int) -> RolloutRequest:
        return RolloutRequest(number, version, self._published[version])

    def _start(self, actor: int, request: RolloutRequest) -> None:
        if not self._asked[actor]:
            self._since[actor] = time.monotonic()
        self._asked[actor].append(request)
        if actor not in self._resting:
            self._pool.start(actor, request)

    def _hear(self, actor: int, answer: Rollout | Failure) -> None:
        if isinstance(answer, Failure):
            self._fail(actor, answer.message)
            return
        self._asked[actor].popleft()
        self._since[actor] = time.monotonic()
        self._played[actor], self._failed[actor] = self._played[actor] + 1, 0
        self._tries = MOST_TRIES
        # The update of a late rollout has gone on without it.
        late = self._lag is None and self._barrier and answer.number != self._version
        if not late:
            self._came[answer.number, actor] = answer
        self._ask()  # at once, before the learners learn from this

    def _look_at_clock(self) -> None:
        def late(actor: int) -> float:
            """The seconds that an actor has for its rollout if they are over, else 0."""
            allowed = self._patience if self._played[actor] else max(5 * self._patience, FIRST_PATIENCE)
            waiting = self._asked[actor] and actor not in self._resting
            return allowed if waiting and time.monotonic() - self._since[actor] > allowed else 0.0

        if any(map(late, self._asked)):
            for _ in range(sum(map(len, self._asked.values()))):  # answers may have come during an update
                if answer := self._pool.next(0.0):
                    self._hear(*answer)
        for actor in self._asked:
            if allowed := late(actor):
                self._fail(actor, f"nothing came in {allowed:.0f} s")

    def _fail(self, actor: int, message: str) -> None:
        self._failed[actor] += 1
        needed = self._failed if self._lag is None else [actor]  # without a lag the rollout of any actor will do
        if all(self._failed[one] >= self._tries for one in needed):
            raise Broken(f"environment: {message}; so in each of {self._tries} tries")
        rest = REST * 2 ** min(self._failed[actor] - 1, DOUBLINGS)
        self._say(f"actor {actor}: {message}; it restarts in {rest:g} s")
        self.restarted += 1
        self._pool.restart(actor)
        self._resting[actor] = time.monotonic() + rest
        if self._lag is None:
            self._asked[actor].clear()
            self._ask()

    def _wake(self) -> None:
        for actor in [actor for actor, until in self._resting.items() if time.monotonic() >= until]:
            del self._resting[actor]
            self._since[actor] = time.monotonic()
            self._played[actor] = 0
            for request in self._asked[actor]:
                self._pool.start(actor, request)
            self._ask()


def _again(rollout: Rollout) -> Rollout:
    """A rollout that stands in for a missing one, for the shape of an update's program, and is not counted again."""
    return rollout._replace(finished=0 * rollout.finished, ended=0 * rollout.ended, steps=0)
