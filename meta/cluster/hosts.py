"""Trials on the devices of several processes that were started together, by SLURM, by Kubernetes or by hand.

Process 0 alone does what a command does. The others run the same programs in step with it, for what runs on the devices
of all has to be begun by all, and write nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from meta.cluster.lockstep import Program, everywhere, export_steps, written
from meta.cluster.peers import Peer, Place, gather, next_of
from meta.cluster.worker import vector_units
from meta.evaluators import Evaluator, evaluate_on, on_devices
from meta.loop import Call, Lost, Step
from meta.prng_data import data_of, typed
from meta.process import STOPPED

TICK = 0.2  # seconds between two looks at who is lost
FAREWELL = 5.0  # seconds in which the others leave when they are told to
EXPLAIN = 1.0  # seconds in which somebody says why it failed
PROGRAM, CALL, FAILED, READY, LEAVE = b"p", b"c", b"f", b"r", b"l"  # kinds of messages


def connect(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: float = 300.0,
    heartbeat: float = 100.0,
) -> Hosts:
    """Connects the processes of a job, before JAX computes anything. Process 0 listens, and the others find it.

    Args:
      coordinator: HOST:PORT of process 0; found by itself on SLURM, Kubernetes and with Open MPI if None.
      processes: how many there are; found by itself if None.
      process_id: which of them this is, from 0; found by itself if None.
      timeout: seconds in which all of them have to come.
      heartbeat: seconds without a sign of life after which a process is lost. One that ends is noticed at once.

    Raises:
      ValueError: if one of these is not there or does not fit, in one line that names it.
      Lost: if a process is lost before all of them have begun.
    """
    place, device_ids = _place(coordinator, processes, process_id, timeout)
    if place.processes == 1:
        return Hosts(place, [], {vector_units()})
    peers, vectors = gather(place, timeout, heartbeat)
    first = place.process_id == 0
    # A host may wait for another for hours; we see who is lost. Only here, and not of a program, does XLA read it.
    os.environ["XLA_FLAGS"] = f"--xla_cpu_collective_timeout_seconds={10**7} {os.environ.get('XLA_FLAGS', '')}"
    with _silent(for_good=not first):
        # Otherwise the service ends all where one is lost; and the other one takes signals.
        jax.config.update("jax_enable_recoverability", True)
        jax.config.update("jax_enable_preemption_service", False)
        hosts = Hosts(place, peers, vectors)

        def begin() -> None:
            jax.distributed.initialize(
                place.coordinator,
                place.processes,
                place.process_id,
                device_ids,
                cluster_detection_method="deactivate",
                initialization_timeout=int(timeout) + 1,
                heartbeat_timeout_seconds=2 * int(heartbeat) + 1,  # we notice before
            )
            hosts._begin(timeout)

        try:
            _apart(begin, hosts._miss)
        except BaseException as error:
            kinds = {Lost: 1, KeyboardInterrupt: STOPPED}
            _end_by(kinds.get(type(error), 2))
            if isinstance(error, Lost | KeyboardInterrupt | Unfit):
                raise
            raise ValueError(f"cluster: the devices were not connected: {_line(error)}") from None
    return hosts


class Unfit(ValueError):
    """A process cannot take part in a job."""


class Hosts:
    """The processes of a job, seen from one of them. `connect` makes it."""

    def __init__(self, place: Place, peers: Sequence[Peer], vectors: set[str]):
        self.first = place.process_id == 0  # whether this is process 0
        self.number = place.processes
        self.vectors = vectors  # the vector units that there are
        self._peers = {peer.process_id: peer for peer in peers}
        self._called: _Called | None = None  # whose program the others have
        self._at_work = False  # in a call that has not come to its end
        self._failures: dict[int, tuple[str, float]] = {}  # what was said by whom, and when
        self._lost = False

    @property
    def devices(self) -> int:
        """How many devices all of them have together."""
        return len(jax.devices())

    @property
    def mixed(self) -> bool:
        """Whether some round otherwise than others, so that bits depend on who evaluates what."""
        return len(self.vectors) > 1

    def words(self) -> str:
        """How it is, for a line of progress."""
        return f"{self.number} processes with {self.devices} devices"

    def statistics(self) -> dict[str, Any]:
        """What it is, for a summary."""
        found = {"kind": "jax", "processes": self.number, "devices": self.devices}
        return found | {"vector_units": sorted(self.vectors)}

    def evaluator(self) -> Evaluator:
        """For process 0: trials on the devices of all."""
        if self.number == 1:
            return on_devices()
        return Evaluator(lambda work: evaluate_on(work, jax.devices()), self._run, cluster=self)

    def serve(self) -> int:
        """For the others: does what process 0 does on the devices, until that ends.

        Signals are its business: this process ignores them.

        Returns:
          The exit status that it ends with.

        Raises:
          Lost: if it is not there any more.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        orders = queue.SimpleQueue[tuple[bytes, bytes]]()
        # What runs on the devices may never end, and this thread has to.
        threading.Thread(target=self._follow, args=(orders,), daemon=True).start()
        while True:
            try:
                kind, payload = next_of(self._peers[0], TICK)
            except Lost:
                _end_by(1)
                raise
            if kind == LEAVE:
                _end_by(int(payload))
                return int(payload)
            if kind:
                orders.put((kind, payload))

    def leave(self, status: int) -> None:
        """For process 0, when all is done: the others end with this status.

        Where one was lost, or is still at work because this process was stopped, this one ends with it too, and without
        JAX, which would wait for them.
        """
        for peer in self._peers.values():
            peer.send(LEAVE, str(status).encode())
        until = time.monotonic() + FAREWELL
        while not all(peer.lost for peer in self._peers.values()) and time.monotonic() < until:
            time.sleep(0.01)
        if self._at_work or self._lost:
            _end_by(status)

    def _begin(self, timeout: float) -> None:
        """Has the devices of all work together once."""
        ready = f"{jax.default_backend()}".encode()
        for peer in self._peers.values():
            peer.send(READY, ready)
        for who, peer in self._peers.items():
            until, kind = time.monotonic() + timeout, b""
            while not kind and time.monotonic() < until:
                kind, theirs = next_of(peer, TICK)
            if kind != READY or theirs != ready:
                got = f"process {who} computes on {theirs.decode() or 'nothing'}"
                raise Unfit(f"cluster: {got} and this process on {ready.decode()}; the same is needed")
        sharding = everywhere()
        ones = jax.make_array_from_callback((), sharding, lambda index: np.ones((), np.int32))
        total = jax.shard_map(
            lambda x: jax.lax.psum(x, "members"), mesh=sharding.mesh, in_specs=P(), out_specs=P(), check_vma=False
        )
        there = np.asarray(jax.jit(total)(ones).addressable_data(0))
        if there != self.devices:
            raise ValueError(f"cluster: {there} of {self.devices} devices answered")

    def _run(self, step: Step, name: str, state: Any, key: jax.Array, advice: str) -> Call:
        """`Evaluator.run`: as `meta.loop.run_on_devices`, on the devices of all."""
        return _Called(self, step, name, state, key, advice)

    def _do(self, function: Callable[[], Any]) -> Any:
        """What a function returns that runs in step with the others.

        Raises:
          Lost: if one of them is lost before it returns.
        """
        self._at_work = True
        self._check(0.0)
        try:
            result = _apart(function, lambda: self._check(0.0))
        except Lost:
            raise
        except Exception as error:
            self._check(EXPLAIN)
            self._lost = True
            raise Lost(f"cluster: a process of the job was lost: {_line(error)}") from error
        self._at_work = False
        return result

    def _miss(self) -> None:
        """Raises Lost if somebody is lost."""
        for peer in self._peers.values():
            if peer.lost:
                self._lost = True
                raise Lost(f"cluster: a process of the job was lost: {peer.lost}")

    def _check(self, seconds: float) -> None:
        """Raises Lost if somebody is lost or has failed, or is so in some seconds."""
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for who, peer in self._peers.items():
                with contextlib.suppress(Lost):  # which comes in its turn
                    kind, payload = next_of(peer, 0.0)
                    if kind == FAILED:
                        self._failures[who] = payload.decode(), now
            self._miss()
            for who, (words, since) in self._failures.items():
                if "Gloo" not in words or now - since > EXPLAIN:  # who says that may have lost somebody else
                    self._lost = True
                    raise Lost(f"cluster: process {who} of the job has failed: {words}")
            if now >= until:
                return
            time.sleep(0.01)

    def _tell(self, kind: bytes, payload: bytes) -> None:
        for peer in self._peers.values():
            peer.send(kind, payload)

    def _follow(self, orders: queue.SimpleQueue[tuple[bytes, bytes]]) -> None:
        """Compiles and calls what process 0 does."""
        try:
            program = None
            while True:
                kind, payload = orders.get()
                if kind == PROGRAM:
                    program = None  # before the next one takes memory too
                    program = Program(payload, "")
                elif kind == CALL:
                    assert program
                    program.call_as_written(payload)
        except Exception as error:
            self._peers[0].send(FAILED, _line(error).encode())


