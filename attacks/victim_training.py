"""Whole training runs of victims under messages, as trials of `evolve`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attacks.messages import Message
from games import Game
from games.core.arguments import check_arguments
from games.core.modes import in_any_mode
from games.wrappers.cheap_talk import CheapTalk
from marl.core.evaluate import evaluate
from marl.core.learn import learn
from marl.core.learner import Learner
from meta import Outcome

MakeVictim = Callable[[Game], Learner]  # (game with cheap talk) -> learner


class TrainingSchedule(NamedTuple):
    """Length of a victim's training run, and of its evaluation.

    Attributes:
      num_updates: updates of a training run
      steps_per_update: steps between two updates
      num_envs: environments of the victim
      num_episodes: of the evaluation of what it has become
      num_steps: of an episode at most

    Example:
      >>> import attacks
      >>> lengths = {"num_updates": 32, "steps_per_update": 256, "num_envs": 4}
      >>> attacks.TrainingSchedule(**lengths, num_episodes=32, num_steps=200).steps  # of each environment
      8192
    """

    num_updates: int
    steps_per_update: int
    num_envs: int
    num_episodes: int
    num_steps: int

    @property
    def steps(self) -> int:
        """Steps of each environment in a training run."""
        return self.num_updates * self.steps_per_update


class VictimTraining(NamedTuple):
    """One victim, or more in leading axes.

    Attributes:
      final_return: [], mean over fresh episodes of the final policy, without exploration
      explored_return: [], the same with exploration, and with noise or dropout if it so learned
      muted_return: [], the same as the final one without the adversary's messages
      last_update: [], the paper's metric: the last update's rewards over the episodes that ended, or NaN
      curve: [num_updates], mean return of the episodes that ended in an update; NaN if none
      state: the victim's final state.
      talk: the game with messages, whose memory is that at the end of the training run.
    """

    final_return: jax.Array
    explored_return: jax.Array
    muted_return: jax.Array
    last_update: jax.Array
    curve: jax.Array
    state: Any
    talk: Game


# (key, game with talk, make_victim, schedule) -> training run
Defence = Callable[[jax.Array, CheapTalk, MakeVictim, TrainingSchedule], VictimTraining]


def undefended(key: jax.Array, talk: CheapTalk, make_victim: MakeVictim, schedule: TrainingSchedule) -> VictimTraining:
    """The victim as it is: `train_in` of the game with cheap talk.

    Args:
      key: as of `train_in`.
      talk: the game with cheap talk.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: as of `train_in`.
    """
    return train_in(key, talk, make_victim(talk), schedule)


@check_arguments
def train_victim(
    key: jax.Array,
    game: Game,
    message: Message,
    parameters: Any,
    make_victim: MakeVictim,
    schedule: TrainingSchedule,
    *,
    size: int = 2,
    defence: Defence = undefended,
) -> VictimTraining:
    """A victim's training run in a game with cheap talk.

    Args:
      key: of the victim's weights, of its actions and of the game; not of the message.
      game: the bare game.
      message: what is said.
      parameters: of the message.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: lengths of the training run and of the evaluation.
      size: entries of a message.
      defence: what the victim does against talk.

    Returns:
      `VictimTraining`.

    Raises:
      TypeError: for arguments of another type.
      ValueError: for a game of several players, or a message of another size or about other observations.
    """
    return defence(key, message.talk(game, parameters, size), make_victim, schedule)


@check_arguments
def train_in(key: jax.Array, game: Game, victim: Learner, schedule: TrainingSchedule) -> VictimTraining:
    """A training run of a learner in a game of one player, with or without cheap talk, and its evaluation.

    A message function with memory is evaluated from the memory of the first training environment.

    Args:
      key: of everything.
      game: with or without cheap talk.
      victim: the learner.
      schedule: lengths of the training run and of the evaluation.

    Returns:
      `VictimTraining`.
    """
    training_key, evaluation_key = jax.random.split(key)
    history = learn(
        training_key,
        game,
        [victim],
        num_updates=schedule.num_updates,
        steps_per_update=schedule.steps_per_update,
        num_envs=schedule.num_envs,
    )
    state = history.states[0]
    if isinstance(game, CheapTalk):
        game = game.going_on(jax.tree.map(lambda x: x[0], history.game_state))
    final, muted = spoken_and_muted(evaluation_key, game, victim, state, schedule)
    explored = final_return(evaluation_key, game, victim._replace(act_greedy=None), state, schedule)
    steps = schedule.steps_per_update * schedule.num_envs
    ended = history.ended[0][-1]
    last_update = jnp.where(ended > 0, steps * history.rewards[0][-1] / ended, jnp.nan)
    return VictimTraining(final, explored, muted, last_update, history.returns[0], state, game)


def spoken_and_muted(
    key: jax.Array, game: Game, learner: Learner, state: Any, schedule: TrainingSchedule
) -> tuple[jax.Array, jax.Array]:
    """The `final_return` under messages, and under messages of zeros; in a bare game the same twice."""
    if not isinstance(game, CheapTalk):
        return (final_return(key, game, learner, state, schedule),) * 2
    silent = dataclasses.replace(game, parameters=jax.tree.map(jnp.zeros_like, game.parameters))
    # Apart, so that a search, which does not ask for the second, does not pay for it.
    final, muted = (final_return(key, one, learner, state, schedule) for one in (game, silent))
    return final, muted


def final_return(key: jax.Array, game: Game, learner: Learner, state: Any, schedule: TrainingSchedule) -> jax.Array:
    """Mean return of fresh episodes without exploration, `[]`."""
    episodes, steps, envs = schedule.num_episodes, schedule.num_steps, schedule.num_envs
    return evaluate(key, game, learner, state, num_episodes=episodes, num_steps=steps, num_envs=envs).mean()


# Fitness of a victim's training run, `(training) -> []`: by the final policy on fresh episodes without exploration, by
# the mean of the updates in which episodes ended, of all or of the second half, or, as an option of the paper's code,
# by the last update alone.
FITNESS: dict[str, Callable[[VictimTraining], jax.Array]] = {
    "end": lambda training: training.final_return,
    "training": lambda training: jnp.nanmean(training.curve),
    "second_half": lambda training: jnp.nanmean(training.curve[training.curve.size // 2 :]),
    "last_update": lambda training: training.last_update,
}


@check_arguments
def train_time_trial(
    game: Game,
    message: Message,
    make_victim: MakeVictim,
    schedule: TrainingSchedule,
    *,
    help: bool = False,
    size: int = 2,
    fitness: str = "end",
    defence: Defence = undefended,
) -> Callable[[Any, jax.Array], Outcome]:
    """The trial of an adversary, whose fitness is minus the victim's return, or of an ally.

    Args:
      game: the bare game.
      message: what is evolved.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: lengths of a victim's training run and of its evaluation.
      help: whether a high return is good.
      size: entries of a message.
      fitness: what the victim's return is, one of `FITNESS`.
      defence: what the victims do against talk.

    Returns:
      `trial(parameters, key) -> Outcome`, with the metric `victim_return`.

    Raises:
      TypeError: for arguments of another type.
      ValueError: for a fitness that there is not.
    """
    if fitness not in FITNESS:
        raise ValueError(f"fitness: got {fitness!r}; one of {', '.join(FITNESS)} is needed")
    measure = FITNESS[fitness]

    def trial(parameters: Any, key: jax.Array) -> Outcome:
        training = train_victim(key, game, message, parameters, make_victim, schedule, size=size, defence=defence)
        victim_return = measure(training)
        return Outcome(victim_return if help else -victim_return, {"victim_return": victim_return})

    return in_any_mode(trial)
