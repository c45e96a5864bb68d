"""Actor-critics whose steps may have been taken by an older policy: IMPALA, and the asynchronous one of A3C."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from games import Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import mean, v_trace
from marl.blocks.distributions import distribution
from marl.blocks.fan_in import has_fan_in
from marl.blocks.layers import where_done
from marl.blocks.networks import Network, feed_forward, unroll
from marl.blocks.sparse import Sparsity, descent
from marl.core.learner import Gradients, Learner, Metrics, Trajectory

Optimizer = Literal["adam", "rmsprop"]


class ActorCriticState(NamedTuple):
    """The learner's state; its policy are the parameters."""

    params: Any
    optimizer: optax.OptState


class ActorCriticMemory(NamedTuple):
    """The memory of an actor."""

    carry: Any  # of a recurrent network, [N, ...]
    params: Any  # with which it acted, where the actor computes gradients; () elsewhere


class ActorCriticExtras(NamedTuple):
    """Values of a step that `update` needs."""

    log_prob: jax.Array  # [N]
    carry: Any  # of the network, after the step, [N, ...]


@factory
def impala(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 1e-3,
    discount: Scalar = 0.99,
    trace_lambda: Scalar = 1.0,
    rho_clip: Scalar = 1.0,
    trace_clip: Scalar = 1.0,
    corrected: bool = True,
    reward_clip: Scalar | None = None,
    value_coefficient: Scalar = 0.5,
    entropy_coefficient: Scalar = 0.01,
    max_gradient_norm: Scalar = 0.5,
    optimizer: Optimizer = "adam",
    optimizer_epsilon: float = 1e-5,
    sparsity: Sparsity | None = None,
) -> Learner:
    """Learns a policy and a value from steps that may have been taken by a policy of some updates ago.

        loss = - mean A log pi(a | s) + value_coefficient (1/2) mean (V(s) - v)^2 - entropy_coefficient H,

    with v and A of `v_trace` by the ratio of today's policy to the one that acted. One step of the optimiser an update.
    `learn` needs `num_envs`. The settings of the paper's public code are `learning_rate=4.8e-4,
    entropy_coefficient=2.5e-4, reward_clip=1, optimizer='rmsprop', optimizer_epsilon=0.1` of sums where these are
    means, with 100 steps of each environment in an update; it does not clip gradients, where the paper says 40.

    On CartPole-v1, in 8 environments and 5 steps of each in an update, 400,000 steps with the learning rate falling to
    0 bring 32 of 32 seeds to a return of 475 or more, without exploration.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: `feed_forward` of the game's observations by default.
      learning_rate: a number, or a schedule of optax over the updates.
      discount: of rewards.
      trace_lambda: of the errors to come, as of `v_trace`.
      rho_clip: of the ratio that weighs a step's own error.
      trace_clip: of the ratios that weigh those to come.
      corrected: whether ratios count; otherwise all are taken for 1, as if today's policy had acted.
      reward_clip: rewards count up to this, either way; None takes them as they are.
      value_coefficient: weight of the value's loss.
      entropy_coefficient: weight of the policy's entropy.
      max_gradient_norm: of the gradient of all parameters together.
      optimizer: adam, or rmsprop with a decay of 0.99.
      optimizer_epsilon: of either; a large one keeps small gradients small.
      sparsity: of the parameters, what `sparse` returns; None is dense.

    Raises:
      ValueError: for actions without a distribution, or numbers that are none or out of range.

    Source: Espeholt et al., IMPALA (2018), arXiv:1802.01561.
    """
    return _actor_critic(
        game,
        seat,
        network=network,
        learning_rate=learning_rate,
        discount=discount,
        trace_lambda=trace_lambda,
        rho_clip=rho_clip,
        trace_clip=trace_clip,
        corrected=corrected,
        reward_clip=reward_clip,
        value_coefficient=value_coefficient,
        entropy_coefficient=entropy_coefficient,
        max_gradient_norm=max_gradient_norm,
        optimizer=optimizer,
        optimizer_epsilon=optimizer_epsilon,
        sparsity=sparsity,
        at_actor=False,
    )


