"""Strategies of sampled games that learn nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from games import CoinGame, Game
from games.core.arguments import factory
from games.suite.rounds import Rounds
from marl.core.learner import Learner, keep_state
from marl.learners.exact.fixed import checked_probabilities


@factory
def random(game: Game, seat: int = 0) -> Learner:
    """Draws evenly from its actions, and learns nothing; where their bounds are infinite, as `Box.sample` does."""
    agent = game.agents[seat]
    actions, seen = game.action_space(agent), game.observation_space(agent).shape

    def act(key: jax.Array, parameters: tuple[()], memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        leading = obs.shape[: obs.ndim - len(seen)]
        drawn = jax.vmap(actions.sample)(jax.random.split(key, math.prod(leading)))
        return drawn.reshape(*leading, *actions.shape), memory, ()

    return Learner(init=lambda key: (), act=act, update=keep_state)


@factory
def always_cooperate(game: Game, seat: int = 0) -> Learner:
    """Cooperates in every step: action 0 of a repeated game; in the coin game it takes its own coins.

    There it walks the shortest way to its own coin that leads over none of the other's, and avoids those where its own
    lies nowhere. Where both lie on one cell it takes both. Between ways of one length it draws.

    Args:
      game: what is played.
      seat: its number among the game's agents.

    Raises:
      ValueError: for a game that is neither rounds of two actions nor the coin game.
    """
    return _collector(game, seat, spares=True) if isinstance(game, CoinGame) else _constant(game, seat, 0)


@factory
def always_defect(game: Game, seat: int = 0) -> Learner:
    """Defects in every step: action 1 of a repeated game; in the coin game it walks the shortest way to any coin.

    Args:
      game: what is played.
      seat: its number among the game's agents.

    Raises:
      ValueError: as `always_cooperate`.
    """
    return _collector(game, seat, spares=False) if isinstance(game, CoinGame) else _constant(game, seat, 1)


def _constant(game: Game, seat: int, action: int) -> Learner:
    if not isinstance(game, Rounds) or game.num_actions[seat] != 2:
        raise ValueError(f"got {game.name}; rounds of a game with two actions, or the coin game, are needed")

    def act(key: jax.Array, parameters: tuple[()], memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        return jnp.full(obs.shape[:-1], action, jnp.int32), memory, ()

    return Learner(init=lambda key: (), act=act, update=keep_state, seat=seat)


def _collector(game: CoinGame, seat: int, *, spares: bool) -> Learner:
    own, size = 0 if game.egocentric else seat, game.grid_size
    moves = [(0, 1), (0, -1), (1, 0), (-1, 0), (0, 0)][: 5 if game.stay else 4]  # rows and columns, by action

    def act(key: jax.Array, parameters: tuple[()], memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        planes = obs > 0.5
        here, mine, theirs = (planes[..., channel] for channel in (own, 2 + own, 3 - own))
        shut = theirs & ~mine & spares  # two that spared a cell with both coins would wait for each other for ever

        def closer(_: int, steps: jax.Array) -> jax.Array:
            beside = [jnp.roll(steps, by, axis) for by in (1, -1) for axis in (-1, -2)]
            return jnp.where(shut, 4.0 * size, jnp.minimum(steps, 1 + jnp.stack(beside).min(0)))

        # The steps to the next coin from every cell: on a torus no way around one cell is longer than `size + 2`.
        steps = jnp.where(mine | (theirs & (not spares)), 0.0, 2.0 * size)
        steps = jax.lax.fori_loop(0, size + 2, closer, jnp.where(shut, 4.0 * size, steps))
        ahead = [jnp.where(here, jnp.roll(steps, (-down, -right), (-2, -1)), 0).sum((-2, -1)) for down, right in moves]
        found = jnp.stack(ahead)
        return jnp.argmin(found + jax.random.uniform(key, found.shape) / 2, 0), memory, ()

    return Learner(init=lambda key: (), act=act, update=keep_state, seat=seat)


@factory
def play_memory_one(probabilities: Sequence[float]) -> Learner:
    """A fixed memory-one policy in the sampled games of `games.suite.rounds`: it draws an action in every round.

    What it sees is the one-hot state `[..., 5]`: start, CC, CD, DC, DD.

    Args:
      probabilities: of action 0 at the start and after CC, CD, DC, DD, own action first.

    Raises:
      ValueError: if they are not five numbers in [0, 1].
    """
    p = jnp.asarray(checked_probabilities("play_memory_one", probabilities, (5,)), jnp.float32)

    def act(key: jax.Array, parameters: tuple[()], memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        if obs.shape[-1:] != p.shape:
            needed = "[..., 5], the one-hot states of a repeated game of two players with two actions, are needed"
            raise ValueError(f"play_memory_one: got observations {list(obs.shape)}; {needed}")
        defects = jax.random.uniform(key, obs.shape[:-1]) >= (obs * p).sum(-1)
        return defects.astype(jnp.int32), memory, ()

    return Learner(init=lambda key: (), act=act, update=keep_state)
