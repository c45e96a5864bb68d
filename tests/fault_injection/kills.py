"""An evolution on Ray whose workers are killed again and again ends as an evolution without kills.

    python -m tests.fault_injection.kills [--kills 50] [--workers 2] [--seed 0]

A worker is killed by `kill -9` at random moments, now and then all of them at once, the node's own process, or the one
that speaks with Ray. Prints what was killed and survived; status 1 if a bit differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meta import Evolution, Outcome, evolve
from meta.cluster.on_ray import RayCluster, ray_cluster
from meta.cluster.ray_driver import Plan

WHAT = {"worker": 0.85, "all workers": 0.07, "node": 0.04, "broker": 0.04}
TARGET = jnp.linspace(-1, 1, 16)


def trial(parameters: jax.Array, key: jax.Array) -> Outcome:
    """A trial of half a second of work for a generation."""

    def step(x: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ jnp.outer(x[0], parameters) + jax.random.normal(key, (16, 16))), None

    x, _ = jax.lax.scan(step, jnp.eye(16), jax.random.split(key, 2_000))
    return Outcome(-jnp.sum((parameters - TARGET) ** 2) + 0.01 * x.mean(), {})


def digest(found: Any) -> str:
    """A hash of all bits of a result."""
    leaves = jax.tree.leaves((found.parameters, found.metrics))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


def processes(parent: int, name: str) -> list[int]:
    """Descendants of a process with this name in their command lines."""
    found, parents = [], [parent]
    while parents:
        pids = subprocess.run(["pgrep", "-P", ",".join(map(str, parents))], capture_output=True, text=True).stdout
        parents = [int(pid) for pid in pids.split()]
        found += parents
    named = []
    for pid in found:
        with contextlib.suppress(OSError):
            if name in Path(f"/proc/{pid}/cmdline").read_text():
                named.append(pid)
    return named


def kill(cluster: RayCluster, what: str, generator: random.Random) -> bool:
    """Kills these processes; returns False if there are none."""
    assert cluster._process
    broker = cluster._process.pid
    workers = processes(broker, "ray::Actor")
    pids = {"worker": workers and [generator.choice(workers)], "all workers": workers, "broker": [broker]}
    pids["node"] = processes(broker, "raylet/raylet")
    for pid in pids[what]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids[what])


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator, killed, done = random.Random(options.seed), Counter[str](), threading.Event()
    search = Evolution(population_size=32, generations=20, chunk_size=2)

    def run(**there: Any) -> str:
        return digest(evolve(trial, lambda key: jnp.zeros(16), jax.random.key(0), search, num_trials=1, **there))

    whole, survived, began = run(), 0, time.monotonic()
    print(f"untouched: {whole[:16]}", flush=True)
    with ray_cluster(Plan("", options.workers, 1, "", 300.0), lambda words: print(words, flush=True)) as cluster:

        def kill_on() -> None:
            while killed.total() < options.kills and not done.wait(generator.uniform(0.2, 5.0)):
                what = generator.choices(list(WHAT), list(WHAT.values()))[0]
                if kill(cluster, what, generator):
                    killed[what] += 1
                    print(f"{time.monotonic() - began:.0f} s: kill {killed.total()}: {what}", flush=True)

        thread = threading.Thread(target=kill_on)
        thread.start()
        while thread.is_alive():
            before = killed.total()
            found = run(evaluator=cluster.evaluator())
            if found != whole:
                print(f"different: {found[:16]}")
                done.set()
                return 1
            survived += killed.total() - before
            print(f"the same bits after {killed.total()} kills: {cluster.statistics()}", flush=True)
        thread.join()
    print(f"{survived} of {killed.total()} kills survived: {dict(killed)}")
    return survived != killed.total()


if __name__ == "__main__":
    sys.exit(main())
