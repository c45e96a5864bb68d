"""A game seen from one of its seats: what the faces to libraries of single-agent environments share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from configs import one_of, shown
from configs.specs import NAME
from games import host_stepping
from games.core import checks
from games.core.branching import lazy_cond
from games.core.game import Game
from games.core.modes import in_any_mode
from games.core.rollout import random_actions
from games.exact.infinite import InfinitelyRepeated
from games.exact.strategies import STRATEGIES, MemoryOne, strategy

# A player of another seat, in JAX. One of
#   a name: a memory-one strategy of `games.exact.strategies`, such as "tft", "zd(chi=2)" or "0.9,1,0,1,0", in a
#   repeated game of two players with two actions; "random" in any game;
#   a function `(key, observation) -> action`;
#   an object with `init(key) -> state` and `act(key, state, observation) -> (action, state, anything)`;
#   a learner of `marl`, such as `make_learner("tft", game, seat=1)`, which acts and does not learn here. What a learner
#   has learned is in its state: `learner._replace(init=lambda key: state)`.
Opponent = Any


@partial(jax.tree_util.register_dataclass, data_fields=["game"], meta_fields=["agent", "opponents"])
@dataclasses.dataclass(frozen=True)
class Seat:
    """A game seen from one seat; `Seat.of` makes one."""

    game: Game
    agent: str
    opponents: tuple[tuple[str, Opponent], ...]  # the other agents and their players; None plays at random

    @staticmethod
    def of(game: Game, seat: int, opponents: Opponent | Sequence[Opponent] | None) -> Seat:
        """A seat by its number, with one opponent for all other seats, or one for each of them in their order.

        Raises:
          ValueError: for a seat that the game does not have, or opponents that are none, not as many, made for another
            seat, or not hashable.
        """
        checks.size("seat", seat, 0, game.num_agents - 1)
        others = [agent for agent in game.agents if agent != game.agents[seat]]
        if hasattr(opponents, "act") or isinstance(opponents, str) or not isinstance(opponents, Sequence):
            opponents = [opponents] * len(others)
        if len(opponents) != len(others):
            raise ValueError(
                f"opponents: got {len(opponents)}; one, or one for each of the {len(others)} other seats, is needed"
            )
        seats = [game.agents.index(agent) for agent in others]
        opponents = [
            _by_name(one, game, place) if isinstance(one, str) else one
            for one, place in zip(opponents, seats, strict=True)
        ]
        for agent, opponent in zip(others, opponents, strict=True):
            if not (opponent is None or callable(opponent) or (hasattr(opponent, "init") and hasattr(opponent, "act"))):
                needed = "a function, an object with init and act, or the name of a strategy is needed"
                raise ValueError(f"opponents: got {shown(opponent)}; {needed}")
            made_for = getattr(opponent, "seat", None)
            if isinstance(made_for, int) and made_for != game.agents.index(agent):
                raise ValueError(f"opponents: got a learner for seat {made_for} in that of {agent}")
            try:
                hash(opponent)
            except TypeError:
                raise ValueError(
                    f"opponents: got {type(opponent).__name__}, which cannot be hashed; arrays belong into the state "
                    "that its init returns"
                ) from None
        return Seat(game, game.agents[seat], tuple(zip(others, opponents, strict=True)))

    @in_any_mode
    def reset(self, key: jax.Array) -> tuple[jax.Array, Any]:
        """(observation, what is carried on: all observations, state of the game, states of the opponents)."""
        key, *keys = jax.random.split(key, 1 + len(self.opponents))
        observations, state = self.game.reset(key)
        states = [_begin(opponent, k) for k, (_, opponent) in zip(keys, self.opponents, strict=True)]
        return observations[self.agent], (observations, state, jax.tree.map(jnp.asarray, states))

    @in_any_mode
    def step(self, key: jax.Array, carried: Any, action: jax.Array) -> tuple[jax.Array, Any, tuple]:
        """(observation, what is carried on, (reward, terminated, truncated, infos)), without auto-reset."""
        observations, state, states = carried
        key, random_key, *keys = jax.random.split(key, 2 + len(self.opponents))
        actions = random_actions(random_key, self.game, state) | {self.agent: action}
        for i, (agent, opponent) in enumerate(self.opponents):
            if opponent is not None:
                seen = observations[agent]
                if getattr(opponent, "sees_all", False):  # what the others see, from the next seat on, is behind
                    first, agents = self.game.agents.index(agent), self.game.agents
                    seen = jnp.concatenate([observations[a] for a in (*agents[first:], *agents[:first])], -1)
                chosen, new = _act(opponent, keys[i], states[i], seen)
                states = [*states[:i], new, *states[i + 1 :]]
                actions[agent] = jnp.asarray(chosen, self.game.action_space(agent).dtype)
        observations, state, *rest = self.game.step_env(key, state, actions)
        result = tuple(part[self.agent] for part in host_stepping.step_result(self.game.agents, *rest))
        return observations[self.agent], (observations, state, states), result

    @in_any_mode
    def auto_reset(self, key: jax.Array, carried: Any, done: jax.Array) -> tuple[jax.Array, Any]:
        """(observation, what is carried on): where `done`, the game after its own `auto_reset`, with new opponents."""
        observations, state, states = carried
        key, *keys = jax.random.split(key, 1 + len(self.opponents))
        dones = dict.fromkeys((*self.game.agents, "__all__"), done)
        observations, state = self.game.auto_reset(key, observations, state, dones)
        states = [
            _begin_where(done, opponent, k, old)
            for k, (_, opponent), old in zip(keys, self.opponents, states, strict=True)
        ]
        return observations[self.agent], (observations, state, states)

    @in_any_mode
    def auto_step(self, key: jax.Array, carried: Any, action: jax.Array) -> tuple[jax.Array, jax.Array, Any, tuple]:
        """(observation, the one before a reset, ...): as `step`; a new episode where the old one is done."""
        key, reset_key = jax.random.split(key)
        last, carried, result = self.step(key, carried, action)
        observation, carried = self.auto_reset(reset_key, carried, result[1] | result[2])
        return observation, last, carried, result


def _by_name(spec: str, game: Game, seat: int) -> Opponent:
    """A fixed strategy of two players in a repeated game; None for random play, which any game has."""
    if spec == "random":
        return None
    if re.match(NAME, spec) and spec.partition("(")[0] not in STRATEGIES:
        names = one_of(spec, STRATEGIES.names())
        raise ValueError(f"opponents: got {shown(spec)}; {names}; a learner of marl is made by make_learner")
    probabilities = strategy(spec, game, seat, field="opponents")
    if isinstance(game, InfinitelyRepeated):  # whose actions are no rounds, but the logits of a strategy
        raise ValueError(f"opponents: got {shown(spec)}; make_learner({spec!r}, game, {seat}) of marl is needed here")
    return MemoryOne(probabilities)


def _is_learner(opponent: Opponent) -> bool:
    return hasattr(opponent, "policy") and hasattr(opponent, "init_memory")


def _begin(opponent: Opponent, key: jax.Array) -> Any:
    """The state of an opponent at the beginning of an episode; of a learner what it acts by and what it remembers."""
    if _is_learner(opponent):
        parameters = opponent.policy(opponent.init(key))
        return parameters, opponent.init_memory(parameters, 1)
    return opponent.init(key) if hasattr(opponent, "act") else ()


def _begin_where(done: jax.Array, opponent: Opponent, key: jax.Array, state: Any) -> Any:
    """The state of an opponent, the first one again where `done`."""

    def begin(key: jax.Array, state: Any) -> Any:
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), _begin(opponent, key), state)

    if _is_learner(opponent):  # whose first weights cost far more than a step
        return lazy_cond(done, begin, lambda key, state: state, key, state)
    return jax.tree.map(lambda new, old: jnp.where(done, new, old), _begin(opponent, key), state)


def _act(opponent: Opponent, key: jax.Array, state: Any, observation: jax.Array) -> tuple[jax.Array, Any]:
    """(action, state)."""
    if _is_learner(opponent):  # whose observations and actions have an axis of environments in front
        parameters, memory = state
        action, memory, _ = opponent.act(key, parameters, memory, jax.tree.map(lambda x: x[None], observation))
        return action[0], (parameters, memory)
    if hasattr(opponent, "act"):
        action, state, *_ = opponent.act(key, state, observation)
        return action, state
    return opponent(key, observation), state
