"""Central inference: one thread evaluates the policies for many actors, in batches of the requests at hand."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import jax
import numpy as np

from marl.distributed.actors.actor_programs import ActorPrograms

WAIT = 0.002  # seconds for further requests after the first one


class CentralInference:
    """Evaluates the policies for actors that ask at about the same time in one call, with the newest parameters.

    A batch waits for further requests no longer than `WAIT`, and is filled up to a power of two, so that there are few
    programs. The result of a request does not depend on the other requests of its batch.

    Args:
      programs: compiled.
      policies: the first ones; the learners' loop sets newer ones.
      most: requests in a batch.
    """

    def __init__(self, programs: ActorPrograms, policies: Any, most: int):
        self._programs, self.policies, self._most = programs, policies, most
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self.batches, self.evaluated = 0, 0
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def act(self, keys: Any, policies: Any, memories: Any, done: Any, observations: Any) -> Any:
        """As `ActorPrograms.act`, for a thread, with the newest policies in place of those given.

        Raises:
          RuntimeError: after `close`.
        """
        del policies
        asked = _Asked((keys, memories, done, observations))
        self._asked.put(asked)
        while not asked.ready.acquire(timeout=1.0):
            if self._closed:
                raise RuntimeError("training is over")
        if isinstance(asked.answer, Exception):
            raise asked.answer
        return asked.answer

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self._asked.put(None)

    def _serve(self) -> None:
        while not self._closed and (batch := self._gather()):
            try:
                size = 1 << (len(batch) - 1).bit_length()
                filled = batch + [batch[0]] * (size - len(batch))
                keys, memories, done, observations = jax.tree.map(
                    lambda *x: np.stack(x), *[asked.question for asked in filled]
                )
                found = self._programs.act(keys, self.policies, memories, done, observations, together=True)
                found = jax.tree.map(np.asarray, found)
                self.batches, self.evaluated = self.batches + 1, self.evaluated + len(batch)
                leaves = jax.tree.leaves(found)
                structure: Any = jax.tree.structure(found)
                for i, asked in enumerate(batch):
                    asked.answer = structure.unflatten([x[i] for x in leaves])
                    asked.ready.release()
            except Exception as error:
                for asked in batch:
                    asked.answer = error
                    asked.ready.release()

    def _gather(self) -> list[_Asked]:
        """The requests of a batch, of which the first is waited for; none after `close`."""
        first = self._asked.get()
        batch: list[_Asked] = []
        until = time.monotonic() + WAIT
        while first is not None:
            batch.append(first)
            if len(batch) == self._most:
                break
            try:
                first = self._asked.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                break
        return batch


class _Asked:
    """A request and, later, its answer."""

    def __init__(self, question: Any):
        self.question = question
        self.answer: Any = None
        self.ready = threading.Lock()
        self.ready.acquire()
