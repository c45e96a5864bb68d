"""The process that speaks with Ray: it hands chunks to actors, and answers to the process that evolves.

A process of its own, for three reasons. Ray ends the process that is connected to it when the cluster goes, and a run
should outlive that; its threads are not among those of JAX; and it is not there where it is not needed.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from configs.specs import first_line
from meta.cluster.scheduler import Failed, NoWorkers, Scheduler
from meta.cluster.worker import versions
from meta.xla.devices import cores

LOOK = 5.0  # seconds between two looks at how large the cluster is


class Plan(NamedTuple):
    """The wanted cluster: its address, workers and their size."""

    address: str  # of a Ray cluster; empty for one on this machine
    workers: int  # 0 for as many as fit
    cpus: int  # cores of a worker
    cache: str  # a folder for compiled programs that all workers on a machine share
    alone: float  # seconds without any worker after which nothing is waited for
    gpus: int = 0  # of this machine that JAX can use, for a cluster that begins here


class _Actor:
    """A `Worker` that is a Ray actor."""

    def __init__(self, handle: Any, plan: Plan, cores: list[int], gpu: bool):
        self._handle, self._plan, self._cores, self._gpu = handle, plan, cores, gpu

    def join(self) -> Future[Any]:
        flags, here = os.environ.get("XLA_FLAGS", ""), os.uname().nodename
        return self._handle.join.remote(self._cores, self._plan.cache, flags, self._gpu, here).future()

    def evaluate(self, generation: Any, chunk: int) -> Future[Any]:
        return self._handle.evaluate.remote(generation, chunk).future()

    def leave(self) -> None:
        import ray

        ray.kill(self._handle)


def _define() -> Any:
    """The class of the actors, where Ray is there."""
    import ray

    class Actor:
        def __init__(self) -> None:
            from meta.cluster.worker import Evaluations

            self._evaluations = Evaluations(lambda handle: ray.get(handle[0]))

        def join(self, *how: Any) -> Any:
            from meta.cluster.worker import prepare

            return prepare(*how)

        def evaluate(self, generation: Any, chunk: int) -> Any:
            try:
                return self._evaluations.evaluate(generation, chunk)
            except Exception as error:  # such as memory that does not suffice
                raise Failed(first_line(error) or type(error).__name__) from None

    # By themselves they come back, and what they had in hand is the scheduler's business.
    return ray.remote(max_restarts=-1, max_task_retries=0)(Actor)  # type: ignore[call-overload]


class _Cluster:
    """A connection with Ray, and the actors that were made there."""

    def __init__(self, plan: Plan):
        import ray

        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": True, "logging_level": "CRITICAL"}
        self.plan, self._cores = plan, cores()
        if plan.address:
            ray.init(address=plan.address, **quiet)
        else:
            number = plan.workers or max(len(self._cores) // plan.cpus, 1)
            # Not reachable from outside this machine.
            ray.init(
                address="local",  # whatever else runs on this machine
                num_cpus=number * plan.cpus,
                num_gpus=plan.gpus,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                object_store_memory=2**28,
                **quiet,
            )
        self._actor, self._made, self._looked = _define(), 0, 0.0
        # Decided once, because programs are traced for one of both; GPUs that join later are not used.
        self.platform = "gpu" if ray.cluster_resources().get("GPU", 0) else "cpu"

    def find(self, there: int) -> list[_Actor]:
        """Actors for what of the cluster has none yet."""
        import ray

        if self._made and time.monotonic() - self._looked < LOOK:
            return []
        self._looked = time.monotonic()
        resources = ray.cluster_resources()
        gpu = self.platform == "gpu"
        fit = int(resources.get("GPU", 0)) if gpu else int(resources.get("CPU", 0)) // self.plan.cpus
        number = (self.plan.workers or max(fit, 1)) - self._made
        found = []
        for _ in range(number):
            options: dict[str, Any] = {"num_gpus": 1, "num_cpus": 1} if gpu else {"num_cpus": self.plan.cpus}
            cores: list[int] = []
            if not self.plan.address:  # the cores of other machines are unknown here
                first = self._made * self.plan.cpus
                cores = sorted({self._cores[(first + i) % len(self._cores)] for i in range(self.plan.cpus)})
            found.append(_Actor(self._actor.options(**options).remote(), self.plan, cores, gpu))
            self._made += 1
        return found


def wrong(outcomes: list[Any]) -> bool:
    """True if the fitness of a candidate, which comes first, is not finite."""
    import numpy as np

    return not np.isfinite(outcomes[0]).all()


def main(descriptor: int) -> None:
    """Serves the process at the other end of a pipe until it goes."""
    import ray

    pipe = Connection(descriptor)
    plan, lock = pipe.recv(), threading.Lock()

    def send(*message: Any) -> None:
        with lock:
            pipe.send(message)

    def leave_if_alone() -> None:
        if os.getppid() != parent:
            raise EOFError

    parent, status = os.getppid(), 0
    scheduler = None
    try:
        try:
            cluster = _Cluster(plan)
        except Exception as error:  # of a dozen kinds
            words = first_line(error) or type(error).__name__
            if plan.address and "RAY_AUTH_MODE" not in os.environ:
                words += "; if it asks for a token, RAY_AUTH_MODE=token is needed"
            send("refused", words)
            return
        needed = versions() | {"platform": cluster.platform}
        scheduler = Scheduler(cluster.find, needed, lambda words: send("said", words), wrong, plan.alone)

        def idle() -> None:
            leave_if_alone()
            if pipe.poll():  # in the midst of a generation there is one thing to say: that all is over
                raise EOFError
            assert scheduler
            send("there", scheduler.statistics())

        send("connected", cluster.platform)
        shared: dict[str, Any] = {}
        while True:
            if not pipe.poll(1.0):
                leave_if_alone()
                continue
            name, *rest = pipe.recv()
            if name == "programs":
                digest, programs = rest
                shared = {digest: [ray.put(programs)]}
            elif name == "generation":
                digest, token, is_state, leaves, chunks = rest
                generation = digest, shared[digest], token, is_state, [ray.put(leaves)]
                found = scheduler.evaluate(generation, chunks, idle)
                send("found", token, found, scheduler.statistics())
            elif name == "leave":
                break
    except NoWorkers as error:
        send("refused", str(error))
    except (EOFError, OSError):  # the process that evolves is gone
        status = 1
    finally:
        if scheduler:
            scheduler.close()
        ray.shutdown()
        os._exit(status)
