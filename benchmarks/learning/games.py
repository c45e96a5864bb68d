"""Rewards that learners come to in every game of ours, beside random play, and the speed of the games.

All players are learners of the same kind, each its own, with default settings. A reward is the mean over players per
step, over the last tenth of the training; ± is the standard error between trainings. Random play draws every action
uniformly. Speed is that of random play, in many parallel games, on this machine. The pages of the games on the site
read the result.

    python -m benchmarks.learning.games [--games coin_game,ipd] [--total-steps 200000] [--seeds 3] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import games
from benchmarks.speed.games import build
from benchmarks.timing import machine, seconds
from games import registry
from marl import learn, make_learner

LEARNERS = ("ppo(learning_rate=0.001)",)
NUM_ENVS, STEPS = 16, 32  # of an update
INSTANCES = 4096
FILE = Path(__file__).parents[2] / "docs" / "games" / "measured.json"


def learned(game: games.Game, spec: str, total_steps: int, seeds: int) -> np.ndarray:
    """Mean reward per step at the end of each training, `[seeds]`."""
    num_updates = max(10, total_steps // (NUM_ENVS * STEPS))
    learners = [make_learner(spec, game, seat, num_updates=num_updates) for seat in range(game.num_agents)]

    def run(key: jax.Array) -> jax.Array:
        history = learn(key, game, learners, num_updates=num_updates, steps_per_update=STEPS, num_envs=NUM_ENVS)
        return jnp.stack(history.rewards)[:, -(num_updates // 10) :].mean()

    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds)))


def random_reward(game: games.Game, steps: int = 1000, instances: int = 64) -> float:
    """Mean reward per step and player of random play."""
    played = jax.vmap(lambda key: games.rollout(key, game, steps).rewards)(
        jax.random.split(jax.random.key(1), instances)
    )
    return float(jnp.stack(list(played.values())).mean())


def main() -> None:
    """Measures, and writes the file after each game."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", default=",".join(registry.ours()))
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    found["machine"] = machine()
    for name in options.games.split(","):
        game = games.make(name)
        rewards = {"random play": {"reward": random_reward(game)}}
        for spec in LEARNERS:
            ends = learned(game, spec, options.total_steps, options.seeds)
            error = float(ends.std(ddof=1) / len(ends) ** 0.5) if len(ends) > 1 else None
            rewards[spec] = {"reward": float(ends.mean()), "error": error}
        program = build(game, INSTANCES, 64)
        rate = program.steps / min(seconds(program.call) for _ in range(5))
        found[name] = {
            "total_steps": options.total_steps,
            "seeds": options.seeds,
            "rewards": rewards,
            "million_steps_per_second": round(rate / 1e6, 3),
        }
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        shown = ", ".join(f"{spec} {one['reward']:.3f}" for spec, one in rewards.items())
        print(f"{name}: {shown}; {rate / 1e6:.1f} M steps/s", flush=True)


if __name__ == "__main__":
    main()
