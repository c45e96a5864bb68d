"""Every learner with a network by its name: `make_learner("ppo(learning_rate=0.001, epochs=8)", game, ...)`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import optax

from games import Game
from marl.a2c import a2c
from marl.distributions import distribution
from marl.dqn import dqn
from marl.learn import Learner
from marl.networks import Activation, Network, convolutional, feed_forward, recurrent
from marl.ppo import clipped_surrogate, ppo
from marl.specs import defaults, first_line, numeric, parse, whole

_NETWORKS: dict[str, Callable[..., Network]] = {
    "feed_forward": feed_forward,
    "convolutional": convolutional,
    "recurrent": recurrent,
}


def _ppo(game: Game, player: int, *, clip: float = 0.2, **settings: Any) -> Learner:
    return ppo(game, player, objective=clipped_surrogate(clip), **settings)


def _dqn(game: Game, player: int, *, num_envs: int, **settings: Any) -> Learner:
    del num_envs
    return dqn(game, player, **settings)


_MAKE: dict[str, Callable[..., Learner]] = {"ppo": _ppo, "a2c": a2c, "dqn": _dqn}


def _settings(factory: Callable[..., Any], *without: str) -> dict[str, Any]:
    return {setting: default for setting, default in defaults(factory).items() if setting not in without}


_OF_NETWORKS = {kind: _settings(make, "num_scales") for kind, make in _NETWORKS.items()}
_OF_LEARNERS = {
    "ppo": _settings(ppo, "network", "num_envs", "objective") | defaults(_ppo),
    "a2c": _settings(a2c, "network", "num_envs"),
    "dqn": _settings(dqn, "network"),
}

# The settings of every learner, with their defaults.
DEEP_LEARNERS: dict[str, dict[str, Any]] = {
    name: own
    | {"anneal": False, "network": "feed_forward"}
    | {setting: default for of in _OF_NETWORKS.values() for setting, default in of.items()}
    for name, own in _OF_LEARNERS.items()
}


def make_learner(spec: str, game: Game, *, player: int = 0, num_envs: int, num_updates: int) -> Learner:
    """A learner of any game from its name, or its name with settings.

    `ppo`, `a2c(learning_rate=0.001, anneal=True)`, `ppo(network='recurrent', hidden=[32], memory=32)`.

    Args:
      spec: settings are the keyword arguments of `ppo` (and `clip`, of its objective), `a2c` or `dqn`; `network`, which
        is feed_forward, convolutional or recurrent, and the keyword arguments of that; and `anneal`, with which the
        learning rate falls on a straight line to 0 at the optimiser's last step.
      game: what is played.
      player: its number among the game's agents.
      num_envs: as of `learn`.
      num_updates: as of `learn`.

    Raises:
      ValueError: for an unknown learner, setting or value, naming what is allowed, or a game that the learner cannot
        play.
    """
    name, given = parse("learner", spec, DEEP_LEARNERS, "ppo")
    for setting, value in given.items():
        needed, fits = _KINDS.get(setting) or _kind(DEEP_LEARNERS[name][setting])
        if not fits(value):
            raise ValueError(f"learner: {name}: {setting}: got {value!r}; {needed} is needed")
    chosen = DEEP_LEARNERS[name] | given
    settings = {setting: chosen[setting] for setting in _OF_LEARNERS[name]}
    if chosen["anneal"]:
        steps = num_updates * math.prod(settings.get(one, 1) for one in ("epochs", "minibatches", "gradient_steps"))
        settings["learning_rate"] = optax.linear_schedule(settings["learning_rate"], 0.0, steps)
    try:
        of_network = {"shared": True} if name == "dqn" and chosen["network"] == "feed_forward" else {}
        of_network |= {setting: x for setting, x in given.items() if setting not in (*settings, "network", "anneal")}
        network = _network(chosen["network"], of_network, game, player)
        return _MAKE[name](game, player, network=network, num_envs=num_envs, **settings)
    except (NotImplementedError, ValueError) as error:
        raise ValueError(f"learner: {name}: {first_line(error)}") from None


def _network(kind: str, settings: dict[str, Any], game: Game, player: int) -> Network:
    """A network for what a player sees and does.

    Raises:
      ValueError: for a setting that it does not have, or a game that no network can play.
    """
    if player not in range(game.num_agents):
        raise ValueError(f"player: got {player!r}; one of 0 to {game.num_agents - 1} is needed")
    seen = game.observation_space(game.agents[player])
    if not hasattr(seen, "shape"):
        raise ValueError(f"observations: got {seen}; an array is needed")
    for setting in settings:
        if setting not in _OF_NETWORKS[kind]:
            raise ValueError(f"{setting}: a {kind} network has none; it has {', '.join(_OF_NETWORKS[kind])}")
    actions = distribution(game.action_space(game.agents[player]))
    return _NETWORKS[kind](seen.shape, actions.num_outputs, num_scales=actions.num_scales, **settings)


_Kind = tuple[str, Callable[[Any], bool]]  # in words, and whether a value is of it
_SHARE: _Kind = ("a number from 0 to 1", lambda x: numeric(x) and 0 <= x <= 1)
_KINDS: dict[str, _Kind] = {
    "network": (f"one of {', '.join(_NETWORKS)}", lambda x: x in [*_NETWORKS]),
    "activation": (f"one of {', '.join(get_args(Activation))}", lambda x: x in get_args(Activation)),
    "hidden": (
        "a list of whole numbers of at least 1",
        lambda x: isinstance(x, list | tuple) and all(whole(units) and units > 0 for units in x),
    ),
    "value_clip": ("a number of at least 0, or None", lambda x: x is None or (numeric(x) and x >= 0)),
} | dict.fromkeys(["discount", "gae_lambda", "tau", "epsilon_start", "epsilon_end"], _SHARE)


def _kind(default: Any) -> _Kind:
    if isinstance(default, bool):
        return "True or False", lambda x: isinstance(x, bool)
    if isinstance(default, int):
        return "a whole number of at least 1", lambda x: whole(x) and x > 0
    return "a number of at least 0", lambda x: numeric(x) and x >= 0
