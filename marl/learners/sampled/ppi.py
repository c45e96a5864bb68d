"""Predictive policy improvement: a sequence model of one's own play, whose policy is improved by rollouts in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import Box, Discrete, Game
from games.core import checks, random_bits
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.layers import where_done
from marl.blocks.networks import recurrent, unroll
from marl.blocks.replay import count, put
from marl.core.learner import Learner, Metrics, Trajectory


class Episodes(NamedTuple):
    """The replay buffer, `[buffer_size, sequence_length, ...]`."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    state: jax.Array  # the next one, as a number for each of its parts: `[..., P]`


class PPIState(NamedTuple):
    """The learner's state; its policy are the parameters of the model."""

    params: Any
    optimizer: optax.OptState
    buffer: Episodes  # a ring: what is stored next takes the place of the oldest
    stored: jax.Array  # [], sequences stored so far, counting those that were overwritten


class Prediction(NamedTuple):
    """Predictions of the model at a step, of A actions and S states, counting those of all parts."""

    action: jax.Array  # `[A, ...]`, logits of the own action
    state: jax.Array  # `[A, S, ...]`, logits of the next state after each action
    reward: jax.Array  # `[A, S, ...]`, mean reward after each action with each next state


@factory
def ppi(
    game: Game,
    seat: int = 0,
    *,
    memory: int = 32,
    num_states: int | Sequence[int] | None = None,
    inverse_temperature: Scalar = 2.0,
    horizon: int = 15,
    rollouts: int = 8,
    discount: Scalar = 1.0,
    learning_rate: Scalar | optax.Schedule = 2e-3,
    sequence_length: int = 100,
    buffer_size: int = 5_120,
    batch_size: int = 32,
    gradient_steps: int = 24,
    max_gradient_norm: Scalar = 1.0,
    weight_decay: Scalar = 0.01,
) -> Learner:
    """Predicts its own actions, what is seen next and the rewards, and acts by a policy that rollouts in this improve.

    A recurrent network p reads the observations x_<=t of an episode. With Q(x_<=t, a) the mean return of some rollouts
    of p over a horizon that begin with the action a, and beta the inverse temperature, it acts by

        pi(a | x_<=t)  ~  p(a | x_<=t) exp(beta Q(x_<=t, a)).

    An update stores the episodes that this policy has played, and takes gradient steps on all that are stored:

        loss = - log p(a_t | x_<=t) - log p(s_{t+1} | x_<=t, a_t) + (r_t - r(x_<=t, a_t, s_{t+1}))^2.

    So p becomes the policy that has acted, and pi improves on it again. The rollouts of all actions take the same
    random numbers, because their difference is what counts.

    An observation is a one-hot vector, the state s, as in the games of `games.suite.rounds`. In these the last actions,
    and so the last reward, follow from it, and the paper's model reads both beside it. A state of several one-hot
    parts, such as the cells of players and of a coin, is predicted part by part: given the past and the action they are
    independent, and the reward is a sum over them. Numbers behind the state do not change in an episode. `learn` needs
    `num_envs`, and the steps of an update are `sequence_length`, one or several whole episodes.

    Args:
      game: what is played, with `Discrete` actions.
      seat: its number among the game's agents.
      memory: size of the recurrent unit's carry; 128 in the paper.
      num_states: entries of an observation that are the state; a sequence gives those of each part, and None takes
        all for one part.
      inverse_temperature: beta; 0 acts by the prediction. 0.01 in the paper, which does not say how Q is scaled.
      horizon: steps of a rollout; 15 in the paper.
      rollouts: for each action.
      discount: of rewards in a rollout.
      learning_rate: a number, or a schedule of optax over the gradient steps.
      sequence_length: steps of each environment in an update.
      buffer_size: number of stored sequences, a multiple of the environments, at most 2^16; the paper keeps all.
      batch_size: sequences of a gradient step, drawn evenly.
      gradient_steps: in each update. In the paper weights begin at random in each phase, with ten epochs.
      max_gradient_norm: of the gradient of all parameters together.
      weight_decay: of AdamW, whose second moments decay by 0.98.

    Raises:
      ValueError: for other actions, observations that are no vector of numbers from 0 to 1, or numbers that are none
        or out of range.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("ipd", episode_length=4)
      >>> players = [marl.ppi(game, i, memory=4, sequence_length=4, buffer_size=8, rollouts=1) for i in (0, 1)]
      >>> history = marl.learn(jax.random.key(0), game, players, num_updates=3, steps_per_update=4, num_envs=8)
      >>> sorted(history.metrics[0])
      ['action_loss', 'reward_loss', 'state_loss']

    Source: Weis et al., Multi-agent cooperation through in-context co-player inference (2026), arXiv:2602.16301,
    section 2 and appendix A.3.1.
    """
    sizes = {"horizon": horizon, "rollouts": rollouts, "sequence_length": sequence_length, "buffer_size": buffer_size}
    for name, size in {**sizes, "batch_size": batch_size, "gradient_steps": gradient_steps}.items():
        checks.size(name, size, 1)
    checks.size("buffer_size", buffer_size, 1, 2**16)
    checks.number("inverse_temperature", inverse_temperature, 0)
    checks.number("discount", discount, 0, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.number("max_gradient_norm", max_gradient_norm, 0, brackets="()")
    checks.number("weight_decay", weight_decay, 0)
    seen, actions = game.observation_space(game.agents[seat]), game.action_space(game.agents[seat])
    if not isinstance(actions, Discrete):
        raise ValueError(f"action space: got {actions}; Discrete is needed")
    if not isinstance(seen, Box) or len(seen.shape) != 1 or not (np.all(seen.low == 0) and np.all(seen.high == 1)):
        raise ValueError(f"observations: got {seen}; a one-hot vector, as of a repeated matrix game, is needed")
    parts = _parts(num_states, seen.shape[0])
    known = sum(parts)
    network = recurrent(seen.shape, actions.n * (1 + 2 * known), hidden=(), memory=memory)
    clip = optax.clip_by_global_norm(max_gradient_norm)
    optimizer = optax.chain(clip, optax.adamw(learning_rate, b2=0.98, weight_decay=weight_decay))

    def init(key: jax.Array) -> PPIState:
        params, steps = network.init(key), (buffer_size, sequence_length)
        number, integer = jnp.zeros(steps), jnp.zeros(steps, jnp.int32)
        state = jnp.zeros((*steps, len(parts)), jnp.int32)
        buffer = Episodes(jnp.zeros((*steps, *seen.shape)), integer, number, jnp.zeros(steps, bool), state)
        return PPIState(params, optimizer.init(params), buffer, jnp.int32(0))

    def policy(state: PPIState) -> Any:
        return state.params

    def init_memory(params: Any, num_envs: int | None) -> Any:
        del params
        if num_envs is None:
            raise ValueError("num_envs: got None; a recurrent network needs the number of environments")
        return network.initial(num_envs)

    def reset_memory(memory: Any, done: jax.Array) -> Any:
        return where_done(done, network.initial(len(done)), memory)

    def act(key: jax.Array, params: Any, memory: Any, obs: jax.Array) -> tuple[jax.Array, Any, tuple[()]]:
        action_key, rollout_key = random_bits.split(key)
        outputs, _, memory = network.apply(params, obs, memory)
        fixed, settings = obs[:, known:], {"horizon": horizon, "rollouts": rollouts, "discount": discount}
        values = rollout_values(rollout_key, in_columns(params), outputs, memory, fixed, actions.n, parts, **settings)
        logits = outputs[:, : actions.n] + inverse_temperature * values
        return draw(random_bits.uniform(random_bits.array(action_key, len(obs))), logits.T), memory, ()

    def loss(params: Any, steps: Episodes) -> tuple[jax.Array, Metrics]:
        outputs, _, _ = unroll(network, params, steps.obs, steps.done, network.initial(steps.done.shape[1]))
        predicted = split_outputs(jnp.moveaxis(outputs, -1, 0), actions.n)
        states = split_parts(of_index(predicted.state, steps.action), parts)
        chances = [jax.nn.log_softmax(x, 0) for x in states]
        rewards = of_parts(split_parts(of_index(predicted.reward, steps.action), parts), steps.state)
        losses = {
            "action_loss": -of_index(jax.nn.log_softmax(predicted.action, 0), steps.action).mean(),
            "state_loss": -of_parts(chances, steps.state).mean(),
            "reward_loss": jnp.square(steps.reward - rewards).mean(),
        }
        return losses["action_loss"] + losses["state_loss"] + losses["reward_loss"], losses

    def update(key: jax.Array, state: PPIState, trajectory: Trajectory) -> tuple[PPIState, Metrics]:
        buffer, stored = store_play(state, trajectory, parts)
        rows = jax.tree.map(lambda x: x.reshape(buffer_size, -1), buffer)  # XLA copies whole rows faster

        def step(carry: Any, key: jax.Array) -> Any:
            digit, _ = random_bits.draw_integer(random_bits.array(key, batch_size), 2**16)
            number = jnp.minimum(stored, buffer_size).astype(jnp.uint32)
            index = ((digit.astype(jnp.uint32) * number) >> 16).astype(jnp.int32)
            steps = jax.tree.map(lambda row, x: row[index].reshape(batch_size, *x.shape[1:]), rows, buffer)
            steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)
            params, optimizer_state = carry
            gradient, metrics = jax.grad(loss, has_aux=True)(params, steps)
            updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
            return (optax.apply_updates(params, updates), optimizer_state), metrics

        carry = state.params, state.optimizer
        (params, optimizer_state), metrics = jax.lax.scan(step, carry, jax.random.split(key, gradient_steps))
        return PPIState(params, optimizer_state, buffer, stored), jax.tree.map(jnp.mean, metrics)

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        reset_memory=reset_memory,
        seat=seat,
    )


