"""Opponents that learn from samples, by name: `make_sampled_opponent("tabular_ppo(epochs=2)", game, 1, ...)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from games import Game
from marl import dice
from marl.deep_learners import DEEP_LEARNERS, make_learner
from marl.distributions import distribution
from marl.learn import Learner, keep_state
from marl.specs import change, defaults, first_line, numeric, parse, whole

# A table of logits and one of values, where observations are one-hot; the rates are those at which two of them defect
# within a hundred episodes of the prisoner's dilemma.
TABULAR_PPO: dict[str, Any] = {
    "hidden": [],
    "shared": True,
    "learning_rate": 0.1,
    "epochs": 4,
    "minibatches": 1,
    "discount": 0.96,
}


def random(game: Game, player: int = 0) -> Learner:
    """Draws evenly from its actions, and learns nothing."""
    actions = distribution(game.action_space(game.agents[player]))

    def act(key: Any, state: tuple, obs: Any) -> tuple[Any, tuple, tuple]:
        return actions.sample(key, jnp.zeros((len(obs), actions.num_outputs + actions.num_scales))), state, ()

    return Learner(lambda key: (), act, keep_state)


_SAMPLERS: dict[str, Callable[..., Learner]] = {
    "reinforce": dice.reinforce,
    "naive_dice": dice.naive_dice,
    "lola_dice": dice.lola_dice,
    "random": random,
}
_TABLES = ("network", "optimizer")  # what a spec does not set
SAMPLED_OPPONENTS: dict[str, dict[str, Any]] = (
    DEEP_LEARNERS
    | {"tabular_ppo": DEEP_LEARNERS["ppo"] | TABULAR_PPO}
    | {name: {k: x for k, x in defaults(make).items() if k not in _TABLES} for name, make in _SAMPLERS.items()}
)


def make_sampled_opponent(spec: str, game: Game, player: int, *, num_envs: int, num_updates: int) -> Learner:
    """An opponent from its name, or its name with settings.

    Args:
      spec: ppo, a2c or dqn as of `make_learner`; tabular_ppo, which is ppo with the settings `TABULAR_PPO`; reinforce,
        naive_dice or lola_dice of `marl.dice`; or random.
      game: what is played.
      player: its number among the game's agents.
      num_envs: as of `learn`.
      num_updates: as of `learn`.

    Raises:
      ValueError: for an unknown name, setting or value, naming what is allowed, or a game that it cannot play.
    """
    name, given = parse("opponent", spec, SAMPLED_OPPONENTS, "tabular_ppo")
    try:
        if name in DEEP_LEARNERS or name == "tabular_ppo":
            deep = change("ppo", **TABULAR_PPO | given) if name == "tabular_ppo" else spec
            return make_learner(deep, game, player=player, num_envs=num_envs, num_updates=num_updates)
        for setting, value in given.items():
            kind, fits = ("whole number", whole) if isinstance(SAMPLED_OPPONENTS[name][setting], int) else _NUMBER
            if not fits(value):
                raise ValueError(f"{setting}: got {value!r}; a {kind} is needed")
        return _SAMPLERS[name](game, player, **given)
    except ValueError as error:
        message = re.sub(r"^(learner: )?(ppo|a2c|dqn|lola_dice): ", "", first_line(error))  # it is named anyway
        raise ValueError(f"opponent: {name}: {message}") from None


_NUMBER: tuple[str, Callable[[Any], bool]] = ("number", numeric)
