"""The training of a learner: alone in a game of one player, or in all seats of a game of several."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import configs
from configs.specs import first_line
from games import Game
from games.registry import make_game
from games.wrappers.cheap_talk import observation_shape
from marl.core.learn import History, learning
from marl.core.learner import Learner
from marl.core.seats import shared
from marl.learners.registry import make_learner
from meta.loop import Iterated, Report, Store, iterate
from meta.run_keys import of_seeds
from meta.xla.devices import claim_cores, spread

SEEDS_IN_CACHE = 4  # that a core trains together: more of them leave its second-level cache, fewer are all dispatch
ENDED = "episodes_ended"  # metric of an update that the host drops
RETURN_OF = "return_of_seat_"
LONGEST_EPISODE = 1000  # that is evaluated, where a game does not say when it ends


@dataclasses.dataclass(frozen=True)
class TrainConfig(configs.CommandConfig):
    """A learner trained alone in a game of one player, or in all seats of a game of several."""

    environment: str = "CartPole-v1"
    """A game by its name, with parameters in brackets: "CartPole-v1(max_steps_in_episode=200)"."""
    learner: str = "ppo"
    """ppo, a2c, dqn or another learner of sampled games, with settings in brackets: "ppo(hidden=[32, 32])"."""
    share: bool = True
    """In a game of several players: one network for all of them, or one for each."""
    total_steps: int = 500_000
    """Environment steps of each seed; what is left over after the last whole update is not taken."""
    num_envs: int = 4
    """Environments that it plays at once."""
    steps_per_update: int = 128
    """Steps of each environment between two updates."""
    seed: int = 0
    """Seed of all draws of the run."""
    seeds: int = 1
    """Independent runs in one program, with the seeds seed, seed + 1, ...; fastest where the cores divide them."""
    evaluation_episodes: int = 128
    """Fresh episodes of each seed in the end, without exploration."""
    checkpoint_seconds: float = 15.0
    """Save when the last checkpoint is this old; 0 saves as often as possible."""

    def __post_init__(self) -> None:
        configs.check_least(self, num_envs=1, steps_per_update=1, seeds=1, evaluation_episodes=1)
        configs.check_product(self, "num_envs", "steps_per_update")
        configs.check_seed(self.seed, seeds=self.seeds)
        configs.check(self, "a number of at least 0", lambda x: 0 <= x <= configs.LARGEST, "checkpoint_seconds")
        if not 1 <= self.num_updates <= configs.MOST:
            most = "at least" if self.num_updates < 1 else f"at most {configs.MOST} times"
            raise ValueError(
                f"total_steps: got {configs.shown(self.total_steps)}; {most} num_envs times steps_per_update, "
                f"{self.steps_of_an_update}, is needed"
            )

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing."""
        alone = not self.share and make_game(self.environment).num_agents == 1
        return {"share": "in a game of one player"} if alone else {}

    @property
    def learner_name(self) -> str:
        """Without its settings."""
        return self.learner.partition("(")[0].strip()

    @property
    def steps_of_an_update(self) -> int:
        """Environment steps that a seed learns from in an update."""
        return self.num_envs * self.steps_per_update

    @property
    def num_updates(self) -> int:
        """Number of updates."""
        return self.total_steps // self.steps_of_an_update

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the training's length, and the fields that fall over it."""
        try:
            make_learner(self.learner, make_game(self.environment))
        except ValueError:  # it needs the number of its updates
            return {"total_steps": ["learner"]}
        return {"total_steps": []}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_episodes",)


class TrainingProgram(NamedTuple):
    """The learners of a game in their seats."""

    game: Game
    learners: tuple[Learner, ...]
    begin: Callable[..., Any]  # as of `learning`
    update: Callable[..., Any]
    longest_episode: int  # in steps
    carry: Any  # shapes of what goes on from update to update


def make_program(config: TrainConfig) -> TrainingProgram:
    """The game and the learners of a config, whose update is traced once.

    Raises:
      ValueError: if there is no such game, or if the learner does not fit it.
    """
    try:
        game = make_game(config.environment)
        observation_shape(game)
    except (NotImplementedError, RuntimeError) as error:  # an unknown space; data that cannot be downloaded
        raise ValueError(f"environment: got {config.environment!r}; {first_line(error)}") from None
    learners = _learners(config, game)
    begin, update = learning(game, learners, steps_per_update=config.steps_per_update, num_envs=config.num_envs)
    update = jax.jit(update)  # what is traced here need not be traced again
    try:
        carry, key = jax.eval_shape(begin, jax.random.key(0))
        jax.eval_shape(update, carry, key)
    except ValueError as error:
        raise ValueError(f"learner: {config.learner}: {first_line(error)}") from None
    return TrainingProgram(game, learners, begin, update, longest_episode(game), carry)


def program_with(config: TrainConfig, program: TrainingProgram, settings: Mapping[str, Any]) -> TrainingProgram:
    """The program of learners with other settings, which may be traced numbers."""
    if not settings:
        return program
    learners = _learners(config, program.game, settings)
    sizes = (config.steps_per_update, config.num_envs)
    begin, update = learning(program.game, learners, steps_per_update=sizes[0], num_envs=sizes[1])
    return program._replace(learners=learners, begin=begin, update=update)


