"""Deep Q-learning, as a learner of any game with few actions; and Ape-X, which is that with many actors."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import chex
import jax
import jax.numpy as jnp
import optax

from games import Discrete, Game
from games.core import checks, random_bits
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import multi_step as multi_steps
from marl.blocks.advantages import of_action
from marl.blocks.exploration import epsilon_greedy
from marl.blocks.networks import Network, check_normalized, feed_forward
from marl.blocks.normalization import Statistics, add, first_statistics, normalize
from marl.blocks.replay import Replay, Transitions, count, draw_prioritized, importance, put
from marl.blocks.sparse import Sparsity, averaged, descent, scan_steps
from marl.core.learner import Learner, Metrics, Trajectory


class DQNState(NamedTuple):
    """The learner's state."""

    params: Any
    target: Any  # parameters that follow `params` slowly
    optimizer: optax.OptState
    statistics: Statistics | None  # up to the last update; None where observations are not normalised
    buffer: Transitions  # a ring: what is stored next takes the place of the oldest
    steps: jax.Array  # [], transitions stored so far, counting those that were overwritten
    priority: jax.Array | None  # [buffer_size], of being drawn; None where all are alike


class DQNPolicy(NamedTuple):
    """The policy that acts."""

    params: Any
    statistics: Statistics | None  # with which an actor begins
    epsilon: jax.Array  # [], the share of random actions


class DQNMemory(NamedTuple):
    """The memory of an actor."""

    statistics: Statistics | None  # they move with every step
    epsilon: jax.Array | None  # [N], an actor's own, in place of the policy's


class DQNExtras(NamedTuple):
    """Values of a step for its first priority, `[N]`."""

    value: jax.Array  # of what it did
    best: jax.Array  # of what would have been best


class DQNPriorities(TypedDict, total=False):
    """Settings of prioritised draws."""

    priority_exponent: Scalar | None  # None draws evenly
    importance_exponent: Scalar


class Exploration(TypedDict, total=False):
    """Settings of random actions."""

    epsilon_start: Scalar
    epsilon_end: Scalar
    epsilon_steps: Scalar
    epsilon_ladder: bool


