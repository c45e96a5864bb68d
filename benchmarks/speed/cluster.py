"""The cost of a cluster: the same evolution in one process, on Ray and by `jax.distributed`, in turn; and a model.

    python -m benchmarks.speed.cluster [--rounds 3] [--seconds 0.3 10] [--figure FILE.png]

Overhead: a generation of so many seconds of work on two cores, in one process with two devices, on two Ray workers of
one core each, and in two processes of a job. Scaling: how well the driver keeps workers busy that only sleep, for more
of them than any machine has. The model: what a generation takes by population, parameters and workers, from constants
that are measured here.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import in_turn, ratio, seconds_in_turn
from benchmarks.timing import seconds as seconds_of
from meta import Evolution, Outcome, evolve
from meta.cluster.scheduler import Report, Scheduler

POPULATION, CHUNK = 32, 2
SIZES = ((64, 10_000), (1_000, 10_000), (1_000, 100_000))  # candidates, parameters
NETWORK = 1.25e9  # bytes a second between machines: ten gigabits


def trial_of(steps: int) -> Any:
    """A trial of so many products of small matrices, one after the other."""

    def trial(parameters: jax.Array, key: jax.Array) -> Outcome:
        noise = jax.random.normal(key, (32, 32)) / 32

        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ noise + parameters[:32]), None

        x, _ = jax.lax.scan(step, jnp.eye(32), None, steps)
        return Outcome(-jnp.sum(parameters**2) + 1e-3 * x.mean(), {})

    return trial


def run_way(way: str, steps: int, generations: int, coordinator: str, process: int) -> dict[str, Any]:
    """Seconds of a generation without the first ones, and a digest of all bits; of this process, as `way` says."""
    from meta.cluster.on_ray import ray_cluster
    from meta.cluster.ray_driver import Plan

    evolution = Evolution(population_size=POPULATION, generations=generations, chunk_size=CHUNK)
    times: list[tuple[int, float]] = []

    def run(**there: Any) -> dict[str, Any]:
        def report(generation: int, metrics: Any, seconds: float) -> None:
            times.append((generation, seconds))

        found = evolve(
            trial_of(steps),
            lambda key: jnp.ones(64),
            jax.random.key(0),
            evolution,
            num_trials=1,
            report=report,
            **there,
        )
        bits = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves((found.parameters, found.metrics)))
        first = times[min(len(times) // 4, len(times) - 2)]  # workers begin one after the other
        seconds = (times[-1][1] - first[1]) / (times[-1][0] - first[0])
        return {"seconds": seconds, "digest": hashlib.sha256(bits).hexdigest()[:16]}

    if way == "ray":
        with ray_cluster(Plan("", 2, 1, "", 120.0)) as cluster:
            return run(evaluator=cluster.evaluator())
    if way == "jax":
        from meta.cluster import multi_process

        group = multi_process.connect(coordinator, 2, process)
        found = run(evaluator=group.evaluator())
        group.leave(0)
        return found
    return run()


def measure(way: str, steps: int, generations: int) -> dict[str, Any]:
    """`run_way` in processes of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    line = [sys.executable, "-m", "benchmarks.speed.cluster", "--way", way, "--steps", str(steps)]
    line += ["--generations", str(generations), "--coordinator", address]
    cores = sorted(os.sched_getaffinity(0))
    devices = {"here": "2"}.get(way, "1")
    started = [
        subprocess.Popen(
            [*line, "--process", str(i)],
            stdout=subprocess.PIPE,
            env=os.environ | {"JAX_NUM_CPU_DEVICES": devices, "NPROC": devices},
            # In a job each process has its own core, as on machines of its own.
            preexec_fn=(lambda i=i: os.sched_setaffinity(0, {cores[i % len(cores)]})) if way == "jax" else None,
        )
        for i in range(2 if way == "jax" else 1)
    ]
    outputs = [process.communicate()[0] for process in started]
    return json.loads(outputs[0].decode().strip().split("\n")[-1])