def _learners(config: TrainConfig, game: Game, settings: Mapping[str, Any] | None = None) -> tuple[Learner, ...]:
    """One learner for all seats, or one for each."""
    share = config.share and game.num_agents > 1
    learners = tuple(
        make_learner(config.learner, game, seat, num_updates=config.num_updates, traced=settings)
        for seat in range(1 if share else game.num_agents)
    )
    try:
        return (shared(learners[0], game),) if share else learners
    except ValueError as error:
        raise ValueError(f"share: got True in {config.environment}; {first_line(error)}") from None


def longest_episode(game: Game) -> int:
    """Steps after which an episode is over, or counts as over where the game has no time limit."""
    limit = game.time_limit
    return int(LONGEST_EPISODE if limit is None else limit)


class Trained(NamedTuple):
    """The result of `train`. `S` is the number of seeds."""

    states: tuple[Any, ...]  # of the learners in the end, `[S, ...]` each
    returns: np.ndarray  # `[updates, S]`: mean return of the episodes that ended before an update, NaN if none
    loop: Iterated


def train(
    config: TrainConfig,
    program: TrainingProgram | None = None,
    *,
    store: Store | None = None,
    report: Report | None = None,
    keys: jax.Array | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Trained:
    """Trains the learners of a game, every seed in one program, spread over the local devices.

    What a seed learns is what `learn` with the key `jax.random.key(seed)` makes of it.

    Args:
      config: the training's settings.
      program: `make_program(config)`, if it is there already.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(updates so far, their last metrics, seconds of running)` by the host.
      keys: `[seeds]`, in place of those of the seeds of the config.
      settings: settings of the learner that differ between the seeds, `[seeds]` each.
    """
    program, seeds, own = program or make_program(config), config.seeds, dict(settings or {})
    keys = of_seeds(config.seed, seeds) if keys is None else keys

    def begin(key: jax.Array, own: dict[str, jax.Array]) -> Any:
        return program_with(config, program, own).begin(key)

    def update(
        key: jax.Array, number: jax.Array, carry: Any, own: dict[str, jax.Array]
    ) -> tuple[Any, dict[str, jax.Array]]:
        # `fold_in` makes the key with that number of `jax.random.split`.
        carry, found = program_with(config, program, own).update(carry, jax.random.fold_in(key, number))
        return carry, _metrics(found)

    update_all = spread(update, seeds, at_once=SEEDS_IN_CACHE)

    def step(keys: jax.Array, number: jax.Array, carry: Any) -> tuple[Any, dict[str, jax.Array]]:
        carry, metrics = update_all(keys, jnp.broadcast_to(number, (seeds,)), carry, own)
        return carry, metrics if seeds > 1 else jax.tree.map(lambda x: x[0], metrics)

    carry, keys = jax.jit(spread(begin, seeds))(keys, own)
    found = iterate(
        step,
        carry,
        keys,
        config.num_updates,
        store=store,
        report=report,
        checkpoint_seconds=config.checkpoint_seconds,
        name="update",
        process_metrics=_with_missing,
    )
    returns = found.metrics["training_return"].reshape(-1, seeds)
    return Trained(found.state.states, returns, found)


def _metrics(found: History) -> dict[str, jax.Array]:
    """Metrics of an update. Of several players return and reward are sums, and counts of the game are means."""
    returns, rewards = (jnp.sum(jnp.stack(x), 0) for x in (found.mean_returns, found.rewards))
    total = {"training_return": returns, ENDED: found.ended[0], "reward": rewards}
    if len(found.rewards) == 1:
        return {**total, **found.metrics[0]}
    each = {f"{RETURN_OF}{seat}": mean for seat, mean in enumerate(found.mean_returns)}
    counts = {name: count.mean() for name, count in found.infos.items()}
    several = len(found.metrics) > 1
    of_learners = {f"{k}_{i}" if several else k: x for i, own in enumerate(found.metrics) for k, x in own.items()}
    return {**total, **each, **counts, **of_learners}


def _with_missing(metrics: dict[str, np.ndarray], first: int) -> dict[str, np.ndarray]:
    """NaN as the return of no episode, which a program that `jax_debug_nans` watches may not give."""
    del first
    ended = metrics.pop(ENDED)
    returns = [name for name in metrics if name == "training_return" or name.startswith(RETURN_OF)]
    return metrics | {name: np.where(ended > 0, metrics[name], np.float32(np.nan)) for name in returns}


def choose_devices(config: TrainConfig) -> None:
    """One core for one seed; has to come before whatever makes JAX begin, as the names of games do."""
    claim_cores(config.seeds)


def config_of(first: str) -> TrainConfig:
    """The config from a preset, a file, or a game by its name; a preset comes before a game of its name."""
    presets = configs.presets("train")
    if first in presets or first.endswith((".yaml", ".yml")) or os.path.isfile(first):
        return configs.load(TrainConfig, "train", first)
    return configs.build(TrainConfig, {"environment": first}, "environment")
