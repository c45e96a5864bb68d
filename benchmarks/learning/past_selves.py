"""The value of past selves: trainings with and without them play each other, and a new learner is trained to beat both.

    python -m benchmarks.learning.past_selves --latest RUN RUN ... --past RUN RUN ... [--updates 500] [--seed 0]

RUN is a directory of `python -m marl.distributed openai_five_self_play --past-selves SHARE --seed N`, with a share of 0
behind --latest and a larger one behind --past. All final policies play each other, themselves too, for one episode in
1,024 environments; then PPO with the settings of the trainings learns beside each of them, which stay as they are.
Returns are of an episode, ± the standard error between trainings, of both kinds where these are two.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from games.registry import make_game
from marl import Learner, learn, make_learner
from marl.core.learner import keep_state
from marl.distributed.config import annealed
from marl.distributed.experiment import LEARNER_FILE
from marl.experiments.reproduce.coin_game import between
from meta.runs import array_files
from meta.statistics import mean_and_error

ENVS = 1024


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latest", nargs="+", type=Path, required=True)
    parser.add_argument("--past", nargs="+", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    runs = [*options.latest, *options.past]
    config = array_files.load_arrays(runs[0] / LEARNER_FILE)[1]["config"]
    game = make_game(config["environment"])
    learner = make_learner(annealed(config["learner"]), game, num_updates=options.updates)
    first = jax.eval_shape(lambda key: learner.policy(learner.init(key)), jax.random.key(0))
    policies = [array_files.as_tree(_own(run), first, str(run)) for run in runs]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *policies)
    length, keys = int(game.episode_length), jax.random.split(jax.random.key(options.seed), 2)

    def fixed(policy: Any) -> Learner:
        return learner._replace(init=lambda key: policy, policy=lambda state: state, update=keep_state, seat=None)

    def play_pair(key: jax.Array, own: Any, other: Any) -> jax.Array:
        found = learn(key, game, [fixed(own), fixed(other)], num_updates=1, steps_per_update=length, num_envs=ENVS)
        return length * found.rewards[0][0]

    def beat(key: jax.Array, other: Any) -> jax.Array:
        settings = {"num_updates": options.updates, "steps_per_update": length, "num_envs": config["num_envs"]}
        return (
            length * learn(key, game, [learner, fixed(other)], **settings).rewards[0][-options.updates // 10 :].mean()
        )

    rows, columns = (x.ravel() for x in np.indices((len(runs), len(runs))))
    at = [jax.tree.map(lambda x, numbers=numbers: x[numbers], stacked) for numbers in (rows, columns)]
    returns = np.asarray(jax.jit(jax.vmap(play_pair))(jax.random.split(keys[0], len(rows)), *at), np.float64)
    returns = returns.reshape(len(runs), len(runs))
    beaten = np.asarray(jax.jit(jax.vmap(beat))(jax.random.split(keys[1], len(runs)), stacked), np.float64)
    latest, past = slice(0, len(options.latest)), slice(len(options.latest), None)
    table = Table("row's return", "latest alone", "with past selves", "itself", "a new learner's beside it")
    for name, own in {"latest alone": latest, "with past selves": past}.items():
        cells = [between(returns[own, other], same=own == other) for other in (latest, past)]
        cells += [mean_and_error(np.diag(returns)[own]), mean_and_error(beaten[own])]
        table.add_row(name, *(f"{cell['mean']:.2f} ± {cell['standard_error'] or 0.0:.2f}" for cell in cells))
    Console().print(table)
    for run, meetings, new in zip(runs, returns, beaten, strict=True):
        print(run, np.round(meetings, 2), round(float(new), 2))


def _own(run: Path) -> dict[str, np.ndarray]:
    arrays, _ = array_files.load_arrays(run / LEARNER_FILE)
    return {name.removeprefix("0."): x for name, x in arrays.items() if name.startswith("0.")}


if __name__ == "__main__":
    main()