class _Called:
    """`meta.loop.Call`: has the others do what this process does."""

    def __init__(self, hosts: Hosts, step: Step, name: str, state: Any, key: jax.Array, advice: str):
        self._exported = export_steps(step, name, state, key)
        self._hosts = hosts
        self._last: tuple[Any, Any] = None, None  # what is there already
        self._begin()
        self._program = Program(self._exported.program, advice)

    def _begin(self) -> None:
        self._hosts._called = self
        self._hosts._tell(PROGRAM, self._exported.program)

    def __call__(self, state: Any, key: jax.Array, first: int, count: int) -> tuple[Any, dict[str, jax.Array]]:
        if self._hosts._called is not self:
            self._begin()
            self._last = None, None
        there = self._last[0] is state and self._last[1] is key
        arguments = [] if there else [np.asarray(data_of(x)) for x in jax.tree.leaves((state, key))]
        self._hosts._tell(CALL, written(arguments, first, count))
        results = self._hosts._do(lambda: self._program.call(arguments, first, count))
        # Of this process alone: what is done with them is done by nobody else.
        local = [np.asarray(x.addressable_data(0)) for x in results]
        kinds = self._exported.kinds[:-1] + [None] * len(local)  # without that of the key; metrics are none
        state, metrics = jax.tree.unflatten(self._exported.structure, map(typed, local, kinds))
        self._last = state, key
        return state, metrics


