"""TD3: two critics, and a deterministic actor with noise that climbs one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypedDict

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


class TD3Targets(Targets, total=False):
    """Settings of the rewards and values in a critic's target."""

    value_rollouts: int


class Noise(TypedDict, total=False):
    """Settings of the noise on actions."""

    exploration_noise: Scalar
    target_noise: Scalar
    noise_clip: Scalar


@factory
def td3(
    game: Game,
    seat: int = 0,
    *,
    hidden: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    learning_rate: Scalar = 3e-4,
    discount: Scalar = 0.99,
    replay: OffPolicyReplay = {
        "buffer_size": 2**20,
        "batch_size": 256,
        "learning_starts": 1_000,
        "gradient_steps": None,
    },
    tau: Scalar = 0.005,
    noise: Noise = {"exploration_noise": 0.1, "target_noise": 0.2, "noise_clip": 0.5},
    policy_delay: int = 2,
    normalize_observations: bool = False,
    targets: TD3Targets = {"multi_step": 1, "multi_step_from": 0, "value_rollouts": 0},
    dynamic_buffer: DynamicBuffer = {
        "buffer_drift": None,
        "buffer_relative": False,
        "buffer_least": 100_000,
        "buffer_every": 10_000,
    },
    sparsity: Sparsity | None = None,
    critic_sparsity: Sparsity | None = None,
) -> Learner:
    """Learns two values of actions, and an actor that climbs one of them. Actions are arrays in bounds.

    A step of the critics is Adam's on the sum of both means of (Q_i(s, a) - y)^2 over a minibatch of the buffer, with

        y = r + discount min_i Q'_i(s', clip(pi'(s') + clip(target_noise z, -noise_clip, noise_clip), -1, 1)),

    z normal, and y = r where the episode terminated. After every `policy_delay` of them comes a step of the actor up
    the mean of Q_1(s, pi(s)), and Q' and pi' move the share `tau` of their way to Q and pi. Actions and noise are in
    units of half the width of the bounds. The first `learning_starts` actions are uniform, and nothing is learned.

    With `multi_step` and `multi_step_from`, `dynamic_buffer`, `sparsity` and `critic_sparsity` it is RLx2.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      hidden: units of each layer, of the actor and of each critic.
      activation: after each.
      learning_rate: of Adam, for the actor and the critics.
      discount: of rewards.
      replay: a dict of settings, each with a default:
        buffer_size: number of stored steps, a multiple of those between two updates.
        batch_size: of a gradient step.
        learning_starts: steps before the first gradient step.
        gradient_steps: of the critics, in each update; None takes as many as there were steps of the environments.
      tau: 1 takes Q itself for the target.
      noise: a dict of settings, each with a default:
        exploration_noise: standard deviation of the noise on the actor's actions while it learns.
        target_noise: standard deviation of the noise on the target's actions.
        noise_clip: bound of the latter noise.
      policy_delay: gradient steps of the critics for one of the actor.
      normalize_observations: by their running mean and standard deviation, those of now for what was seen before too.
      targets: a dict of settings, each with a default:
        multi_step: how many rewards come before a value, fewer at the end of what is stored.
        multi_step_from: gradient steps of the critics from which on they are so many; one before.
        value_rollouts: steps of rollouts of pi' in the game itself, whose return is in y in place of the least Q'_i,
          for studies of the critics' errors; 0 for none. The reward of the last step is taken to repeat for ever. A
          game of one player with `state_of(obs)` is needed, and random numbers of the game are the same in all
          rollouts.
      dynamic_buffer: a dict of settings, each with a default:
        buffer_drift: largest distance of the actor from the buffer: while it is farther, the oldest tenth is dropped.
          The distance is half the mean square between the actor's actions and those of the oldest 2,048 steps. None
          drops nothing before the buffer is full.
        buffer_relative: whether that distance is in units of half the mean of both squares together, so that it is 0
          between the same actions, 1 between such as have nothing to do with each other, and 2 between opposite ones,
          whether actions are as large as they can be or small.
        buffer_least: nothing is dropped while no more steps than these are stored.
        buffer_every: gradient steps from one measurement of that distance to the next.
      sparsity: of the actor, what `sparse` returns; None is dense. Counts the actor's own steps.
      critic_sparsity: of both critics together; the same as the actor's if None.

    Raises:
      ValueError: for actions that are no `Box` with bounds, observations that are no array, numbers that are none or
        out of range, or rollouts in another game or with normalised observations.

    Source: Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods (2018), arXiv:1802.09477,
    with the sizes and rates of its public code; the rest: Tan et al., RLx2 (2023), arXiv:2205.15043.
    """
    checks.size("policy_delay", policy_delay, 1)
    exploration_noise, target_noise = noise["exploration_noise"], noise["target_noise"]
    noise_clip = noise["noise_clip"]
    for name, value in noise.items():
        checks.number(name, value, 0)

    def noisy(key: jax.Array, outputs: jax.Array, scale: Scalar, most: Scalar) -> jax.Array:
        noise = jnp.clip(scale * jax.random.normal(random_bits.unrolled(key), outputs.shape), -most, most)
        return jnp.clip(jnp.tanh(outputs) + noise, -1, 1)

    value_rollouts = targets["value_rollouts"]
    checks.whole("value_rollouts", value_rollouts, 0)
    if value_rollouts:
        given = f"value_rollouts: got {value_rollouts}"
        if game.num_agents > 1 or not hasattr(game, "state_of"):
            raise ValueError(f"{given}; a game of one player with state_of(obs) is needed")
        if normalize_observations:
            raise ValueError(f"{given}; observations as they are, not normalised, are needed")
        checks.number("discount", discount, 0, 1, brackets="[)")
    style = Style(
        1,
        lambda key, outputs: noisy(key, outputs, exploration_noise, jnp.inf),
        lambda key, outputs: (jnp.tanh(outputs), jnp.zeros(outputs.shape[:-1])),
        lambda key, outputs: (noisy(key, outputs, target_noise, noise_clip), jnp.zeros(outputs.shape[:-1])),
        delayed=True,
        delay=policy_delay,
        value=partial(_rollout_value, game, value_rollouts, discount) if value_rollouts else None,
    )
    return off_policy_learner(
        style,
        0.0,
        None,
        game=game,
        seat=seat,
        hidden=hidden,
        activation=activation,
        learning_rate=learning_rate,
        critic_learning_rate=learning_rate,
        discount=discount,
        replay=replay,
        tau=tau,
        normalize_observations=normalize_observations,
        targets=targets,
        dynamic_buffer=dynamic_buffer,
        sparsity=sparsity,
        critic_sparsity=critic_sparsity,
    )


