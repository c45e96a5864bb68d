"""Proximal policy optimisation, as a learner of any game."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from games import Game
from marl.distributions import distribution
from marl.learn import Learner, Metrics, Trajectory
from marl.networks import Network, feed_forward

Scalar = Any  # a number or an array of shape []: traced where a learner is made inside a compiled function
Objective = Callable[[jax.Array, jax.Array], jax.Array]  # (log ratios, advantages) -> what is to be maximised, [...]


class Statistics(NamedTuple):
    """Running mean and variance of observations, over all steps and environments so far."""

    mean: jax.Array  # [*obs_shape]
    variance: jax.Array  # [*obs_shape]
    number: jax.Array  # [], how many there were


class PPOState(NamedTuple):
    """What learns."""

    params: Any
    optimizer: optax.OptState
    statistics: Statistics | None  # None where observations are not normalised
    carry: Any  # of a recurrent network, [N, ...]
    first_carry: Any  # before the first step since the last update


class PPOExtras(NamedTuple):
    """What `update` needs to know of a step, `[N, ...]`."""

    log_prob: jax.Array
    value: jax.Array
    obs: jax.Array | None  # as the network saw it, where that is normalised
    carry: Any  # after the step


def clipped_surrogate(clip: Scalar = 0.2) -> Objective:
    """min(rho A, clip(rho, 1 - clip, 1 + clip) A), with rho the ratio of new and old probability.

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), arXiv:1707.06347, equation 7.
    """

    def objective(log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
        ratio = jnp.exp(log_ratio)
        return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)

    return objective


def ppo(
    game: Game,
    player: int = 0,
    *,
    network: Network | None = None,
    num_envs: int | None = None,
    learning_rate: Scalar | optax.Schedule = 2.5e-4,
    epochs: int = 4,
    minibatches: int = 4,
    discount: Scalar = 0.99,
    gae_lambda: Scalar = 0.95,
    objective: Objective | None = None,
    value_clip: Scalar | None = 0.2,
    value_coefficient: Scalar = 0.5,
    entropy_coefficient: Scalar = 0.01,
    max_gradient_norm: Scalar = 0.5,
    adam_epsilon: float = 1e-5,
    normalize_observations: bool = False,
    normalize_advantages: bool = True,
) -> Learner:
    """Learns a policy and a value from the episodes between two updates, several steps up a clipped surrogate.

    The advantages are generalised: with delta_t = r_t + discount V(s'_t) - V(s_t), and V(s'_t) = 0 where the episode
    terminated,

        A_t = delta_t + discount gae_lambda A_{t+1},      the sum ending where the episode does.

    Where it was truncated by a time limit the value of its last observation counts, as at the end of the batch. The
    loss of a minibatch is

        - mean objective(log rho, A) + value_coefficient L_V - entropy_coefficient H,

    L_V half the mean square of V - (V_old + A), or of that and of V clipped to within `value_clip` of V_old what is
    larger. Adam follows it, its gradient clipped by norm. `learn` needs `num_envs`.

    Args:
      game: what is played.
      player: its number among the game's agents.
      network: `feed_forward` of the game's observations by default.
      num_envs: as of `learn`; a recurrent network needs it.
      learning_rate: a number, or a schedule of optax over the steps of the optimiser, `epochs * minibatches` in each
        update.
      epochs: over the same batch.
      minibatches: of an epoch, drawn anew; 1 is the full batch. A recurrent network's are of whole environments.
      discount: of rewards.
      gae_lambda: 0 trusts the value, 1 the return.
      objective: `clipped_surrogate()` by default; anything of log ratios and advantages, elementwise.
      value_clip: None does not clip.
      value_coefficient: weight of the value's loss.
      entropy_coefficient: weight of the policy's entropy.
      max_gradient_norm: of the gradient of all parameters together.
      adam_epsilon: of Adam.
      normalize_observations: by their running mean and standard deviation, which move with every step and belong to
        the learner's state; the first observations are normalised too.
      normalize_advantages: in each minibatch.

    Raises:
      ValueError: for actions that are neither `Discrete` nor a `Box` of floats, or observations that are no array.

    Source: Schulman et al. (2017), arXiv:1707.06347; the advantages: Schulman et al. (2016), arXiv:1506.02438,
    equation 16; the defaults: PureJaxRL (Lu et al., 2022).
    """
    agent = game.agents[player]
    obs_shape, actions = game.observation_space(agent).shape, distribution(game.action_space(agent))
    network = network or feed_forward(obs_shape, actions.num_outputs, num_scales=actions.num_scales)
    objective = objective or clipped_surrogate()
    has_memory = bool(jax.tree.leaves(network.initial(1)))
    if has_memory and num_envs is None:
        raise ValueError("num_envs: got None; a recurrent network needs the number of environments")
    optimizer = optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate, eps=adam_epsilon))
    optimizer = optax.flatten(optimizer)  # one vector: of many small arrays each costs a call

    def init(key: jax.Array) -> PPOState:
        params = network.init(key)
        carry = network.initial(num_envs or 0)
        statistics = first_statistics(obs_shape) if normalize_observations else None
        return PPOState(params, optimizer.init(params), statistics, carry, carry)

    def act(key: jax.Array, state: PPOState, obs: jax.Array) -> tuple[jax.Array, PPOState, PPOExtras]:
        seen = None
        if state.statistics:
            statistics = add(state.statistics, obs)
            state, seen = state._replace(statistics=statistics), normalize(statistics, obs)
            obs = seen
        outputs, value, carry = network.apply(state.params, obs, state.carry)
        action = actions.sample(key, outputs)
        extras = PPOExtras(actions.log_prob(outputs, action), value, seen, carry)
        return action, state._replace(carry=carry), extras

    def exploit(state: PPOState, obs: jax.Array) -> tuple[jax.Array, PPOState]:
        if state.statistics:
            obs = normalize(state.statistics, obs)
        outputs, _, carry = network.apply(state.params, obs, state.carry)
        return actions.mode(outputs), state._replace(carry=carry)

    def forget(state: PPOState, done: jax.Array) -> PPOState:
        return state._replace(carry=where_done(done, network.initial(len(done)), state.carry))

    def loss(params: Any, batch: _Batch) -> tuple[jax.Array, Metrics]:
        outputs, value = evaluate(params, batch)
        log_ratio = actions.log_prob(outputs, batch.action) - batch.log_prob
        advantage = batch.advantage
        if normalize_advantages:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = objective(log_ratio, advantage).mean()
        target = batch.value + batch.advantage
        error = (value - target) ** 2
        if value_clip is not None:
            clipped = batch.value + jnp.clip(value - batch.value, -value_clip, value_clip)
            error = jnp.maximum(error, (clipped - target) ** 2)
        value_loss, entropy = 0.5 * error.mean(), actions.entropy(outputs).mean()
        metrics = {"value_loss": value_loss, "entropy": entropy, "kl": (jnp.expm1(log_ratio) - log_ratio).mean()}
        return value_coefficient * value_loss - entropy_coefficient * entropy - gain, metrics

    def evaluate(params: Any, batch: _Batch) -> tuple[jax.Array, jax.Array]:
        if not has_memory:
            return network.apply(params, batch.obs, ())[:2]

        def step(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> Any:
            obs, done = inputs
            outputs, value, carry = network.apply(params, obs, carry)
            return where_done(done, network.initial(len(done)), carry), (outputs, value)

        return jax.lax.scan(step, batch.first_carry, (batch.obs, batch.done))[1]

    def update(key: jax.Array, state: PPOState, trajectory: Trajectory) -> tuple[PPOState, Metrics]:
        extras: PPOExtras = trajectory.extras
        obs, next_obs = trajectory.obs, trajectory.next_obs
        if state.statistics and extras.obs is not None:
            obs, next_obs = extras.obs, normalize(state.statistics, next_obs)
        next_value = network.apply(state.params, next_obs, extras.carry)[1]
        advantage = generalized_advantages(
            trajectory.reward, extras.value, next_value, trajectory.done, trajectory.truncated, discount, gae_lambda
        )
        batch = _Batch(obs, trajectory.action, extras.log_prob, extras.value, advantage, trajectory.done, ())
        if has_memory:  # whole environments stay together
            batch = batch._replace(first_carry=jax.tree.map(lambda x: x[None], state.first_carry))
            batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch)
        else:
            batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
        size = len(batch.action)
        if size % minibatches:
            kind = "environments" if has_memory else "steps times environments"
            raise ValueError(f"minibatches: got {minibatches}; a divisor of the {size} {kind} is needed")

        def step(carry: Any, minibatch: _Batch) -> Any:
            params, optimizer_state = carry
            if has_memory:
                minibatch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), minibatch)
                minibatch = minibatch._replace(first_carry=jax.tree.map(lambda x: x[0], minibatch.first_carry))
            gradient, metrics = jax.grad(loss, has_aux=True)(params, minibatch)
            updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
            return (optax.apply_updates(params, updates), optimizer_state), metrics

        def epoch(carry: Any, key: jax.Array) -> Any:
            if minibatches == 1:
                return step(carry, batch)
            order = jax.random.permutation(key, size).reshape(minibatches, -1)
            return jax.lax.scan(step, carry, jax.tree.map(lambda x: x[order], batch))

        carry = state.params, state.optimizer
        (params, optimizer_state), metrics = jax.lax.scan(epoch, carry, jax.random.split(key, epochs))
        state = PPOState(params, optimizer_state, state.statistics, state.carry, state.carry)
        return state, jax.tree.map(jnp.mean, metrics)

    return Learner(init, act, update, forget if has_memory else None, exploit)


class _Batch(NamedTuple):
    """What the loss reads: steps of all environments in one row, or of a network with memory `[T, N, ...]`."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    done: jax.Array
    first_carry: Any