def show_overhead(seconds: list[float], rounds: int) -> None:
    """Seconds of the same generation in each way."""
    ways = ("here", "ray", "jax")
    probe = measure("here", 2_000, 8)["seconds"] / 2_000
    print("\nthe same evolution, seconds of a generation (median of rounds), in turn")
    print(f"{'work':>8} {'rounds':>7} " + " ".join(f"{way:>10}" for way in ways) + "   ray/here   jax/here  bits")
    for wanted in [0.0, *seconds]:
        steps = max(int(wanted / probe), 1)
        generations = 300 if not wanted else max(int(15 / wanted), 4)
        calls = {way: partial(measure, way, steps, generations) for way in ways}
        found = in_turn(calls, rounds if wanted < 5 else min(rounds, 2))
        times = {way: [one["seconds"] for one in found[way]] for way in ways}
        same = len({one["digest"] for way in ways for one in found[way]}) == 1
        name = f"{wanted:g} s" if wanted else "nothing"
        print(
            f"{name:>8} {len(found['here']):>7} "
            + " ".join(f"{statistics.median(times[way]):>10.4f}" for way in ways)
            + "".join(f" {ratio(times[way], times['here']):>10.3f}" for way in ways[1:])
            + ("  the same" if same else "  DIFFERENT"),
            flush=True,
        )


class Sleepers:
    """Workers that answer when their time is over: one thread for all of them."""

    def __init__(self, seconds: float):
        self.seconds, self._heap, self._new = seconds, list[Any](), threading.Condition()
        self._order = itertools.count()
        threading.Thread(target=self._run, daemon=True).start()

    def worker(self) -> Any:
        """A `Worker`, whose chunks come one after the other."""
        return _Sleeper(self)

    def answer_at(self, when: float, future: Future[Any]) -> None:
        with self._new:
            heapq.heappush(self._heap, (when, next(self._order), future))
            self._new.notify()

    def _run(self) -> None:
        while True:
            with self._new:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    self._new.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
                future = heapq.heappop(self._heap)[2]
            future.set_result(([np.zeros(CHUNK)], self.seconds))


class _Sleeper:
    def __init__(self, all_of_them: Sleepers):
        self._all, self._free = all_of_them, 0.0

    def join(self) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(Report({}, "here", "none"))
        return future

    def evaluate(self, generation: Any, chunk: int) -> Future[Any]:
        future: Future[Any] = Future()
        self._free = max(self._free, time.monotonic()) + self._all.seconds
        self._all.answer_at(self._free, future)
        return future

    def leave(self) -> None:
        return


def show_scaling() -> None:
    """Weak scaling of the scheduler: the share of time in which sleeping workers have a chunk, four chunks each."""
    print("\nthe scheduler, workers that sleep, 4 chunks each in a generation: share of the time that they work")
    print(f"{'workers':>8} {'0.1 s a chunk':>15} {'1 s a chunk':>15}")
    for number in (1, 8, 64, 256, 512):
        shares = []
        for seconds in (0.1, 1.0):
            sleepers = Sleepers(seconds)
            workers = [sleepers.worker() for _ in range(number)]
            scheduler = Scheduler(lambda there, workers=workers: workers[there:], {})
            scheduler.evaluate(0, number)  # they join
            shares.append(4 * seconds / seconds_of(partial(scheduler.evaluate, 1, 4 * number)))
        print(f"{number:>8} {shares[0]:>14.1%} {shares[1]:>14.1%}", flush=True)


def ray_constants() -> dict[str, float]:
    """Seconds of the driver for a call to an actor that does nothing, and for a byte that it puts into the store."""
    code = """
import json, os, time
import numpy as np, ray
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2**29, log_to_driver=False)

@ray.remote(num_cpus=0)
class Idle:
    def evaluate(self, generation, chunk):
        return [np.zeros(2)], 0.0

actors, generation = [Idle.remote() for _ in range(8)], ["digest", [ray.put(b"")]]
ray.get([actor.evaluate.remote(generation, 0) for actor in actors])
started = time.perf_counter()
for _ in range(50):
    ray.get([actor.evaluate.remote(generation, 0) for actor in actors])
call = (time.perf_counter() - started) / 400
times = []
for _ in range(5):
    data = np.random.default_rng(0).random(2**22)  # 32 MB
    started = time.perf_counter()
    reference = ray.put(data)
    times.append((time.perf_counter() - started) / data.nbytes)
print(json.dumps({"call": call, "put": sorted(times)[2]}))
ray.shutdown()
"""
    variables = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    result = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.strip().split("\n")[-1])


