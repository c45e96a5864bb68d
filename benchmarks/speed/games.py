"""Steps per second of every game, in parallel, with random actions, and those of JaxMARL's games beside them.

A step is one step of one game for all of its agents, auto-reset included. Whatever is played, the work is the same:
`vmap(game.step)` inside `lax.scan`, a random action for every agent and a key for every game in every step, all of
them drawn in the timed program, the rewards summed up and the observations carried on, as a learner would need them.
Compile time is apart. Where jaxmarl is installed, its coin game and its InTheGrid are timed in turn with ours.

    python -m benchmarks.speed.games [--games coin_game,ipd] [--instances 1,4096,65536] [--seconds 1]
    python -m benchmarks.speed.games --social   # the social dilemmas beside SocialJax's, where its code is on the path
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import games
from benchmarks.speed import social
from benchmarks.timing import compiled, machine, ratio, seconds, seconds_in_turn
from games import MultiDiscrete, registry
from games.core import random_bits

RIVALS = {"coin_game": ("coin_game", {}), "ipd_in_the_matrix": ("storm_2p", {})}  # ours: JaxMARL's


class Program(NamedTuple):
    """A compiled program and how much it plays."""

    call: Callable[[], Any]  # with another key every time
    steps: int  # in one call, of all instances
    seconds_to_compile: float


def random_actions(words: jax.Array, spaces: Sequence[Any], keys: jax.Array) -> list[jax.Array]:
    """An action of every agent in every instance; integers from one word, `[instances]`, boxes from keys."""
    actions = []
    for space in spaces:
        if hasattr(space, "n"):
            action, words = random_bits.draw_integer(words, space.n)
        elif isinstance(space, MultiDiscrete):
            digits = []
            for n in space.nvec:
                digit, words = random_bits.draw_integer(words, n)
                digits.append(digit)
            action = jnp.stack(digits, -1)
        else:
            size = int(np.prod(space.shape))
            drawn = jax.vmap(lambda key, size=size: random_bits.array(key, size))(keys)
            low, high = (jnp.broadcast_to(jnp.asarray(b, jnp.float32), space.shape) for b in (space.low, space.high))
            action = low + (high - low) * random_bits.uniform(drawn).reshape(-1, *space.shape)
        actions.append(action)
    return actions


def build(game: Any, instances: int, length: int) -> Program:
    """The program that plays `length` steps of all instances; games of JaxMARL as well."""
    agents = list(game.agents)
    spaces = [game.action_space(agent) for agent in agents]

    def play(key: jax.Array) -> Any:
        reset_key, first_key, run_key = jax.random.split(key, 3)

        def step(carry: Any, keys: jax.Array) -> Any:
            _, state, returns, (words, step_keys) = carry
            actions = dict(zip(agents, random_actions(words, spaces, step_keys), strict=True))
            observations, state, rewards, _, _ = jax.vmap(game.step)(step_keys, state, actions)
            returns = [r + rewards[agent] for r, agent in zip(returns, agents, strict=True)]
            return (observations, state, returns, chance(keys)), None

        observations, state = jax.vmap(game.reset)(jax.random.split(reset_key, instances))
        first = chance(jax.random.split(first_key))
        carry = observations, state, [jnp.zeros(instances)] * len(agents), first
        return jax.lax.scan(step, carry, jax.random.split(run_key, (length, 2)))[0]

    def chance(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Words and keys `[instances]` of a step; carried into it, for XLA would draw them again in every kernel."""
        return random_bits.array(keys[0], instances), random_bits.split(keys[1], instances)

    program, seeds = compiled(play, jax.random.key(0)), itertools.count()
    call = lambda: program.executable(jax.random.key(next(seeds)))  # noqa: E731
    return Program(call, length * instances, program.seconds_to_compile)


def sized(game: Any, instances: int, wanted: float) -> Program:
    """A program that runs for about so many seconds."""
    length = max(16, 16_384 // instances)
    program = build(game, instances, length)
    taken = min(seconds(program.call) for _ in range(2))
    return build(game, instances, max(16, int(length * wanted / taken)))


def _beside_jaxmarl(name: str) -> dict[str, Any]:
    """A game of ours, and the one of JaxMARL that is played in turn with it, if there is one."""
    contenders = {name: games.make(name)}
    if name in RIVALS and importlib.util.find_spec("jaxmarl"):
        import jaxmarl

        rival, params = RIVALS[name]
        contenders[f"  JaxMARL's {rival}"] = jaxmarl.make(rival, **params)
    return contenders


def main() -> None:
    """Prints a table of speeds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--games", default="", help="names, comma-separated; all of ours without")
    parser.add_argument("--instances", default="", help="numbers of parallel games; 1,4096,65536 without")
    parser.add_argument("--social", action="store_true", help="beside SocialJax's, with 128 and 4,096 games")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long a timed call takes")
    options = parser.parse_args()
    if options.social and not social.is_at_hand():
        parser.exit(0, "SocialJax is not on the path: PYTHONPATH=path/to/SocialJax\n")
    default = "128,4096" if options.social else "1,4096,65536"
    instances = [int(n) for n in (options.instances or default).split(",")]
    pairs = {pair.ours: pair for pair in social.PAIRS}
    chosen = options.games.split(",") if options.games else [*pairs] if options.social else registry.ours()
    print(machine())
    print(f"million steps/s, median of 5 (best){'':9}" + "".join(f"{n:>22}" for n in instances) + "   compile s")
    for name in chosen:
        contenders = social.contenders(pairs[name]) if options.social else _beside_jaxmarl(name)
        rows: dict[str, list[str]] = {label: [] for label in contenders}
        compile_seconds = dict.fromkeys(contenders, 0.0)
        for n in instances:
            programs = {label: sized(game, n, options.seconds) for label, game in contenders.items()}
            times = seconds_in_turn({label: program.call for label, program in programs.items()}, 5)
            speeds = {label: [program.steps / x / 1e6 for x in times[label]] for label, program in programs.items()}
            for label, values in speeds.items():
                rows[label].append(f"{statistics.median(values):12.3f} ({max(values):7.3f})")
                compile_seconds[label] = programs[label].seconds_to_compile
            if len(speeds) == 2:
                rows[name][-1] += f" x{ratio(*speeds.values()):.1f}"
        for label, cells in rows.items():
            print(
                f"{label:44}" + "".join(f"{cell:>22}" for cell in cells) + f"{compile_seconds[label]:12.1f}", flush=True
            )


if __name__ == "__main__":
    main()
