"""What talk does to fresh victims: the same victims under every message, and the paired differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attacks.defences import Defence, MakeVictim, undefended
from attacks.messages import Message
from attacks.trials import Schedule
from games import Game
from games.wrappers.cheap_talk import CheapTalk
from meta.devices import spread
from meta.loop import compiler_options
from meta.runs.keys import SPEAKER
from meta.runs.statistics import mean_and_error

AT_ONCE = 32  # victims on a device: what they learn from stays near the processor


class Lives(NamedTuple):
    """What became of a group of victims, in the order of their seeds."""

    final_returns: np.ndarray  # [victims], without exploration
    curves: np.ndarray  # [victims, num_updates], NaN where no episode ended


def make_lives(
    game: Game,
    message: Message,
    make_victim: MakeVictim,
    schedule: Schedule,
    *,
    size: int,
    num_victims: int,
    defence: Defence = undefended,
) -> Callable[[jax.Array, Any], Lives]:
    """Victims that learn from scratch while somebody talks, as one program for every speaker.

    Args:
      game: the bare game.
      message: how one talks.
      make_victim: `(game with cheap talk) -> learner`.
      schedule: how long they live, and how they are judged.
      size: entries of a message.
      num_victims: how many.
      defence: what the victims do against talk.

    Returns:
      `(key, parameters) -> Lives`. The same key gives the same victims, whoever talks. The parameters of the message
      are the same for all victims, or None for those of `message.init` with a key of each victim's own.
    """
    devices = len(jax.local_devices())
    chunk = devices * min(AT_ONCE, -(-num_victims // devices))

    def one(key: jax.Array, parameters: Any) -> tuple[jax.Array, jax.Array]:
        life = defence(key, CheapTalk(game, parameters, message.speak, size), make_victim, schedule, size)
        return life.final_return, life.curve

    program = jax.jit(spread(one, chunk), compiler_options=compiler_options())

    def run(key: jax.Array, parameters: Any) -> Lives:
        keys = jax.random.split(key, -(-num_victims // chunk) * chunk)
        if parameters is None:
            words = jax.vmap(lambda key: message.init(jax.random.fold_in(key, SPEAKER)))(keys)
        else:
            words = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *x.shape)), parameters)
        groups = jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), (keys, words))
        parts = [program(*jax.tree.map(lambda x, i=i: x[i], groups)) for i in range(len(keys) // chunk)]
        returns, curves = (np.concatenate(x)[:num_victims] for x in zip(*parts, strict=True))
        return Lives(returns, curves)

    return run


def silence(parameters: Any) -> Any:
    """The parameters by which every message function says nothing but zeros."""
    return jax.tree.map(np.zeros_like, parameters)


def compare(groups: dict[str, Lives]) -> dict[str, Any]:
    """Of groups of the same victims: each, with its paired difference from the silent one.

    That is of the final returns; `training_return` holds the same of the mean return over the whole training.
    """
    result = _compare({name: lives.final_returns for name, lives in groups.items()})
    return result | {"training_return": _compare({name: over_training(lives) for name, lives in groups.items()})}


def over_training(lives: Lives) -> np.ndarray:
    """The mean return of the updates in which episodes ended, `[victims]`."""
    known = np.isfinite(lives.curves)
    return np.where(known, lives.curves, 0.0).sum(1) / np.maximum(known.sum(1), 1)


def _compare(returns: dict[str, np.ndarray]) -> dict[str, Any]:
    result: dict[str, Any] = {name: mean_and_error(values) for name, values in returns.items()}
    for name, values in returns.items():
        if name != "silent":
            result[name]["difference_from_silent"] = mean_and_error(values - returns["silent"])
    return result
