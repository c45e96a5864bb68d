"""Other places for the tasks of a sweep: a Ray cluster, or an array of SLURM jobs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs import ConfigError
from marl.experiments.sweep.plan import SweepOptions, literal
from marl.experiments.sweep.tasks import Ended, Task, run_task
from meta.xla.devices import cores

Report = Callable[[Ended], object]


def check(options: SweepOptions) -> None:
    """Checks that the place of the runs is there.

    Args:
      options: of the sweep.

    Raises:
      ConfigError: if a package or a program is missing.
    """
    package = {"ray": "ray", "slurm": "submitit"}.get(options.on)
    if package and not importlib.util.find_spec(package):
        needed = f'pip install "marl-shaping[{options.on}]"'
        raise ConfigError(f"on: got {options.on}, and {package} is not there; {needed} is needed")
    if options.on == "slurm" and not shutil.which("sbatch"):
        raise ConfigError("on: got slurm; the program sbatch is not there, and a machine of a SLURM cluster is needed")


def on_ray(tasks: Sequence[Task], end: Report) -> None:
    """Runs each task as one of Ray's, on the cluster of RAY_ADDRESS or on one that is begun on this machine.

    Args:
      tasks: all of them; their folders are there on every machine.
      end: called with the end of each process, when its task is done.
    """
    import ray

    # Ray forks, and this process has threads of JAX, which compute nothing now.
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": True, "logging_level": "CRITICAL"}
    if address := os.environ.get("RAY_ADDRESS", ""):
        try:
            ray.init(address=address, **quiet)
        except Exception as error:  # of several kinds
            raise ConnectionError(f"on: got ray, and no cluster answers at {address} ({_first_line(error)})") from None
    else:  # not reachable from outside this machine
        local: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray.init(address="local", num_cpus=len(cores()), object_store_memory=2**28, **local, **quiet)
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        remote = ray.remote(run_task).options(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=0)
        left = {remote.remote(task): task for task in tasks}
        while left:
            (done,), _ = ray.wait(list(left), num_returns=1)
            task = left.pop(done)
            try:
                ended = ray.get(done)
            except ray.exceptions.RayError as error:
                ended = _failed(task, error)
            for one in ended:
                end(one)
    finally:
        ray.shutdown()


def on_slurm(tasks: Sequence[Task], end: Report, folder: Path, settings: Sequence[str], cluster: str = "slurm") -> None:
    """Runs the tasks as an array of SLURM jobs.

    Args:
      tasks: all of them; their folders are there on every machine.
      end: called with the end of each process, when its task is done.
      folder: for what submitit writes.
      settings: of the jobs as of `submitit.AutoExecutor.update_parameters`, each as NAME=VALUE.
      cluster: as of `submitit.AutoExecutor`; local runs the jobs as processes of this machine.

    Raises:
      ConfigError: for a setting that submitit does not know.
    """
    import submitit

    executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    given = dict(one.split("=", 1) for one in settings)
    try:
        executor.update_parameters(name="marl-shaping-sweep", **{name: literal(x) for name, x in given.items()})
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"slurm: got {' '.join(settings)}; {' '.join(str(error).split())[:300]}") from None
    jobs = executor.map_array(run_task, tasks)
    try:
        for job, task in zip(jobs, tasks, strict=True):
            try:
                ended = job.result()
            except Exception as error:  # of a job that the cluster ended, or of its Python
                ended = _failed(task, error)
            for one in ended:
                end(one)
    except KeyboardInterrupt:
        for job in jobs:
            job.cancel(check=False)
        raise


def _failed(task: Task, error: Exception) -> list[Ended]:
    # Of the points alone: a common training that failed by itself is not tried again, and one that was ended is.
    return [Ended(name, _first_line(error), 0.0) for name, _ in task.points]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200] or type(error).__name__