def _parts(num_states: int | Sequence[int] | None, seen: int) -> tuple[int, ...]:
    """The number of states of each part of the state, of an observation of so many entries."""
    if isinstance(num_states, Sequence):
        for size in num_states:
            checks.whole("num_states", size, 1, seen)
        if not num_states or sum(num_states) > seen:
            raise ValueError(f"num_states: got {list(num_states)}; parts of the {seen} entries are needed")
        return tuple(num_states)
    num_states = seen if num_states is None else num_states
    checks.whole("num_states", num_states, 1, seen)
    return (num_states,)


def store_play(state: PPIState, trajectory: Trajectory, parts: Sequence[int]) -> tuple[Episodes, jax.Array]:
    """The buffer with a trajectory in place of the oldest of it, and how many sequences have been stored.

    Args:
      state: of the learner.
      trajectory: `[T, N, ...]`.
      parts: entries of an observation that are each part of the state.

    Raises:
      ValueError: for other steps or environments than the buffer is for.
    """
    size, length = state.buffer.reward.shape
    steps, envs = trajectory.reward.shape
    if steps != length:
        raise ValueError(f"sequence_length: got {length}; the {steps} steps of an update are needed")
    if size % envs:
        raise ValueError(f"buffer_size: got {size}; a multiple of the {envs} environments is needed")
    following = [jnp.argmax(x, 0) for x in split_parts(jnp.moveaxis(trajectory.next_obs, -1, 0), parts)]
    played = Episodes(trajectory.obs, trajectory.action, trajectory.reward, trajectory.done, jnp.stack(following, -1))
    new = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), played)
    return put(state.buffer, state.stored, new), count(state.stored, envs, size)


