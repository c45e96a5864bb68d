"""The scale of Shaping Bench: 0 and 1 of every game and opponent, written to marl/bench/references.json.

0 is the opponent's own kind in the place of a method. 1 is the highest payoff that is known: of an ascent through the
opponent's learning, in hindsight, where it is differentiable, and of the results that are given here. Their scores are
written again.

    python -m benchmarks.learning.bench_references [--track sampled] [RESULT.json ...]
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import InfinitelyRepeated
from marl.bench import sampled
from marl.bench.exact import own_kind, play_forms
from marl.bench.protocol import (
    DISCOUNT,
    FORMS,
    META_STEPS,
    OPPONENTS,
    SAMPLING,
    TRAINED,
    TRAININGS,
    VERSION,
    Games,
    all_games,
    games_of,
    make_opponent,
    tasks,
)
from marl.bench.scores import summary_of
from marl.bench.tracks import TRACKS, references, track_of
from marl.experiments.bound import known_bound
from marl.experiments.trajectory_ascent import make_starts, play_sequence
from meta.loop import compiler_options
from meta.xla.scalar_replacement import scalarize

STATES, ITERATIONS, LEARNING_RATE = 8, 150, 0.1
STARTS = 12  # those of the white-box bound: policies with noise, a plan, and the best of random shapers
COPIES = 8  # of the trials of 0
FILE = Path(__file__).parents[2] / "marl" / "bench" / "references.json"


def ascend(opponent: str, games: Games, key: jax.Array) -> np.ndarray:
    """The best payoff of a sequence of policies in each game, mean over initial states, `[K]`."""
    keys = jax.random.split(key, STATES)
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, ITERATIONS))

    def loss(sequence: jax.Array, key: jax.Array, own: Games) -> jax.Array:
        return -play_sequence(key, own.game, make_opponent(opponent, own), sequence)[0]

    gradient = jax.vmap(jax.vmap(scalarize(jax.value_and_grad(loss)), (0, 0, None)), (0, None, None))

    def of_a_game(own: Games) -> jax.Array:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            sequences, state, best = carry
            losses, gradients = gradient(sequences, keys, own)
            best = jnp.minimum(best, jnp.nan_to_num(losses, nan=jnp.inf))
            clipped = jax.tree.map(lambda g: jnp.clip(jnp.nan_to_num(g, posinf=0, neginf=0), -1, 1), gradients)
            updates, state = optimiser.update(clipped, state)
            return (optax.apply_updates(sequences, updates), state, best), None

        shape = (STARTS, STATES, META_STEPS, 5)
        sequences = make_starts(key, own.game, make_opponent(opponent, own), shape, inside=True)
        nothing = jnp.full(sequences.shape[:2], jnp.inf)
        best = jax.lax.scan(step, (sequences, optimiser.init(sequences), nothing), None, ITERATIONS)[0][2]
        return -best.min(0).mean()

    return np.asarray(jax.jit(partial(jax.lax.map, of_a_game), compiler_options=compiler_options())(games))


def measure() -> dict[str, dict[str, Any]]:
    """0 of every game and opponent, and 1 where it is found by an ascent."""
    named = all_games()
    games, found = games_of([*named.values()]), dict[str, dict[str, Any]]()
    for number, opponent in enumerate(OPPONENTS):
        started = time.perf_counter()
        keys = jax.random.split(jax.random.fold_in(jax.random.key(2**31), number), (COPIES, len(named)))
        zero = np.mean([play_forms(own_kind(opponent), opponent, games, some) for some in keys], 0)
        one = zero[0, 0] if opponent in SAMPLING else ascend(opponent, games, jax.random.fold_in(keys[0, 0], 1))
        for i, game in enumerate(named):
            if opponent == "mmaml" and game not in tasks("mmaml"):
                continue
            found.setdefault(game, {})[opponent] = {
                "zero": {form: zero[j, :, i].round(5).tolist() for j, form in enumerate(FORMS)},
                "one": round(float(one[i]), 5),
                "source": "the opponent's own kind" if opponent in SAMPLING else "ascent through the learning",
            }
        print(f"{opponent}: {time.perf_counter() - started:.0f} s", flush=True)
    return found


def raise_to_bounds(found: dict[str, dict[str, Any]]) -> None:
    """Lets 1 be the bound that comes with the library where that is higher."""
    for name, game in all_games().items():
        for opponent, row in found[name].items():
            known = known_bound(InfinitelyRepeated(game, DISCOUNT), opponent, META_STEPS)
            if known and known.bound > row["one"]:
                row |= {"one": round(known.bound, 5), "source": "python -m marl.bound"}


def measure_sampled(found: dict[str, dict[str, Any]]) -> None:
    """Measures the zeros that are missing; 1 begins at 0, and the room is three standard errors of a payoff."""
    for part in track_of("sampled").parts:
        (task,), opponent = part.tasks, part.opponent
        if opponent in found.get(task, {}):
            continue
        started = time.perf_counter()
        keys = jax.random.split(jax.random.fold_in(jax.random.key(2**31), zlib.crc32(part.name.encode())), 20)
        played = sampled.play_forms(sampled.own_kind(opponent), task, opponent, keys)
        zero = played.mean(-1).round(5).tolist()
        found.setdefault(task, {})[opponent] = {
            "zero": dict(zip(sampled.forms_of(task, opponent), zero, strict=True)),
            "room": round(3 * float(played[0, 0].std()) / TRAININGS**0.5, 5),
            "one": zero[0][0],
            "source": "the opponent's own kind",
        }
        print(f"{part.name}: {time.perf_counter() - started:.0f} s", found[task][opponent], flush=True)
        write("sampled", found)


def raise_to(found: dict[str, dict[str, Any]], result: dict[str, Any]) -> None:
    """Lets 1 be the mean payoff of a result where that is higher."""
    for task, row in result["tasks"].items():
        for opponent, one in row.items():
            by_game: dict[str, list[float]] = {}
            for i, x in enumerate(np.array(one["payoffs"][TRAINED][0], float)):
                game = task if result["track"] == "sampled" else tasks(training=result["seed"] + i)[task].name
                by_game.setdefault(game, []).append(x)
            for game, values in by_game.items():
                mean = float(np.mean(values))
                if np.isfinite(mean) and mean > found[game][opponent]["one"]:
                    found[game][opponent] |= {"one": round(mean, 5), "source": result["method"]}


def write(track: str, found: dict[str, dict[str, Any]]) -> None:
    """Puts the scale of a track into the file."""
    scales = json.loads(FILE.read_text())["tracks"] | {track: found}
    FILE.write_text(json.dumps({"version": VERSION, "tracks": scales}, indent=1) + "\n")
    references.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="*", help="results of the bench")
    parser.add_argument("--track", choices=TRACKS, default="exact")
    parser.add_argument("--again", action="store_true", help="measure 0 and the ascents again")
    options = parser.parse_args()
    found = {} if options.again else json.loads(FILE.read_text())["tracks"][options.track]
    if options.track == "sampled":
        measure_sampled(found)
    else:
        found = found or measure()
        raise_to_bounds(found)
    for file in options.results:
        if (track := json.loads(Path(file).read_text())["track"]) != options.track:
            parser.error(f"results: got {file}, of the {track} track; --track {track} is needed")
    for file in options.results:
        raise_to(found, json.loads(Path(file).read_text()))
    write(options.track, found)
    for file in options.results:  # on the new scale
        result = json.loads(Path(file).read_text())
        Path(file).write_text(json.dumps(result | {"scores": summary_of(result)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
