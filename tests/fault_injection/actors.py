"""A training on Ray whose actors are killed again and again does all its updates, learns, and gets its actors back.

    python -m tests.fault_injection.actors [--seeds 3] [--total-steps 400000] [--at 0.3 0.5 0.7]

`impala(anneal=True)` learns CartPole-v1 by two actors of eight environments, five steps a rollout. One of their
processes, drawn at random, is killed by `kill -9` after each of these shares of the updates, once both are at work.
Prints the lost
rollouts, the time that the actor was away, and the return of 32 fresh episodes; status 1 if an update is missing, if
more was lost than was in flight, if an actor did not come back, or if the return is below 475.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from typing import Any

import jax
import numpy as np

from marl import make_learner
from marl.distributed.actors.ray_pool import RayPool
from marl.distributed.actors.rollouts import Failure, Rollout, RolloutRequest
from marl.distributed.adapters.maker import EnvMaker
from marl.distributed.evaluation import play_episodes
from marl.distributed.runtime import train
from marl.distributed.system import System
from tests.fault_injection.kills import processes

ACTORS, ENVS, STEPS = 2, 8, 5
SOLVED = 475.0


class Watched(RayPool):
    """A pool that counts requests and answers, and records when each actor was away."""

    last: Watched

    def __init__(self, *settings: Any):
        super().__init__(*settings)
        Watched.last = self
        self.asked, self.came = 0, 0
        self.away: dict[int, float] = {}  # since when
        self.back: list[tuple[int, float]] = []  # actors, and the seconds that they were away
        self.in_flight: set[int] = set()

    def start(self, actor: int, order: RolloutRequest) -> None:
        self.asked += 1
        self.in_flight.add(actor)
        super().start(actor, order)

    def next(self, seconds: float) -> tuple[int, Rollout | Failure] | None:
        found = super().next(seconds)
        if found:
            actor, answer = found
            self.in_flight.discard(actor)
            if isinstance(answer, Failure):
                self.away.setdefault(actor, time.monotonic())
            else:
                self.came += 1
                if actor in self.away:
                    self.back.append((actor, time.monotonic() - self.away.pop(actor)))
        return found


def trained(seed: int, updates: int, at: list[float]) -> list[str]:
    """Trains once and prints the figures; returns the faults, one line each."""
    host, draw = EnvMaker("gymnasium", "CartPole-v1", ENVS), random.Random(seed)
    game = host().game
    learner = make_learner("impala(anneal=True)", game, num_updates=updates)
    moments, done, killed, steps = sorted(int(share * updates) for share in at), 0, 0, 0

    def look(received: dict[str, np.ndarray]) -> None:
        nonlocal done, killed, steps
        done, steps = done + 1, steps + int(received["steps"])
        if killed < len(moments) and done >= moments[killed] and not Watched.last.away:
            os.kill(draw.choice(processes(os.getpid(), "ray::RayGroup")), signal.SIGKILL)
            killed += 1
            say(f"update {done}: kill {killed}")

    def say(words: str) -> None:
        print(f"  {time.monotonic() - began:.1f} s: {words}", flush=True)

    began = time.monotonic()
    hosts: list[Any] = [host] * ACTORS
    settings: dict[str, Any] = {"num_updates": updates, "steps_per_update": STEPS, "seed": seed}
    found = train([learner], hosts, key=jax.random.key(seed), system=System("ray"), look=look, say=say, **settings)
    wall, pool = time.monotonic() - began, Watched.last
    returns = play_episodes(
        jax.random.key(seed + 1), host._replace(num_envs=16)(), [learner], found.history.states, 32, seed + 1
    )
    lost = pool.asked - pool.came - len(pool.in_flight)
    away = ", ".join(f"{seconds:.0f}" for _, seconds in pool.back)
    error = returns.std(ddof=1) / len(returns) ** 0.5
    print(
        f"seed {seed}: {done} of {updates} updates, {steps:,} steps in {wall:.0f} s; {killed} kills; {lost} rollouts "
        f"of {ENVS * STEPS} steps lost; away for {away or 'ever'} s; return {returns.mean():.1f} ± {error:.1f} between "
        f"episodes; policies {found.statistics['mean_lag']:.1f} updates old",
        flush=True,
    )
    wrong = {
        "updates are missing": done != updates or steps != updates * ENVS * STEPS,
        f"{len(moments) - killed} kills are missing": killed < len(moments),
        "more is lost than what was in flight": lost > killed,
        f"actor {', '.join(map(str, pool.away))} is not back": pool.away,
        f"the return is below {SOLVED}": returns.mean() < SOLVED,
    }
    return [f"seed {seed}: {words}" for words, is_so in wrong.items() if is_so]


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault_injection.actors", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--total-steps", type=int, default=400_000)
    parser.add_argument("--at", type=float, nargs="+", default=[0.3, 0.5, 0.7], help="shares of the updates")
    options = parser.parse_args()
    # Ray begins its workers with a niceness of 15, with which they starve beside other work.
    os.environ.setdefault("RAY_worker_niceness", "0")
    sys.modules["marl.distributed.actors.ray_pool"].RayPool = Watched  # type: ignore[attr-defined]
    updates = options.total_steps // (ENVS * STEPS)
    wrong = [words for seed in range(options.seeds) for words in trained(seed, updates, options.at)]
    print("\n".join(wrong) or "all as it should be")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
