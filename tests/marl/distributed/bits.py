"""Comparison of the bits of `train` with those of `learn`, in a process of its own with default compiler options.

`python -m tests.marl.distributed.bits [--where here,threads,ray] [NUMBER ...]` prints one line for each learner and
place, with True if both are equal.
"""

import argparse

import jax
import numpy as np

from games import make
from marl import learn, make_learner, past_selves, stale
from marl.distributed.adapters.maker import make_env
from marl.distributed.runtime import train
from marl.distributed.system import System

CASES = [
    ("ppo(normalize_observations=True)", 8, 0, "queue"),
    ("ppo(network='recurrent')", 8, 0, "queue"),
    ("impala", 5, 0, "queue"),
    ("impala", 5, 2, "queue"),
    ("a3c", 5, 2, "gradients"),
    ("dqn(learning_starts=64, buffer_size=128)", 8, 0, "queue"),
    ("ape_x(learning_starts=64, buffer_size=128)", 8, 1, "queue"),
    ("r2d2(sequence_length=6, burn_in=2, buffer_size=16, learning_starts=8)", 6, 0, "queue"),
    ("ppo(network='recurrent')", 8, 0, "queue", "coin_game"),
]
UPDATES = 5


def equal(where: str, spec: str, steps: int, lag: int, path: str, name: str = "CartPole-v1") -> bool:
    """True if the learner's final state, rewards and returns are equal; its co-players are past selves."""
    game = make(name)
    learner = make_learner(spec, game)
    others = [past_selves(learner, 0.5, every=2)] * (game.num_agents - 1)
    lasting = [stale(learner, lag), *others]
    run = jax.jit(lambda key: learn(key, game, lasting, num_updates=UPDATES, steps_per_update=steps, num_envs=4))
    expected = run(jax.random.key(3))
    settings = {"num_updates": UPDATES, "steps_per_update": steps, "system": System(where, path=path, lag=lag)}
    found = train([learner, *others], [make_env(f"games({name})", 4)], key=jax.random.key(3), **settings).history
    state = expected.states[0].own if lag else expected.states[0]
    pairs = [(found.states[0], state), (found.rewards, expected.rewards), (found.returns, expected.returns)]
    return all(
        np.array_equal(x, y, equal_nan=True)
        for one, other in pairs
        for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", type=int, nargs="*", default=range(len(CASES)), metavar="NUMBER")
    parser.add_argument("--where", default="here")
    options = parser.parse_args()
    for place in options.where.split(","):
        for case in [CASES[number] for number in options.numbers]:
            print(place, *case, equal(place, *case), sep=" | ", flush=True)
