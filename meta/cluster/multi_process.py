"""Evolution in several processes that all run the same command: one program on the devices of all of them.

Each process evaluates its share of the chunks, gets every outcome and takes the same next step. Process 0 alone writes
and prints; the others keep their run in a temporary directory. Between two calls of the program all agree to go on.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meta import process
from meta.cluster.worker import processor, versions
from meta.evaluators import Evaluator, evaluate_on, on_devices
from meta.loop import Call, Lost, Step, compiler_options, several
from meta.prng_data import data_of, kind_of, typed
from meta.xla.memory import check_memory

FAREWELL = 60.0  # seconds for which process 0 waits for the others when it was stopped or has failed
BYTES = 8  # of a number that processes exchange


def connect(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: float = 300.0,
    heartbeat: float = 100.0,
) -> ProcessGroup:
    """Connects the processes of a job, before JAX computes anything.

    Args:
      coordinator: HOST:PORT of process 0; detected by JAX on SLURM, Kubernetes and with Open MPI if None.
      processes: number of processes; detected if None.
      process_id: number of this process, from 0; detected if None.
      timeout: seconds within which all processes have to start.
      heartbeat: seconds without a heartbeat after which JAX ends the job.

    Raises:
      ValueError: if an argument is missing or does not fit, or if versions differ, in one line.
      Lost: if a process is lost before all of them are connected.
    """
    if processes != 1:
        # A process may wait for another for hours, and the heartbeat notices a lost one. XLA reads this only here.
        os.environ["XLA_FLAGS"] = f"--xla_cpu_collective_timeout_seconds={10**7} {os.environ.get('XLA_FLAGS', '')}"
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM away from the command
        initialize = partial(
            jax.distributed.initialize,
            coordinator,
            processes,
            process_id,
            initialization_timeout=int(timeout) or 1,
            heartbeat_timeout_seconds=int(heartbeat) or 1,
        )
        try:
            if coordinator and process_id == 0:
                _check_port(coordinator)
            ThreadPoolExecutor(1).submit(initialize).result()  # in a thread: a signal interrupts the wait for it
        except Exception as error:  # each kind of cluster has its own
            needed = "coordinator, processes and process_id are needed unless SLURM, Kubernetes or Open MPI gives them"
            hint = f"; {needed}" if isinstance(error, ValueError) else ""
            raise ValueError(f"cluster: the processes were not connected: {_line(error).rstrip('.')}{hint}") from None
    return ProcessGroup()


def _check_port(address: str) -> None:
    """Raises OSError where this process cannot listen, because jaxlib 0.10 crashes there."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", int(address.rpartition(":")[2])), family=family, dualstack_ipv6=both):
        pass


