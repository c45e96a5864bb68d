"""Parallelised Q-learning, as a learner of any game with few actions: Q(lambda) from a rollout, without a buffer."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import chex
import jax
import jax.numpy as jnp
import optax

from games import Discrete, Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import generalized_advantages, mean, of_action
from marl.blocks.exploration import epsilon_greedy
from marl.blocks.minibatches import minibatch_epochs
from marl.blocks.networks import Network, feed_forward
from marl.blocks.sparse import Sparsity, descent
from marl.core.learner import Learner, Metrics, Trajectory


class PQNState(NamedTuple):
    """The learner's state."""

    params: Any
    optimizer: optax.OptState
    steps: jax.Array  # [], transitions so far


class PQNPolicy(NamedTuple):
    """The policy that acts."""

    params: Any
    epsilon: jax.Array  # [], the share of random actions


class FallingEpsilon(TypedDict, total=False):
    """Settings of random actions whose share falls."""

    epsilon_start: Scalar
    epsilon_end: Scalar
    epsilon_steps: Scalar


class _Batch(NamedTuple):
    """Inputs of the loss, `[steps times environments, ...]`."""

    obs: jax.Array
    action: jax.Array
    target: jax.Array
    valid: jax.Array | None


@factory
def pqn(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 5e-4,
    epochs: int = 4,
    minibatches: int = 16,
    discount: Scalar = 0.99,
    trace_lambda: Scalar = 0.95,
    exploration: FallingEpsilon = {"epsilon_start": 1.0, "epsilon_end": 0.05, "epsilon_steps": 100_000},
    max_gradient_norm: Scalar = 10.0,
    sparsity: Sparsity | None = None,
) -> Learner:
    """Learns action values from the steps between two updates, and acts on them greedily but for random actions.

    There is neither a replay buffer nor a target network. The targets are Peng's Q(lambda): with V(s) = max_a Q(s, a)
    by the values that acted, and V(s'_t) = 0 where the episode terminated,

        G_t = r_t + discount ((1 - trace_lambda) V(s'_t) + trace_lambda G_{t+1}),

    and G_t = r_t + discount V(s'_t) at the end of the batch and where a time limit ended the episode. A gradient step
    is rectified Adam's on half the mean square of Q(s, a) - G over a minibatch. Layer normalisation keeps the values
    bounded. `learn` needs `num_envs`.

    On CartPole-v1, in 32 environments and 32 steps of each in an update, 300,000 steps with the learning rate falling
    to 0 and `epsilon_steps=60_000` bring 3 of 3 seeds to a return of 500, without exploration.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: `feed_forward` of the game's observations by default, with layer normalisation, relu and layers of
        128 units; its outputs are the action values.
      learning_rate: a number, or a schedule of optax over the gradient steps, `epochs * minibatches` in each update.
      epochs: over the same batch.
      minibatches: of an epoch, shuffled in each; 1 is the full batch.
      discount: of rewards.
      trace_lambda: 0 looks one step ahead, 1 to the end of the episode or of the batch; 0.65 in the paper's Atari.
      exploration: a dict of settings, each with a default:
        epsilon_start: share of random actions at first.
        epsilon_end: share of random actions in the end.
        epsilon_steps: transitions over which epsilon falls from one to the other, on a straight line.
      max_gradient_norm: of the gradient of all parameters together.
      sparsity: of the parameters, what `sparse` returns; None is dense.

    Raises:
      ValueError: for actions that are not `Discrete`, a network with memory, or numbers that are none or out of range.

    Example:
      >>> import games, jax, marl
      >>> learner = marl.pqn(games.make("CartPole-v1"), network=marl.feed_forward((4,), 2, hidden=[8], layer_norm=True))
      >>> policy = learner.policy(learner.init(jax.random.key(0)))
      >>> float(policy.epsilon)
      1.0

    Source: Gallici et al., Simplifying Deep Temporal Difference Learning (2025), arXiv:2407.04811; the targets: Peng
    and Williams, Incremental Multi-Step Q-Learning (1996).
    """
    epsilon_start, epsilon_end = exploration["epsilon_start"], exploration["epsilon_end"]
    epsilon_steps = exploration["epsilon_steps"]
    for name, size in {"epochs": epochs, "minibatches": minibatches}.items():
        checks.size(name, size, 1)
    shares = {"discount": discount, "trace_lambda": trace_lambda}
    shares |= {"epsilon_start": epsilon_start, "epsilon_end": epsilon_end}
    for name, share in shares.items():
        checks.number(name, share, 0, 1)
    checks.whole("epsilon_steps", epsilon_steps, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.number("max_gradient_norm", max_gradient_norm, 0, brackets="()")
    agent = game.agents[seat]
    seen, actions = game.observation_space(agent), game.action_space(agent)
    if not isinstance(actions, Discrete):
        raise ValueError(f"action space: got {actions}; Discrete is needed")
    if network is None:
        network = feed_forward(
            seen.shape, actions.n, hidden=(128, 128), activation="relu", shared=True, layer_norm=True
        )
    if jax.tree.leaves(network.initial(1)):
        raise ValueError("network: got one with memory; one without, or r2d2, is needed")
    optimizer = descent(optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.radam(learning_rate)), sparsity)

    def init(key: jax.Array) -> PQNState:
        params, optimizer_state = optimizer.init(key, network.init(key))
        return PQNState(params, optimizer_state, jnp.int32(0))

    def values(params: Any, obs: jax.Array) -> jax.Array:
        outputs = network.apply(params, obs, ())[0]
        chex.assert_axis_dimension(outputs, -1, actions.n)
        return outputs

    def policy(state: PQNState) -> PQNPolicy:
        share = jnp.clip(state.steps / epsilon_steps, 0, 1)
        return PQNPolicy(state.params, epsilon_start + share * (epsilon_end - epsilon_start))

    def act(
        key: jax.Array, parameters: PQNPolicy, memory: tuple[()], obs: jax.Array
    ) -> tuple[jax.Array, tuple[()], jax.Array]:
        found = values(parameters.params, obs)
        return epsilon_greedy(key, found, parameters.epsilon), memory, found.max(-1)

    def act_greedy(parameters: PQNPolicy, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple[()]]:
        return jnp.argmax(values(parameters.params, obs), -1), memory

    def loss(params: Any, batch: _Batch) -> tuple[jax.Array, Metrics]:
        value = of_action(values(params, batch.obs), batch.action)
        chex.assert_equal_shape((value, batch.target))
        error = 0.5 * mean((value - batch.target) ** 2, batch.valid)
        return error, {"value_loss": error, "value": mean(value, batch.valid)}

    def update(key: jax.Array, state: PQNState, trajectory: Trajectory) -> tuple[PQNState, Metrics]:
        t, value = trajectory, trajectory.extras
        # Values by the network that acted, but where the actor did not see the observation that came.
        after = values(state.params, t.next_obs).max(-1)
        after = jnp.where(t.done, after, jnp.append(value[1:], after[-1:], 0))
        target = value + generalized_advantages(t.reward, value, after, t.done, t.truncated, discount, trace_lambda)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), _Batch(t.obs, t.action, target, t.valid))

        def step(carry: Any, minibatch: _Batch, may_change: bool) -> Any:
            params, optimizer_state = carry
            gradient, metrics = jax.grad(loss, has_aux=True)(params, minibatch)
            return optimizer.update(gradient, optimizer_state, params, may_change), metrics

        carry = state.params, state.optimizer
        (params, optimizer_state), metrics = minibatch_epochs(
            key, step, carry, batch, epochs, minibatches, every=optimizer.every
        )
        # No further than epsilon needs, because a count of 32 bits would begin again.
        steps = jnp.minimum(state.steps, checks.MOST - t.reward.size) + t.reward.size
        return PQNState(params, optimizer_state, steps), jax.tree.map(jnp.mean, metrics)

    return Learner(init=init, act=act, update=update, policy=policy, act_greedy=act_greedy, seat=seat)
