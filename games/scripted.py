"""Scripted policies of games: what it is to cooperate and to defect, as functions of the state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games.core.game import Game
from games.suite.cleanup import CLEAN, Cleanup
from games.suite.coin_game import CoinGame
from games.suite.coins import Coins
from games.suite.commons import Commons
from games.suite.coop_mining import MINE, CoopMining
from games.suite.cournot import Cournot
from games.suite.donation import Donation
from games.suite.fishery import Fishery
from games.suite.foraging import LOAD, SIDES, Foraging
from games.suite.gift_refinement import CONSUME, GIVE, LEVELS, GiftRefinement
from games.suite.harvest import Harvest
from games.suite.in_the_matrix import InTheMatrix
from games.suite.mushrooms import Mushrooms
from games.suite.rice import Rice
from games.suite.rounds import Rounds
from games.suite.territory import PAINT, Territory
from games.suite.trust_and_split import TrustAndSplit
from games.toolbox import boards, grid
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

    They are there for repeated games of two actions, for the gridworlds, and for the coin game, donation,
    trust-and-split, Rice-N, the fishery and Cournot's oligopoly. A game of your own gets them by
    `scripted_policies.register`, of a function from a game of that class to its policies.

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
        walking = _go(key, game, state, agent, ores)
        return aim(MINE, _sees(game, state, agent, state.iron | state.gold, ores), state.directions[agent], walking)

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        # All go to the same ore, the nearest to all of them together.
        far = jnp.asarray(distances)[game.grid.cell(state.positions)].sum(0)
        is_gold = cells_of(state.gold, game.grid.num_cells)
        chosen = boards.single(jnp.argmin(jnp.where(is_gold, far, jnp.iinfo(jnp.int32).max)), game.grid.words)
        return mine(key, state, agent, state.gold & chosen)

    return ScriptedPolicies(
        cooperate, lambda key, state, agent: mine(key, state, agent, state.iron), "mine gold together, or iron alone"
    )


@scripted_policies.register
def _(game: Mushrooms) -> ScriptedPolicies:
    def eat(kinds: tuple[int, ...], otherwise: tuple[int, ...]) -> Policy:
        def act(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
            first, second = (boards.union(state.mushrooms[jnp.array(some)]) for some in (kinds, otherwise))
            targets = jnp.where(boards.count(first) > 0, first, second)
            return _go(key, game, state, agent, targets, spared=boards.union(state.mushrooms) & ~targets)

        return act

    red, green, blue = (0,), (1,), (2,)
    return ScriptedPolicies(
        eat(blue + green, red), eat(red, green), "eat blue and green mushrooms before red ones, or red ones; no zaps"
    )


@scripted_policies.register
def _(game: GiftRefinement) -> ScriptedPolicies:
    def collect(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return _go(key, game, state, agent, state.tokens)

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        held, others = state.held[agent], _others(game, state, agent)
        cells, reach = _beams(game, state, agent, 0)
        sees = (reach & (boards.at(others, cells) > 0)).any((1, 2))
        give = aim(GIVE, sees, state.directions[agent], _go(key, game, state, agent, others))
        refined = jnp.where(held[LEVELS - 1] > 0, CONSUME, collect(key, state, agent))
        return jnp.where(held[: LEVELS - 1].sum() > 0, give, refined)

    def defect(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return jnp.where(state.held[agent].sum() > 0, CONSUME, collect(key, state, agent))

    return ScriptedPolicies(
        cooperate, defect, "give all tokens that can be refined to the nearest player, or consume all"
    )


@scripted_policies.register
def _(game: Territory) -> ScriptedPolicies:
    def paint(key: jax.Array, state: Any, agent: jax.Array, walls: jax.Array) -> jax.Array:
        walking = _go(key, game, state, agent, walls, spared=state.walls)
        return aim(PAINT, _sees(game, state, agent, state.walls, walls), state.directions[agent], walking)

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return paint(key, state, agent, state.walls & ~boards.union(state.painted))

    def defect(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return paint(key, state, agent, state.walls & ~state.painted[agent])

    return ScriptedPolicies(cooperate, defect, "paint bare walls alone, or also over the colours of others; no zaps")


@scripted_policies.register
def _(game: Coins) -> ScriptedPolicies:
    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        own = state.coins[agent]
        return _go(key, game, state, agent, own, spared=boards.union(state.coins) & ~own)

    def defect(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return _go(key, game, state, agent, boards.union(state.coins))

    return ScriptedPolicies(cooperate, defect, "take one's own coins and step on no other, or take any coin")


@scripted_policies.register
def _(game: CoinGame) -> ScriptedPolicies:
    size = game.grid_size
    steps = jnp.array([(0, 1), (0, -1), (1, 0), (-1, 0)] + [(0, 0)] * game.stay)  # right, left, down, up, stay

    def go(key: jax.Array, state: Any, agent: jax.Array, wanted: list[Any], spared: Any) -> jax.Array:
        cell = jnp.stack(state.players)[agent]
        there = (cell // size + steps[:, 0]) % size * size + (cell % size + steps[:, 1]) % size

        def distance(coin: jax.Array) -> jax.Array:
            apart = jnp.abs(jnp.stack([there // size - coin // size, there % size - coin % size]))
            return jnp.where(coin >= 0, jnp.minimum(apart, size - apart).sum(0), 2 * size)

        costs = jnp.stack([distance(coin) for coin in wanted]).min(0) + jax.random.uniform(key, there.shape)
        return jnp.argmin(jnp.where(there == spared, jnp.inf, costs))

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        coins = jnp.stack(state.coins)
        own, other = coins[agent], coins[1 - agent]
        return go(key, state, agent, [own], jnp.where(other == own, -1, other))

    def defect(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return go(key, state, agent, list(state.coins), -1)

    return ScriptedPolicies(cooperate, defect, "take own coins, or both from one cell; or take any coin")


@scripted_policies.register
def _(game: InTheMatrix) -> ScriptedPolicies:
    def gather(kind: int) -> Policy:
        def act(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
            lie, holds = state.resources[kind], boards.count(boards.union(state.held, 1)) > 0
            others = _others(game, state, agent, holds & (state.freeze == 0))
            cells = _beams(game, state, agent, game.beam_radius)
            sees = (cells[1] & (boards.at(others, cells[0]) > 0)).any((1, 2))
            meet = aim(grid.BEAM, sees, state.directions[agent], _go(key, game, state, agent, others))
            collect = _go(key, game, state, agent, lie, spared=boards.union(state.resources) & ~lie)
            return jnp.where(holds[agent], meet, collect)

        return act

    return ScriptedPolicies(gather(0), gather(1), "gather one resource of the first kind or of the second, and meet")


@scripted_policies.register
def _(game: Foraging) -> ScriptedPolicies:
    def lift(key: jax.Array, state: Any, agent: jax.Array, food: jax.Array) -> jax.Array:
        cells = game.grid.cell(state.food)
        lies, wanted = (_marks(cells, some, game.grid.num_cells) for some in (state.food_levels > 0, food))
        players = _marks(game.grid.cell(state.positions), jnp.arange(game.num_agents) != agent, game.grid.num_cells)
        place = state.positions[agent]
        beside = ((place + SIDES == state.food[:, None]).all(-1).any(1) & food).any()
        # All look up, so that forward, right, back and left are the four moves.
        step = walk(key, game.grid, game.grid.cell(place), jnp.int32(0), wanted, lies | players)
        return jnp.where(beside, LOAD, step)

    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        apart = jnp.abs(state.positions[:, None] - state.food[None]).sum((0, 2))
        nearest = jnp.argmin(jnp.where(state.food_levels > 0, apart, jnp.iinfo(jnp.int32).max))
        return lift(key, state, agent, (jnp.arange(game.num_food) == nearest) & (state.food_levels > 0))

    def defect(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        return lift(key, state, agent, (state.food_levels > 0) & (state.food_levels <= state.levels[agent]))

    return ScriptedPolicies(cooperate, defect, "lift together the food that is nearest to all, or lift alone")


@scripted_policies.register
def _(game: Donation) -> ScriptedPolicies:
    return ScriptedPolicies(
        lambda key, state, agent: jnp.int32(0), lambda key, state, agent: jnp.int32(1), "give to all, or to none"
    )


@scripted_policies.register
def _(game: TrustAndSplit) -> ScriptedPolicies:
    def cooperate(key: jax.Array, state: Any, agent: jax.Array) -> jax.Array:
        wins = (state.hands[agent] - state.hands[1 - agent]) % 3 == 1
        return jnp.stack([state.hands[agent] % game.num_messages, jnp.where(wins, game.num_coins, 0)])

    return ScriptedPolicies(
        cooperate,
        lambda key, state, agent: jnp.array([0, game.num_coins]),
        "name one's hand and claim coins only with the winning one, or claim all",
    )


@scripted_policies.register
def _(game: Rice) -> ScriptedPolicies:
    if game.club == "mediated":
        raise ValueError("game: got a club with a mediator, which has no scripted policy; another club is needed")

    def act(cooperates: bool) -> Policy:
        choice = jnp.zeros(game.num_choices).at[0].set(0.25)
        does = choice.at[1].set(0.9) if game.club == "none" else choice.at[-1].set(1.0)
        return lambda key, state, agent: does if cooperates else choice

    does = "mitigate nine tenths of all emissions" if game.club == "none" else "join the club"
    return ScriptedPolicies(act(True), act(False), f"{does}, or mitigate nothing; invest a quarter")


@scripted_policies.register
def _(game: Fishery) -> ScriptedPolicies:
    return _efforts(game.cartel_effort, game.open_access_effort, "the effort of a cartel, or that of open access")


@scripted_policies.register
def _(game: Cournot) -> ScriptedPolicies:
    return _efforts(game.cartel_quantity, game.nash_quantity, "the quantity of a cartel, or that of the equilibrium")


def _efforts(cooperate: Any, defect: Any, meaning: str) -> ScriptedPolicies:
    return ScriptedPolicies(
        lambda key, state, agent: jnp.full(1, cooperate),
        lambda key, state, agent: jnp.full(1, defect),
        meaning,
    )


def _marks(cells: jax.Array, some: jax.Array, num_cells: int) -> jax.Array:
    """True in `[num_cells]` for those of the cells `[k]` that are among `some`, bool `[k]`."""
    return ((cells[:, None] == jnp.arange(num_cells)) & some[:, None]).any(0)


def _others(game: Any, state: Any, agent: jax.Array, some: Any = True) -> jax.Array:
    """The board of the cells on which others stand, of those among `some`."""
    here = boards.single(game.grid.cell(state.positions), game.grid.words)
    return boards.union(jnp.where(((jnp.arange(game.num_agents) != agent) & some)[:, None], here, 0))


def _eater(game: Commons) -> Policy:
    return lambda key, state, agent: _go(key, game, state, agent, state.apples)


def _go(key: jax.Array, game: Any, state: Any, agent: jax.Array, targets: jax.Array, spared: Any = 0) -> jax.Array:
    """The step towards the nearest cell of the board `targets`, on no other player and no cell of `spared`."""
    world = game.grid
    here = boards.single(world.cell(state.positions), world.words)
    present = game._present(state) if hasattr(game, "_present") else jnp.ones(game.num_agents, bool)
    taken = boards.union(jnp.where(present[:, None], here, 0))
    wanted, blocked = (cells_of(board, world.num_cells) for board in (targets, taken | spared))
    return walk(key, world, world.cell(state.positions[agent]), state.directions[agent], wanted, blocked)


def _sees(game: Any, state: Any, agent: jax.Array, things: jax.Array, wanted: jax.Array) -> jax.Array:
    """True for the directions `[4]` in which the first thing of a player's beam is on the board `wanted`."""
    positions = jnp.broadcast_to(state.positions[agent], (4, 2))
    reaches, cells = (x[:, 0] for x in game.grid.first(positions, jnp.arange(4), game.beam_length, 0, things))
    return reaches & (boards.at(wanted, cells) > 0)


def _beams(game: Any, state: Any, agent: jax.Array, radius: int) -> tuple[jax.Array, jax.Array]:
    """Cells `[4, length, width]` of a player's beam in the four directions, and whether it gets there."""
    positions = jnp.broadcast_to(state.positions[agent], (4, 2))
    return game.grid.beam(positions, jnp.arange(4), game.beam_length, radius)
