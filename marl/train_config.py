"""The config of `python -m marl.train`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from games import Game
from games.cheap_talk import observation_shape
from marl.deep_learners import make_learner
from marl.learn import Learner, learning
from marl.specs import first_line, make_game

LONGEST_EPISODE = 1000  # that is evaluated, where a game does not say when it ends


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """A learner trained alone, in a game of one player."""

    game: str = "CartPole-v1"
    """A game of one player by its name, with parameters in brackets: "CartPole-v1(max_steps_in_episode=200)"."""
    learner: str = "ppo"
    """ppo, a2c or dqn, with settings in brackets: "ppo(learning_rate=0.001, hidden=[32, 32])"."""
    total_steps: int = 500_000
    """Environment steps of each seed; what is left over after the last whole update is not taken."""
    num_envs: int = 4
    """Environments that it plays at once."""
    steps_per_update: int = 128
    """Steps of each environment between two updates."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    seeds: int = 1
    """Independent runs in one program, with the seeds seed, seed + 1, ...; fastest where the cores divide them."""
    evaluation_episodes: int = 128
    """Fresh episodes of each seed in the end, without exploration."""
    checkpoint_seconds: float = 15.0
    """Save when the last checkpoint is this old; 0 saves as often as possible."""

    def __post_init__(self) -> None:
        for name in ("total_steps", "num_envs", "steps_per_update", "seeds", "evaluation_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}; a whole number of at least 1 is needed")
        if not 0 <= self.seed <= 2**32 - self.seeds:
            raise ValueError(f"seed: got {self.seed}; a whole number from 0 to 2**32 - seeds is needed")
        if not self.checkpoint_seconds >= 0:
            raise ValueError(f"checkpoint_seconds: got {self.checkpoint_seconds}; a number of at least 0 is needed")
        if not self.num_updates:
            raise ValueError(
                f"total_steps: got {self.total_steps}; at least num_envs times steps_per_update, "
                f"{self.steps_of_an_update}, is needed"
            )
        self.make_program()

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
        """How often it learns."""
        return self.total_steps // self.steps_of_an_update

    def make_program(self) -> Program:
        """What is played and how it is learned."""
        return _program(self.game, self.learner, self.num_envs, self.steps_per_update, self.num_updates)


class Program(NamedTuple):
    """A learner in its game."""

    game: Game
    learner: Learner
    begin: Callable[..., Any]  # as of `learning`
    update: Callable[..., Any]
    longest_episode: int  # in steps


@functools.lru_cache(maxsize=2)  # of what was traced once as a check; a run uses it
def _program(game_spec: str, spec: str, num_envs: int, steps_per_update: int, num_updates: int) -> Program:
    try:
        game = make_game(game_spec)
        if game.num_agents != 1:
            raise ValueError(f"game: got {game_spec!r}, of {game.num_agents} players; a game of one player is needed")
        observation_shape(game)
    except (NotImplementedError, RuntimeError) as error:  # an unknown space; data that cannot be downloaded
        raise ValueError(f"game: got {game_spec!r}; {first_line(error)}") from None
    learner = make_learner(spec, game, num_envs=num_envs, num_updates=num_updates)
    begin, update = learning(game, [learner], steps_per_update=steps_per_update, num_envs=num_envs)
    update = jax.jit(update)  # what is traced here need not be traced again
    try:
        carry, key = jax.eval_shape(begin, jax.random.key(0))
        jax.eval_shape(update, carry, key)
    except ValueError as error:
        raise ValueError(f"learner: {spec}: {first_line(error)}") from None
    limit = getattr(game, "episode_length", getattr(getattr(game, "params", None), "max_steps_in_episode", None))
    return Program(game, learner, begin, update, int(LONGEST_EPISODE if limit is None else limit))
