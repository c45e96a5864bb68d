"""The cost of an objective with parameters: trainings of PPO as in `marl.train`, and with objectives, in turn.

Each is 64 trainings at once, the same with other keys, on all cores; the ratio, after a
run that is not timed, is that of environment steps per second, median over the turns.

    python -m benchmarks.speed.discovery [--repeats 3] [--environment CartPole-v1] [--steps 20480]
"""

from __future__ import annotations

import argparse
import statistics

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from benchmarks.timing import compiled, ratio, seconds_in_turn
from games.registry import make_game
from marl.experiments.discovery.trial import (
    Arena,
    Settings,
    discovery_trial,
    evolved,
    first_scales,
    known,
    plain,
    tuned,
)
from marl.learners.sampled.objective_registry import Form
from meta.xla.devices import spread, use_all_cores

CANDIDATES, AT_ONCE = 64, 16
SPEC = "ppo(learning_rate=0.001)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--environment", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=20_480)
    options = parser.parse_args()
    use_all_cores()
    arena = Arena(options.environment, make_game(options.environment), options.steps // 512, 128, 4)
    scales, key = first_scales("drift"), jax.random.key(0)
    forms = {f"drift, {n} units": Form("drift", "ppo", n) for n in (16, 128)}
    forms |= {"drift, 16 units, timed": Form("drift", "ppo", 16, timed=True)}
    forms |= {f"value's distance, {n} units": Form("value_loss", "l2", n) for n in (16, 64)}
    cases: dict[str, tuple[Settings, object]] = {
        "PPO": (plain, scales),
        "PPO, with scales": (tuned("drift", SPEC), scales),
    }
    cases["DPO"] = known("drift", SPEC)["dpo"], scales
    for name, form in forms.items():
        cases[name] = evolved(form, SPEC), scales | {"objective": form.network().init(key)}
    keys, programs = jax.random.split(key, CANDIDATES), {}
    for name, (settings, parameters) in cases.items():
        trial = discovery_trial([arena], SPEC, settings, [(0.0, 1.0)])
        # Each candidate has parameters of its own, as in a search.
        several = jax.tree.map(lambda x: jnp.broadcast_to(x, (CANDIDATES, *x.shape)), parameters)
        spread_out = spread(lambda p, k, trial=trial: trial(p, k).fitness, CANDIDATES, at_once=AT_ONCE)
        programs[name] = compiled(spread_out, several, keys)
    times = seconds_in_turn(programs, options.repeats)
    steps = CANDIDATES * arena.num_updates * 512
    table = Table("objective", "M steps/s", "of PPO's", "seconds to compile", title=f"{options.environment}, {SPEC}")
    for name, taken in times.items():
        speed, share = steps / statistics.median(taken) / 1e6, ratio(times["PPO"], taken)
        table.add_row(name, f"{speed:.3f}", f"{share:.2f}", f"{programs[name].seconds_to_compile:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
