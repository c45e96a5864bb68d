"""Meta-steps per second of M-FOS in the exact repeated game, and the ratio to the textbook form.

A meta-step is one policy of the shaper, its payoffs, and one learning step of a naive opponent. The textbook form is
what one would write first: `vmap` over trials of a scan whose payoffs go through `jnp.linalg.inv` and whose opponent
differentiates through it. Both are timed in turn, so that the ratio holds on a noisy machine.

    python -m benchmarks.exact_game [--sizes 256x8,256x32,128x512] [--repeats 3]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from games import InfinitelyRepeated, prisoners_dilemma
from marl import make_learner, shaping_trial
from marl.shapers.exact import mfos
from meta import Evolution, evolve
from meta.evolution import compiler_options

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


def program(trial: Callable[..., jax.Array], members: int, trials: int, options: dict[str, Any] | None) -> Any:
    """(compiled program, its arguments, seconds to compile)."""
    parameters = jax.vmap(SHAPER.init)(jax.random.split(jax.random.key(0), members))
    keys = jax.random.split(jax.random.key(1), trials)
    over_members, over_keys = partial(jax.vmap, in_axes=(0, None)), partial(jax.vmap, in_axes=(None, 0))
    # The wider axis last, as in `evolve`.
    batched = over_members(over_keys(trial)) if trials > members else over_keys(over_members(trial))
    started = time.perf_counter()
    compiled = jax.jit(batched, compiler_options=options).lower(parameters, keys).compile()
    return compiled, (parameters, keys), time.perf_counter() - started


def main() -> None:
    """Prints a table of speeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="256x8,256x32,512x32,128x512", help="candidates x trials, comma-separated")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each; the median is printed")
    arguments = parser.parse_args()
    device = jax.devices()[0]
    print(f"{len(jax.devices())} x {device.device_kind}, {platform.machine()}, jax {jax.__version__}")
    print("candidates x trials | library M/s (best)  compile s | textbook M/s (best)  compile s | ratio", flush=True)
    for size in arguments.sizes.split(","):
        members, trials = map(int, size.split("x"))
        ours = program(library_trial, members, trials, compiler_options())
        few = max(1, min(trials, MOST_TEXTBOOK_TRIALS // members))
        theirs = program(textbook_trial, members, few, None)
        times: dict[int, list[float]] = {0: [], 1: []}  # microseconds per meta-step
        for _ in range(arguments.repeats + 1):  # the first, not counted, warms up
            for which, (compiled, inputs, _seconds) in enumerate((ours, theirs)):
                started = time.perf_counter()
                jax.block_until_ready(compiled(*inputs))
                seconds = time.perf_counter() - started
                times[which].append(seconds / (members * (few if which else trials) * META_STEPS) * 1e6)
        a, b = times[0][1:], times[1][1:]
        ratio = statistics.median(y / x for x, y in zip(a, b, strict=True))
        print(
            f"{size:>19} | {1 / statistics.median(a):8.2f} ({1 / min(a):6.2f})  {ours[2]:9.1f} "
            f"| {1 / statistics.median(b):9.2f} ({1 / min(b):6.2f})  {theirs[2]:9.1f} | {ratio:5.1f}",
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
