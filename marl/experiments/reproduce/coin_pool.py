"""The coin game of two learners that also meet drawn policies, which leave coins to their owner or take them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from games import Box, CoinGame, Discrete, Game
from games.core import random_bits
from games.core.game import Actions, Observations, Scalar, Step
from games.suite.coin_game import CoinState
from games.suite.random_co_players import drawn_probabilities
from marl.core.learner import Learner, keep_state

CELLS = 9  # of the torus
PARTS = (CELLS, CELLS, 2 * CELLS)  # entries of an observation: one's own cell, the other's, and the coin by its owner
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))  # right, left, down, up
NO_EVENT, OWN, OTHERS = 0, 1, 2  # the coin that an agent took last


@struct.dataclass
class CoinPoolState:
    """The state of a coin game with drawn policies."""

    boards: tuple[CoinState, CoinState]  # of each agent, which is the first player on its own
    policies: jax.Array  # `[2, 3]`, of the policy on each board: probabilities of leaving the agent's coins
    leaves: jax.Array  # `[2]`, whether it leaves the coin that lies there, if that is the agent's
    last: jax.Array  # `[2]`, the coin that the agent took last
    apart: jax.Array  # `[]`, whether the agents play policies, and not each other


@struct.dataclass(eq=False)
class CoinPool(Game):
    """The coin game of one coin on three by three cells, played with each other or each with a drawn policy.

    A policy goes the shortest way to its own coins. For every coin of the agent it draws whether to leave it, with a
    probability for the beginning, one after the agent has taken its own coin, and one after it has taken the policy's.
    The three are u^k / (u^k + (1 - u)^k) of uniform numbers u, as in `games.RandomCoPlayers`. A coin that it leaves it
    walks around.

    Attributes:
      share: probability of an episode with policies.
      sharpness: the exponent k.
      episode_length: steps.
    """

    share: Scalar = 0.5
    sharpness: Scalar = 1.0
    episode_length: Scalar = 50

    @property
    def bare(self) -> CoinGame:
        """The coin game."""
        return CoinGame(episode_length=self.episode_length)

    def reset(self, key: jax.Array) -> tuple[Observations, CoinPoolState]:
        reset_key, key = random_bits.split(key)
        drawn = random_bits.uniform(random_bits.array(key, 9))
        policies = drawn_probabilities(drawn[:6], self.sharpness).reshape(2, 3)
        board = self.bare.reset(reset_key)[1]
        start = jnp.full(2, NO_EVENT, jnp.int32)
        leaves = drawn[6:8] < policies[:, NO_EVENT]
        state = CoinPoolState((board, mirrored(board)), policies, leaves, start, drawn[8] < self.share)
        return self.get_obs(state), state

    def policy_actions(self, key: jax.Array, state: CoinPoolState) -> jax.Array:
        """Actions of the policies on the two boards, `[2]`."""
        drawn = random_bits.uniform(random_bits.array(key, 8)).reshape(2, 4)
        found = [
            walk(drawn[i], board.players[1], board.coins[1], board.coins[0], state.leaves[i])
            for i, board in enumerate(state.boards)
        ]
        return jnp.stack(found)

    def step_env(self, key: jax.Array, state: CoinPoolState, actions: Actions) -> Step[CoinPoolState]:
        drop_key, walk_key, leave_key = random_bits.split(key, 3)
        own = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        others = jnp.where(state.apart, self.policy_actions(walk_key, state), own[::-1])
        steps = [
            self.bare.step_env(one, board, dict(zip(self.agents, (own[i], others[i]), strict=True)))
            for i, (one, board) in enumerate(zip(random_bits.split(drop_key), state.boards, strict=True))
        ]
        (_, first, rewards, dones, infos), (_, second, rewards_2, _, infos_2) = steps
        # With each other both agents are on the first board.
        second = jax.tree.map(lambda x, y: jnp.where(state.apart, x, y), second, mirrored(first))

        def of_agents(board: jax.Array, other: jax.Array) -> jax.Array:
            return jnp.stack([board[0], jnp.where(state.apart, other[0], board[1])])

        paid = of_agents(*(jnp.stack([x[agent] for agent in self.agents]) for x in (rewards, rewards_2)))
        takes = {name: of_agents(infos[name], infos_2[name]) for name in ("own_coin", "other_coin")}
        last = jnp.where(takes["own_coin"] > 0, OWN, jnp.where(takes["other_coin"] > 0, OTHERS, state.last))
        new = jnp.stack(
            [(now.coins[0] != before.coins[0]) for now, before in zip((first, second), state.boards, strict=True)]
        )
        chance = jnp.where(last[:, None] == jnp.arange(3), state.policies, 0.0).sum(-1)
        drawn = random_bits.uniform(random_bits.array(leave_key, 2)) < chance
        state = CoinPoolState((first, second), state.policies, jnp.where(new, drawn, state.leaves), last, state.apart)
        infos |= takes | {"apart": jnp.broadcast_to(state.apart, (2,)).astype(jnp.float32)}
        return self.get_obs(state), state, self._by_agent(paid), dones, infos

    def get_obs(self, state: CoinPoolState) -> Observations:
        cells = jnp.arange(CELLS)
        seen = [
            jnp.concatenate([cell == cells for cell in (*board.players, *board.coins)]).astype(jnp.float32)
            for board in state.boards
        ]
        return self._by_agent(seen)

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (sum(PARTS),))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(len(MOVES))

    @property
    def time_limit(self) -> Scalar | None:
        return self.bare.time_limit


def mirrored(board: CoinState) -> CoinState:
    """The board with the players in each other's place."""
    return CoinState(board.players[::-1], board.coins[::-1], board.time)


def walk(drawn: jax.Array, cell: jax.Array, own: jax.Array, others: jax.Array, leaves: jax.Array) -> jax.Array:
    """A step towards the coin, or around it; all as good are drawn alike.

    Args:
      drawn: uniform numbers, `[4]`.
      cell: of the player.
      own: cell of its own coin, -1 for none.
      others: cell of the other's coin, -1 for none.
      leaves: whether it leaves the other's.
    """
    coin = jnp.where(own >= 0, own, others)
    down, right = jnp.asarray(MOVES).T
    rows, columns = (cell // 3 + down) % 3, (cell % 3 + right) % 3
    # On three cells in a ring every other is one step away.
    distance = (rows != coin // 3).astype(jnp.int32) + (columns != coin % 3)
    around = (own < 0) & leaves
    return jnp.argmin(jnp.where(around, distance == 0, distance) + 0.5 * drawn).astype(jnp.int32)


def taker(leaves: bool) -> Learner:
    """A player of `CoinPool` that goes the shortest way to every coin, or leaves the other's and walks around them."""

    def act(key: jax.Array, parameters: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        drawn = random_bits.uniform(random_bits.array(key, len(obs) * len(MOVES))).reshape(len(obs), -1)
        there = obs.reshape(len(obs), 4, CELLS)
        cells = jnp.where(there.any(-1), there.argmax(-1), -1)
        return jax.vmap(lambda x, y: walk(x, y[0], y[2], y[3], jnp.asarray(leaves)))(drawn, cells), memory, ()

    return Learner(init=lambda key: (), act=act, update=keep_state)
