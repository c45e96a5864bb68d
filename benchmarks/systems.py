"""What it costs to learn beyond the device: environments on hosts, actors in threads and in processes.

    python -m benchmarks.systems [--only host,inference,ray] [--repeats 3]

host: Gymnasium's own vector of CartPole, one process, V-trace; environment steps for each second of the process.
inference: sixteen actors with one Python environment each; each evaluates the policy, or one thread does for all.
ray: two actors in processes of a Ray cluster on this machine; at the learner, and over all processes.

Each pair is measured in turn, medians are shown. Compiling is not counted: the clock begins with the second update.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from marl import make_learner
from marl.distributed.hosts import Maker
from marl.distributed.runtime import train

TICKS = os.sysconf("SC_CLK_TCK")


def measured(host: Maker, actors: int, steps: int, updates: int, spec: str = "impala", **settings: Any) -> Any:
    """The statistics of a training."""
    shape = host()
    learner = make_learner(spec, shape.game, num_updates=updates)
    shape.close()
    hosts: list[Any] = [host] * actors
    made = train([learner], hosts, key=jax.random.key(0), num_updates=updates, steps_per_update=steps, **settings)
    return made.statistics


def cpu_seconds(command: str) -> float:
    """Of all processes of this machine in whose command line the words are, and of their children that are gone."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if command in (folder / "cmdline").read_bytes().decode(errors="replace"):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15]))
        except OSError:  # it has ended
            continue
    return total / TICKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="host,inference,ray")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    only, console = options.only.split(","), Console()
    unknown = set(only) - {"host", "inference", "ray"}
    if unknown or options.repeats < 1:
        parser.error(f"--only: got {options.only!r}; host, inference and ray are needed, and --repeats of at least 1")
    table = Table("what", "steps/s", "steps per CPU-second of the learner's process", "over all processes")
    if "host" in only:
        for envs in (8, 32, 64, 128):
            found = [measured(Maker("gymnasium", "CartPole-v1", envs), 1, 20, 300) for _ in range(options.repeats)]
            add(table, f"host, here, {envs} environments", found)
    if "inference" in only:
        kinds: dict[str, list[Any]] = {"actor": [], "central": []}
        for _ in range(options.repeats):
            for kind, found in kinds.items():
                one = Maker("gymnasium", "MountainCar-v0", 1)  # has no vector of its own
                found.append(measured(one, 16, 100, 160, where="threads", inference=kind))
        for kind, found in kinds.items():
            add(table, f"16 threads x 1 Python environment, inference {kind}", found)
        ratio = statistics.median(
            b["learner_steps_per_cpu_second"] / a["learner_steps_per_cpu_second"]
            for a, b in zip(kinds["actor"], kinds["central"], strict=True)
        )
        console.print(f"central against actor: {ratio:.2f} times the steps per CPU-second")
    if "ray" in only:
        from marl.distributed.on_ray import connect

        connect("", 2)
        for envs in (32, 64):
            found = []
            for _ in range(options.repeats):
                before = cpu_seconds("ray::")
                found.append(measured(Maker("gymnasium", "CartPole-v1", envs), 2, 20, 2000, where="ray"))
                others = cpu_seconds("ray::") - before  # with imports and compiling
                own = found[-1]["steps"] / found[-1]["learner_steps_per_cpu_second"]
                found[-1]["everybody"] = found[-1]["steps"] / (own + others)
            add(table, f"Ray, 2 actors x {envs} environments", found)
    console.print(table)


def add(table: Table, name: str, found: list[Any]) -> None:
    """A row of medians."""

    def of(what: str) -> str:
        return f"{statistics.median(one[what] for one in found):,.0f}" if what in found[0] else ""

    table.add_row(name, of("steps_per_second"), of("learner_steps_per_cpu_second"), of("everybody"))


if __name__ == "__main__":
    main()
