"""Trials on the workers of a Ray cluster: proposed and ranked here, evaluated there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meta.cluster.ray_driver import Plan
from meta.evaluators import Evaluate, EvaluationSpec, Evaluator, GenerationRequest, Outcome, joined
from meta.loop import Call, Lost, Step, check_names, compiler_options
from meta.prng_data import data_of
from meta.process import check_stop
from meta.xla.backend import Platform, platform

START = 180.0  # seconds in which Ray begins; 27 were seen on a busy machine
ANSWER = 10.0  # seconds in which an address has to answer


class Refused(Lost):
    """Raised when there is no cluster, or none of its workers can be used."""


class RayCluster:
    """The workers of a Ray cluster, through a driver process that is restarted when it is lost.

    Args:
      plan: which cluster, and how many workers of which size.
      say: takes messages for the user, one line each.
    """

    def __init__(self, plan: Plan, say: Callable[[str], Any] = lambda words: None):
        self._plan, self._say = plan, say
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Any = None
        self._programs: dict[str, list[bytes]] = {}
        self._sent: set[str] = set()
        self._statistics: dict[str, Any] = {}
        self._before: dict[str, float] = {}  # of brokers that were lost
        self._token = 0
        self.platform: Platform = "cpu"  # of the workers
        self._rate = 0.0  # candidates per second

    def connect(self) -> None:
        """Connects, or begins a cluster on this machine.

        Raises:
          Refused: if there is no answer.
        """
        _check_address(self._plan.address)
        here, there = Pipe()
        self._pipe = here
        code = f"from meta.cluster.ray_driver import main; main({there.fileno()})"
        # A session of its own, for Ctrl-C is the business of this process.
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[there.fileno()],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | self._variables(),
        )
        there.close()
        self._sent = set()
        self._pipe.send(self._plan)
        try:
            _, self.platform = self._receive(START)
        except (EOFError, OSError):
            raise Refused("Ray ended while it began") from None

    def _variables(self) -> dict[str, str]:
        """Environment variables of the driver process."""
        path = os.pathsep.join(filter(None, sys.path))
        found = {"PYTHONPATH": path, "RAY_raylet_start_wait_time_s": f"{START:.0f}", "RAY_USAGE_STATS_ENABLED": "0"}
        if not self._plan.address:  # Ray's name for a cluster that cannot be reached from outside this machine
            found["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        return found

    def close(self) -> None:
        """Lets the workers go; a cluster that was begun here ends."""
        if self._process:
            with contextlib.suppress(OSError):
                self._pipe.send(("leave",))
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                self._end()

    def statistics(self) -> dict[str, Any]:
        """Counts of the work, with those of earlier connections."""
        found = {"workers": 0, "chunks_repeated": 0, "seconds_waited": 0.0} | self._statistics
        for name, value in self._before.items():
            found[name] = found.get(name, 0) + value
        return {"kind": "ray"} | found

    def words(self) -> str:
        """The status in a few words, for a line of progress."""
        found = self.statistics()
        lost = f", {found['workers_lost']} lost" if found.get("workers_lost") else ""
        return f"{found.get('workers', 0)} workers{lost}  {self._rate:.3g} candidates/s"

    def evaluator(self) -> Evaluator:
        """An evaluator whose trials run on the cluster."""
        jit = partial(jax.jit, compiler_options=compiler_options())
        return Evaluator(self._evaluate, run_on_host, jit, self, self.platform)

    def _evaluate(self, work: EvaluationSpec) -> Evaluate:
        population = work.evolution.population_size
        size = min(work.evolution.in_chunks().chunk_size, population)
        chunks, digest, structure = -(-population // size), "", None

        def evaluate(asked: GenerationRequest, origin: tuple[jax.Array, jax.Array, Any]) -> Outcome:
            nonlocal digest, structure
            to_ask = jax.tree.leaves(origin)
            asked = asked._replace(state=())
            if structure is None:
                from meta.cluster.exported_programs import pack

                def chunk(asked: GenerationRequest, number: jax.Array) -> Outcome:
                    return work.chunk(asked, number, size)

                programs = [pack(self.platform, work.ask, *origin), pack(self.platform, chunk, asked, jnp.int32(0))]
                digest = hashlib.sha256(b"".join(programs)).hexdigest()
                self._programs = {digest: programs}
                structure = jax.tree.structure(jax.eval_shape(chunk, asked, jnp.int32(0)))
            leaves = jax.tree.leaves(asked)
            # The smaller of the strategy's state and the candidates travels; a worker that gets the state asks again.
            is_state = _bytes(to_ask) < _bytes(leaves)
            started = time.perf_counter()
            found = self._work(digest, is_state, [_data(x) for x in (to_ask if is_state else leaves)], chunks)
            self._rate = population / (time.perf_counter() - started)
            outcomes = [np.stack(parts) for parts in zip(*found, strict=True)]
            return jax.tree.map(lambda x: joined(x, population), jax.tree.unflatten(structure, outcomes))

        return evaluate

    def _work(self, digest: str, is_state: bool, leaves: list[np.ndarray], chunks: int) -> list[Any]:
        """Has a generation evaluated, by another connection where one is lost."""
        self._token += 1
        while True:
            try:
                if digest not in self._sent:
                    self._pipe.send(("programs", digest, self._programs[digest]))
                    self._sent = {digest}
                self._pipe.send(("generation", digest, self._token, is_state, leaves, chunks))
                while True:
                    name, *rest = self._receive()
                    if name == "found" and rest[0] == self._token:
                        self._statistics = rest[2]
                        return rest[1]
            except (EOFError, OSError):
                self._lost()
                self._say("the connection with the cluster is lost; it is sought again")
                self._connect_again(time.monotonic() + self._plan.alone)

    def _connect_again(self, until: float) -> None:
        while True:
            try:
                return self.connect()
            except (Refused, EOFError, OSError) as error:
                if time.monotonic() > until:
                    raise Refused(f"cluster: the connection is lost: {error}") from None
                self._end()
                time.sleep(2.0)

    def _lost(self) -> None:
        for name in ("chunks_repeated", "seconds_waited", "workers_lost", "wrong_answers"):
            self._before[name] = self._before.get(name, 0) + self._statistics.get(name, 0)
        self._before["connections_lost"] = self._before.get("connections_lost", 0) + 1
        self._statistics = {}
        self._end()

    def _end(self) -> None:
        """Ends the process and what it began."""
        if self._process:
            self._pipe.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None  # its number may be another's by now

    def _receive(self, seconds: float = float("inf")) -> tuple[Any, ...]:
        """The next message, which comes in so many seconds; what is only to be said is said."""
        until = time.monotonic() + seconds
        while True:
            while not self._pipe.poll(0.2):
                check_stop()
                if time.monotonic() > until:
                    raise Refused(f"no answer for {seconds:.0f} s")
            name, *rest = self._pipe.recv()
            if name == "said":
                self._say(*rest)
            elif name == "there":
                self._statistics = rest[0]
            elif name == "refused":
                raise Refused(*rest)
            else:
                return name, *rest


def _check_address(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
        except (OSError, ValueError) as error:
            raise Refused(f"no answer there: {error}") from None


def run_on_host(step: Step, name: str, state: Any, key: jax.Array, advice: str) -> Call:
    """Steps that the host takes one by one, for what they call is elsewhere."""

    def call(state: Any, key: jax.Array, first: int, count: int) -> tuple[Any, dict[str, Any]]:
        parts = []
        for number in range(first, first + count):
            state, metrics = step(key, jnp.int32(number), state)
            check_names(name, metrics)
            parts.append(jax.tree.map(np.asarray, metrics))
        return state, jax.tree.map(lambda *x: np.stack(x), *parts)

    return call


@contextlib.contextmanager
def ray_cluster(plan: Plan, say: Callable[[str], Any] = lambda words: None) -> Iterator[RayCluster]:
    """A connection with a Ray cluster, or one on this machine, for as long as this lasts.

    Raises:
      Refused: if there is no answer.
    """
    with tempfile.TemporaryDirectory(prefix="marl-cache-") as folder:
        cache = plan.cache or jax.config.values["jax_compilation_cache_dir"] or folder
        if not plan.address and platform() == "gpu":
            plan = plan._replace(gpus=len(jax.local_devices()))
        cluster = RayCluster(plan._replace(cache=cache), say)
        try:
            cluster.connect()
            yield cluster
        finally:
            cluster.close()


def _data(leaf: Any) -> np.ndarray:
    return np.asarray(data_of(leaf))


def _bytes(leaves: list[Any]) -> int:
    return sum(_data(leaf).nbytes for leaf in leaves)
