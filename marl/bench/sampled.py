"""The sampled track, version 0: games that are played step by step, opponents that learn there, and fresh trials.

Nothing of the protocol changes without a new version, because results of one version are compared with each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs.specs import change, read
from games import Game
from games.registry import make_game
from marl.bench.methods import Method, Trained
from marl.bench.protocol import FASTER, LONGER, RATES, SLOWER, TRAINED, WIDER, Budget, Payoffs
from marl.core.learn import learn
from marl.core.learner import Learner
from marl.learners.registry import make_learner
from meta.loop import Report, Store, compiler_options
from meta.run_keys import RunBranch

TRIALS = 16  # fresh ones of each training against each form of each opponent
APART = 0.5  # of what is between 0 and 1: chance parts the trials of two processors
GRIDS = ("ipd_in_the_matrix", "harvest")  # games whose steps and programs are slow
TABLES = ("tabular_ppo", "lola_dice")  # learners without a network, which has no other width
WIDTHS = {TRAINED: 16, WIDER: 32}  # units of the hidden layer

_HARVEST = (
    "harvest(num_agents=3, layout=['.A...A.', 'AAA.AAA', '.A...A.', 'P..P..P'], view_size=5, episode_length=32, "
    "regrowth=[0, 0.02, 0.05, 0.1])"
)


class SampledTask(NamedTuple):
    """A game of the track.

    Attributes:
      environment: the spec of the game.
      meta_steps: learning steps of the opponents in a trial.
      episode_length: steps of the game before each of them, which are an episode.
      num_envs: environments in which they learn at once.
      opponents: specs of learners by name.
      heavy: whether steps are so slow that budgets are smaller.
    """

    environment: str
    meta_steps: int
    episode_length: int
    num_envs: int
    opponents: dict[str, str]
    heavy: bool

    @property
    def game(self) -> Game:
        """The game itself, in whose first seat the method is."""
        return make_game(self.environment)


def _networks(learning_rate: float, discount: float) -> dict[str, str]:
    """Learners with a network, in few updates: larger steps than by default, and one layer."""
    own = f"hidden=[{WIDTHS[TRAINED]}], learning_rate={learning_rate}, discount={discount}"
    return {
        "ppo": f"ppo({own}, epochs=4, minibatches=1)",
        "a2c": f"a2c({own}, normalize_advantages=True)",
        "advantage_alignment": f"advantage_alignment({own})",
    }


_TABLE = {"tabular_ppo": "tabular_ppo(learning_rate=0.1)"}
_ROUNDS, _IMAGES = _networks(0.03, 0.96), _networks(0.03, 0.9)
_GRIDS = {name: spec for name, spec in _IMAGES.items() if name != "a2c"}  # two opponents, because they are slow
TASKS = {
    "ipd": SampledTask(
        "ipd(episode_length=16)",
        40,
        16,
        4,
        _TABLE | _ROUNDS | {"lola_dice": "lola_dice(learning_rate=0.3, episodes=8)"},
        heavy=False,
    ),
    "three_player_ipd": SampledTask("three_player_ipd(episode_length=16)", 40, 16, 4, _TABLE | _ROUNDS, heavy=False),
    "coin_game": SampledTask(
        "coin_game(num_coins=2, stay=True, centered=True, episode_length=16)", 40, 16, 4, _IMAGES, heavy=True
    ),
    "ipd_in_the_matrix": SampledTask("ipd_in_the_matrix(episode_length=32)", 20, 32, 2, _GRIDS, heavy=True),
    "harvest": SampledTask(_HARVEST, 20, 32, 2, _GRIDS, heavy=True),
}
OPPONENTS = ("tabular_ppo", "ppo", "a2c", "lola_dice", "advantage_alignment")
_BUDGETS = {
    "small": ((25, 32, 1), (12, 32, 1)),
    "standard": ((200, 128, 1), (100, 64, 1)),
    "paper": ((500, 512, 2), (500, 256, 1)),
}
# Seconds of one core: of the fresh trials with the compilation, and of a trial of a training.
SECONDS = {
    "ipd": (30, 4e-3),
    "three_player_ipd": (30, 4e-3),
    "coin_game": (40, 8e-3),
    "ipd_in_the_matrix": (60, 16e-3),
    "harvest": (60, 16e-3),
}


def budget_of(size: str, task: str) -> Budget:
    """The budget of a training: a smaller one in games on a grid.

    Args:
      size: one of `SIZES`.
      task: one of `TASKS`.
    """
    one = TASKS[task]
    return Budget(size, *_BUDGETS[size][one.heavy], one.meta_steps, one.episode_length, one.num_envs)


def forms_of(task: str, opponent: str) -> tuple[str, ...]:
    """The forms of an opponent: a wider network where it has one, and where that is soon compiled.

    Args:
      task: one of `TASKS`.
      opponent: one of its opponents.
    """
    return (TRAINED, SLOWER, FASTER, LONGER, *(() if opponent in TABLES or task in GRIDS else (WIDER,)))


def make_opponents(task: str, opponent: str, first: int = 1, rate: Any = 1.0, form: str = TRAINED) -> list[Learner]:
    """Opponents of one kind in all seats from `first` on.

    Args:
      task: one of `TASKS`.
      opponent: one of its opponents.
      first: 1; or 0, where the opponent's own kind takes the place of a method.
      rate: times its learning rate; may be traced.
      form: the training's, or the one with a wider network.
    """
    game, spec = TASKS[task].game, TASKS[task].opponents[opponent]
    learning_rate = read("opponent", spec, spec)[1]["learning_rate"]
    wide = change(spec, hidden=[WIDTHS[form]]) if form == WIDER else spec
    seats = range(first, game.num_agents)
    return [make_learner(wide, game, seat, traced={"learning_rate": rate * learning_rate}) for seat in seats]


def root_key(seed: int, task: str, opponent: str) -> jax.Array:
    """The key of one training in one task.

    Args:
      seed: of the training.
      task: one of `TASKS`.
      opponent: one of its opponents.
    """
    return jax.random.fold_in(jax.random.key(seed), [*TASKS].index(task) * len(OPPONENTS) + OPPONENTS.index(opponent))


def play_track(
    method: Method,
    opponent: str,
    chosen: tuple[str, ...],
    budget: Budget,
    *,
    seed: int,
    seeds: int,
    store: Store | None = None,
    report: Report | None = None,
) -> Payoffs:
    """Trains a method in one game against one opponent, and plays fresh trials.

    Args:
      method: as of `make_method`.
      opponent: one of the task's opponents.
      chosen: the name of the task.
      budget: of each training.
      seed: of the first training.
      seeds: trainings.
      store: as of `evolve`.
      report: as of `evolve`.

    Returns:
      Payoffs `[1, trainings]`.
    """
    (task,) = chosen
    keys = jnp.stack([root_key(seed + i, task, opponent) for i in range(seeds)])
    forms = forms_of(task, opponent)
    found = np.full((len(forms), 2, seeds), np.nan)
    for trained in method.train(task, opponent, budget, keys, store, report):
        runs = np.asarray(trained.runs, int)
        found[..., runs] = play_forms(trained, task, opponent, keys[runs])
    return Payoffs(*({form: found[i, side][None] for i, form in enumerate(forms)} for side in range(2)))


def play_forms(trained: Trained, task: str, opponent: str, keys: jax.Array) -> np.ndarray:
    """Mean payoffs of the player and of its opponents in every form, `[forms, 2, K]`.

    One program plays all forms of one network: a trial of twice the length begins as a trial of the usual length.

    Args:
      trained: `K` trainings.
      task: one of `TASKS`.
      opponent: one of its opponents.
      keys: `[K]`.
    """
    one, game = TASKS[task], TASKS[task].game

    def over_runs(form: str, times: int) -> Any:
        def trial(parameters: Any, rate: jax.Array, key: jax.Array) -> jax.Array:
            players = [trained.learner(parameters, task), *make_opponents(task, opponent, rate=rate, form=form)]
            history = learn(
                key,
                game,
                players,
                num_updates=times * one.meta_steps,
                steps_per_update=one.episode_length,
                num_envs=one.num_envs,
            )
            own, *others = history.rewards
            steps = jnp.stack([own, jnp.stack(others).mean(0)])
            return jnp.stack([steps[:, : one.meta_steps].mean(1), steps.mean(1)])

        def run(parameters: Any, key: jax.Array, rate: jax.Array) -> jax.Array:
            keys = jax.random.split(jax.random.fold_in(key, RunBranch.EVALUATION), TRIALS)
            return jax.vmap(trial, (None, None, 0))(parameters, rate, keys).mean(0)

        # Less optimised: a program that runs for a second or two is not worth half a minute of compilation.
        options = compiler_options()
        return jax.jit(
            jax.vmap(run, (0, 0, None)), compiler_options=options and options | {"xla_backend_optimization_level": 1}
        )

    usual, parameters = over_runs(TRAINED, 2), trained.parameters
    played = {form: np.asarray(usual(parameters, keys, rate)) for form, rate in RATES.items()}
    by_form = {form: both[:, 0] for form, both in played.items()} | {LONGER: played[TRAINED][:, 1]}
    if WIDER in forms_of(task, opponent):
        by_form[WIDER] = np.asarray(over_runs(WIDER, 1)(parameters, keys, 1.0))[:, 0]
    return np.stack([by_form[form].T for form in forms_of(task, opponent)])


def own_kind(opponent: str) -> Trained:
    """The opponent's own kind in the place of a method: what scores 0.

    Args:
      opponent: one of `OPPONENTS`.
    """

    def learner(parameters: Any, task: str) -> Learner:
        del parameters
        return make_opponents(task, opponent, 0)[0]

    return Trained(learner, (), ())
