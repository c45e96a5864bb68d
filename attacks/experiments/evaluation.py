"""The effect of messages on fresh victims: the same victims under every message, and the differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attacks.defences import learned_steps
from attacks.experiments.attack import Attack
from attacks.messages import SPEAKER, Message
from attacks.random_play import observations_of_play
from attacks.victim_training import Defence, MakeVictim, TrainingSchedule, undefended
from games import Game
from meta.batched_trials import TrialsProgram, compile_trials, run_trials, with_nan, without_nan
from meta.statistics import mean_and_error


class VictimTrainings(NamedTuple):
    """Results of a group of victims, in the order of their seeds."""

    final_returns: np.ndarray  # [victims], without exploration
    explored_returns: np.ndarray  # [victims], with it
    muted_returns: np.ndarray  # [victims], without it, and without messages
    last_updates: np.ndarray  # [victims], the metric of the paper's code; NaN where no episode ended
    curves: np.ndarray  # [victims, num_updates], NaN where no episode ended


def make_trainings(
    game: Game,
    message: Message,
    make_victim: MakeVictim,
    schedule: TrainingSchedule,
    *,
    size: int,
    num_trials: int,
    at_once: int = 16,
    defence: Defence = undefended,
) -> Callable[[jax.Array, Any], VictimTrainings]:
    """Victims that learn from scratch under messages, as one program for all parameters of these.

    Args:
      game: the bare game.
      message: what is said; `with_magnitude` makes random messages as large as the evolved one.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: of their training runs.
      size: entries of a message.
      num_trials: how many.
      at_once: of them on a core, whose caches should hold what they learn from; another device trains all that its
        memory holds.
      defence: what the victims do against talk.

    Returns:
      `(key, parameters) -> VictimTrainings`. The same key gives the same victims under every message. The parameters of
      the message are the same for all victims, or None for those of `message.init` with a key of each victim's own.
    """
    programs: dict[str, TrialsProgram] = {}

    def one(key: jax.Array, given: tuple[jax.Array, Any]) -> tuple[jax.Array, ...]:
        draws, parameters = given
        drawn = message.init(jax.random.fold_in(key, SPEAKER))
        own = jax.tree.map(lambda x, y: jnp.where(draws, x, y), drawn, parameters)
        training = defence(key, message.talk(game, own, size), make_victim, schedule)
        last, curve = without_nan((training.last_update, training.curve))
        return training.final_return, training.explored_return, training.muted_return, last, curve

    def run(key: jax.Array, parameters: Any) -> VictimTrainings:
        draws = np.bool_(parameters is None)
        if draws:  # each victim draws its own; of these the shapes alone count
            parameters = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(message.init, key))
        given = draws, jax.tree.map(jnp.asarray, parameters)
        if (shapes := str(jax.eval_shape(lambda: given))) not in programs:
            programs[shapes] = compile_trials(one, given, num_trials, at_once)
        *returns, last, curve = run_trials(programs[shapes], jax.random.split(key, num_trials), given)
        return VictimTrainings(*returns, *with_nan((last, curve)))

    return run


def fresh_victims(
    attack: Attack, message: Message, num_trials: int, defence: Defence | None = None
) -> Callable[[jax.Array, Any], VictimTrainings]:
    """The program of `make_trainings` for the victims of an attack, under a message of `controlled`."""
    return make_trainings(
        attack.game,
        message,
        attack.make_victim,
        attack.schedule,
        size=attack.config.message_size,
        num_trials=num_trials,
        at_once=attack.config.at_once,
        defence=defence or attack.defence,
    )


def play_adversary(attack: Attack, parameters: Any, num_trials: int, key: jax.Array) -> dict[str, np.ndarray]:
    """Final returns `[num_trials]` of the same fresh victims under `evolved`, `silent` and `random` messages."""
    steps = learned_steps(attack.schedule, attack.config.defence)
    spoken, speakers = controlled(attack.message, parameters, observations_of_play(attack.game), steps)
    train = fresh_victims(attack, spoken, num_trials)
    return {name: train(key, own).final_returns for name, own in speakers.items()}


def controlled(
    message: Message, parameters: Any, observations: np.ndarray, steps: int
) -> tuple[Message, dict[str, Any]]:
    """(message, parameters of `evolved`, `silent` and `random`): what was evolved beside its controls.

    Random messages are of the same kind and, in random play, as large; each victim hears another one. A message with a
    memory is as large over the `steps` that a victim learns from. Observations `[number, *obs_shape]` are of random
    play.
    """
    if message.remember is not None:
        observations = np.resize(observations, (steps, *observations.shape[1:]))
    seen = jnp.asarray(observations)
    spoken = with_magnitude(message, seen, magnitude(message, parameters, seen))
    evolved = parameters, np.float32(1)
    return spoken, {"evolved": evolved, "silent": silence(evolved), "random": None}


def magnitude(message: Message, parameters: Any, observations: jax.Array) -> jax.Array:
    """The root mean square of what is said about observations `[number, *obs_shape]`, over all entries, `[]`.

    A message with a memory sees them one after the other.
    """
    if message.remember is None:
        said = jax.vmap(message.speak, (None, 0))(parameters, observations)
    else:
        said = hear(message, parameters, message.memory, observations)[1]
    return jnp.sqrt((said**2).mean())


def hear(message: Message, parameters: Any, memory: Any, observations: jax.Array) -> tuple[Any, jax.Array]:
    """(memory, what is said `[number, size]`) by a message with a memory, about observations one after the other."""
    assert message.remember is not None
    remember = message.remember

    def step(memory: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
        memory = remember(parameters, memory, obs)
        return memory, message.speak(parameters, obs, memory)

    return jax.lax.scan(step, memory, observations)


def with_magnitude(message: Message, observations: jax.Array, volume: jax.Array) -> Message:
    """A message whose random parameters speak with this magnitude, so that their effect is no matter of size.

    Its parameters are (those of `message`, a factor of what it says); those that were evolved have the factor 1.

    Args:
      message: of any kind. It may pass its scale when it is made larger.
      observations: what `magnitude` is measured on, `[number, *obs_shape]`.
      volume: the root mean square of what random parameters say about these.
    """

    def init(key: jax.Array) -> tuple[Any, jax.Array]:
        parameters = message.init(key)
        own = magnitude(message, parameters, observations)
        return parameters, jnp.where(own > 0, volume / jnp.where(own > 0, own, 1.0), 0.0)

    def speak(parameters: Any, obs: jax.Array, *memory: Any) -> jax.Array:
        return parameters[1] * message.speak(parameters[0], obs, *memory)

    remember = message.remember
    if remember is None:
        return Message(init, speak)
    return Message(init, speak, lambda parameters, *seen: remember(parameters[0], *seen), message.memory)


def silence(parameters: Any) -> Any:
    """The parameters by which every message function says nothing but zeros."""
    return jax.tree.map(np.zeros_like, parameters)


def compare(groups: dict[str, VictimTrainings]) -> dict[str, Any]:
    """Statistics of groups of the same victims, with the differences from the silent and the random group, by victim.

    That is of the final returns. There is the same of what `MEASURES` names: `explored_return` with exploration,
    `muted_return` in silence afterwards, `last_update` by the metric of the paper's code, `training_return` of the
    mean over the whole training. `last_update` is over the `num_trials` in which episodes ended under every
    message. It is NaN if these are fewer than half, because victims whose episodes never end are the best ones.
    """
    result = _compare({name: trainings.final_returns for name, trainings in groups.items()})
    for title, measure in MEASURES.items():
        returns = {name: measure(trainings) for name, trainings in groups.items()}
        if title == "last_update":
            ended = np.logical_and.reduce([np.isfinite(values) for values in returns.values()])
            few = ended.sum() < max(2, len(ended) / 2)
            returns = {name: np.where(few, np.nan, values[ended | few]) for name, values in returns.items()}
            result[title] = _compare(returns) | {"num_trials": int(ended.sum())}
        else:
            result[title] = _compare(returns)
    return result


def over_training(trainings: VictimTrainings) -> np.ndarray:
    """The mean return of the updates in which episodes ended, `[victims]`; NaN where none did."""
    known = np.isfinite(trainings.curves)
    number = known.sum(1)
    return np.where(number, np.where(known, trainings.curves, 0.0).sum(1) / np.maximum(number, 1), np.nan)


MEASURES: dict[str, Callable[[VictimTrainings], np.ndarray]] = {
    "explored_return": lambda trainings: trainings.explored_returns,
    "muted_return": lambda trainings: trainings.muted_returns,
    "last_update": lambda trainings: trainings.last_updates,
    "training_return": over_training,
}


def _compare(returns: dict[str, np.ndarray]) -> dict[str, Any]:
    result: dict[str, Any] = {name: mean_and_error(values) for name, values in returns.items()}
    for name, values in returns.items():
        for other in ("silent", "random"):
            if other in returns and name not in ("silent", other):
                result[name][f"difference_from_{other}"] = mean_and_error(values - returns[other])
    return result