def rollout_values(
    key: jax.Array,
    model: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    outputs: jax.Array,
    carry: jax.Array,
    fixed: jax.Array,
    num_actions: int,
    parts: Sequence[int],
    *,
    horizon: int,
    rollouts: int,
    discount: Scalar,
) -> jax.Array:
    """Q `[N, A]`: mean returns of rollouts in a model, which begin with each action.

    Args:
      key: of the rollouts.
      model: `(obs [D, n], carry [memory, n]) -> (outputs [A (1 + 2 S), n], carry)`, as of `in_columns`.
      outputs: of the model at the last observation, `[N, A (1 + 2 S)]`.
      carry: after it, `[N, memory]`.
      fixed: entries of an observation behind the state, `[N, D - S]`.
      num_actions: A.
      parts: numbers of states of each part, S in all.
      horizon: steps of a rollout.
      rollouts: for each action.
      discount: of rewards.
    """
    envs, copies = len(outputs), num_actions * rollouts
    outputs, carry, fixed = (jnp.repeat(x, copies, 0).T for x in (outputs, carry, fixed))
    first = jnp.tile(jnp.repeat(jnp.arange(num_actions), rollouts), envs)

    def uniform(words: jax.Array) -> jax.Array:
        """The same numbers for all actions."""
        shape = envs, num_actions, rollouts
        return jnp.broadcast_to(random_bits.uniform(words).reshape(envs, 1, rollouts), shape).reshape(-1)

    def step(now: Any, key: jax.Array) -> Any:
        outputs, carry, action, weight, total = now
        *words, last = random_bits.array(key, (len(parts) + 1) * envs * rollouts).reshape(len(parts) + 1, -1)
        states, rewards = outputs[num_actions:].reshape(2, num_actions, -1, len(action))
        chances = split_parts(of_index(states, action), parts)
        state = jnp.stack([draw(uniform(word), x) for word, x in zip(words, chances, strict=True)], -1)
        total += weight * of_parts(split_parts(of_index(rewards, action), parts), state)
        seen = [state[:, i] == jnp.arange(size)[:, None] for i, size in enumerate(parts)]
        outputs, carry = model(jnp.concatenate([*(x.astype(outputs.dtype) for x in seen), fixed]), carry)
        return (outputs, carry, draw(uniform(last), outputs[:num_actions]), discount * weight, total), None

    begun = outputs, carry, first, jnp.ones(()), jnp.zeros(len(first))
    total = jax.lax.scan(step, begun, jax.random.split(key, horizon))[0][-1]
    return total.reshape(envs, num_actions, rollouts).mean(-1)