@factory
def a3c(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 1e-3,
    discount: Scalar = 0.99,
    trace_lambda: Scalar = 1.0,
    reward_clip: Scalar | None = None,
    value_coefficient: Scalar = 0.5,
    entropy_coefficient: Scalar = 0.01,
    max_gradient_norm: Scalar = 0.5,
    optimizer: Optimizer = "adam",
    optimizer_epsilon: float = 1e-5,
    sparsity: Sparsity | None = None,
) -> Learner:
    """Learns by the policy gradient of each actor at the actor's own parameters, whatever became of them meanwhile.

    The gradient is that of `a2c` at the actor's parameters; the step of the optimiser is taken at the learner's. No
    actor waits for another, which the paper calls lock-free. No gradient is lost, because they are added in the order
    in which they come. Without delay it is `a2c`. Gradients travel from the actors.

    On CartPole-v1, in 8 environments and 5 steps of each in an update, 400,000 steps with the learning rate falling to
    0 bring 8 of 8 seeds to a return of 475 or more, without exploration.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: `feed_forward` of the game's observations by default.
      learning_rate: a number, or a schedule of optax over the updates.
      discount: of rewards.
      trace_lambda: 0 trusts the value, 1 the return.
      reward_clip: rewards count up to this, either way; None takes them as they are.
      value_coefficient: weight of the value's loss.
      entropy_coefficient: weight of the policy's entropy.
      max_gradient_norm: of the gradient of all parameters together.
      optimizer: adam, or rmsprop with a decay of 0.99, whose statistics all actors share.
      optimizer_epsilon: of either.
      sparsity: of the parameters, what `sparse` returns; None is dense.

    Raises:
      ValueError: as `impala`.

    Source: Mnih et al., Asynchronous Methods for Deep Reinforcement Learning (2016), arXiv:1602.01783, algorithm S3.
    """
    return _actor_critic(
        game,
        seat,
        network=network,
        learning_rate=learning_rate,
        discount=discount,
        trace_lambda=trace_lambda,
        reward_clip=reward_clip,
        value_coefficient=value_coefficient,
        entropy_coefficient=entropy_coefficient,
        max_gradient_norm=max_gradient_norm,
        optimizer=optimizer,
        optimizer_epsilon=optimizer_epsilon,
        sparsity=sparsity,
        rho_clip=1.0,
        trace_clip=1.0,
        corrected=False,
        at_actor=True,
    )