def _rollout_value(
    game: Any, steps: int, discount: Scalar, act: Callable[[jax.Array], jax.Array], obs: jax.Array, action: jax.Array
) -> jax.Array:
    """Discounted returns `[B]` of actions and of the policy after them; the last reward is taken to repeat for ever.

    Args:
      game: of one player; its random numbers are the same in all rollouts.
      steps: of a rollout.
      discount: of rewards.
      act: the policy, `[B, ...] -> [B, ...]`.
      obs: where the rollouts begin, `[B, ...]`.
      action: the first actions, `[B, ...]`.
    """
    (agent,), key = game.agents, jax.random.key(0)

    def step(carry: Any, number: jax.Array) -> tuple[Any, None]:
        state, action, weight, total, _ = carry
        draw = jax.random.fold_in(key, number)
        obs, state, reward, done, info = jax.vmap(lambda s, a: game.step_env(draw, s, {agent: a}))(state, action)
        total += weight * reward[agent]
        weight *= discount * (~done[agent] | info["truncated"][:, 0])
        return (state, act(obs[agent]), weight, total, reward[agent]), None

    zeros, ones = jnp.zeros(len(obs)), jnp.ones(len(obs))
    begin = jax.vmap(game.state_of)(obs), action, ones, zeros, zeros
    (_, _, weight, total, last), _ = jax.lax.scan(step, begin, jnp.arange(steps))
    return total + weight * last / (1 - discount)