@factory
def dqn(
    game: Game,
    seat: int = 0,
    *,
    network: Network | None = None,
    learning_rate: Scalar | optax.Schedule = 1e-3,
    discount: Scalar = 0.99,
    replay: Replay = {"buffer_size": 32_768, "batch_size": 128, "learning_starts": 1_000, "gradient_steps": 8},
    tau: Scalar = 0.02,
    exploration: Exploration = {
        "epsilon_start": 1.0,
        "epsilon_end": 0.05,
        "epsilon_steps": 20_000,
        "epsilon_ladder": False,
    },
    double: bool = True,
    max_gradient_norm: Scalar = 1000.0,
    normalize_observations: bool = False,
    multi_step: int = 1,
    priorities: DQNPriorities = {"priority_exponent": None, "importance_exponent": 0.4},
    sparsity: Sparsity | None = None,
) -> Learner:
    """Learns action values from what it remembers, and acts on them greedily but for a share epsilon of random actions.

    A gradient step is Adam's on half the mean square of Q(s, a) - y over a minibatch drawn evenly from the buffer, with

        y = r + discount Q_target(s', argmax_a Q(s', a))        (`double`),  or
        y = r + discount max_a Q_target(s', a),

    and y = r where the episode terminated; then Q_target moves the share `tau` of its way to Q. Q is the network's
    value plus its outputs less their mean, a dueling architecture. The error is squared where Huber's is usual: with
    that one, which weighs the rare ends of episodes less, Q rose to 295 on CartPole, where no value is above 100.

    On CartPole-v1, in 8 environments and 8 steps of each in an update, 300,000 steps with the learning rate falling to
    0 bring 31 of 32 seeds to a return of 475 or more, without exploration.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      network: `feed_forward` of the game's observations by default, with layers that both heads share.
      learning_rate: a number, or a schedule of optax over the gradient steps.
      discount: of rewards.
      replay: a dict of settings, each with a default:
        buffer_size: number of stored transitions, a multiple of those between two updates.
        batch_size: transitions of a gradient step.
        learning_starts: transitions that are stored before the first gradient step.
        gradient_steps: in each update.
      tau: 1 takes Q itself for the target.
      exploration: a dict of settings, each with a default:
        epsilon_start: share of random actions at first.
        epsilon_end: share of random actions in the end.
        epsilon_steps: transitions over which epsilon falls from one to the other, on a straight line.
        epsilon_ladder: whether environment i of N keeps a share 0.4^(1 + 7 i / (N - 1)) of random actions for ever, in
          place of one that falls; a single one keeps 0.4.
      double: whether Q chooses the action that the target values.
      max_gradient_norm: of the gradient of all parameters together; errors are as large as returns.
      normalize_observations: by their running mean and standard deviation, those of now for what was seen before too.
      multi_step: how many rewards come before the value of what is then, fewer at the end of an update's steps.
      priorities: a dict of settings, each with a default:
        priority_exponent: of the size of an error, to which the probability is proportional that a transition is
          drawn; at first by the errors of its actor's own values. None draws evenly.
        importance_exponent: how far a gradient step makes up for that.
      sparsity: of the parameters, what `sparse` returns; None is dense.

    Raises:
      ValueError: for actions that are not `Discrete`, a network with memory, or numbers that are none or out of range.

    Source: Mnih et al., Human-level control through deep reinforcement learning (2015); van Hasselt et al., Deep
    Reinforcement Learning with Double Q-learning (2016), arXiv:1509.06461, equation 4; Wang et al., Dueling Network
    Architectures (2016), arXiv:1511.06581, equation 9; the moving target: Lillicrap et al. (2016), arXiv:1509.02971;
    priorities: Schaul et al. (2016), arXiv:1511.05952; the ladder and first priorities: Horgan et al. (2018),
    arXiv:1803.00933.
    """
    buffer_size, batch_size, gradient_steps = replay["buffer_size"], replay["batch_size"], replay["gradient_steps"]
    learning_starts, epsilon_ladder = replay["learning_starts"], exploration["epsilon_ladder"]
    epsilon_start, epsilon_end = exploration["epsilon_start"], exploration["epsilon_end"]
    epsilon_steps = exploration["epsilon_steps"]
    priority_exponent, importance_exponent = priorities["priority_exponent"], priorities["importance_exponent"]
    sizes = {"buffer_size": buffer_size, "batch_size": batch_size, "gradient_steps": gradient_steps}
    for name, size in (sizes | {"multi_step": multi_step}).items():
        checks.size(name, size, 1)
    prioritized = priority_exponent is not None
    for name, share in {
        "discount": discount,
        "epsilon_start": epsilon_start,
        "epsilon_end": epsilon_end,
        "priority_exponent": 1.0 if priority_exponent is None else priority_exponent,
        "importance_exponent": importance_exponent,
    }.items():
        checks.number(name, share, 0, 1)
    checks.number("tau", tau, 0, 1, brackets="(]")
    checks.whole("learning_starts", learning_starts, 1)
    checks.whole("epsilon_steps", epsilon_steps, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.number("max_gradient_norm", max_gradient_norm, 0, brackets="()")
    agent = game.agents[seat]
    seen, actions = game.observation_space(agent), game.action_space(agent)
    if not isinstance(actions, Discrete):
        raise ValueError(f"action space: got {actions}; Discrete is needed")
    network = network or feed_forward(seen.shape, actions.n, shared=True)
    if jax.tree.leaves(network.initial(1)):
        raise ValueError("network: got one with memory; the transitions of a buffer have no history")
    check_normalized(network, normalize_observations)
    optimizer = descent(optax.chain(optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate)), sparsity)

    def init(key: jax.Array) -> DQNState:
        params, optimizer_state = optimizer.init(key, network.init(key))
        obs, number = jnp.zeros((buffer_size, *seen.shape), seen.dtype), jnp.zeros(buffer_size)
        buffer = Transitions(obs, number.astype(jnp.int32), number, obs, number)
        statistics = first_statistics(seen.shape) if normalize_observations else None
        priority = number if prioritized else None
        return DQNState(params, params, optimizer_state, statistics, buffer, jnp.int32(0), priority)

    def values(params: Any, statistics: Statistics | None, obs: jax.Array) -> jax.Array:
        outputs, value, _ = network.apply(params, normalize(statistics, obs) if statistics else obs, ())
        chex.assert_axis_dimension(outputs, -1, actions.n)
        return value[..., None] + outputs - outputs.mean(-1, keepdims=True)

    def policy(state: DQNState) -> DQNPolicy:
        share = jnp.clip(state.steps / epsilon_steps, 0, 1)
        return DQNPolicy(state.params, state.statistics, epsilon_start + share * (epsilon_end - epsilon_start))

    def init_memory(parameters: DQNPolicy, num_envs: int | None) -> DQNMemory:
        ladder = 0.4 ** (1 + 7 * jnp.linspace(0, 1, num_envs or 1)) if epsilon_ladder else None
        return DQNMemory(parameters.statistics, ladder if ladder is None or num_envs else ladder[0])

    def act(
        key: jax.Array, parameters: DQNPolicy, memory: DQNMemory, obs: jax.Array
    ) -> tuple[jax.Array, DQNMemory, DQNExtras | tuple[()]]:
        if memory.statistics:
            seen_now = obs if obs.ndim > len(seen.shape) else obs[None]
            memory = memory._replace(statistics=add(memory.statistics, seen_now))
        found = values(parameters.params, memory.statistics, obs)
        epsilon = parameters.epsilon if memory.epsilon is None else memory.epsilon
        action = epsilon_greedy(key, found, epsilon)
        return action, memory, DQNExtras(of_action(found, action), found.max(-1)) if prioritized else ()

    def act_greedy(parameters: DQNPolicy, memory: DQNMemory, obs: jax.Array) -> tuple[jax.Array, DQNMemory]:
        return jnp.argmax(values(parameters.params, memory.statistics, obs), -1), memory

    def loss(
        params: Any, target: Any, statistics: Statistics | None, batch: Transitions, weight: Scalar
    ) -> tuple[jax.Array, tuple[jax.Array, Metrics]]:
        after = values(target, statistics, batch.next_obs)
        best = jnp.argmax(values(params, statistics, batch.next_obs) if double else after, -1)
        goal = batch.reward + batch.factor * of_action(after, best)
        value = of_action(values(params, statistics, batch.obs), batch.action)
        chex.assert_equal_shape((value, goal))
        off = jnp.where(batch.factor < 0, 0.0, value - jax.lax.stop_gradient(goal))  # no step at all
        error = 0.5 * jnp.mean(weight * off**2)
        return error, (jnp.abs(off), {"value_loss": error, "value": value.mean()})

    def update(key: jax.Array, state: DQNState, trajectory: Trajectory) -> tuple[DQNState, Metrics]:
        state = store(state, trajectory)
        stored = jnp.minimum(state.steps, buffer_size)

        def step(carry: Any, drawn: jax.Array, may_change: bool) -> Any:
            params, target, optimizer_state, priority = carry
            index, weight = drawn, jnp.float32(1.0)
            if prioritized:  # what is drawn is the key
                index, probability = draw_prioritized(drawn, priority, batch_size)
                weight = importance(probability, stored, importance_exponent)
            batch = jax.tree.map(lambda x: x[index], state.buffer)
            gradient, (off, metrics) = jax.grad(loss, has_aux=True)(params, target, state.statistics, batch, weight)
            params, optimizer_state = optimizer.update(gradient, optimizer_state, params, may_change)
            if prioritized:
                priority = priority.at[index].set(priority_of(off))
            target = averaged(optimizer, optimizer_state, params, target, tau)
            return (params, target, optimizer_state, priority), metrics

        def learn(carry: Any) -> Any:
            if prioritized:
                return scan_steps(step, carry, jax.random.split(key, gradient_steps), optimizer.every)
            index = jax.random.randint(random_bits.unrolled(key), (gradient_steps, batch_size), 0, stored)
            return scan_steps(step, carry, index, optimizer.every)

        def wait(carry: Any) -> Any:
            return carry, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learn, carry)[1])

        carry = state.params, state.target, state.optimizer, state.priority
        carry, metrics = jax.lax.cond(state.steps >= learning_starts, learn, wait, carry)
        params, target, optimizer_state, priority = carry
        state = state._replace(params=params, target=target, optimizer=optimizer_state, priority=priority)
        return state, jax.tree.map(jnp.mean, metrics)

    def priority_of(off: jax.Array) -> jax.Array:
        return (off + 1e-6) ** jnp.float32(priority_exponent)

    def store(state: DQNState, trajectory: Trajectory) -> DQNState:
        if buffer_size % trajectory.reward.size:
            raise ValueError(
                f"buffer_size: got {buffer_size}; a multiple of the {trajectory.reward.size} transitions between two "
                "updates is needed"
            )
        t = trajectory
        shape, one_env = t.reward.shape, t.reward.ndim == 1  # without `num_envs`
        counted, done, truncated = (x.reshape(len(x), -1) for x in (t.reward, t.done, t.truncated))
        reward, factor, last = (x.reshape(shape) for x in multi_steps(counted, done, truncated, discount, multi_step))
        index = (last,) if one_env else (last, jnp.arange(shape[1]))
        new = Transitions(t.obs, t.action, reward, t.next_obs[index] if multi_step > 1 else t.next_obs, factor)
        new = jax.tree.map(lambda x, old: x.reshape(-1, *old.shape[1:]), new, state.buffer)
        priority = state.priority
        if t.valid is not None:
            new = new._replace(factor=jnp.where(t.valid.reshape(-1), new.factor, -1.0))
        if prioritized:
            # What the actor knew: what comes after a step is what it saw next, but after the last one and after a
            # time limit, where the former is seen now and the latter is taken for what it was.
            coming = values(state.params, t.last_memory.statistics, t.next_obs[-1:]).max(-1)
            following = jnp.concatenate([t.extras.best[1:], coming])
            after = jnp.where(t.truncated, t.extras.best, following)[index]
            off = jnp.abs(reward + factor * after - t.extras.value)
            first = priority_of(off).reshape(-1)
            priority = put(priority, state.steps, jnp.where(new.factor < 0, 0.0, first))
        return state._replace(
            statistics=t.last_memory.statistics,
            buffer=put(state.buffer, state.steps, new),
            steps=count(state.steps, t.reward.size, buffer_size),
            priority=priority,
        )

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        act_greedy=act_greedy,
        seat=seat,
    )


@factory
def ape_x(
    game: Game,
    seat: int = 0,
    *,
    multi_step: int = 3,
    priorities: DQNPriorities = {"priority_exponent": 0.6},
    exploration: Exploration = {"epsilon_ladder": True},
    **settings: Any,
) -> Learner:
    """`dqn` as many actors need it: each explores at a rate of its own, and what surprises is drawn more often.

    On CartPole-v1, in 8 environments and 8 steps of each in an update, 300,000 steps with the learning rate falling to
    0 bring 15 of 16 seeds to a return of 475 or more, without exploration.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      multi_step: rewards that come before a value.
      priorities: as of `dqn`, with priorities by default.
      exploration: as of `dqn`, with a share of random actions for each environment by default.
      **settings: of `dqn`. The paper's target is exchanged every 2,500 steps, and here it moves.

    Raises:
      ValueError: as `dqn`.

    Source: Horgan et al., Distributed Prioritized Experience Replay (2018), arXiv:1803.00933.
    """
    return dqn(game, seat, multi_step=multi_step, priorities=priorities, exploration=exploration, **settings)
