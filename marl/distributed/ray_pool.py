"""Actors in processes of a Ray cluster."""

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
from marl.core.learner import Learner
from marl.distributed.actor import Actor, ActorPrograms, Failure, Rollout, RolloutRequest
from marl.distributed.actor_pools import MakeVectorEnv, begin, close_quietly, words_of
from marl.distributed.inference import CentralInference
from meta.cluster.worker import prepare
from meta.xla.devices import cores as cores_of_process

PROBE = 1.0  # seconds before one that is not there yet is called again
START = "180"  # seconds in which Ray begins; 27 were seen on a busy machine


class Setup(NamedTuple):
    """What a process needs to know once."""

    learners: tuple[Learner, ...]
    hosts: tuple[MakeVectorEnv, ...]
    steps: int
    num_envs: int
    gradients: bool
    central: bool
    run_key: Any  # as numbers
    reset_key: Any
    seed: int


class Group:
    """Actors of one process; several of them share one who evaluates.

    Args:
      fetch: gives what a handle stands for.
      cores: that the process computes on; all if empty.
    """

    def __init__(self, fetch: Callable[[Any], Any], cores: Sequence[int]):
        prepare(cores, os.environ.get("JAX_COMPILATION_CACHE_DIR", ""), os.environ.get("XLA_FLAGS", ""), False)
        self._fetch, self._lock = fetch, threading.Lock()
        self._setup: Setup | None = None
        self._actors: dict[int, Actor] = {}
        self._version = -1

    def play(self, setup: Any, number: int, tried: int, order: RolloutRequest, policies: Any) -> Rollout | Failure:
        """One rollout of one of the actors, which is begun where there is none."""
        try:
            with self._lock:
                known = self._set_up(setup)
                order = order._replace(policies=policies)
                central = self._central
                if central and order.version > self._version:
                    central.policies, self._version = policies, order.version
                actor = self._actors.get(number)
            if actor is None:
                run_key, reset_key = jax.random.wrap_key_data(known.run_key), jax.random.wrap_key_data(known.reset_key)
                act, make = central.act if central else None, known.hosts[number]
                actor = begin(self._programs, make, number, run_key, reset_key, known.seed, tried, act)
                self._actors[number] = actor
            return actor.play(order)
        except Exception as error:  # of somebody else's environment
            return Failure(order.number, words_of(error))

    def _set_up(self, setup: Any) -> Setup:
        if self._setup is None:
            found: Setup = self._fetch(setup)
            number = len(found.hosts)
            self._programs = ActorPrograms(found.learners, found.num_envs, number, found.steps, found.gradients)
            self._central = CentralInference(self._programs, None, number) if found.central else None
            self._setup = found
        return self._setup

    def restart(self, number: int) -> None:
        """Forgets an actor."""
        close_quietly(self._actors.pop(number, None))

    def ready(self) -> bool:
        """Whether the process is there."""
        return True


class RayPool:
    """Actors that are Ray's, each a process of its own, or all of a machine in one where one evaluates for them.

    Ray begins a process that has died anew. It gets no work before it has answered a call that costs nothing: whoever
    calls one at once that has died loses what is called.
    """

    def __init__(
        self,
        programs: ActorPrograms,
        hosts: Sequence[MakeVectorEnv],
        run_key: jax.Array,
        reset_key: jax.Array,
        seed: int,
        central: bool,
        address: str,
    ):
        import ray

        self._ray = ray
        self._own = connect(address, 1 if central else len(hosts))
        setup = Setup(
            programs.learners,
            tuple(hosts),
            programs.steps,
            programs.num_envs,
            programs.gradients,
            central,
            np.asarray(jax.random.key_data(run_key)),
            np.asarray(jax.random.key_data(reset_key)),
            seed,
        )
        self._setup = [ray.put(setup)]
        machines = sum(node["Alive"] for node in ray.nodes())
        number = max(min(machines, len(hosts)), 1) if central else len(hosts)
        kind = _define(-(-len(hosts) // number) + 1)
        cores = cores_of_process()
        # Of other machines nobody here knows the cores.
        here = not cluster_address(address) and len(cores) >= number and not central
        if central:  # one on each machine
            kind = kind.options(scheduling_strategy="SPREAD")
        self._groups = [kind.remote([cores[i % len(cores)]] if here else []) for i in range(number)]
        self._group_of = [i % number for i in range(len(hosts))]
        self._tried = [0] * len(hosts)
        self._held: dict[int, list[RolloutRequest]] = {
            i: [] for i in range(len(hosts))
        }  # asked for, and not called yet
        self._called: dict[Any, tuple[int, int]] = {}  # what it will be -> (actor, life)
        self._probes: dict[Any, int] = {group.ready.remote(): i for i, group in enumerate(self._groups)}
        self._to_probe: dict[int, float] = {}  # group -> when
        self._absent = set(range(number))
        self._policies: tuple[int, Any] = (-1, None)

    def start(self, actor: int, order: RolloutRequest) -> None:
        self._held[actor].append(order)
        self._call(actor)

    def _call(self, actor: int) -> None:
        """An actor is called for one rollout after the other, that it may be known which one it is at."""
        group = self._group_of[actor]
        busy = any(number == actor for number, _ in self._called.values())
        if busy or group in self._absent or not self._held[actor]:
            return
        order = self._held[actor].pop(0)
        if self._policies[0] != order.version:
            self._policies = order.version, self._ray.put(order.policies)
        arguments = self._setup, actor, self._tried[actor], order._replace(policies=()), self._policies[1]
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
            actor, life = self._called.pop(reference)
            try:
                found = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                self._probe(self._group_of[actor])
                found = Failure(-1, f"its process ended ({type(error).__name__})")
            if life == self._tried[actor]:
                if isinstance(found, Rollout):  # who failed is begun anew first
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
            self._to_probe[group] = time.monotonic() + PROBE  # it is not there yet
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
    """The cluster that is named, here or by RAY_ADDRESS; empty where none is."""
    return address or os.environ.get("RAY_ADDRESS", "")


def connect(address: str, workers: int) -> bool:
    """Connects with a cluster, or begins one on this machine; whether that was done here.

    Args:
      address: of the cluster; that of RAY_ADDRESS if empty, and without that one is begun.
      workers: processes that have to fit into one that is begun.

    Raises:
      ValueError: if Ray is not installed, or if nobody answers.
    """
    address = cluster_address(address)
    if not address:  # before its import: Ray's name for a cluster that nobody outside this machine can reach
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
    variables = {"PYTHONPATH": paths} | ({"JAX_COMPILATION_CACHE_DIR": cache} if cache else {})
    quiet["runtime_env"] = {"env_vars": variables}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            cpus = max(workers, len(cores_of_process()))
            ray.init(
                address="local",  # whatever else runs on this machine
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
    """The class of the processes, where Ray is there."""
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

    # By themselves they come back; what they had in hand is asked for again.
    return ray.remote(max_restarts=-1, max_task_retries=0, num_cpus=1, max_concurrency=threads)(RayGroup)  # type: ignore[call-overload]