def generalized_advantages(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    done: jax.Array,
    truncated: jax.Array,
    discount: Scalar,
    gae_lambda: Scalar,
) -> jax.Array:
    """Generalised advantage estimates `[T, N]`.

    Args:
      reward: `[T, N]`, as all of them.
      value: of the observation before a step.
      next_value: of the observation after it, before a reset.
      done: whether the episode ended with it.
      truncated: whether it ended by a time limit, where the value after it counts.
      discount: of rewards.
      gae_lambda: of the errors to come.

    Source: Schulman et al. (2016), arXiv:1506.02438, equation 16.
    """
    goes_on = jnp.where(done & ~truncated, 0.0, discount)
    error = reward + goes_on * next_value - value
    decay = jnp.where(done, 0.0, discount * gae_lambda)

    def back(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (error, decay), reverse=True, unroll=16)[1]


def first_statistics(shape: tuple[int, ...]) -> Statistics:
    """Of no observation."""
    return Statistics(jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(()))


def add(statistics: Statistics, obs: jax.Array) -> Statistics:
    """The statistics with further observations `[N, *obs_shape]`.

    Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979).
    """
    total, delta = statistics.number + len(obs), obs.mean(0) - statistics.mean
    share = len(obs) / total
    both = (1 - share) * statistics.variance + share * obs.var(0) + delta**2 * share * (1 - share)
    return Statistics(statistics.mean + share * delta, both, total)


def normalize(statistics: Statistics, obs: jax.Array) -> jax.Array:
    """Observations less their mean, in standard deviations."""
    return (obs - statistics.mean) * jax.lax.rsqrt(statistics.variance + 1e-8)


def where_done(done: jax.Array, new: Any, old: Any) -> Any:
    """`new` where an episode ended, of pytrees with `[N, ...]`; `done` is `[N]`."""
    return jax.tree.map(lambda x, y: jnp.where(done.reshape(-1, *[1] * (x.ndim - 1)), x, y), new, old)
