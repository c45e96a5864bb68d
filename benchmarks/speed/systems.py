"""The cost of learning beyond the device: environments on hosts, actors in threads and in processes.

    python -m benchmarks.speed.systems [--only host,loop,inference,pong,ray,rllib] [--repeats 3] [--venv DIR]

host: Gymnasium's own vector of CartPole, one process, V-trace; environment steps for each second of the process.
loop: learners in 8 environments, by `train` and by a bare loop of the same programs.
inference: sixteen actors with one Python environment each; each evaluates the policy, or one thread does for all.
pong: eight of ale-py's Pong with the network of A3C: the environments alone, with acting, and with V-trace too.
ray: two actors in processes of a Ray cluster on this machine; at the learner, and over all processes.
rllib: the same by RLlib's IMPALA, in turn with ours: the same network, rollouts and batches. It has an environment of
its own in DIR, six gigabytes, which is made if it is not there, because it needs an older Gymnasium.

Each pair is measured in turn, medians are shown. Compiling is not counted: the clock begins with the second update.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.timing import in_turn, ratio
from marl import make_learner
from marl.core.learner import Trajectory
from marl.distributed.actors.actor import Actor
from marl.distributed.actors.actor_programs import ActorPrograms
from marl.distributed.actors.rollouts import RolloutRequest
from marl.distributed.adapters.maker import EnvMaker
from marl.distributed.config import STEPS
from marl.distributed.runtime import train
from marl.distributed.system import System

KINDS = ("actor", "central")  # of inference
TICKS = os.sysconf("SC_CLK_TCK")


def measured(host: EnvMaker, actors: int, steps: int, updates: int, spec: str = "impala", **settings: Any) -> Any:
    """The statistics of a training."""
    shape = host()
    learner = make_learner(spec, shape.game, num_updates=updates)
    shape.close()
    hosts: list[Any] = [host] * actors
    made = train([learner], hosts, key=jax.random.key(0), num_updates=updates, steps_per_update=steps, **settings)
    return made.statistics


def alone(host: EnvMaker, steps: int) -> dict[str, float]:
    """The environments alone, in random play."""
    played = host()
    no_keys = np.zeros((host.num_envs, 2), np.uint32)
    played.reset(0, no_keys)
    actions = np.random.default_rng(0).integers(played.game.action_space("agent_0").n, size=(steps, host.num_envs))

    def step(number: int) -> None:
        played.send({"agent_0": actions[number]}, (no_keys, no_keys))
        played.receive()

    return timed(step, steps, host.num_envs)


def acting(host: EnvMaker, steps: int, rollouts: int, spec: str) -> dict[str, float]:
    """An actor without a learner, with the policy of the beginning."""
    played = host()
    learner = make_learner(spec, played.game)
    actor = Actor(ActorPrograms([learner], host.num_envs, 1, steps), played, 0, jax.random.key(0))
    actor.begin(0, jax.random.key(1))
    policies = (learner.policy(jax.jit(learner.init)(jax.random.key(2))),)
    return timed(lambda number: actor.play(RolloutRequest(number, 0, policies)), rollouts, steps * host.num_envs)


def bare(spec: str, envs: int, steps: int, updates: int) -> dict[str, float]:
    """A learner in Gymnasium's CartPole by a loop without an actor, a dispatcher, counts of episodes or metrics."""
    env = gymnasium.make_vec("CartPole-v1", envs, vectorization_mode="vector_entry_point")
    learner, root = make_learner(spec, EnvMaker("gymnasium", "CartPole-v1", envs)().game), jax.random.key(0)

    @jax.jit
    def act(number: jax.Array, policy: Any, memory: Any, done: Any, obs: Any) -> Any:
        memory = learner.reset_memory(memory, done) if learner.reset_memory else memory
        return learner.act(jax.random.fold_in(root, number), policy, memory, obs)

    @partial(jax.jit, donate_argnums=1)
    def update(number: jax.Array, state: Any, trajectory: Trajectory) -> Any:
        state, _ = learner.update(jax.random.fold_in(root, number), state, trajectory)
        return state, jax.tree.map(jnp.copy, learner.policy(state))

    state = jax.jit(learner.init)(root)
    policy = jax.tree.map(jnp.copy, learner.policy(state))
    memory, obs = learner.init_memory(policy, envs), env.reset(seed=0)[0]
    done, begins = np.zeros(envs, bool), np.zeros(envs, bool)

    def play(number: int) -> None:
        nonlocal state, policy, memory, obs, done, begins
        first, rows = memory, []
        for t in range(steps):
            action, memory, extras = act(np.int32(number * steps + t), policy, memory, done, obs)
            before, action = obs, np.asarray(action)
            obs, reward, terminated, truncated, _ = env.step(action)
            obs, done, valid = np.array(obs), terminated | truncated, ~begins
            begins = done & valid
            rows.append((before, action, np.float32(reward), done | ~valid, extras, truncated & valid, obs, valid))
        stacked = [jax.tree.map(lambda *x: np.stack(x), *column) for column in zip(*rows, strict=True)]
        memories = (jax.tree.map(np.asarray, one) for one in (first, memory))
        trajectory = Trajectory(*stacked[:5], (), *stacked[5:7], *memories, (), stacked[7])
        state, policy = update(np.int32(number), state, trajectory)

    found = timed(play, updates, steps * envs)
    env.close()
    return found