def _actor_critic(
    game: Game,
    seat: int,
    *,
    network: Network | None,
    learning_rate: Scalar | optax.Schedule,
    discount: Scalar,
    trace_lambda: Scalar,
    rho_clip: Scalar,
    trace_clip: Scalar,
    corrected: bool,
    reward_clip: Scalar | None,
    value_coefficient: Scalar,
    entropy_coefficient: Scalar,
    max_gradient_norm: Scalar,
    optimizer: Optimizer,
    optimizer_epsilon: float,
    sparsity: Sparsity | None,
    at_actor: bool,
) -> Learner:
    checks.number("discount", discount, 0, 1)
    checks.number("trace_lambda", trace_lambda, 0, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.number("value_coefficient", value_coefficient, 0)
    checks.number("entropy_coefficient", entropy_coefficient, 0)
    checks.choice("optimizer", optimizer, ("adam", "rmsprop"))
    positive = {"rho_clip": rho_clip, "trace_clip": trace_clip, "max_gradient_norm": max_gradient_norm}
    positive |= {"optimizer_epsilon": optimizer_epsilon, "reward_clip": 1.0 if reward_clip is None else reward_clip}
    for name, x in positive.items():
        checks.number(name, x, 0, brackets="()")
    agent = game.agents[seat]
    actions = distribution(game.action_space(agent))
    network = network or feed_forward(
        game.observation_space(agent).shape, actions.num_outputs, num_scales=actions.num_scales
    )
    has_memory = bool(jax.tree.leaves(network.initial(1)))
    make = optax.adam if optimizer == "adam" else partial(optax.rmsprop, decay=0.99)  # optax's own is 0.9
    follow = optax.chain(optax.clip_by_global_norm(max_gradient_norm), make(learning_rate, eps=optimizer_epsilon))
    steps = descent(follow, sparsity)

    def init(key: jax.Array) -> ActorCriticState:
        params, optimizer = steps.init(key, network.init(key))
        if at_actor and steps.every and has_fan_in(params):
            words = "its gradients are of earlier parameters, so static or masks are needed"
            raise ValueError(f"sparsity: got a constant fan-in that changes; {words}")
        return ActorCriticState(params, optimizer)

    def policy(state: ActorCriticState) -> Any:
        return state.params

    def init_memory(params: Any, num_envs: int | None) -> ActorCriticMemory:
        if has_memory and num_envs is None:
            raise ValueError("num_envs: got None; a recurrent network needs the number of environments")
        return ActorCriticMemory(network.initial(num_envs or 0), params if at_actor else ())

    def act(
        key: jax.Array, params: Any, memory: ActorCriticMemory, obs: jax.Array
    ) -> tuple[jax.Array, ActorCriticMemory, ActorCriticExtras]:
        outputs, _, carry = network.apply(params, obs, memory.carry)
        action = actions.sample(key, outputs)
        memory = ActorCriticMemory(carry, params if at_actor else ())
        return action, memory, ActorCriticExtras(actions.log_prob(outputs, action), carry)

    def act_greedy(params: Any, memory: ActorCriticMemory, obs: jax.Array) -> tuple[jax.Array, ActorCriticMemory]:
        outputs, _, carry = network.apply(params, obs, memory.carry)
        return actions.mode(outputs), memory._replace(carry=carry)

    def reset_memory(memory: ActorCriticMemory, done: jax.Array) -> ActorCriticMemory:
        return memory._replace(carry=where_done(done, network.initial(len(done)), memory.carry))

    def loss(params: Any, trajectory: Trajectory) -> tuple[jax.Array, Metrics]:
        extras, t = trajectory.extras, trajectory
        outputs, value, carries = unroll(network, params, t.obs, t.done, t.first_memory.carry)
        log_prob = actions.log_prob(outputs, t.action)
        next_value = following(params, t, value, carries)
        reward = t.reward if reward_clip is None else jnp.clip(t.reward, -reward_clip, reward_clip)
        chex.assert_equal_shape((log_prob, extras.log_prob, value, next_value, reward))
        log_ratio = jax.lax.stop_gradient(log_prob) - extras.log_prob if corrected else jnp.zeros_like(log_prob)
        values = jax.lax.stop_gradient((value, next_value))
        traced = v_trace(log_ratio, reward, *values, t.done, t.truncated, discount, trace_lambda, rho_clip, trace_clip)
        gain, error = mean(traced.advantage * log_prob, t.valid), 0.5 * mean((value - traced.target) ** 2, t.valid)
        entropy = mean(actions.entropy(outputs), t.valid)
        metrics = {"value_loss": error, "entropy": entropy, "kl": mean(extras.log_prob - log_prob, t.valid)}
        return value_coefficient * error - entropy_coefficient * entropy - gain, metrics

    def following(params: Any, t: Trajectory, value: jax.Array, carries: Any) -> jax.Array:
        """The value of what was seen after each step: that of the next row, but for the last and for time limits."""

        def each(_: None) -> jax.Array:
            return network.apply(params, t.next_obs, carries)[1]

        def rows(_: None) -> jax.Array:
            last = jax.tree.map(lambda x: x[-1], (t.next_obs, carries))
            return jnp.append(value[1:], network.apply(params, *last)[1][None], 0)

        params, value, carries = jax.lax.stop_gradient((params, value, carries))
        return jax.lax.cond(t.truncated[:-1].any(), each, rows, None)

    def gradient(key: jax.Array, trajectory: Trajectory) -> tuple[Any, Metrics]:
        del key
        return jax.grad(loss, has_aux=True)(trajectory.last_memory.params, trajectory)

    def apply(state: ActorCriticState, gradient: Any) -> ActorCriticState:
        return ActorCriticState(*steps.update(gradient, state.optimizer, state.params))

    def update(key: jax.Array, state: ActorCriticState, trajectory: Trajectory) -> tuple[ActorCriticState, Metrics]:
        if at_actor:
            found, metrics = gradient(key, trajectory)
        else:
            found, metrics = jax.grad(loss, has_aux=True)(state.params, trajectory)
        return apply(state, found), metrics

    gradients = Gradients(gradient, apply) if at_actor else None
    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory if has_memory else None,
        act_greedy=act_greedy,
        seat=seat,
        gradients=gradients,
    )
