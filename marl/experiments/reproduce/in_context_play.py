"""Play of learners after their training in a pool: with each other, with fresh policies, and with extortioners."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import games
from games import Game, RandomCoPlayers
from games.core import random_bits
from games.exact.zd import random_policies, zd_policy
from marl.core.learn import learn
from marl.core.learner import Learner, Trajectory, frozen, keep_state
from marl.experiments.reproduce.coin_pool import taker
from marl.experiments.reproduce.in_context import Training
from marl.experiments.reproduce.in_context_games import NUM_STATES
from meta.loop import compiler_options

ENVS = 64  # episodes of a meeting
FRESH = 128  # policies that a training has not met
TRIED, SEARCHES = 64, 4  # extortioners and other policies, and episodes of each in the search for the best
CONFIRMED = 64  # fresh episodes of the best


class Play(NamedTuple):
    """Means over episodes, by round: `[..., T, 2]`, of both seats."""

    cooperation: Any
    payoff: Any


def of_policy(probabilities: jax.Array) -> Learner:
    """A memory-one policy, `[5]`, in a game whose observations begin with the state."""

    def act(key: jax.Array, parameters: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        uniform = random_bits.uniform(random_bits.array(key, len(obs)))
        return (uniform >= obs[:, :NUM_STATES] @ parameters).astype(jnp.int32), memory, ()

    return Learner(init=lambda key: probabilities, act=act, update=keep_state)


def meet(
    key: jax.Array, game: Any, players: tuple[Learner, Learner], config: Training, envs: int
) -> tuple[Play, jax.Array]:
    """An episode in each of some environments, and the policies of the pool that were met, `[N, 2, ...]`."""
    found = learn(
        key, game, players, num_updates=1, steps_per_update=config.rounds, num_envs=envs, keep_trajectories=True
    )
    assert found.trajectories is not None

    def cooperation(played: Trajectory) -> jax.Array:
        value, weight = (x[0].sum(-1) for x in config.dilemma.cooperates(played))
        return value / jnp.maximum(weight, 1.0)

    payoff = jnp.stack([one.reward[0].mean(-1) for one in found.trajectories], -1)
    return Play(jnp.stack(list(map(cooperation, found.trajectories)), -1), payoff), found.game_states.policies[0, 0]


class Meetings:
    """Programs of play of trained learners of one kind, compiled once for all pools, because the game is an argument.

    Args:
      config: of the trainings of a pool, S of T rounds each.
    """

    def __init__(self, config: Training) -> None:
        learners, self.seeds = config.make_learners(), config.seeds

        def pair(key: jax.Array, game: Game, own: Any, other: Any, envs: int) -> tuple[Play, jax.Array]:
            return meet(key, game, (frozen(learners[0], own), frozen(learners[1], other)), config, envs)

        def with_policy(key: jax.Array, game: Game, state: Any, policy: jax.Array, envs: int) -> jax.Array:
            return meet(key, game, (frozen(learners[0], state), of_policy(policy)), config, envs)[0].payoff.mean(0)

        policies = jnp.asarray(extortioners(TRIED), jnp.float32)

        def search(key: jax.Array, game: Game, state: Any) -> tuple[jax.Array, jax.Array]:
            search_key, key = jax.random.split(key)
            keys = jax.random.split(search_key, len(policies))
            found = jax.vmap(with_policy, (0, None, None, 0, None))(keys, game, state, policies, SEARCHES)
            best = policies[found[:, 1].argmax()]
            return with_policy(key, game, state, best, CONFIRMED), best

        def takes(key: jax.Array, game: Game, leaves: bool) -> jax.Array:
            return meet(key, game, (taker(leaves), taker(leaves)), config, FRESH)[0].payoff.mean()

        self._takers = {leaves: _compiled(partial(takes, leaves=leaves)) for leaves in (False, True)}
        self._between = _compiled(partial(pair, envs=ENVS))
        self._fresh = _compiled(partial(pair, envs=FRESH))
        self._search = _compiled(search)

    def between_trainings(self, key: jax.Array, game: Any, states: Sequence[Any]) -> Play:
        """Every training's first learner with the next training's second, `[S, T, 2]`."""
        second = jax.tree.map(lambda x: jnp.roll(x, -1, 0), states[1])
        keys = jax.random.split(key, self.seeds)
        play, _ = self._between(keys, dataclasses.replace(game, share=0.0), states[0], second)
        return Play(*(np.asarray(x, np.float64) for x in play))

    def with_fresh_policies(self, key: jax.Array, game: Any, states: Sequence[Any]) -> tuple[Play, np.ndarray]:
        """Every training with new random policies, `[S, T, 2]`, and these, `[S, N, 2, ...]`."""
        found = self._fresh(jax.random.split(key, self.seeds), dataclasses.replace(game, share=1.0), *states)
        return jax.tree.map(lambda x: np.asarray(x, np.float64), found)

    def of_takers(self, key: jax.Array, game: Any, leaves: bool) -> np.ndarray:
        """Payoffs per round of players that take all coins, or leave those of others, `[S]`.

        They meet the policies of `with_fresh_policies` with the same key.
        """
        keys = jax.random.split(key, self.seeds)
        return np.asarray(self._takers[leaves](keys, dataclasses.replace(game, share=1.0)), np.float64)

    def with_extortioners(self, key: jax.Array, game: RandomCoPlayers, states: Any) -> tuple[np.ndarray, np.ndarray]:
        """Payoffs per round of each training's first learner and of the policy that gets most from it.

        The best of `extortioners`, and then fresh episodes of it, so that no luck of the search is counted.

        Returns:
          (payoffs `[S, 2]`, the learner's first; the probabilities of the policies `[S, 5]`).
        """
        found = self._search(jax.random.split(key, self.seeds), dataclasses.replace(game, share=0.0), states)
        payoffs, best = (np.asarray(x, np.float64) for x in found)
        return payoffs, best


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of many keys and states, one after the other, because rollouts of all at once fill no cache."""

    def every(keys: jax.Array, game: Game, *states: Any) -> Any:
        return jax.lax.map(lambda now: function(now[0], game, *now[1:]), (keys, *states))

    return jax.jit(every, compiler_options=compiler_options())


def exact_payoff(policies: np.ndarray, rounds: int, *, actions: tuple[int, ...] = (0, 1)) -> np.ndarray:
    """Payoff per round `[...]` of the best response to memory-one policies `[..., 5]` that are known, in the dilemma.

    Backward induction over the rounds, in double precision. V_T = 0, and in a state s, own action first,

        V_t(s) = max_a E_b [r(a, b) + V_{t+1}(a, b)],    b by the policy in its own view of s.

    Args:
      policies: each in its own view.
      rounds: of an episode.
      actions: of which the best is taken; `(1,)` always defects.
    """
    payoffs = np.asarray(games.prisoners_dilemma.row_payoffs, np.float64).reshape(2, 2)
    cooperates = np.asarray(policies, np.float64)[..., [0, 1, 3, 2, 4]]  # its CD is the other's DC
    value = np.zeros_like(cooperates)
    for _ in range(rounds):
        after = value[..., 1:].reshape(*value.shape[:-1], 1, 2, 2) + payoffs  # `[..., 1, own, other]`
        p = cooperates[..., None]
        each = p * after[..., 0] + (1 - p) * after[..., 1]  # `[..., 5, own]`
        value = each[..., list(actions)].max(-1)
    return value[..., 0] / rounds


def extortioners(number: int, seed: int = 0) -> np.ndarray:
    """Memory-one policies `[number, 5]`: zero-determinant extortion of several factors, and random ones."""
    factors = np.linspace(1.2, 8.0, 16)
    zero_determinant = [zd_policy(games.prisoners_dilemma, chi, discount=0.99) for chi in factors]
    begun = np.array(zero_determinant)
    begun[:, 0] = 1.0  # cooperates first
    drawn = random_policies(np.random.default_rng(seed), number - 2 * len(factors))
    return np.concatenate([zero_determinant, begun, drawn])