def ask_and_tell(population: int, parameters: int) -> tuple[float, float]:
    """Seconds to ask for the candidates of a generation, and to tell the strategy what became of them."""
    from meta.strategies import make_strategy

    strategy, params = make_strategy(Evolution(population_size=population), parameters)
    key, fitness = jax.random.key(0), jnp.arange(float(population))
    state = strategy.init(key, jnp.zeros(parameters), params)
    ask = jax.jit(lambda key, state: strategy.ask(key, state, params))
    candidates, state = jax.block_until_ready(ask(key, state))
    tell = jax.jit(lambda key, some, state: strategy.tell(key, some, fitness, state, params))
    calls = {"ask": lambda: ask(key, state), "tell": lambda: tell(key, candidates, state)}
    asking, telling = (statistics.median(times) for times in seconds_in_turn(calls, 5).values())
    return asking, telling


def show_model(figure: str) -> None:
    """Constants of the model, what they say, and the picture of it."""
    constants = ray_constants()
    print(f"\nRay: {1e3 * constants['call']:.2f} ms a call, {1e-6 / constants['put']:,.0f} MB/s into the object store")
    curves = {}
    workers = 2 ** np.arange(0, 15)
    print(f"{'candidates':>10} {'parameters':>10} {'ask':>9} {'tell':>9}   workers that are busy 90 % of the time")
    for population, parameters in SIZES:
        ask, tell = ask_and_tell(population, parameters)
        chunks = population  # one candidate each, of a second: as many as may be at work at once
        share = efficiency(workers, chunks, 1.0, ask, tell, parameters, constants)
        curves[f"{population:,} candidates of {parameters:,} parameters"] = share
        most = max((int(n) for n, x in zip(workers, share, strict=False) if x >= 0.9), default=0)
        print(f"{population:>10,} {parameters:>10,} {1e3 * ask:>6.1f} ms {1e3 * tell:>6.1f} ms   {most:,}", flush=True)
    if figure:
        draw(Path(figure), workers, curves)


def efficiency(
    workers: np.ndarray,
    chunks: int,
    seconds: float,
    ask: float,
    tell: float,
    parameters: int,
    constants: dict[str, float],
) -> np.ndarray:
    """Share of the time that workers work, `[workers]`; each asks by itself, for the state travels.

    A generation takes: ask and put and tell at the driver; the state to every machine, from one to the
    next of them as the object store passes it on; ask at the worker; and rounds of chunks, or the driver's calls where
    these are slower.
    """
    state = 4.0 * 3 * parameters
    rounds = np.ceil(chunks / workers)
    travel = state * (constants["put"] + np.ceil(np.log2(workers + 1)) / NETWORK)
    working = np.maximum(rounds * seconds, chunks * constants["call"]) + constants["call"] * np.minimum(workers, chunks)
    return chunks * seconds / workers / (2 * ask + tell + travel + working)


def draw(path: Path, workers: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """The model's curves."""
    from meta.runs.plotting import GREY, colors_of, new_axes, save_figure

    figure, axes = new_axes("workers", "share of the time that they work")
    for (name, color), style in zip(colors_of(curves).items(), ("-", "--", "-."), strict=True):
        axes.plot(workers, curves[name], style, color=color, label=name)
    axes.axhline(0.9, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", ylim=(0, 1.02))
    title = "Share of the time that workers of a cluster work, by their number"
    save_figure(figure, path, title, "a model: candidates that take a second each; dotted: 90 %")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, nargs="*", default=[0.3, 10.0])
    parser.add_argument("--figure", default="")
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--generations", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--coordinator", default="", help=argparse.SUPPRESS)
    parser.add_argument("--process", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        found = run_way(options.way, options.steps, options.generations, options.coordinator, options.process)
        print(json.dumps(found))
        return
    print(f"jax {jax.__version__}, {len(os.sched_getaffinity(0))} cores")
    show_scaling()
    show_model(options.figure)
    show_overhead(options.seconds, options.rounds)


if __name__ == "__main__":
    main()
