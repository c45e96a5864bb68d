"""Deep Q-learning with a memory, from sequences."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from games import Discrete, Game
from games.core import checks, random_bits
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import multi_step as multi_steps
from marl.blocks.advantages import of_action, squash, unsquash
from marl.blocks.layers import where_done
from marl.blocks.networks import Network, recurrent, unroll
from marl.blocks.replay import Priorities, Replay, count, draw_prioritized, importance, put
from marl.blocks.sparse import Sparsity, averaged, descent, scan_steps
from marl.core.learner import Learner, Metrics, Trajectory


class Sequences(NamedTuple):
    """The replay buffer of sequences, `[buffer_size, sequence_length, ...]`."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    truncated: jax.Array
    next_obs: jax.Array
    valid: jax.Array  # whether there was such a step
    carry: Any  # before the first step, `[buffer_size, ...]`


class R2D2State(NamedTuple):
    """The learner's state; its policy are the parameters."""

    params: Any
    target: Any  # parameters that follow `params` slowly
    optimizer: optax.OptState
    buffer: Sequences  # a ring: what is stored next takes the place of the oldest
    priority: jax.Array  # [buffer_size]
    sequences: jax.Array  # [], stored so far, counting those that were overwritten


class R2D2Memory(NamedTuple):
    """The memory of an actor, `[N, ...]`."""

    carry: Any
    epsilon: jax.Array  # the share of random actions


