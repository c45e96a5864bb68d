"""Meta-steps per second of M-FOS in the exact repeated game, and the ratio to the textbook form.

A meta-step is one policy of the shaper, its payoffs, and one learning step of a naive opponent. The textbook form is
what one would write first: `vmap` over trials of a scan whose payoffs go through `jnp.linalg.inv` and whose opponent
differentiates through it. Both are timed in turn, so that the ratio holds on a noisy machine.

    python -m benchmarks.speed.exact_game [--sizes 256x8,256x32,128x512] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import Compiled, compiled, machine, ratio, seconds_in_turn
from games import InfinitelyRepeated, prisoners_dilemma
from marl import make_learner, shaping_trial
from marl.shapers.exact_policies import mfos
from meta import Evolution, evolve

META_STEPS = 100
MOST_TEXTBOOK_TRIALS = 2048  # timed at once; with more, batched LAPACK gets slower by far
GAME = InfinitelyRepeated(prisoners_dilemma)
SHAPER = mfos()


def textbook_trial(parameters: Any, key: jax.Array) -> jax.Array:
    """The shaper's mean payoff in a trial, as one would write it down from the paper."""
    rewards = jnp.array([[-1.0, -3.0, 0.0, -2.0], [-1.0, 0.0, -3.0, -2.0]])

    def values(own: jax.Array, other: jax.Array) -> jax.Array:
        p, q = jax.nn.sigmoid(own), jax.nn.sigmoid(other)[jnp.array([0, 1, 3, 2, 4])]
        joint = jnp.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], axis=-1)
        return rewards @ jnp.linalg.inv(jnp.eye(4) - GAME.discount * joint[1:]).T @ joint[0]

    def meta_step(carry: Any, _: None) -> Any:
        obs, theta = carry
        hidden = jnp.tanh(obs @ parameters["w1"] + parameters["b1"])
        own = hidden @ parameters["w2"] + parameters["b2"]
        payoff = values(own, theta)[0]
        theta = theta + jax.grad(lambda theta: values(own, theta)[1])(theta)
        return (jax.nn.sigmoid(jnp.concatenate([own, theta])), theta), payoff

    start = jax.random.normal(key, (10,))
    _, payoffs = jax.lax.scan(meta_step, (jax.nn.sigmoid(start), start[5:]), None, META_STEPS + 1)
    return (1 - GAME.discount) * payoffs[1:].mean()


def library_trial(parameters: Any, key: jax.Array) -> jax.Array:
    """The same trial as `evolve` runs it."""
    trial = shaping_trial(GAME, SHAPER, make_learner("naive", GAME, 1), meta_steps=META_STEPS)
    return trial(parameters, key).fitness


def program(trial: Callable[..., jax.Array], members: int, trials: int, *, xla_defaults: bool = False) -> Compiled:
    """The trials of a population."""
    parameters = jax.vmap(SHAPER.init)(jax.random.split(jax.random.key(0), members))
    keys = jax.random.split(jax.random.key(1), trials)
    over_members, over_keys = partial(jax.vmap, in_axes=(0, None)), partial(jax.vmap, in_axes=(None, 0))
    # The wider axis last, as in `evolve`.
    batched = over_members(over_keys(trial)) if trials > members else over_keys(over_members(trial))
    return compiled(batched, parameters, keys, xla_defaults=xla_defaults)


def main() -> None:
    """Prints a table of speeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="256x8,256x32,512x32,128x512", help="candidates x trials, comma-separated")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each; the median is printed")
    arguments = parser.parse_args()
    print(machine())
    print("candidates x trials | library M/s (best)  compile s | textbook M/s (best)  compile s | ratio", flush=True)
    for size in arguments.sizes.split(","):
        members, trials = map(int, size.split("x"))
        ours = program(library_trial, members, trials)
        few = max(1, min(trials, MOST_TEXTBOOK_TRIALS // members))
        theirs = program(textbook_trial, members, few, xla_defaults=True)
        taken = seconds_in_turn({"library": ours, "textbook": theirs}, arguments.repeats).values()
        a, b = (
            [1e6 * x / (members * number * META_STEPS) for x in times]  # microseconds per meta-step
            for number, times in zip((trials, few), taken, strict=True)
        )
        print(
            f"{size:>19} | {1 / statistics.median(a):8.2f} ({1 / min(a):6.2f})  {ours.seconds_to_compile:9.1f} "
            f"| {1 / statistics.median(b):9.2f} ({1 / min(b):6.2f})  {theirs.seconds_to_compile:9.1f} "
            f"| {ratio(b, a):5.1f}",
            flush=True,
        )
    evolution = Evolution()
    trial = shaping_trial(GAME, SHAPER, make_learner("naive", GAME, 1), meta_steps=META_STEPS)
    evolved = evolve(trial, SHAPER.init, jax.random.key(0), evolution, num_trials=8)
    steps = evolution.generations * evolution.population_size * 8 * META_STEPS / 1e6
    print(
        f"a whole evolution at the default settings (256x8): {steps / evolved.seconds_to_run:.2f} M/s, "
        f"{evolved.seconds_to_compile:.1f} s to compile"
    )


if __name__ == "__main__":
    main()
