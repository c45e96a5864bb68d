"""The cost of each opponent: meta-steps per second, time against the naive learner's, seconds to compile.

A meta-step is one policy of an M-FOS shaper, the payoffs of the exact prisoner's dilemma, and one learning step of the
opponent. Every opponent is timed in turn with the naive learner, so that the ratio holds on a noisy machine. With
--bound also the gradient of the white-box bound through the opponent's learning.

    python -m benchmarks.speed.opponents [--opponents naive,lola,...] [--size 256x8] [--repeats 5] [--bound]
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import jax

from benchmarks.timing import Compiled, compiled, machine, ratio, seconds, seconds_in_turn
from games import InfinitelyRepeated, prisoners_dilemma
from marl import make_learner, shaping_trial
from marl.experiments.trajectory_ascent import play_sequence
from marl.learners.registry import terms
from marl.shapers.exact_policies import mfos
from meta import scalarize

META_STEPS = 100
GAME = InfinitelyRepeated(prisoners_dilemma)
SHAPER = mfos()
OPPONENTS = "lookahead,lola,exact_lola,hola2,sos,sga,cgd,cola,pola,mmaml,best_response,q_learning,tabular_ppo,reinforce"
SAMPLERS = ("q_learning", "tabular_ppo", "reinforce")  # some thousand rounds of the game in each step
BOUND_SIZE = (4, 64)  # starts x states


def evolution_program(opponent: str, members: int, trials: int) -> Compiled:
    """The trials of a population, as `evolve` runs them."""
    several = len(terms(opponent)) > 1  # of a population only the learner that a trial draws is computed
    trial = shaping_trial(GAME, SHAPER, make_learner(opponent, GAME, 1, alone=several), meta_steps=META_STEPS)
    parameters = jax.vmap(SHAPER.init)(jax.random.split(jax.random.key(0), members))
    over_members = jax.vmap(trial, (0, None))
    if several:
        program: Any = lambda parameters, keys: jax.lax.map(lambda key: over_members(parameters, key), keys)  # noqa: E731
    else:
        program = jax.vmap(over_members, (None, 0))
    return compiled(program, parameters, jax.random.split(jax.random.key(1), trials))


def bound_program(opponent: str) -> Compiled:
    """The gradients of sequences of policies."""
    learner = make_learner(opponent, GAME, 1)
    gradient = scalarize(jax.value_and_grad(lambda sequence, key: play_sequence(key, GAME, learner, sequence)[0]))
    sequences = jax.random.normal(jax.random.key(0), (*BOUND_SIZE, META_STEPS, GAME.num_logits))
    batched = jax.vmap(jax.vmap(gradient), (0, None))
    return compiled(batched, sequences, jax.random.split(jax.random.key(1), BOUND_SIZE[1]))


def main() -> None:
    """Prints a table of costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--opponents", default=OPPONENTS, help="names, comma-separated")
    parser.add_argument("--size", default="256x8", help="candidates x trials")
    parser.add_argument("--repeats", type=int, default=5, help="timed pairs of runs; the median is printed")
    parser.add_argument("--bound", action="store_true", help="the gradient of the white-box bound as well")
    arguments = parser.parse_args()
    members, trials = map(int, arguments.size.split("x"))
    print(machine())
    print("opponent       | M meta-steps/s  x naive  compile s | bound: M steps/s  compile s", flush=True)
    naive = evolution_program("naive", members, trials)
    seconds(naive)  # warms up
    speed = _speed(members * trials, seconds(naive))
    print(f"{'naive':>14} | {speed:14.2f} {1:8.1f} {naive.seconds_to_compile:10.1f} |", flush=True)
    for name in terms(arguments.opponents, ","):
        few = (16, 4) if name in SAMPLERS else (members, trials)
        theirs = evolution_program(name, *few)
        of_naive, taken = seconds_in_turn({"naive": naive, "theirs": theirs}, arguments.repeats).values()
        steps = few[0] * few[1]
        slower = ratio(taken, of_naive) * members * trials / steps
        speed = _speed(steps, statistics.median(taken))
        line = f"{name:>14} | {speed:14.3f} {slower:8.1f} {theirs.seconds_to_compile:10.1f} |"
        if arguments.bound and name not in (*SAMPLERS, "best_response"):
            program = bound_program(name)
            seconds(program)  # warms up
            speed = _speed(BOUND_SIZE[0] * BOUND_SIZE[1], seconds(program))
            line += f" {speed:20.2f} {program.seconds_to_compile:10.1f}"
        print(line, flush=True)


def _speed(trials: int, elapsed: float) -> float:
    return trials * META_STEPS / elapsed / 1e6


if __name__ == "__main__":
    main()
