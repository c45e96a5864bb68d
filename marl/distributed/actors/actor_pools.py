"""Pools of actors: in this thread, or in threads of their own; `ray_pool` has those in processes of Ray."""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax

from configs.specs import first_line
from marl.distributed.actors.actor import Act, Actor
from marl.distributed.actors.actor_programs import ActorPrograms
from marl.distributed.actors.rollouts import Failure, Rollout, RolloutRequest
from marl.distributed.vector_env import MakeVectorEnv, seed_of


@enum.unique
class PlayBranch(enum.IntEnum):
    """Branches of the keys of rollouts."""

    ACTOR = 2**32 - 1  # of one of several actors
    RESUMED = 2**32 - 2  # of a run that goes on


class EnvSeeds(NamedTuple):
    """Sources of random numbers in rollouts."""

    run_key: jax.Array  # of steps and actions
    reset_key: jax.Array  # of first observations
    seed: int  # of environments that have seeds of their own

    def resumed(self, first: int, lag: int | None) -> EnvSeeds:
        """The seeds of a run that goes on after `first` updates, whose episodes are new ones.

        Without a lag, rollouts had numbers beyond the updates, and so the run key is a new one, too.
        """
        run_key, reset_key = (
            jax.random.fold_in(jax.random.fold_in(key, PlayBranch.RESUMED), first)
            for key in (self.run_key, self.reset_key)
        )
        return EnvSeeds(self.run_key if lag is not None else run_key, reset_key, seed_of(self.seed, first))


class Pool(Protocol):
    """Actors, by their numbers. Each request has one answer, a rollout or a failure, whatever happens to the actor."""

    def start(self, actor: int, request: RolloutRequest) -> None:
        """Asks for a rollout; an actor plays its requests one after the other."""
        ...

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        """The next answer and its actor; None if there was none in so many seconds."""
        ...

    def restart(self, actor: int) -> None:
        """Starts an actor again, in new environments and without its memory and its requests."""
        ...

    def close(self) -> None:
        """Stops all actors."""
        ...


def begin(
    programs: ActorPrograms, make: MakeVectorEnv, number: int, seeds: EnvSeeds, tried: int = 0, act: Act | None = None
) -> Actor:
    """An actor in new environments, with other random numbers for each of its starts.

    Args:
      programs: compiled.
      make: makes its environments.
      number: of the actor.
      seeds: of all actors.
      tried: how often it was started before.
      act: evaluates policies; the actor itself if None.
    """
    start = number + programs.num_actors * tried
    # The first actor draws what `learn` does. Others draw other numbers, because behind a barrier requests are equal.
    key = seeds.run_key
    own_key = jax.random.fold_in(jax.random.fold_in(key, PlayBranch.ACTOR), number) if number else key
    env = make()
    try:
        actor = Actor(programs, env, number, own_key, act)
        reset_key = jax.random.fold_in(seeds.reset_key, start) if start else seeds.reset_key
        actor.begin(seed_of(seeds.seed, number, tried), reset_key)
    except Exception:
        env.close()
        raise
    return actor


class InProcessPool:
    """Actors that take turns in this thread."""

    def __init__(self, programs: ActorPrograms, make_envs: Sequence[MakeVectorEnv], seeds: EnvSeeds):
        self._programs, self._make_envs, self._seeds = programs, make_envs, seeds
        self._actors: list[Actor | None] = [None] * len(make_envs)
        self._tried = [0] * len(make_envs)
        self._asked: deque[tuple[int, RolloutRequest]] = deque()

    def start(self, actor: int, request: RolloutRequest) -> None:
        self._asked.append((actor, request))

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        if not self._asked:
            time.sleep(seconds)
            return None
        number, request = self._asked.popleft()
        try:
            actor = self._actors[number]
            if actor is None:
                actor = begin(self._programs, self._make_envs[number], number, self._seeds, self._tried[number])
                self._actors[number] = actor
            return number, actor.play(request)
        except Exception as error:  # of an environment
            return number, Failure(request.number, error_line(error))

    def restart(self, actor: int) -> None:
        old, self._actors[actor] = self._actors[actor], None
        self._asked = deque(pair for pair in self._asked if pair[0] != actor)
        self._tried[actor] += 1
        close_quietly(old)

    def close(self) -> None:
        for actor in self._actors:
            close_quietly(actor)


class ThreadPool:
    """Actors in threads. A thread that hangs is left alone, and another takes its place.

    Args:
      programs: compiled.
      make_envs: make the environments of each.
      seeds: of all actors.
      act: evaluates policies; each actor itself if None.
      leave: called in the end.
    """

    def __init__(
        self,
        programs: ActorPrograms,
        make_envs: Sequence[MakeVectorEnv],
        seeds: EnvSeeds,
        *,
        act: Act | None = None,
        leave: Callable[[], None] = lambda: None,
    ):
        self._programs, self._make_envs, self._seeds = programs, make_envs, seeds
        self._act, self._leave = act, leave
        self._answers: queue.Queue[tuple[int, int, Rollout | Failure]] = queue.Queue()
        self._tried = [0] * len(make_envs)
        self._requests = [self._begin(number) for number in range(len(make_envs))]

    def _begin(self, number: int) -> queue.Queue[RolloutRequest | None]:
        requests: queue.Queue[RolloutRequest | None] = queue.Queue()
        tried = self._tried[number]  # answers of an earlier start are not taken
        threading.Thread(target=self._work, args=(number, tried, requests), daemon=True).start()
        return requests

    def _work(self, number: int, tried: int, requests: queue.Queue[RolloutRequest | None]) -> None:
        actor = None
        while request := requests.get():
            try:
                actor = actor or begin(self._programs, self._make_envs[number], number, self._seeds, tried, self._act)
                answer: Rollout | Failure = actor.play(request)
            except Exception as error:
                answer = Failure(request.number, error_line(error))
            self._answers.put((number, tried, answer))
        close_quietly(actor)

    def start(self, actor: int, request: RolloutRequest) -> None:
        self._requests[actor].put(request)

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        until = time.monotonic() + seconds
        while True:
            try:
                number, tried, answer = self._answers.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if tried == self._tried[number]:
                return number, answer

    def restart(self, actor: int) -> None:
        self._requests[actor].put(None)
        self._tried[actor] += 1
        self._requests[actor] = self._begin(actor)

    def close(self) -> None:
        for requests in self._requests:
            requests.put(None)
        self._leave()


def error_line(error: Exception) -> str:
    """An exception of a library in one line."""
    line = first_line(error) if str(error).strip() else ""
    return line if isinstance(error, ValueError) and line else f"{type(error).__name__}: {line}".rstrip(": ")


def close_quietly(actor: Actor | None) -> None:
    """Closes an actor that may be broken."""
    try:
        if actor:
            actor.close()
    except Exception:
        pass
