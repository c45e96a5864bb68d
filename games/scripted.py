"""Scripted policies of games: what it is to cooperate and to defect, as functions of the state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games.core.game import Game
from games.suite.cleanup import CLEAN, Cleanup
from games.suite.commons import Commons
from games.suite.coop_mining import MINE, CoopMining
from games.suite.gridworld import Gridworld
from games.suite.harvest import Harvest
from games.suite.rounds import Rounds
from games.toolbox import boards
from games.toolbox.walking import aim, cells_of, paths, walk
from games.wrappers.social_rewards import SocialRewards

# (key, state, number of the agent []) -> action []
Policy = Callable[[jax.Array, Any, jax.Array], jax.Array]


class ScriptedPolicies(NamedTuple):
    """A cooperator and a defector of a game. They see the whole state, and learn nothing.

    Attributes:
      cooperate: `(key, state, agent) -> action []`, with the number of the agent, `[]`, which may be traced.
      defect: the same.
      meaning: what the two do, in a few words.
    """

    cooperate: Policy
    defect: Policy
    meaning: str


@functools.singledispatch
def scripted_policies(game: Game) -> ScriptedPolicies:
    """The scripted cooperator and defector of a game, by its class; those of the bare game for one with social rewards.

    They are there for repeated games of two actions, harvest, clean-up and cooperative mining. A game of your own gets
    them by `scripted_policies.register`, of a function from a game of that class to its policies.

    Args:
      game: what is played.

    Raises:
      ValueError: for a game without scripted policies.

    Example:
      >>> import games, jax
      >>> game = games.make("three_player_ipd")
      >>> policies = games.scripted_policies(game)
      >>> state = game.reset(jax.random.key(0))[1]
      >>> [int(act(jax.random.key(0), state, 0)) for act in (policies.cooperate, policies.defect)]
      [0, 1]
    """
    name = getattr(game, "name", game)
    raise ValueError(f"game: got {name}, which has no scripted policies; a game with them is needed")


@scripted_policies.register
def _(game: Rounds) -> ScriptedPolicies:
    if set(game.num_actions) != {2}:
        raise ValueError(f"game: got {game.name} of {game.num_actions} actions; one of two actions each is needed")
    return ScriptedPolicies(
        lambda key, state, agent: jnp.int32(0),
        lambda key, state, agent: jnp.int32(1),
        "the first action or the second in every round",
    )


@scripted_policies.register
def _(game: SocialRewards) -> ScriptedPolicies:
    cooperate, defect, meaning = scripted_policies(game.game)
    return ScriptedPolicies(
        lambda key, state, agent: cooperate(key, state.bare, agent),
        lambda key, state, agent: defect(key, state.bare, agent),
        meaning,
    )


@scripted_policies.register
def _(game: Harvest) -> ScriptedPolicies:
    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        *_, plenty = boards.neighbours(state.apples, game.grid.columns, game.grid.num_cells, game.regrowth_radius)
        return _go(key, game, state, agent, state.apples & plenty, spared=state.apples & ~plenty)

    return ScriptedPolicies(
        cooperate, _eater(game), "eat apples with three others near by and step on no other, or any apple; no zaps"
    )


@scripted_policies.register
def _(game: Cleanup) -> ScriptedPolicies:
    eat = _eater(game)

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        cells, reach = _beams(game, state, agent, game.beam_radius)
        sees = (reach & (boards.at(state.waste, cells) > 0)).any((1, 2))
        clean = aim(CLEAN, sees, state.directions[agent], _go(key, game, state, agent, state.waste))
        share = boards.count(state.waste) / game.grid.count("HR")
        return jnp.where(share > (game.depletion + game.restoration) / 2, clean, eat(key, state, agent))

    return ScriptedPolicies(
        cooperate, eat, "clean while apples grow at less than half of their speed and else eat, or only eat; no zaps"
    )


@scripted_policies.register
def _(game: CoopMining) -> ScriptedPolicies:
    distances = paths(game.grid).distances

    def mine(key: jax.Array, state: Any, agent: jax.Array, ores: jax.Array) -> jax.Array:
        cells, reach = (x[..., 0] for x in _beams(game, state, agent, 0))
        found = reach & (boards.at(state.iron | state.gold, cells) > 0)
        first = jnp.argmax(found, 1)[:, None]
        wanted = jnp.take_along_axis(boards.at(ores, cells) > 0, first, 1)[:, 0]
        walking = _go(key, game, state, agent, ores)
        return aim(MINE, found.any(1) & wanted, state.directions[agent], walking)

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        # All go to the same ore, the nearest to all of them together.
        far = jnp.asarray(distances)[game.grid.cell(state.positions)].sum(0)
        is_gold = cells_of(state.gold, game.grid.num_cells)
        chosen = boards.single(jnp.argmin(jnp.where(is_gold, far, jnp.iinfo(jnp.int32).max)), game.grid.words)
        return mine(key, state, agent, state.gold & chosen)

    return ScriptedPolicies(
        cooperate, lambda key, state, agent: mine(key, state, agent, state.iron), "mine gold together, or iron alone"
    )


def _eater(game: Commons) -> Policy:
    return lambda key, state, agent: _go(key, game, state, agent, state.apples)


def _go(
    key: jax.Array, game: Gridworld, state: Any, agent: jax.Array, targets: jax.Array, spared: Any = 0
) -> jax.Array:
    """The step towards the nearest cell of the board `targets`, on no other player and no cell of `spared`."""
    world = game.grid
    here = boards.single(world.cell(state.positions), world.words)
    taken = boards.union(jnp.where(game._present(state)[:, None], here, 0))
    wanted, blocked = (cells_of(board, world.num_cells) for board in (targets, taken | spared))
    return walk(key, world, world.cell(state.positions[agent]), state.directions[agent], wanted, blocked)


def _beams(game: Any, state: Any, agent: jax.Array, radius: int) -> tuple[jax.Array, jax.Array]:
    """Cells `[4, length, width]` of a player's beam in the four directions, and whether it gets there."""
    positions = jnp.broadcast_to(state.positions[agent], (4, 2))
    return game.grid.beam(positions, jnp.arange(4), game.beam_length, radius)
