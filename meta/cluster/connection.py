"""Options of a cluster on a command line, and the connection with it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import configs
from meta.evaluators import evaluating
from meta.loop import Lost
from meta.xla.devices import use_all_cores

if TYPE_CHECKING:
    from meta.cluster.multi_process import ProcessGroup


class Connection(NamedTuple):
    """A command's connection with a cluster."""

    leave: Callable[[int], int]  # ends it, with the exit status of this process; returns the one to exit with
    group: ProcessGroup | None = None  # the processes that all run this command, if there are several


@dataclasses.dataclass(frozen=True)
class OnCluster:
    """Options of a command whose trials can run elsewhere; with chunks none of them changes a result."""

    cluster: str = ""
    """Where trials run: here if empty; "ray", the cluster of RAY_ADDRESS or one that is begun on this machine;
    "ray://HOST:PORT"; or "jax": all processes of a job run this command (SLURM, Kubernetes, or with --coordinator)."""
    cluster_workers: int | None = None
    """Ray: how many workers; as many as fit if None."""
    cluster_cpus: int | None = None
    """Ray: cores of a worker where there is no GPU; 1 if None."""
    coordinator: str = ""
    """jax: HOST:PORT of the first process, which listens there; found by itself on SLURM and Kubernetes if empty."""
    processes: int | None = None
    """jax: how many processes there are; found by itself if None."""
    process_id: int | None = None
    """jax: which of them this is, from 0; found by itself if None."""

    def __post_init__(self) -> None:
        on_ray = self.cluster == "ray" or self.cluster.startswith("ray://")
        if self.cluster and not on_ray and self.cluster != "jax":
            got = configs.shown(self.cluster)
            raise configs.ConfigError(f"cluster: got {got}; ray, ray://HOST:PORT or jax is needed")
        if self.cluster.startswith("ray://") and not _is_address(self.cluster.removeprefix("ray://")):
            raise configs.ConfigError(f"cluster: got {configs.shown(self.cluster)}; ray://HOST:PORT is needed")
        for name in ("cluster_workers", "cluster_cpus"):
            value = getattr(self, name)
            if value is not None and not on_ray:
                raise configs.ConfigError(f"{name}: has no effect without --cluster ray")
            if value is not None and not 1 <= value <= 65_536:
                raise configs.ConfigError(f"{name}: got {value}; a whole number from 1 to 65536 is needed")
        for name in ("coordinator", "processes", "process_id"):
            if getattr(self, name) not in ("", None) and self.cluster != "jax":
                raise configs.ConfigError(f"{name}: has no effect without --cluster jax")
        if self.coordinator and not _is_address(self.coordinator):
            raise configs.ConfigError(f"coordinator: got {configs.shown(self.coordinator)}; HOST:PORT is needed")
        if self.processes is not None and self.processes < 1:
            raise configs.ConfigError(f"processes: got {self.processes}; a whole number from 1 is needed")
        if self.process_id is not None and not 0 <= self.process_id < (self.processes or 1 << 31):
            most = f" to {self.processes - 1}" if self.processes else ""
            raise configs.ConfigError(f"process_id: got {self.process_id}; a whole number from 0{most} is needed")


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(host and colon and port.isdecimal() and 0 < int(port) < 65_536)


def connect(options: OnCluster, say: Callable[[str], Any]) -> Connection:
    """Lets trials run where the options say, from now on. Called before JAX computes anything.

    Raises:
      ConfigError: if what is needed is not installed, or nothing answers.
    """
    if not hasattr(os, "killpg"):  # the processes that Ray starts are ended as a group
        raise configs.ConfigError(f"cluster: got {options.cluster}; Linux or macOS is needed (on Windows, its WSL)")
    stack = contextlib.ExitStack()
    group = None
    if options.cluster == "jax":
        group = _join_processes(options, stack, say)
    else:
        _join_ray(options, stack, say)

    def leave(status: int) -> int:
        stack.close()
        return group.leave(status) if group else status

    return Connection(leave, group)


def _join_ray(options: OnCluster, stack: contextlib.ExitStack, say: Callable[[str], Any]) -> None:
    if not all(map(importlib.util.find_spec, ("ray", "grpc"))):
        raise configs.ConfigError('cluster: got ray, which is not there; pip install "marl-shaping[ray]" is needed')
    from meta.cluster.on_ray import Refused, ray_cluster
    from meta.cluster.ray_driver import Plan
    from meta.cluster.scheduler import ALONE
    from meta.cluster.worker import take_memory_as_needed

    take_memory_as_needed()  # workers on this machine share its GPUs with this process
    address = os.environ.get("RAY_ADDRESS", "") if options.cluster == "ray" else options.cluster
    plan = Plan(address, options.cluster_workers or 0, options.cluster_cpus or 1, "", ALONE)
    try:
        cluster = stack.enter_context(ray_cluster(plan, say))
    except Refused as error:
        raise configs.ConfigError(f"cluster: got {configs.shown(address or options.cluster)}; {error}") from None
    stack.enter_context(evaluating(cluster.evaluator()))


def _join_processes(options: OnCluster, stack: contextlib.ExitStack, say: Callable[[str], Any]) -> ProcessGroup:
    from meta.cluster.multi_process import connect as connect_processes

    use_all_cores()
    try:
        group = connect_processes(options.coordinator or None, options.processes, options.process_id)
    except (ValueError, Lost) as error:
        raise configs.ConfigError(str(error)) from None
    if group.first and len(group.processors) > 1:
        kinds = ", ".join(sorted(group.processors))
        say(f"the processes have several kinds of processors ({kinds}): last bits depend on the evaluating process")
    stack.enter_context(evaluating(group.evaluator()))
    return group