def in_columns(params: Any) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """The network `recurrent` without hidden layers, of observations `[D, n]` and carries `[memory, n]`.

    Rollouts are many rows of few units. Along the rows the vector units are full, which saves a third of the time.

    Args:
      params: of the network.
    """
    cell, head = params["GRUCell_0"], params["_Heads_0"]["Dense_0"]
    seen, kept = (jnp.concatenate([cell[side + gate]["kernel"] for gate in "rzn"], 1).T for side in "ih")
    bias = jnp.concatenate([cell["i" + gate]["bias"] for gate in "rzn"])[:, None]
    size = len(cell["hn"]["bias"])

    def model(obs: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        new, old = seen @ obs + bias, kept @ carry
        reset, update = (jax.nn.sigmoid(new[i : i + size] + old[i : i + size]) for i in (0, size))
        candidate = jnp.tanh(new[2 * size :] + reset * (old[2 * size :] + cell["hn"]["bias"][:, None]))
        carry = (1 - update) * candidate + update * carry
        return head["kernel"].T @ carry + head["bias"][:, None], carry

    return model


def split_outputs(outputs: jax.Array, num_actions: int) -> Prediction:
    """Predictions in the outputs `[A (1 + 2 S), ...]` of a network, of A actions and S states."""
    return Prediction(outputs[:num_actions], *outputs[num_actions:].reshape(2, num_actions, -1, *outputs.shape[1:]))


def split_parts(values: jax.Array, parts: Sequence[int]) -> list[jax.Array]:
    """The entries `[S, ...]` of each part of the state, of which there may be more."""
    ends = np.cumsum(parts)
    return [values[end - size : end] for end, size in zip(ends, parts, strict=True)]


def of_parts(values: Sequence[jax.Array], state: jax.Array) -> jax.Array:
    """The sum over the parts of the values `[S, ...]` at a state `[..., P]`."""
    return sum((of_index(x, state[..., i]) for i, x in enumerate(values)), jnp.zeros(()))


def of_index(values: jax.Array, index: jax.Array) -> jax.Array:
    """`values [n, ...]` at an index `[...]` of the last axes, by selection: lookups in a batch are slow on a CPU."""
    chosen = values[0]
    for i in range(1, len(values)):
        chosen = jnp.where(index == i, values[i], chosen)
    return chosen


def draw(uniform: jax.Array, logits: jax.Array) -> jax.Array:
    """Integers `[...]` drawn by logits `[n, ...]`: where the uniform numbers fall in the cumulative probabilities."""
    until = jnp.cumsum(jnp.exp(logits - logits.max(0)), 0)
    return (uniform * until[-1] >= until[:-1]).sum(0)