def _apart(function: Callable[[], Any], look: Callable[[], Any]) -> Any:
    """What a function returns that may never end: in a thread, while this one looks around, which may raise."""
    results = queue.SimpleQueue[tuple[Any, Exception | None]]()

    def work() -> None:
        try:
            results.put((function(), None))
        except Exception as error:
            results.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            result, error = results.get(timeout=TICK)
            break
        except queue.Empty:
            look()
    if error:
        raise error
    return result


def _line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def _place(
    coordinator: str | None, processes: int | None, process_id: int | None, timeout: float
) -> tuple[Place, Sequence[int] | None]:
    """What was given, and else what the job says; and the devices that this process has, if the job says that."""
    from jax._src.clusters import ClusterEnv  # which has no public name

    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    device_ids = None
    if processes != 1:
        try:
            coordinator, processes, process_id, device_ids = ClusterEnv.auto_detect_unset_distributed_params(
                coordinator, processes, process_id, None, None, int(timeout)
            )
        except Exception as error:  # of whatever kind of cluster it is
            raise ValueError(f"cluster: what the job says of itself was not found: {_line(error)}") from None
    said = "is needed where no job of SLURM, Kubernetes or Open MPI says it"
    if processes is None:
        raise ValueError(f"processes: got none; their number {said}")
    if processes < 1:
        raise ValueError(f"processes: got {processes}; a whole number from 1 is needed")
    if process_id is None and processes > 1:
        raise ValueError(f"process_id: got none; a whole number from 0 to {processes - 1} {said}")
    process_id = process_id or 0
    if not 0 <= process_id < processes:
        raise ValueError(f"process_id: got {process_id}; a whole number from 0 to {processes - 1} is needed")
    if coordinator is None and processes > 1:
        raise ValueError(f"coordinator: got none; HOST:PORT of process 0 {said}")
    host, _, port = (coordinator or "none:1").rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"coordinator: got {coordinator!r}; HOST:PORT is needed")
    return Place(coordinator or "", processes, process_id), device_ids


_ending = threading.Event()
_kept: list[Any] = []  # what C calls


def _end_by(status: int) -> None:
    """Ends this process with a status when all is said, and without JAX, which would wait for those who are lost."""

    def end() -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)

    _ending.set()
    atexit.register(end)


@contextlib.contextmanager
def _silent(for_good: bool) -> Iterator[None]:
    """Inside, nothing is printed by what is not written in Python; for good, only errors of Python's are afterwards.

    Gloo says who is connected, and JAX's service what it thinks of our settings. Where it loses somebody it prints a
    stack trace and aborts, in a thread of its own: here that is one line, unless this process ends by itself.
    """
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    was, said = [os.dup(1), os.dup(2)], tempfile.TemporaryFile()  # noqa: SIM115
    for descriptor in (1, 2):
        os.dup2(said.fileno(), descriptor)

    def instead_of_abort(number: int) -> NoReturn:
        time.sleep(1.0)  # the other threads may notice themselves
        if not _ending.is_set():
            said.seek(0)
            words = said.read()
            known = b"distributed service" in words
            os.write(was[1], b"cluster: a process of the job was lost\n" if known else words)
            os._exit(1)
        time.sleep(FAREWELL)
        os._exit(1)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(instead_of_abort)
    _kept.append(handler)
    ctypes.CDLL(None).signal(int(signal.SIGABRT), handler)  # a handler of Python's would wait for the main thread
    try:
        yield
    finally:
        if for_good:
            sys.stderr = os.fdopen(was[1], "w", buffering=1)
        else:
            signal.signal(signal.SIGABRT, signal.SIG_DFL)
            for descriptor in (1, 2):
                os.dup2(was[descriptor - 1], descriptor)
                os.close(was[descriptor - 1])
            said.close()