def timed(play: Callable[[int], Any], times: int, steps: int) -> dict[str, float]:
    """Speed of environment steps that are taken so often, without the first time."""
    play(0)
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(1, times):
        play(number)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    taken = (times - 1) * steps
    return {"steps_per_second": taken / wall, "learner_steps_per_cpu_second": taken / cpu}


class Processes:
    """Inside, the CPU time of Ray's processes on this machine is followed, of those too that end meanwhile."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._done = threading.Event()

    def __enter__(self) -> Processes:
        self.begin()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def begin(self) -> None:
        """Forgets what was so far."""
        self._look(first=True)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all processes since the beginning."""
        return sum(last - self._first.get(one, 0) for one, last in self._last.items()) / TICKS

    def _follow(self) -> None:
        while not self._done.wait(0.2):
            self._look()

    def _look(self, *, first: bool = False) -> None:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                if "ray::" in command or "/ray/" in command:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    ticks = int(fields[11]) + int(fields[12])
                    self._last[int(folder.name)] = ticks
                    if first:
                        self._first[int(folder.name)] = ticks
            except OSError:  # it has ended
                continue


def of_rllib(venv: Path, envs: int, seconds: float) -> dict[str, float]:
    """RLlib's IMPALA in its own environment, which is made if it is not there: steps, and CPU time of all processes."""
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "ray[rllib]", "torch"], check=True)
    line = [str(python), str(Path(__file__).with_name("rllib_impala.py")), str(envs), str(seconds)]
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(line, **quiet) as process:  # type: ignore[call-overload]

        def next_report() -> dict[str, Any]:
            for line in process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
            raise SystemExit(f"rllib: {' '.join(line)} has said nothing")

        next_report()  # it has begun
        with Processes() as others:
            found = next_report()
        process.stdin.close()
    cpu = found["own_cpu_seconds"] + others.cpu_seconds
    return {
        "steps_per_second": found["steps"] / found["seconds"],
        "learner_steps_per_cpu_second": found["steps"] / found["own_cpu_seconds"],
        "all_processes": found["steps"] / cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="host,inference,ray")
    parser.add_argument("--venv", type=Path, default=Path("rllib-venv"))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    only, console = options.only.split(","), Console()
    unknown = set(only) - {"host", "loop", "inference", "pong", "ray", "rllib"}
    if unknown or options.repeats < 1:
        names = "host, loop, inference, pong, ray and rllib"
        parser.error(f"--only: got {options.only!r}; some of {names} are needed, and --repeats of at least 1")
    if "loop" in only:
        jax.config.update("jax_cpu_enable_async_dispatch", False)  # as `python -m marl.distributed` does
    table = Table("what", "steps/s", "steps per CPU-second of the learner's process", "over all processes")
    if "host" in only:
        for envs in (8, 32, 64, 128):
            found = [measured(EnvMaker("gymnasium", "CartPole-v1", envs), 1, 20, 300) for _ in range(options.repeats)]
            add(table, f"host, here, {envs} environments", found)
    for name in ("impala", "a3c", "a2c", "ppo", "dqn", "ape_x", "r2d2") if "loop" in only else ():
        steps, updates = STEPS[name], 16_000 // STEPS[name]
        settings = EnvMaker("gymnasium", "CartPole-v1", 8), 1, steps, updates, name
        loops = {"train": partial(measured, *settings), "a bare loop": partial(bare, name, 8, steps, updates)}
        for kind, found in in_turn(loops, options.repeats).items():
            add(table, f"{name}, 8 environments x {steps} steps, {kind}", found)
    if "inference" in only:
        one = EnvMaker("gymnasium", "MountainCar-v0", 1)  # has no vector of its own
        runs = {kind: partial(measured, one, 16, 100, 160, system=System("threads", kind)) for kind in KINDS}
        kinds = in_turn(runs, options.repeats)
        for kind, found in kinds.items():
            add(table, f"16 threads x 1 Python environment, inference {kind}", found)
        actor, central = ([one["learner_steps_per_cpu_second"] for one in kinds[kind]] for kind in KINDS)
        console.print(f"central against actor: {ratio(central, actor):.2f} times the steps per CPU-second")
    if "pong" in only:
        pong, spec = EnvMaker("ale", "ALE/Pong-v5", 8), "impala(network='nature', filters=[16, 32], hidden=[256])"
        parts: dict[str, Callable[[], Any]] = {
            "the environments": lambda: alone(pong, 200),
            "acting in them": lambda: acting(pong, 5, 40, spec),
            "acting and learning": lambda: measured(pong, 1, 5, 40, spec),
        }
        for name, found in in_turn(parts, options.repeats).items():
            add(table, f"Pong, 8 environments: {name}", found)
    for envs in (32, 64) if "ray" in only or "rllib" in only else ():
        systems = {"Ray": partial(on_ray, envs)}
        if "rllib" in only:
            systems["RLlib"] = partial(of_rllib, options.venv, envs, 30.0)
        for kind, found in in_turn(systems, options.repeats).items():
            add(table, f"{kind}, 2 actors x {envs} environments", found)
    console.print(table)


def on_ray(envs: int) -> dict[str, float]:
    """Two actors of ours in a cluster that is begun and ended, so that no other process is in the way."""
    import ray

    from marl.distributed.actors.ray_pool import connect

    connect("", 2)
    updates, all_updates, settled = itertools.count(), 4_000, 100  # by when both have begun and compiled
    with Processes() as others:

        def look(metrics: Any) -> None:
            if next(updates) == settled:
                others.begin()

        found = measured(
            EnvMaker("gymnasium", "CartPole-v1", envs), 2, 20, all_updates, system=System("ray"), look=look
        )
    ray.shutdown()
    steps = found["steps"] * (1 - settled / all_updates)
    own = steps / found["learner_steps_per_cpu_second"]
    return {**found, "all_processes": steps / (own + others.cpu_seconds)}


def add(table: Table, name: str, found: list[Any]) -> None:
    """A row of medians."""

    def of(what: str) -> str:
        return f"{statistics.median(one[what] for one in found):,.0f}" if what in found[0] else ""

    table.add_row(name, of("steps_per_second"), of("learner_steps_per_cpu_second"), of("all_processes"))


if __name__ == "__main__":
    main()
