"""Reciprocators: learners with an intrinsic reward for answering in kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import returns_to_go
from marl.blocks.objectives import clipped_surrogate
from marl.core.learner import Learner, Metrics, Trajectory, co_players_rewards
from marl.learners.sampled.dice import discrete_actions, nonnegative_observations
from marl.learners.sampled.ppo import ppo, refuse_own


class Influence(NamedTuple):
    """Predictions of a pair, linear in one's own observation: tables where that is one-hot."""

    own: jax.Array  # [observation, own actions, the other's actions], of one's own rewards
    other: jax.Array  # likewise, of the other's rewards
    own_policy: jax.Array  # [observation, own actions], how often they are taken
    other_policy: jax.Array  # [observation, the other's actions]


class ReciprocatorState(NamedTuple):
    """The learner's state."""

    learner: Any  # of PPO
    influence: tuple[Influence, ...]  # one for each co-player


@factory
def reciprocator(
    game: Game,
    seat: int = 0,
    *,
    reciprocity: Scalar = 5.0,
    balance_decay: Scalar = 0.0,
    payback: Scalar = 0.0,
    influence_discount: Scalar = 0.0,
    influence_memory: Scalar = 20.0,
    learning_rate: Scalar | optax.Schedule = 0.005,
    epochs: int = 10,
    minibatches: int = 1,
    discount: Scalar = 0.96,
    clip: Scalar = 0.1,
    entropy_coefficient: Scalar = 0.02,
    **settings: Any,
) -> Learner:
    """PPO with a further reward for answering a co-player's influence on one's own reward in kind.

    The influence of j on i is how much better i fares than is expected from i's own action alone, and the balance b
    is what the co-player j did to i so far, with an episode's first at 0:

        V_ji(t) = Q_i(s_t, a_i, a_j) - Q_i(s_t, a_i),        V_ij(t) = Q_j(s_t, a_i, a_j) - Q_j(s_t, a_j),
        b_{t+1} = balance_decay b_t + V_ji(t) - payback V_ij(t),
        what PPO learns from is r_i(t) + reciprocity b_t V_ij(t).

    With several co-players each has a balance of its own, and the last term is summed over them. Q is of a pair: it
    sees no third player's action.

    Q of a player and of both actions is its expected return with those actions at s_t, discounted by
    `influence_discount`, up to the end of the episode or of the batch; of its own action alone it is the mean of that
    over the other's policy, as it was seen, so that influence is 0 on average. Q and the policies are linear in this
    player's observation o, and fitted to every batch before they are used; with W the weights for the actions in
    question, over the steps of the batch with these actions,

        W <- W + sum o (return - W o) / (influence_memory + max |o|_1 sum o),

    which is, where the observation is one-hot, the mean of the returns and of the old estimate, which has the weight of
    `influence_memory` visits. Balances begin at 0 with every batch too.

    Args:
      game: what is played, by two or more.
      seat: the number among the game's agents.
      reciprocity: weight of the intrinsic reward; 5 in the authors' prisoner's dilemma, 1 in their coin game.
      balance_decay: how much of the balance lasts for another step; 0 in their prisoner's dilemma, where only the last
        step is answered, and the discount in their coin game.
      payback: how far one's own influence on the co-player settles the balance; 1 in their coin game.
      influence_discount: of rewards in Q; 0 for those of the step alone, as in their prisoner's dilemma.
      influence_memory: of how many visits the old estimate of Q has the weight, above 0.
      learning_rate: as of `ppo`.
      epochs: as of `ppo`.
      minibatches: as of `ppo`.
      discount: as of `ppo`.
      clip: of `clipped_surrogate`.
      entropy_coefficient: as of `ppo`.
      **settings: of `ppo`.

    Raises:
      ValueError: for games of one player, actions that are not `Discrete`, observations that are no
        array or can be below 0, or numbers that are none or out of range; of an update, for a trajectory without the
        co-players' rewards.

    Source: Zhou, Hong and Kao, Reciprocal Reward Influence Encourages Cooperation From Self-Interested Agents (2024),
    arXiv:2406.01641; the defaults are those of its public code for the prisoner's dilemma, where Q is exact and the
    co-player's policy is counted.
    """
    if game.num_agents < 2:
        raise ValueError(f"reciprocator: got a game of {game.num_agents} players; one of two or more is needed")
    checks.number("reciprocity", reciprocity, 0)
    checks.number("balance_decay", balance_decay, 0, 1)
    checks.number("payback", payback, 0)
    checks.number("influence_discount", influence_discount, 0, 1)
    checks.number("influence_memory", influence_memory, 0, brackets="(]")
    refuse_own(settings, "objective")
    obs_shape = nonnegative_observations(game, seat)
    size = int(np.prod(obs_shape))
    others = [discrete_actions(game, i).num_outputs for i in range(game.num_agents)]
    own = others.pop(seat)
    learner = ppo(
        game,
        seat,
        learning_rate=learning_rate,
        epochs=epochs,
        minibatches=minibatches,
        discount=discount,
        objective=clipped_surrogate(clip=clip),
        entropy_coefficient=entropy_coefficient,
        **settings,
    )

    def init(key: jax.Array) -> ReciprocatorState:
        nothing = [jnp.zeros((size, own, other)) for other in others]
        policies = [[jnp.full((size, number), 1 / number) for number in (own, other)] for other in others]
        influence = tuple(Influence(x, x, *pair) for x, pair in zip(nothing, policies, strict=True))
        return ReciprocatorState(learner.init(key), influence)

    def update(key: jax.Array, state: ReciprocatorState, trajectory: Trajectory) -> tuple[ReciprocatorState, Metrics]:
        obs = trajectory.obs.reshape(*trajectory.reward.shape, size).astype(jnp.float32)
        mine = jax.nn.one_hot(trajectory.action, own)

        def of_pair(old: Influence, action: jax.Array, reward: jax.Array) -> tuple[Influence, jax.Array, jax.Array]:
            """The predictions after the batch, and the influence on oneself and on the other, `[T, N]`."""
            theirs = jax.nn.one_hot(action, old.other_policy.shape[1])
            both = mine[..., :, None] * theirs[..., None, :]
            own_return, other_return = (
                returns_to_go(x, trajectory.done, influence_discount) for x in (trajectory.reward, reward)
            )
            influence = Influence(
                fitted(obs, influence_memory, old.own, both, own_return),
                fitted(obs, influence_memory, old.other, both, other_return),
                counted(obs, influence_memory, old.own_policy, mine),
                counted(obs, influence_memory, old.other_policy, theirs),
            )
            # What would have come with each action of the one, the other's being as it was.
            by_theirs = mine[..., :, None] * probabilities(obs, influence.other_policy)[..., None, :]
            by_mine = probabilities(obs, influence.own_policy)[..., :, None] * theirs[..., None, :]
            to_me = predicted(obs, influence.own, both - by_theirs)
            return influence, to_me, predicted(obs, influence.other, both - by_mine)

        def step(balance: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            to_me, to_others, done = now
            after = balance_decay * balance + to_me - payback * to_others
            return jnp.where(done, 0.0, after), balance

        pairs = zip(state.influence, trajectory.others, co_players_rewards(trajectory), strict=True)
        influence, *each = zip(*(of_pair(*pair) for pair in pairs), strict=True)
        to_me, to_others = (jnp.stack(x, 1) for x in each)  # `[T, co-players, N]`
        _, balance = jax.lax.scan(step, jnp.zeros_like(to_me[0]), (to_me, to_others, trajectory.done))
        intrinsic = reciprocity * (balance * to_others).sum(1)
        chex.assert_equal_shape((intrinsic, trajectory.reward))
        learned, metrics = learner.update(key, state.learner, trajectory._replace(reward=trajectory.reward + intrinsic))
        return ReciprocatorState(learned, influence), metrics | {"intrinsic_reward": intrinsic.mean()}

    return learner._replace(init=init, update=update, policy=lambda state: learner.policy(state.learner))


def predicted(obs: jax.Array, weights: jax.Array, taken: jax.Array) -> jax.Array:
    """Predictions for the actions that were taken, `[T, N]`, with their indicators or weights `[T, N, ...]`."""
    return ((obs @ weights.reshape(len(weights), -1)) * taken.reshape(*obs.shape[:-1], -1)).sum(-1)


def fitted(obs: jax.Array, memory: Scalar, weights: jax.Array, taken: jax.Array, returns: jax.Array) -> jax.Array:
    """The weights after a batch, as in the docstring of `reciprocator`."""
    error = returns - predicted(obs, weights, taken)
    rows, columns = obs.reshape(-1, len(weights)), taken.reshape(error.size, -1)
    step = rows.T @ (columns * error.reshape(-1, 1)) / (memory + rows.sum(1).max() * (rows.T @ columns))
    return weights + step.reshape(weights.shape)


def counted(obs: jax.Array, memory: Scalar, weights: jax.Array, taken: jax.Array) -> jax.Array:
    """The same for a policy, `[observation, actions]`, of the actions that were taken, `[T, N, actions]`."""
    always = jnp.ones_like(taken[..., 0])
    return jax.vmap(lambda weights, taken: fitted(obs, memory, weights, always, taken), (1, -1), 1)(weights, taken)


def probabilities(obs: jax.Array, weights: jax.Array) -> jax.Array:
    """Probabilities of a policy's actions, `[T, N, actions]`."""
    found = jnp.maximum(obs @ weights, 1e-6)
    return found / found.sum(-1, keepdims=True)
