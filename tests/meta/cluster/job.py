"""A process of a job in the tests: `python -m tests.meta.cluster.job JSON`."""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from meta import Evolution, Outcome, RunDirectory, evolve, process
from meta.cluster import multi_process
from meta.loop import Lost

TARGET = np.array([1.0, -2.0, 0.5], np.float32)


def trial(parameters, key, goal=TARGET):
    """A parabola with noise that all candidates of a generation share."""
    x, noise = parameters["x"] - goal, jax.random.normal(key)
    return Outcome(-jnp.sum(x**2) + noise, {"distance": jnp.linalg.norm(x), "noise": noise})


def init(key):
    return {"x": jnp.zeros(3) + 0.01 * jax.random.normal(key, (3,))}


def follow_each_other(keys, generation, means):
    """The first of two runs has the target as its goal, the second the mean of the first."""
    return jnp.stack([TARGET, means["x"][0] + 0.0 * generation])


def settings(**changes):
    return Evolution(**{"population_size": 10, "generations": 12, "chunk_size": 3} | changes)


def digest(found):
    """A hash of every bit of the parameters and of all metrics."""
    arrays = jax.tree.leaves((found.parameters, dict(sorted(found.metrics.items()))))
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in arrays)).hexdigest()


def together(group):
    """Two runs that depend on each other."""
    keys, evaluator = jax.random.split(jax.random.key(1), 2), group.evaluator()
    return digest(evolve(trial, init, keys, settings(), num_trials=1, context=follow_each_other, evaluator=evaluator))


def stored(group, folder, generations, stop_at=None, stopped=0):
    """A run that is stored or resumed; one of the processes may get a signal during it."""
    path = group.mirrored(Path(folder), content=True)
    make = RunDirectory if path.exists() else lambda path: RunDirectory.create(path, {})
    evolution = settings(generations=generations)

    def report(generation, metrics, seconds):
        if stop_at and generation >= stop_at and jax.process_index() == stopped:
            os.kill(os.getpid(), signal.SIGTERM)

    with make(path) as store:
        key, to_do = jax.random.key(3), {"store": store, "report": report, "evaluator": group.evaluator()}
        return digest(evolve(trial, init, key, evolution, num_trials=2, **to_do))


def fails(group, number):
    """An evolution before which one of the processes fails."""
    if jax.process_index() == number:
        raise ValueError("its disk is full")
    return together(group)


def main(where, devices, heartbeat, tasks, versions):
    """Connects and calls some of the functions above: (name, arguments)."""
    jax.config.update("jax_num_cpu_devices", devices)
    if versions:
        multi_process.versions = lambda: versions
    process.stop_on_signals()
    group, status = None, 0

    def say(words):
        group.say(f"job: {words}") if group else print(f"job: {words}", file=sys.stderr)

    try:
        group = multi_process.connect(**where, timeout=60.0, heartbeat=heartbeat)
        print(json.dumps(group.statistics()), flush=True)
        for name, arguments in tasks:
            print(json.dumps(globals()[name](group, **arguments)), flush=True)
    except ValueError as error:
        say(error)
        status = 2
    except Lost as error:
        say(error)
        status = 1
    except KeyboardInterrupt:
        say("stopped")
        status = process.STOPPED
    return group.leave(status) if group else status


if __name__ == "__main__":
    sys.exit(main(**json.loads(sys.argv[1])))
