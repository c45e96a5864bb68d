"""Pool of actors in processes of a Ray cluster."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from configs.specs import first_line
from marl.distributed.actors.actor import Actor
from marl.distributed.actors.actor_pools import EnvSeeds, begin, close_quietly, error_line
from marl.distributed.actors.actor_programs import ActorPrograms
from marl.distributed.actors.inference import CentralInference
from marl.distributed.actors.rollouts import Failure, Rollout, RolloutRequest
from marl.distributed.system import Setup
from meta.cluster.worker import prepare
from meta.xla.devices import cores as cores_of_process

PROBE = 1.0  # seconds before a process that does not answer yet is called again
START = "180"  # seconds in which Ray begins; 27 were seen on a busy machine


class ActorsSetup(NamedTuple):
    """Data that each process gets once."""

    training: Setup
    run_key: Any  # as numbers
    reset_key: Any
    seed: int

    @property
    def seeds(self) -> EnvSeeds:
        """The seeds, with keys made of their numbers."""
        return EnvSeeds(jax.random.wrap_key_data(self.run_key), jax.random.wrap_key_data(self.reset_key), self.seed)


class Group:
    """Actors of one process; with central inference they share its thread.

    Args:
      fetch: returns the value of a handle.
      cores: on which the process computes; all if empty.
    """

    def __init__(self, fetch: Callable[[Any], Any], cores: Sequence[int]):
        prepare(cores, os.environ.get("JAX_COMPILATION_CACHE_DIR", ""), os.environ.get("XLA_FLAGS", ""), False)
        self._fetch, self._lock = fetch, threading.Lock()
        self._setup: ActorsSetup | None = None
        self._actors: dict[int, Actor] = {}
        self._version = -1

    def play(self, setup: Any, number: int, tried: int, request: RolloutRequest, policies: Any) -> Rollout | Failure:
        """A rollout of one of the actors, which is started first if necessary."""
        try:
            with self._lock:
                known = self._set_up(setup)
                request = request._replace(policies=policies)
                central = self._central
                if central and request.version > self._version:
                    central.policies, self._version = policies, request.version
                actor = self._actors.get(number)
            if actor is None:
                act, make = central.act if central else None, known.training.make_envs[number]
                actor = begin(self._programs, make, number, known.seeds, tried, act)
                self._actors[number] = actor
            return actor.play(request)
        except Exception as error:  # of an environment
            return Failure(request.number, error_line(error))

    def _set_up(self, setup: Any) -> ActorsSetup:
        if self._setup is None:
            found: ActorsSetup = self._fetch(setup)
            training, number = found.training, found.training.num_actors
            size = training.num_envs, number, training.steps_per_update
            self._programs = ActorPrograms(training.learners, *size, training.takes_gradients)
            central = training.system.inference == "central"
            self._central = CentralInference(self._programs, None, number) if central else None
            self._setup = found
        return self._setup

    def restart(self, number: int) -> None:
        """Closes an actor; its next request starts it again."""
        close_quietly(self._actors.pop(number, None))

    def ready(self) -> bool:
        """True, as soon as the process answers."""
        return True


class RayPool:
    """Actors in processes of Ray: one process each, or one for all actors of a machine with central inference.

    Ray restarts a process that has died. The process gets no work before it has answered an empty call, because Ray
    loses calls to a process that is dead.
    """

    def __init__(self, setup: Setup, seeds: EnvSeeds):
        import ray

        self._ray, actors = ray, setup.num_actors
        central, address = setup.system.inference == "central", setup.system.address
        self._own = connect(address, 1 if central else actors)
        run_key, reset_key = (np.asarray(jax.random.key_data(key)) for key in seeds[:2])
        self._setup = [ray.put(ActorsSetup(setup, run_key, reset_key, seeds.seed))]
        machines = sum(node["Alive"] for node in ray.nodes())
        number = max(min(machines, actors), 1) if central else actors
        kind = _define(-(-actors // number) + 1)
        cores = cores_of_process()
        here = (
            not cluster_address(address) and len(cores) >= number and not central
        )  # cores of other machines are not known
        if central:  # one on each machine
            kind = kind.options(scheduling_strategy="SPREAD")
        self._groups = [kind.remote([cores[i % len(cores)]] if here else []) for i in range(number)]
        self._group_of = [i % number for i in range(actors)]
        self._tried = [0] * actors
        self._held: dict[int, list[RolloutRequest]] = {i: [] for i in range(actors)}  # asked for, and not called yet
        self._called: dict[Any, tuple[int, int]] = {}  # reference -> (actor, its start)
        self._probes: dict[Any, int] = {group.ready.remote(): i for i, group in enumerate(self._groups)}
        self._to_probe: dict[int, float] = {}  # group -> when
        self._absent = set(range(number))
        self._policies: tuple[int, Any] = (-1, None)

    def start(self, actor: int, request: RolloutRequest) -> None:
        self._held[actor].append(request)
        self._call(actor)

    def _call(self, actor: int) -> None:
        """Calls an actor for one rollout at a time, so that it is known which one it plays."""
        group = self._group_of[actor]
        busy = any(number == actor for number, _ in self._called.values())
        if busy or group in self._absent or not self._held[actor]:
            return
        request = self._held[actor].pop(0)
        if self._policies[0] != request.version:
            self._policies = request.version, self._ray.put(request.policies)
        arguments = self._setup, actor, self._tried[actor], request._replace(policies=()), self._policies[1]
        self._called[self._groups[group].play.remote(*arguments)] = actor, self._tried[actor]

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        until = time.monotonic() + seconds
        while True:
            for group in [group for group, when in self._to_probe.items() if time.monotonic() >= when]:
                del self._to_probe[group]
                self._probes[self._groups[group].ready.remote()] = group
            waited, left = [*self._called, *self._probes], max(until - time.monotonic(), 0.0)
            if not waited:
                time.sleep(left)
                return None
            ready, _ = self._ray.wait(waited, timeout=left)
            if not ready:
                return None
            reference = ready[0]
            if reference in self._probes:
                self._answered(reference)
                continue
            actor, start = self._called.pop(reference)
            try:
                found = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                self._probe(self._group_of[actor])
                found = Failure(-1, f"its process ended ({type(error).__name__})")
            if start == self._tried[actor]:
                if isinstance(found, Rollout):  # an actor that failed is started again first
                    self._call(actor)
                return actor, found

    def _probe(self, group: int) -> None:
        if group not in self._absent:
            self._absent.add(group)
            self._probes[self._groups[group].ready.remote()] = group

    def _answered(self, reference: Any) -> None:
        group = self._probes.pop(reference)
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayError:
            self._to_probe[group] = time.monotonic() + PROBE  # it does not answer yet
            return
        self._absent.discard(group)
        for actor, own in enumerate(self._group_of):
            if own == group:
                self._call(actor)

    def restart(self, actor: int) -> None:
        group = self._group_of[actor]
        self._held[actor] = []
        if any(number == actor for number, _ in self._called.values()):  # it hangs
            self._ray.kill(self._groups[group], no_restart=False)
            self._called = {ref: pair for ref, pair in self._called.items() if pair[0] != actor}
            self._probe(group)
        elif group not in self._absent:
            self._groups[group].restart.remote(actor)
        self._tried[actor] += 1

    def close(self) -> None:
        for group in self._groups:
            self._ray.kill(group)
        if self._own:
            self._ray.shutdown()


def cluster_address(address: str) -> str:
    """The address of the cluster, by default that of RAY_ADDRESS; empty if there is none."""
    return address or os.environ.get("RAY_ADDRESS", "")


def connect(address: str, workers: int) -> bool:
    """Connects with a cluster, or starts one on this machine; False if Ray was connected before.

    Args:
      address: of the cluster; that of RAY_ADDRESS if empty, and without that one is started.
      workers: processes that have to fit into a cluster that is started.

    Raises:
      ValueError: if Ray is not installed, or if the cluster does not answer.
    """
    address = cluster_address(address)
    if not address:  # before its import: Ray's name for a cluster that other machines cannot reach
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise ValueError('where: got ray, which is not installed; pip install "marl-shaping[ray]"') from None
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_raylet_start_wait_time_s", START)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    paths = os.pathsep.join(path for path in sys.path if path)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
    cache = jax.config.values["jax_compilation_cache_dir"]
    # Small programs run in the thread that calls them, as in `choose_devices`.
    variables = {"PYTHONPATH": paths, "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"} | (
        {"JAX_COMPILATION_CACHE_DIR": cache} if cache else {}
    )
    quiet["runtime_env"] = {"env_vars": variables}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            cpus = max(workers, len(cores_of_process()))
            ray.init(
                address="local",  # even if another cluster runs on this machine
                num_cpus=cpus,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                object_store_memory=2**28,
                **quiet,
            )
    except Exception as error:  # of a dozen kinds
        raise ValueError(f"where: got ray; {type(error).__name__}: {first_line(error)}") from None
    return True


def _define(threads: int) -> Any:
    """The class of the processes; it needs Ray."""
    import ray

    class RayGroup:
        def __init__(self, cores: Sequence[int]):
            self._group = Group(lambda handle: ray.get(handle[0]), cores)

        def play(self, *arguments: Any) -> Any:
            return self._group.play(*arguments)

        def restart(self, number: int) -> None:
            self._group.restart(number)

        def ready(self) -> bool:
            return self._group.ready()

    # Ray restarts them; the dispatcher asks for their rollouts again.
    return ray.remote(max_restarts=-1, max_task_retries=0, num_cpus=1, max_concurrency=threads)(RayGroup)  # type: ignore[call-overload]
