"""The social dilemmas beside SocialJax's, on its own maps, with its numbers of players and its view.

SocialJax is no package: its folder has to be on the path. Two of its games use arguments of `jnp.clip` that JAX no
longer has; they get them back here.

    PYTHONPATH=path/to/SocialJax python -m benchmarks.speed.games --social
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import games

VIEW = 11
ZAPS = {"beam_length": 2, "zap_steps": 1}


class Pair(NamedTuple):
    """A game of ours and the same of SocialJax."""

    theirs: str
    ours: str
    params: dict[str, Any]
    module: str = ""  # with the map, of theirs
    letters: str = ""  # what the letters of their map are in ours, as "from:to", the others being floor
    attribute: str = ""  # of the map; the argument `map_ASCII` without


PAIRS = (
    Pair("harvest_common_open", "harvest", {"num_agents": 7, **ZAPS}, "common_harvest.harvest_open", "A:A P:P Q:P"),
    Pair(
        "clean_up",
        "cleanup",
        {"num_agents": 7, **ZAPS, "waste_delay": 50},
        "cleanup.clean_up",
        "B:A T:A s:A P:P H:R F:H S:R ~:R",
    ),
    Pair("coin_game", "coins", {}, "coin_game.coin_game", "C:C P:P"),
    Pair("coop_mining", "coop_mining", {}, "coop_mining.coop_mining", "O:O P:P W:#", "ASCII_MAP_COOP_MINING"),
    Pair("mushrooms", "mushrooms", ZAPS),  # no map of theirs says where players begin
    Pair("gift", "gift_refinement", {}, "gift.gift", "T:T P:P W:#"),
    Pair("territory_open", "territory", {}, "territory.territory_env", "R:W P:P W:#"),
    Pair("pd_arena", "pd_arena", {"num_agents": 2}),
    Pair("lb_foraging", "foraging", {}),
)


class Theirs:
    """A game of SocialJax in the form that `benchmarks.speed.games.build` plays."""

    def __init__(self, name: str):
        self.environment = importlib.import_module("socialjax").make(name)
        self.agents = [str(agent) for agent in self.environment.agents]
        self.reset = self.environment.reset

    def action_space(self, agent: str) -> Any:
        return games.Discrete(self.environment.action_space().n)

    def step(self, key: jax.Array, state: Any, actions: dict[str, jax.Array]) -> tuple[Any, Any, Any, None, None]:
        seen, state, rewards, _, _ = self.environment.step(key, state, [actions[agent] for agent in self.agents])
        return seen, state, {agent: rewards[i] for i, agent in enumerate(self.agents)}, None, None


def is_at_hand() -> bool:
    """True if SocialJax can be imported."""
    return importlib.util.find_spec("socialjax") is not None


def contenders(pair: Pair) -> dict[str, Any]:
    """The two games of a pair, by their names in the table."""
    _restore_clip()
    params = dict(pair.params)
    if pair.module:
        module = importlib.import_module(f"socialjax.environments.{pair.module}")
        params["layout"] = _layout(_map(module, pair.attribute), pair.letters)
    if pair.ours not in ("pd_arena", "foraging"):
        params["view_size"] = VIEW
    return {pair.ours: games.make(pair.ours, **params), f"  SocialJax's {pair.theirs}": Theirs(pair.theirs)}


def _map(module: Any, attribute: str) -> list[str]:
    if attribute:
        return getattr(module, attribute).split("\n")
    kinds = (kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__)
    signatures = (inspect.signature(kind).parameters for kind in kinds)
    return next(parameters["map_ASCII"].default for parameters in signatures if "map_ASCII" in parameters)


def _layout(rows: list[str], letters: str) -> tuple[str, ...]:
    ours = {entry[0]: entry[2] for entry in (letters[i : i + 3] for i in range(0, len(letters), 4))}
    width = max(map(len, rows))
    return tuple("".join(ours.get(letter, ".") for letter in row.ljust(width)) for row in rows)


def _restore_clip() -> None:
    """Lets `jnp.clip` take the arguments `a_min` and `a_max` again."""
    clip = jnp.clip
    if "a_min" in inspect.signature(clip).parameters or hasattr(clip, "restored"):
        return

    def restored(x: Any, *arguments: Any, a_min: Any = None, a_max: Any = None, **options: Any) -> Any:
        bounds = {name: bound for name, bound in (("min", a_min), ("max", a_max)) if bound is not None}
        return clip(x, *arguments, **bounds, **options)

    restored.restored = True  # type: ignore[attr-defined]
    jnp.clip = restored
