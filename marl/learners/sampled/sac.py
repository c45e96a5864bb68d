"""SAC: two critics, and a stochastic actor whose entropy counts as a reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import jax
import jax.numpy as jnp

from games import Game
from games.core import checks, random_bits
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.layers import Activation
from marl.blocks.sparse import Sparsity
from marl.core.learner import Learner
from marl.learners.sampled.off_policy import DynamicBuffer, OffPolicyReplay, Style, Targets, off_policy_learner

LOG_SCALE = (-20.0, 2.0)  # bounds of the normal distribution's log standard deviation


class Entropy(TypedDict, total=False):
    """Settings of the entropy that counts as a reward."""

    temperature: Scalar
    target_entropy: Scalar | None
    learn_temperature: bool


@factory
def sac(
    game: Game,
    seat: int = 0,
    *,
    hidden: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    learning_rate: Scalar = 3e-4,
    critic_learning_rate: Scalar | None = None,
    discount: Scalar = 0.99,
    replay: OffPolicyReplay = {
        "buffer_size": 2**20,
        "batch_size": 256,
        "learning_starts": 1_000,
        "gradient_steps": None,
    },
    tau: Scalar = 0.005,
    entropy: Entropy = {"temperature": 1.0, "target_entropy": None, "learn_temperature": True},
    normalize_observations: bool = False,
    targets: Targets = {"multi_step": 1, "multi_step_from": 0},
    dynamic_buffer: DynamicBuffer = {
        "buffer_drift": None,
        "buffer_relative": False,
        "buffer_least": 200_000,
        "buffer_every": 10_000,
    },
    sparsity: Sparsity | None = None,
    critic_sparsity: Sparsity | None = None,
) -> Learner:
    """Learns two values of actions and a stochastic actor, whose entropy counts as a reward. Actions are in bounds.

    The actor's actions are u = tanh(m + e^l z), z normal and independent, m and l its outputs. With temperature T,

        y = r + discount (min_i Q'_i(s', u') - T log pi(u' | s')),        u' drawn at s' by the actor itself,

    is what both critics learn, as those of `td3` do, with y = r where the episode terminated; the actor climbs the mean
    of min_i Q_i(s, u) - T log pi(u | s), and the temperature falls where the entropy is above `target_entropy`: log T
    goes down the gradient of -T (log pi(u | s) + target_entropy). All three in every gradient step, and Q' after them.
    Of several steps' rewards no entropy is counted.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      hidden: units of each layer, of the actor and of each critic.
      activation: after each.
      learning_rate: of Adam for the actor.
      critic_learning_rate: of Adam for the critics and the temperature; that of the actor if None.
      discount: of rewards.
      replay: a dict of settings, each with a default:
        buffer_size: number of stored steps, a multiple of those between two updates.
        batch_size: of a gradient step.
        learning_starts: steps before the first gradient step, with uniform actions.
        gradient_steps: in each update; None takes as many as there were steps of the environments.
      tau: 1 takes Q itself for the target.
      entropy: a dict of settings, each with a default:
        temperature: in the beginning.
        target_entropy: of actions in [-1, 1]; as many as an action has numbers, and negative, if None.
        learn_temperature: whether it changes.
      normalize_observations: by their running mean and standard deviation, those of now for what was seen before too.
      targets: a dict of settings, each with a default:
        multi_step: how many rewards come before a value, fewer at the end of what is stored.
        multi_step_from: gradient steps from which on they are so many; one before.
      dynamic_buffer: as of `td3`, with the likeliest actions and another default of `buffer_least`.
      sparsity: of the actor, what `sparse` returns; None is dense.
      critic_sparsity: of both critics together; the same as the actor's if None.

    Raises:
      ValueError: as `td3`.

    Source: Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), arXiv:1812.05905.
    """
    temperature, target_entropy = entropy["temperature"], entropy["target_entropy"]
    checks.number("temperature", temperature, 0, brackets="()")
    if target_entropy is not None:
        checks.number("target_entropy", target_entropy)

    def draw(key: jax.Array, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        centre, log_scale = jnp.split(outputs, 2, -1)
        log_scale = jnp.clip(log_scale, *LOG_SCALE)
        normal = jax.random.normal(random_bits.unrolled(key), centre.shape)
        before = centre + jnp.exp(log_scale) * normal
        # log(1 - tanh(x)^2) in a form that does not become log(0).
        squashed = 2 * (math.log(2) - before - jax.nn.softplus(-2 * before))
        log_prob = -0.5 * normal**2 - log_scale - 0.5 * math.log(2 * math.pi) - squashed
        return jnp.tanh(before), log_prob.sum(-1)

    style = Style(2, lambda key, outputs: draw(key, outputs)[0], draw, draw, delayed=False, delay=1)
    critic_rate = learning_rate if critic_learning_rate is None else critic_learning_rate
    return off_policy_learner(
        style,
        temperature,
        (critic_rate if entropy["learn_temperature"] else 0.0, target_entropy),
        game=game,
        seat=seat,
        hidden=hidden,
        activation=activation,
        learning_rate=learning_rate,
        critic_learning_rate=critic_rate,
        discount=discount,
        replay=replay,
        tau=tau,
        normalize_observations=normalize_observations,
        targets=targets,
        dynamic_buffer=dynamic_buffer,
        sparsity=sparsity,
        critic_sparsity=critic_sparsity,
    )
