"""Strategies of sampled games that learn nothing."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from games import Game
from marl.blocks.distributions import distribution
from marl.core.learn import Learner, keep_state
from marl.learners.exact.fixed import checked_probabilities


def random(game: Game, player: int = 0) -> Learner:
    """Draws evenly from its actions, and learns nothing."""
    actions = distribution(game.action_space(game.agents[player]))

    def act(key: jax.Array, parameters: tuple[()], memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        return actions.sample(key, jnp.zeros((len(obs), actions.num_outputs + actions.num_scales))), memory, ()

    return Learner(lambda key: (), act, keep_state)


def play_memory_one(probabilities: Sequence[float]) -> Learner:
    """The same fixed policy in the sampled games of `games.suite.rounds`: it draws an action in every round.

    What it sees is the one-hot state `[..., 5]`: start, CC, CD, DC, DD.

    Raises:
      ValueError: if they are not five numbers in [0, 1].
    """
    p = jnp.asarray(checked_probabilities("play_memory_one", probabilities, (5,)), jnp.float32)

    def act(key: jax.Array, parameters: tuple[()], memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        defects = jax.random.uniform(key, obs.shape[:-1]) >= (obs * p).sum(-1)
        return defects.astype(jnp.int32), memory, ()

    return Learner(lambda key: (), act, keep_state)
