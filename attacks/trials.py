"""Whole lives of victims, as trials of `evolve`: from scratch to the end of their learning, with somebody talking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attacks.messages import Message
from games import Game
from games.wrappers.cheap_talk import CheapTalk
from marl.core.evaluate import evaluate
from marl.core.learn import Learner, learn
from meta import Outcome


class Schedule(NamedTuple):
    """How long a victim lives, and how it is judged."""

    num_updates: int
    steps_per_update: int
    num_envs: int
    num_episodes: int  # of the evaluation of what it has become
    num_steps: int  # of an episode at most


class Life(NamedTuple):
    """One victim, or more in leading axes."""

    final_return: jax.Array  # [], mean over fresh episodes of the final policy, without exploration
    explored_return: jax.Array  # [], the same with exploration, as it learned
    last_update: jax.Array  # [], the paper's metric: the last update's rewards over the episodes that ended, or NaN
    curve: jax.Array  # [num_updates], mean return of the episodes that ended in an update; NaN if none
    state: Any  # the victim in the end


def live(
    key: jax.Array,
    game: Game,
    message: Message,
    parameters: Any,
    make_victim: Callable[[Game], Learner],
    schedule: Schedule,
    *,
    size: int = 2,
) -> Life:
    """A victim's life in a game with cheap talk.

    Args:
      key: of the victim's weights, of its actions and of the game; not of the message.
      game: the bare game.
      message: what is said.
      parameters: of the message.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: how long it lives.
      size: entries of a message.
    """
    talk = CheapTalk(game, parameters, message.speak, size)
    return life_of(key, talk, make_victim(talk), schedule)


def life_of(key: jax.Array, game: Game, victim: Learner, schedule: Schedule) -> Life:
    """The life of a learner in a game of one player, whoever talks in it."""
    life_key, evaluation_key = jax.random.split(key)
    history = learn(
        life_key,
        game,
        [victim],
        num_updates=schedule.num_updates,
        steps_per_update=schedule.steps_per_update,
        num_envs=schedule.num_envs,
    )
    state = history.states[0]
    explored = final_return(evaluation_key, game, victim._replace(exploit=None), state, schedule)
    steps = schedule.steps_per_update * schedule.num_envs
    ended = history.ended[0][-1]
    last_update = jnp.where(ended > 0, steps * history.rewards[0][-1] / ended, jnp.nan)
    final = final_return(evaluation_key, game, victim, state, schedule)
    return Life(final, explored, last_update, history.returns[0], state)


def final_return(key: jax.Array, game: Game, learner: Learner, state: Any, schedule: Schedule) -> jax.Array:
    """Mean return of fresh episodes without exploration, `[]`."""
    episodes, steps, envs = schedule.num_episodes, schedule.num_steps, schedule.num_envs
    return evaluate(key, game, learner, state, num_episodes=episodes, num_steps=steps, num_envs=envs).mean()


def train_time_trial(
    game: Game,
    message: Message,
    make_victim: Callable[[Game], Learner],
    schedule: Schedule,
    *,
    help: bool = False,
    size: int = 2,
    over_training: bool = False,
) -> Callable[[Any, jax.Array], Outcome]:
    """The trial of an adversary, whose fitness is minus the victim's return, or of an ally.

    Args:
      game: the bare game.
      message: what is evolved.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: how long a victim lives, and how it is judged.
      help: whether a high return is good.
      size: entries of a message.
      over_training: judge by the mean return of the updates in which episodes ended, in place of the final policy's.
    """

    def trial(parameters: Any, key: jax.Array) -> Outcome:
        life = live(key, game, message, parameters, make_victim, schedule, size=size)
        victim_return = jnp.nanmean(life.curve) if over_training else life.final_return
        return Outcome(victim_return if help else -victim_return, {"victim_return": victim_return})

    return trial
