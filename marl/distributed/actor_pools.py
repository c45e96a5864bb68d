"""Where actors are: in this thread, or in threads of their own; those in Ray's processes are in `on_ray`."""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import jax

from configs.specs import first_line
from marl.distributed.actor import Act, Actor, ActorPrograms, Failure, Rollout, RolloutRequest
from marl.distributed.vector_env import VectorEnv, seed_of

MakeVectorEnv = Callable[[], VectorEnv]


@enum.unique
class PlayBranch(enum.IntEnum):
    """Branches of the keys of what is played."""

    ACTOR = 2**32 - 1  # what one of several actors draws from
    RESUMED = 2**32 - 2  # a run that goes on


class Pool(Protocol):
    """Actors, by their numbers. An order is answered once, by a rollout or a failure, whatever happens to the actor."""

    def start(self, actor: int, order: RolloutRequest) -> None:
        """Asks for a rollout; an actor does what it is asked one after the other."""
        ...

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        """What came next, and of whom; None if nothing did in so many seconds."""
        ...

    def restart(self, actor: int) -> None:
        """Begins anew: other environments, and nothing remembered. What it was asked for is forgotten."""
        ...

    def close(self) -> None:
        """Lets go of everything."""
        ...


def begin(
    programs: ActorPrograms,
    make: MakeVectorEnv,
    number: int,
    run_key: jax.Array,
    reset_key: jax.Array,
    seed: int,
    tried: int = 0,
    act: Act | None = None,
) -> Actor:
    """An actor in new environments; `tried` is how often it was begun before, and what they are drawn from too."""
    life = number + programs.num_actors * tried
    # The first actor draws what `learn` does; others something else, for behind a barrier all have the same orders.
    own_key = jax.random.fold_in(jax.random.fold_in(run_key, PlayBranch.ACTOR), number) if number else run_key
    host = make()
    try:
        actor = Actor(programs, host, number, own_key, act)
        actor.begin(seed_of(seed, number, tried), jax.random.fold_in(reset_key, life) if life else reset_key)
    except Exception:
        host.close()
        raise
    return actor


class InProcessPool:
    """Actors that take turns in this thread."""

    def __init__(
        self,
        programs: ActorPrograms,
        hosts: Sequence[MakeVectorEnv],
        run_key: jax.Array,
        reset_key: jax.Array,
        seed: int,
    ):
        self._given, self._hosts, self._keys = programs, hosts, (run_key, reset_key, seed)
        self._actors: list[Actor | None] = [None] * len(hosts)
        self._tried = [0] * len(hosts)
        self._asked: deque[tuple[int, RolloutRequest]] = deque()

    def start(self, actor: int, order: RolloutRequest) -> None:
        self._asked.append((actor, order))

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        if not self._asked:
            time.sleep(seconds)
            return None
        number, order = self._asked.popleft()
        try:
            actor = self._actors[number]
            if actor is None:
                actor = begin(self._given, self._hosts[number], number, *self._keys, self._tried[number])
                self._actors[number] = actor
            return number, actor.play(order)
        except Exception as error:  # of somebody else's environment
            return number, Failure(order.number, words_of(error))

    def restart(self, actor: int) -> None:
        old, self._actors[actor] = self._actors[actor], None
        self._asked = deque(pair for pair in self._asked if pair[0] != actor)
        self._tried[actor] += 1
        close_quietly(old)

    def close(self) -> None:
        for actor in self._actors:
            close_quietly(actor)


class ThreadPool:
    """Actors in threads. One that hangs is left alone, and another takes its place.

    Args:
      programs: compiled.
      hosts: makes the environments of each.
      run_key: of the run.
      reset_key: of first observations.
      seed: of environments that have seeds.
      acts: who evaluates policies for each; they themselves, if None.
      leave: called in the end.
    """

    def __init__(
        self,
        programs: ActorPrograms,
        hosts: Sequence[MakeVectorEnv],
        run_key: jax.Array,
        reset_key: jax.Array,
        seed: int,
        *,
        acts: Act | None = None,
        leave: Callable[[], None] = lambda: None,
    ):
        self._programs, self._hosts, self._keys = programs, hosts, (run_key, reset_key, seed)
        self._acts, self._leave = acts, leave
        self._answers: queue.Queue[tuple[int, int, Rollout | Failure]] = queue.Queue()
        self._tried = [0] * len(hosts)
        self._orders = [self._begin(number) for number in range(len(hosts))]

    def _begin(self, number: int) -> queue.Queue[RolloutRequest | None]:
        orders: queue.Queue[RolloutRequest | None] = queue.Queue()
        life = self._tried[number]  # answers of one that was given up are not taken
        threading.Thread(target=self._work, args=(number, life, orders), daemon=True).start()
        return orders

    def _work(self, number: int, life: int, orders: queue.Queue[RolloutRequest | None]) -> None:
        actor = None
        while order := orders.get():
            try:
                actor = actor or begin(self._programs, self._hosts[number], number, *self._keys, life, self._acts)
                answer: Rollout | Failure = actor.play(order)
            except Exception as error:
                answer = Failure(order.number, words_of(error))
            self._answers.put((number, life, answer))
        close_quietly(actor)

    def start(self, actor: int, order: RolloutRequest) -> None:
        self._orders[actor].put(order)

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        until = time.monotonic() + seconds
        while True:
            try:
                number, life, answer = self._answers.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if life == self._tried[number]:
                return number, answer

    def restart(self, actor: int) -> None:
        self._orders[actor].put(None)
        self._tried[actor] += 1
        self._orders[actor] = self._begin(actor)

    def close(self) -> None:
        for orders in self._orders:
            orders.put(None)
        self._leave()


def words_of(error: Exception) -> str:
    """An exception of somebody else's code in a line."""
    words = first_line(error) if str(error).strip() else ""
    return words if isinstance(error, ValueError) and words else f"{type(error).__name__}: {words}".rstrip(": ")


def close_quietly(actor: Actor | None) -> None:
    """What is broken may not be able to close."""
    try:
        if actor:
            actor.close()
    except Exception:
        pass
