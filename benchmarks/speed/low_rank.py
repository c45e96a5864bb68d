"""Seconds and memory of a generation with noise of low rank, beside full noise.

The recurrent shaper plays the sampled prisoner's dilemma against a table that learns, with 64 to 512 hidden units:
64 candidates, 2 trials of 4 learning steps, 10 rounds before each, in 4 environments.

    python -m benchmarks.speed.low_rank [--units 64 256 512] [--population 64] [--chunk-size 0] [--repeats 3]

Whole evolutions of a few generations run in turn. Memory is what the compiled program of these needs beside arguments
and results, as XLA says; with `--compile-only` nothing runs, and the number of candidates is bounded by nothing.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

import games
import marl
from benchmarks.timing import in_turn, machine
from meta import Evolution, evolve
from meta.evaluators import Evaluator, on_devices
from meta.loop import Call, Step, compiler_options, several
from meta.xla.devices import use_all_cores

GENERATIONS = 4
NOISES = ("full", "low_rank")


class Compiled(Exception):
    """Ends an evolution when its program is compiled."""

    def __init__(self, program: Any):
        super().__init__()
        self.program = program


def _compile(step: Step, name: str, state: Any, key: jax.Array, advice: str) -> Call:
    program = jax.jit(partial(several, step, name), compiler_options=compiler_options())
    raise Compiled(program.lower(state, key, jax.numpy.int32(0), jax.numpy.int32(0)).compile())


def search(units: int, noise: str, options: argparse.Namespace) -> Callable[..., Any]:
    """The evolution of a shaper with so many hidden units."""
    game = games.make("ipd")
    shaper = marl.make_shaper(f"shaper(hidden_units={units})", game)
    lengths = {"meta_steps": 4, "episode_length": 10, "num_envs": 4}
    trial = marl.shaping_trial(game, shaper, marl.make_learner("tabular_ppo", game, seat=1), **lengths)
    evolution = Evolution(
        noise=noise, population_size=options.population, chunk_size=options.chunk_size, generations=GENERATIONS
    )
    return partial(evolve, trial, shaper.init, jax.random.key(0), evolution, num_trials=options.trials)


def parameters(units: int) -> int:
    """Their number: of the layer before the unit, of the unit, and of both heads."""
    return 6 * units**2 + 13 * units + 3


def memory(call: Callable[..., Any]) -> int:
    """Temporary bytes of the program."""
    try:
        call(evaluator=Evaluator(on_devices().evaluate, run=_compile))
    except Compiled as found:
        return int(found.program.memory_analysis().temp_size_in_bytes)
    raise AssertionError("no program was compiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--chunk-size", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    use_all_cores()
    print(machine())
    print("units | parameters | noise    | s a generation | full / this | MB temporary | full / this | compile s")
    for units in options.units:
        calls = {noise: search(units, noise, options) for noise in NOISES}
        sizes = {noise: memory(call) / 1e6 for noise, call in calls.items()}
        runs = in_turn(calls, 0 if options.compile_only else options.repeats)
        times = {noise: [one.seconds_to_run / GENERATIONS for one in found] for noise, found in runs.items()}
        for noise in NOISES:
            ratios = [a / b for a, b in zip(times["full"], times[noise], strict=True)] or [float("nan")]
            compiled = min((one.seconds_to_compile for one in runs[noise]), default=float("nan"))
            print(
                f"{units:5} | {parameters(units):10} | {noise:8} | {statistics.median(times[noise] or ratios):14.3f} | "
                f"{statistics.median(ratios):11.2f} | {sizes[noise]:12.0f} | {sizes['full'] / sizes[noise]:11.2f} | "
                f"{compiled:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