@factory
def r2d2(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 2e-3,
    discount: Scalar = 0.99,
    sequence_length: int = 20,
    burn_in: int = 4,
    multi_step: int = 5,
    replay: Replay = {"buffer_size": 2_048, "batch_size": 32, "learning_starts": 64, "gradient_steps": 4},
    tau: Scalar = 0.02,
    priorities: Priorities = {"priority_exponent": 0.9, "importance_exponent": 0.6},
    rescale: bool = True,
    max_gradient_norm: Scalar = 40.0,
    adam_epsilon: float = 1e-3,
    sparsity: Sparsity | None = None,
) -> Learner:
    """Learns action values with a recurrent network, from sequences with the memory that their actor had.

    A sequence are the steps of an environment between two updates. Its first `burn_in` steps only bring the memory up
    to what today's parameters would have made of it. For those after them, with h of `squash`,

        y_t = h(sum_{k < n} discount^k r_{t+k} + discount^n h^-1(Q_target(s_{t+n}, argmax_a Q(s_{t+n}, a)))),

    the sum ending with the episode or the sequence, and the value that of the observation before a reset, so that a
    time limit is no end. A sequence is drawn in proportion to (0.9 max |error| + 0.1 mean |error|)^priority_exponent,
    and first as the highest of all; before learning starts as 0.001, so that most of those sequences, of random play,
    are never drawn. Environment i of N keeps a share 0.4^(1 + 7 i / (N - 1)) of random actions.

    `learn` needs `num_envs`, and as many steps in an update as a sequence has.

    On CartPole-v1, in 8 environments, 300,000 steps with the learning rate falling to 0 bring 8 of 8 seeds to a return
    of 475 or more, without exploration.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: `recurrent` of the game's observations by default.
      learning_rate: a number, or a schedule of optax over the gradient steps.
      discount: of rewards.
      sequence_length: steps of each environment in an update.
      burn_in: of them, from which nothing is learned.
      multi_step: rewards that come before a value.
      replay: a dict of settings, each with a default:
        buffer_size: number of stored sequences, a multiple of the environments.
        batch_size: sequences of a gradient step.
        learning_starts: sequences that are stored before the first gradient step.
        gradient_steps: in each update.
      tau: by which the target moves to Q with each gradient step; 1 takes Q itself.
      priorities: a dict of settings, each with a default:
        priority_exponent: 0 draws evenly all but those of before learning.
        importance_exponent: how far a gradient step makes up for that.
      rescale: whether the network puts out h of values, and not values.
      max_gradient_norm: of the gradient of all parameters together.
      adam_epsilon: of Adam.
      sparsity: of the parameters, what `sparse` returns; None is dense.

    Raises:
      ValueError: for actions that are not `Discrete`, a network without memory, or numbers that are none or out of
        range.

    Source: Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019).
    """
    buffer_size, batch_size, gradient_steps = replay["buffer_size"], replay["batch_size"], replay["gradient_steps"]
    learning_starts = replay["learning_starts"]
    priority_exponent, importance_exponent = priorities["priority_exponent"], priorities["importance_exponent"]
    sizes = {"sequence_length": sequence_length, "multi_step": multi_step, "buffer_size": buffer_size}
    sizes |= {"batch_size": batch_size, "gradient_steps": gradient_steps}
    for name, size in sizes.items():
        checks.size(name, size, 1)
    checks.whole("burn_in", burn_in, 0, sequence_length - 1)
    checks.whole("learning_starts", learning_starts, 1)
    shares = {"discount": discount, "priority_exponent": priority_exponent, "importance_exponent": importance_exponent}
    for name, share in shares.items():
        checks.number(name, share, 0, 1)
    checks.number("tau", tau, 0, 1, brackets="(]")
    checks.number("learning_rate", learning_rate, 0)
    for name, x in {"max_gradient_norm": max_gradient_norm, "adam_epsilon": adam_epsilon}.items():
        checks.number(name, x, 0, brackets="()")
    agent = game.agents[seat]
    seen, actions = game.observation_space(agent), game.action_space(agent)
    if not isinstance(actions, Discrete):
        raise ValueError(f"action space: got {actions}; Discrete is needed")
    network = network or recurrent(seen.shape, actions.n)
    if not jax.tree.leaves(network.initial(1)):
        raise ValueError("network: got one without memory; recurrent, or dqn, is needed")
    adam = optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate, eps=adam_epsilon))
    optimizer = descent(adam, sparsity)

    def init(key: jax.Array) -> R2D2State:
        params, optimizer_state = optimizer.init(key, network.init(key))
        steps = buffer_size, sequence_length
        obs, no, number = jnp.zeros((*steps, *seen.shape), seen.dtype), jnp.zeros(steps, bool), jnp.zeros(steps)
        carry = network.initial(buffer_size)
        buffer = Sequences(obs, no.astype(jnp.int32), number, no, no, obs, no, carry)
        return R2D2State(params, params, optimizer_state, buffer, jnp.zeros(buffer_size), jnp.int32(0))

    def values(outputs: jax.Array, value: jax.Array) -> jax.Array:
        chex.assert_axis_dimension(outputs, -1, actions.n)
        return value[..., None] + outputs - outputs.mean(-1, keepdims=True)

    def policy(state: R2D2State) -> Any:
        return state.params

    def init_memory(params: Any, num_envs: int | None) -> R2D2Memory:
        del params
        if num_envs is None:
            raise ValueError("num_envs: got None; a recurrent network needs the number of environments")
        return R2D2Memory(network.initial(num_envs), 0.4 ** (1 + 7 * jnp.linspace(0, 1, num_envs)))

    def act(key: jax.Array, params: Any, memory: R2D2Memory, obs: jax.Array) -> tuple[jax.Array, R2D2Memory, tuple[()]]:
        greedy, memory = act_greedy(params, memory, obs)
        action, rest = random_bits.draw_integer(random_bits.array(key, math.prod(greedy.shape)), actions.n)
        return jnp.where(random_bits.uniform(rest) < memory.epsilon, action, greedy), memory, ()

    def act_greedy(params: Any, memory: R2D2Memory, obs: jax.Array) -> tuple[jax.Array, R2D2Memory]:
        outputs, value, carry = network.apply(params, obs, memory.carry)
        return jnp.argmax(values(outputs, value), -1), memory._replace(carry=carry)

    def reset_memory(memory: R2D2Memory, done: jax.Array) -> R2D2Memory:
        return memory._replace(carry=where_done(done, network.initial(len(done)), memory.carry))

    def action_values(params: Any, steps: Sequences) -> tuple[jax.Array, jax.Array]:
        """Q before and after each step behind the burn-in, `[T - burn_in, B, actions]` each."""
        carry = steps.carry
        if burn_in:
            early = jax.tree.map(lambda x: x[:burn_in], steps._replace(carry=()))
            carries = unroll(network, jax.lax.stop_gradient(params), early.obs, early.done, carry)[2]
            warm = jax.tree.map(lambda x: x[-1], carries)
            carry = where_done(early.done[-1], network.initial(steps.done.shape[1]), warm)
        late = jax.tree.map(lambda x: x[burn_in:], steps._replace(carry=()))
        outputs, value, carries = unroll(network, params, late.obs, late.done, carry)
        return values(outputs, value), values(*network.apply(params, late.next_obs, carries)[:2])

    def loss(
        params: Any, target: Any, steps: Sequences, weight: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, Metrics]]:
        before, after = action_values(params, steps)
        best = of_action(action_values(target, steps)[1], jnp.argmax(after, -1))
        late = jax.tree.map(lambda x: x[burn_in:], steps._replace(carry=()))
        reward, factor, last = multi_steps(late.reward, late.done, late.truncated, discount, multi_step)
        coming = jnp.take_along_axis(unsquash(best) if rescale else best, last, 0)
        goal = reward + factor * coming
        value = of_action(before, late.action)
        chex.assert_equal_shape((value, goal))
        off = jnp.where(late.valid, value - jax.lax.stop_gradient(squash(goal) if rescale else goal), 0.0)
        error = 0.5 * jnp.mean(weight * off**2)
        size = jnp.abs(off)
        surprise = 0.9 * size.max(0) + 0.1 * size.mean(0)
        return error, (surprise, {"value_loss": error, "value": value.mean()})

    def update(key: jax.Array, state: R2D2State, trajectory: Trajectory) -> tuple[R2D2State, Metrics]:
        state = store(state, trajectory)
        stored = jnp.minimum(state.sequences, buffer_size)

        def step(carry: Any, key: jax.Array, may_change: bool) -> Any:
            params, target, optimizer_state, priority = carry
            index, probability = draw_prioritized(key, priority, batch_size)
            steps = jax.tree.map(lambda x: x[index], state.buffer)
            steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps._replace(carry=()))._replace(carry=steps.carry)
            weight = importance(probability, stored, importance_exponent)
            gradient, (surprise, metrics) = jax.grad(loss, has_aux=True)(params, target, steps, weight)
            params, optimizer_state = optimizer.update(gradient, optimizer_state, params, may_change)
            target = averaged(optimizer, optimizer_state, params, target, tau)
            priority = priority.at[index].set((surprise + 1e-6) ** priority_exponent)
            return (params, target, optimizer_state, priority), metrics

        def learn(carry: Any) -> Any:
            return scan_steps(step, carry, jax.random.split(key, gradient_steps), optimizer.every)

        def wait(carry: Any) -> Any:
            return carry, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learn, carry)[1])

        carry = state.params, state.target, state.optimizer, state.priority
        carry, metrics = jax.lax.cond(state.sequences >= learning_starts, learn, wait, carry)
        params, target, optimizer_state, priority = carry
        state = state._replace(params=params, target=target, optimizer=optimizer_state, priority=priority)
        return state, jax.tree.map(jnp.mean, metrics)

    def store(state: R2D2State, trajectory: Trajectory) -> R2D2State:
        t = trajectory
        length, envs = t.reward.shape
        if length != sequence_length:
            raise ValueError(f"sequence_length: got {sequence_length}; the {length} steps of an update are needed")
        if buffer_size % envs:
            raise ValueError(f"buffer_size: got {buffer_size}; a multiple of the {envs} environments is needed")
        valid = jnp.ones_like(t.done) if t.valid is None else t.valid
        steps = Sequences(t.obs, t.action, t.reward, t.done, t.truncated, t.next_obs, valid, ())
        new = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)._replace(carry=t.first_memory.carry)
        highest = jnp.maximum(state.priority.max(), 1e-3)
        return state._replace(
            buffer=put(state.buffer, state.sequences, new),
            priority=put(state.priority, state.sequences, jnp.broadcast_to(highest, (envs,))),
            sequences=count(state.sequences, envs, buffer_size),
        )

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory,
        act_greedy=act_greedy,
        seat=seat,
    )