class ProcessGroup:
    """The connected processes, seen from one of them. Made by `connect`.

    Attributes:
      first: whether this is process 0.
      number: the number of processes.
      processors: their kinds; with several, bits depend on the process that evaluates.
    """

    def __init__(self) -> None:
        self.number, self._id = jax.process_count(), jax.process_index()
        self.first = self._id == 0
        self._statuses = [0] * self.number  # with which the processes end, as far as it is known
        self._lost = False
        self._unsaid = ""
        self._folder = ""
        firsts = [next(one for one in jax.devices() if one.process_index == i) for i in range(self.number)]
        self._processes = Mesh(np.array(firsts), ("processes",))
        members = Mesh(np.array(jax.devices()), ("members",))
        self._everywhere = NamedSharding(members, P())
        self._add = jax.jit(lambda x: x.sum(0, dtype=x.dtype), out_shardings=NamedSharding(self._processes, P()))
        with _silent_stdout(for_good=not self.first):
            texts = self._gather(json.dumps([versions(), processor()]).encode().ljust(512))
            with self._losing():  # all devices take part once
                split = NamedSharding(members, P("members"))
                ones = jax.make_array_from_callback((self.devices,), split, lambda index: np.ones(1, np.int32))
                jax.block_until_ready(jax.jit(jnp.sum, out_shardings=self._everywhere)(ones))
        found = [json.loads(text) for text in texts]
        self.processors = {kind for _, kind in found}
        needed = found[0][0]
        for i, (theirs, _) in enumerate(found):
            for name in needed:
                if theirs[name] != needed[name]:
                    got = f"process {i} has {name} {theirs[name]}"
                    raise ValueError(f"cluster: {got}; the {needed[name]} of process 0 is needed")

    @property
    def devices(self) -> int:
        """The number of devices of all processes together."""
        return len(jax.devices())

    def words(self) -> str:
        """Words for a line of progress."""
        return f"{self.number} processes with {self.devices} devices"

    def statistics(self) -> dict[str, Any]:
        """Facts for a summary."""
        found = {"kind": "jax", "processes": self.number, "devices": self.devices}
        return found | {"processors": sorted(self.processors)}

    def evaluator(self) -> Evaluator:
        """Trials on the devices of all processes, each of which has to evolve the same."""
        if self.number == 1:
            return on_devices()
        return Evaluator(lambda work: evaluate_on(work, jax.devices()), self._run, cluster=self)

    def agree(self, number: int = 0) -> list[int]:
        """Waits for all processes, and returns the number that each of them gives.

        Raises:
          KeyboardInterrupt: if one of them was stopped.
          Lost: if one of them has failed or is lost.
        """
        numbers = self._exchange_status(0, number)
        if process.STOPPED in self._statuses:
            raise KeyboardInterrupt
        if any(self._statuses):
            failed = next(i for i, status in enumerate(self._statuses) if status)
            raise Lost(f"cluster: process {failed} of the job has failed")
        return numbers

    def mirrored(self, path: Path, *, content: bool) -> Path:
        """The directory where this process keeps its run: `path` in process 0, a temporary one in the others.

        Args:
          path: the directory of process 0.
          content: whether the others begin with a copy of what it holds.
        """
        packed = self._from_first(_packed(path) if self.first and content else b"")
        if self.first:
            return path
        self._folder = self._folder or tempfile.mkdtemp(prefix="marl-run-")
        copy = Path(self._folder, path.resolve().name or "run")
        if packed:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(copy, filter="data")
        return copy

    def say(self, line: str) -> None:
        """Prints a line on standard error; in the other processes only if they alone have failed."""
        if self.first:
            print(line, file=sys.stderr)
        else:
            self._unsaid = line

    def leave(self, status: int) -> int:
        """Ends the work of all processes, with the exit status of this one.

        Returns:
          The status to exit with: that of process 0 if it has failed.
        """
        process.ignore_signals()
        if self.number == 1:
            return status
        if self.first and status:  # the others may compute something for long
            timer = threading.Timer(FAREWELL, _exit_now, [status])
            timer.daemon = True
            timer.start()
        with contextlib.suppress(Lost):
            if not self._lost and not any(self._statuses):
                self._exchange_status(status)
        if status in (1, 2) and not self._statuses[0]:
            print(self._unsaid, end="\n" * bool(self._unsaid), file=sys.stderr)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        status = self._statuses[0] or status
        if self._lost:
            atexit.register(_exit_now, status)  # before JAX, which would wait for the lost process
            if self.first:
                time.sleep(1.0)  # the others end by themselves, before JAX aborts them without the service of process 0
        else:
            jax.distributed.shutdown()  # waits for all
        return status

    def _run(self, step: Step, name: str, state: Any, key: jax.Array, advice: str) -> Call:
        """`meta.loop.run_on_devices` on the devices of all processes, from the state of process 0."""
        leaves, structure = jax.tree.flatten((state, key))
        kinds, data = list(map(kind_of, leaves)), list(map(data_of, leaves))

        def flat(first: jax.Array, count: jax.Array, *data: jax.Array) -> Any:
            state, key = jax.tree.unflatten(structure, map(typed, data, kinds))
            state, metrics = several(step, name, state, key, first, count)
            return jax.tree.map(data_of, state), metrics

        program = jax.jit(
            flat,
            in_shardings=self._everywhere,
            out_shardings=self._everywhere,
            compiler_options=compiler_options(),
        )
        compiled = program.lower(np.int32(0), np.int32(0), *data).compile()
        check_memory(compiled, advice)

        def call(state: Any, key: jax.Array, first: int, count: int) -> tuple[Any, dict[str, jax.Array]]:
            arrays = [np.asarray(data_of(x)) for x in jax.tree.leaves((state, key))]
            with process.uninterrupted(check=False):  # the others wait for this process
                count = min(self.agree(count))  # each has measured its own time
                packed, offset = self._from_first(b"".join(x.tobytes() for x in arrays)), 0
                for i, x in enumerate(arrays):
                    arrays[i] = np.ndarray(x.shape, x.dtype, packed, offset)
                    offset += x.nbytes
                with self._losing():
                    results = compiled(*map(self._put, (np.int32(first), np.int32(count), *arrays)))
                    jax.block_until_ready(results)
            new, metrics = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), results)
            new = jax.tree.map(typed, new, jax.tree.unflatten(structure, kinds)[0])
            return new, {metric: buffer[:count] for metric, buffer in metrics.items()}

        return call

    def _exchange_status(self, status: int, number: int = 0) -> list[int]:
        """Sends all processes the status of this one, which goes on with 0; returns their numbers."""
        found = self._gather(bytes([status]) + number.to_bytes(BYTES))
        self._statuses = [one[0] for one in found]
        return [int.from_bytes(one[1:]) for one in found]

    def _gather(self, data: bytes) -> list[bytes]:
        """The data of every process; all give the same number of bytes."""
        own = np.zeros((self.number, len(data)), np.uint8)
        own[self._id] = np.frombuffer(data, np.uint8)
        return [one.tobytes() for one in self._sum(own)]

    def _from_first(self, data: bytes) -> bytes:
        """The data of process 0."""
        size = self.agree(len(data))[0]
        own = np.frombuffer(data, np.uint8) if self.first else np.zeros(size, np.uint8)
        return self._sum(own).tobytes() if size else b""

    def _sum(self, own: np.ndarray) -> np.ndarray:
        """The sum of an array over all processes."""
        with self._losing():
            sharding = NamedSharding(self._processes, P("processes"))
            parts = jax.make_array_from_process_local_data(sharding, own[None])
            return np.asarray(jax.block_until_ready(self._add(parts)).addressable_data(0))

    def _put(self, x: Any) -> jax.Array:
        # Not `jax.device_put`, which compares what the processes give.
        return jax.make_array_from_callback(x.shape, self._everywhere, lambda index: x[index])

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        """Inside, an error of JAX is Lost: another process is not there any more, or this one cannot go on."""
        try:
            yield
        except (JaxRuntimeError, ValueError) as error:  # JAX raises either, depending on where it notices
            self._lost = True
            raise Lost(f"cluster: a process of the job was lost or has failed: {_line(error)}") from error


def _packed(folder: Path) -> bytes:
    """The files of a directory as an archive; nothing if there is no directory."""
    if not folder.is_dir():
        return b""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(folder, ".", filter=lambda one: None if one.name.endswith(".lock") else one)
    return file.getvalue()


@contextlib.contextmanager
def _silent_stdout(for_good: bool) -> Iterator[None]:
    """Inside, or for good, nothing is printed on standard output: Gloo prints there with how many it is connected."""
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        if not for_good:
            os.dup2(kept, 1)
        os.close(kept)


def _exit_now(status: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
