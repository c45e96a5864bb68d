"""The games of in-context co-player inference: their pools, play of drawn policies, and what cooperation is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

import games
from games import RandomCoPlayers
from marl.core.learner import Trajectory
from marl.experiments.reproduce.coin_pool import CELLS, MOVES, PARTS, CoinPool

MIXED, LEARNERS, IDENTIFIED, FIXED = "mixed pool", "learners only", "identified", "memory-one only"
SHARES = {MIXED: 0.5, LEARNERS: 0.0, IDENTIFIED: 0.5, FIXED: 1.0}
IPD, COINS = "ipd", "coin_game"
NUM_STATES = 5  # entries of an observation of the dilemma that are the state


class Dilemma(Protocol):
    """A game of two in which an action, or what an action leads to, is cooperation."""

    pools: tuple[str, ...]
    """Pools in which learners are trained."""
    parts: tuple[int, ...]
    """Entries of an observation that are each part of the state."""
    settings: Mapping[str, int]
    """Settings of ppi."""

    def make(self, pool: str, rounds: int, sharpness: float) -> Any:
        """The game of a pool; all have the same observations."""

    def drawn_play(self, key: jax.Array, game: Any, pool: str, rounds: int, episodes: int) -> Trajectory:
        """Play of the first of two policies that are drawn in each episode, or that act at random in `LEARNERS`."""

    def cooperates(self, played: Trajectory) -> tuple[jax.Array, jax.Array]:
        """Cooperation of each step, and its weight, 0 where there was nothing to choose."""


class PrisonersDilemma:
    """The repeated prisoner's dilemma, of memory-one policies."""

    pools: tuple[str, ...] = (MIXED, LEARNERS, IDENTIFIED, FIXED)
    parts: tuple[int, ...] = (NUM_STATES,)
    settings: Mapping[str, int] = {"memory": 32, "rollouts": 8, "horizon": 15}

    def make(self, pool: str, rounds: int, sharpness: float) -> RandomCoPlayers:
        bare = games.RepeatedGame(episode_length=rounds)
        return RandomCoPlayers(bare, SHARES[pool], float(pool == IDENTIFIED), sharpness=sharpness)

    def drawn_play(self, key: jax.Array, game: Any, pool: str, rounds: int, episodes: int) -> Trajectory:
        policy_key, act_key = jax.random.split(key)
        # Of a game in which the agents' co-players are the policies, those of the two agents play each other.
        policies = jax.vmap(game.reset)(jax.random.split(policy_key, episodes))[1].policies
        policies = jnp.full_like(policies, 0.5) if pool == LEARNERS else policies
        numbers = jax.random.uniform(act_key, (rounds, episodes, 2))

        def step(seen: jax.Array, uniform: jax.Array) -> tuple[jax.Array, Any]:
            chance = jnp.where(seen[..., None] == jnp.arange(NUM_STATES), policies, 0.0).sum(-1)
            actions = (uniform >= chance).astype(jnp.int32)
            after = 1 + 2 * actions + actions[:, ::-1]
            return after, (seen[:, 0], actions[:, 0], after[:, 0])

        seen, action, after = jax.lax.scan(step, jnp.zeros((episodes, 2), jnp.int32), numbers)[1]
        told = jnp.float32(game.identified) * jnp.concatenate([jnp.ones((episodes, 1)), policies[:, 1]], 1)

        def observed(state: jax.Array) -> jax.Array:
            beside = jnp.broadcast_to(told, (*state.shape, told.shape[-1]))
            return jnp.concatenate([jax.nn.one_hot(state, NUM_STATES), beside], -1)

        reward = jnp.asarray([0.0, *np.ravel(games.prisoners_dilemma.row_payoffs)], jnp.float32)[after]
        done = jnp.broadcast_to(jnp.arange(rounds)[:, None] == rounds - 1, action.shape)
        return Trajectory(observed(seen), action, reward, done, (), (), done, observed(after))

    def cooperates(self, played: Trajectory) -> tuple[jax.Array, jax.Array]:
        return (played.action == 0).astype(jnp.float32), jnp.ones_like(played.reward)


class Coins:
    """The coin game, of policies that leave coins to their owner or take them."""

    pools: tuple[str, ...] = (MIXED, LEARNERS, FIXED)
    parts: tuple[int, ...] = PARTS
    settings: Mapping[str, int] = {"memory": 64, "rollouts": 16, "horizon": 5}

    def make(self, pool: str, rounds: int, sharpness: float) -> CoinPool:
        return CoinPool(SHARES[pool], sharpness, rounds)

    def drawn_play(self, key: jax.Array, game: Any, pool: str, rounds: int, episodes: int) -> Trajectory:
        game = dataclasses.replace(game, share=0.0)  # the policies of the two boards play each other
        reset_key, key = jax.random.split(key)
        seen, state = jax.vmap(game.reset)(jax.random.split(reset_key, episodes))
        first, second = game.agents

        def step(now: tuple[Any, Any], key: jax.Array) -> tuple[Any, Any]:
            seen, state = now
            walk_key, step_key = jax.random.split(key)
            if pool == LEARNERS:
                actions = jax.random.randint(walk_key, (episodes, 2), 0, len(MOVES))
            else:
                actions = jax.vmap(game.policy_actions)(jax.random.split(walk_key, episodes), state)[:, ::-1]
            chosen = {first: actions[:, 0], second: actions[:, 1]}
            after, state, rewards, _, _ = jax.vmap(game.step_env)(jax.random.split(step_key, episodes), state, chosen)
            return (after, state), (seen[first], actions[:, 0], rewards[first], after[first])

        _, (obs, action, reward, after) = jax.lax.scan(step, (seen, state), jax.random.split(key, rounds))
        done = jnp.broadcast_to(jnp.arange(rounds)[:, None] == rounds - 1, action.shape)
        return Trajectory(obs, action, reward, done, (), (), done, after)

    def cooperates(self, played: Trajectory) -> tuple[jax.Array, jax.Array]:
        cell, coins = played.next_obs[..., :CELLS], played.obs[..., 2 * CELLS :]
        own, others = (coins[..., :CELLS] * cell).sum(-1), (coins[..., CELLS:] * cell).sum(-1)
        return own, own + others


DILEMMAS: dict[str, Dilemma] = {IPD: PrisonersDilemma(), COINS: Coins()}
