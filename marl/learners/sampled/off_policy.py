"""The part that TD3 and SAC share: actor-critics of continuous actions with a replay buffer, and RLx2's settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypedDict

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import Box, Game
from games.core import checks, random_bits
from games.core.branching import lazy_cond
from games.core.game import Scalar
from marl.blocks.advantages import mean
from marl.blocks.advantages import multi_step as multi_steps
from marl.blocks.layers import Activation
from marl.blocks.normalization import Statistics, add, first_statistics, normalize
from marl.blocks.perceptron import perceptron
from marl.blocks.replay import Buffer, count, put
from marl.blocks.sparse import Sparsity, averaged, descent, scan_steps
from marl.core.learner import Learner, Metrics, Trajectory
from meta.xla.backend import platform

MEASURED = 2_048  # oldest steps, of which the distance to the actor is taken
FORGOTTEN = 10  # one of so many is forgotten at a time


class OffPolicyReplay(Buffer, total=False):
    """Settings of a replay buffer and of what is learned from it."""

    gradient_steps: int | None  # None takes one for each step of the environments


class Targets(TypedDict, total=False):
    """Settings of the rewards and values in a critic's target."""

    multi_step: int
    multi_step_from: Scalar


class DynamicBuffer(TypedDict, total=False):
    """Settings of a buffer that drops what the actor would not do any more."""

    buffer_drift: Scalar | None  # None drops nothing
    buffer_relative: bool
    buffer_least: int
    buffer_every: int


class Memories(NamedTuple):
    """A replay buffer, `[buffer_size, ...]`: the steps of all environments, one time after the other."""

    obs: jax.Array  # as the game gives them
    action: jax.Array  # in [-1, 1]
    reward: jax.Array
    next_obs: jax.Array  # before a reset
    done: jax.Array
    truncated: jax.Array
    valid: jax.Array  # whether there was such a step


class Networks(NamedTuple):
    """Parameters that gradient steps change."""

    actor: Any
    critics: tuple[Any, Any]
    target: Any  # actor that follows the other slowly; `()` for SAC, whose targets are of the actor itself
    target_critics: tuple[Any, Any]
    log_temperature: jax.Array  # []
    optimizer: tuple[Any, Any, Any]  # of actor, critics and temperature
    updates: jax.Array  # [], of the critics
    oldest: jax.Array  # [], number of the first step that is still remembered


class OffPolicyState(NamedTuple):
    """The learner's state."""

    networks: Networks
    statistics: Statistics | None  # up to the last update; None where observations are not normalised
    buffer: Memories  # a ring: what is stored next takes the place of the oldest
    steps: jax.Array  # [], stored so far, counting those that were overwritten

    @property
    def params(self) -> Any:
        """Parameters of the actor."""
        return self.networks.actor


class OffPolicyPolicy(NamedTuple):
    """The policy that acts."""

    params: Any
    statistics: Statistics | None  # with which an actor begins
    random: jax.Array  # [], whether actions are still uniform


class Style(NamedTuple):
    """The differences between TD3 and SAC."""

    num_outputs: int  # of the actor, for each number of an action
    act: Callable[..., jax.Array]  # (key, outputs) -> action, exploring
    draw: Callable[..., tuple[jax.Array, jax.Array]]  # (key, outputs) -> action, log probability; for the actor's loss
    next: Callable[..., tuple[jax.Array, jax.Array]]  # the same, for a critic's target
    delayed: bool  # whether the target's actor is a slow one, and the actor's loss asks the first critic only
    delay: int  # updates of the critics for one of the actor and of the targets
    # (act, obs, action) -> values in a target, in place of those of the critics; actions are in the game's bounds.
    value: Callable[..., jax.Array] | None = None


def off_policy_learner(
    style: Style,
    temperature: Scalar,
    tempering: tuple[Scalar, Scalar | None] | None,  # its learning rate and the entropy that is wanted
    *,
    game: Game,
    seat: int,
    hidden: Sequence[int],
    activation: Activation,
    learning_rate: Scalar,
    critic_learning_rate: Scalar,
    discount: Scalar,
    replay: OffPolicyReplay,
    tau: Scalar,
    normalize_observations: bool,
    targets: Targets,
    dynamic_buffer: DynamicBuffer,
    sparsity: Sparsity | None,
    critic_sparsity: Sparsity | None,
) -> Learner:
    """A learner of this style, with the settings that `td3` explains."""
    buffer_size, batch_size, gradient_steps = replay["buffer_size"], replay["batch_size"], replay["gradient_steps"]
    learning_starts, buffer_relative = replay["learning_starts"], dynamic_buffer["buffer_relative"]
    buffer_drift, buffer_least = dynamic_buffer["buffer_drift"], dynamic_buffer["buffer_least"]
    buffer_every = dynamic_buffer["buffer_every"]
    multi_step, multi_step_from = targets["multi_step"], targets["multi_step_from"]
    sizes = {"buffer_size": buffer_size, "batch_size": batch_size, "multi_step": multi_step}
    sizes |= {"gradient_steps": 1 if gradient_steps is None else gradient_steps}
    for name, size in (sizes | {"buffer_least": buffer_least, "buffer_every": buffer_every}).items():
        checks.size(name, size, 1)
    checks.number("learning_rate", learning_rate, 0)
    checks.number("critic_learning_rate", critic_learning_rate, 0)
    checks.number("discount", discount, 0, 1)
    checks.whole("learning_starts", learning_starts, 1)
    checks.whole("multi_step_from", multi_step_from, 0)
    checks.number("tau", tau, 0, 1, brackets="(]")
    checks.number("buffer_drift", 1 if buffer_drift is None else buffer_drift, 0)
    if buffer_relative and buffer_drift is None:
        raise ValueError("buffer_relative: got True; a buffer_drift is needed with it")
    agent = game.agents[seat]
    seen, actions = game.observation_space(agent), game.action_space(agent)
    bounds = (actions.low, actions.high) if isinstance(actions, Box) else (jnp.inf,)
    if not all(isinstance(bound, jax.core.Tracer) or np.isfinite(bound).all() for bound in bounds):
        raise ValueError(f"action space: got {actions}; a Box with bounds is needed")
    if not jnp.issubdtype(actions.dtype, jnp.floating):
        raise ValueError(f"action space: got {actions}; a Box of floats is needed")
    low, high = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), actions.shape) for x in bounds)
    middle, half = (low + high) / 2, (high - low) / 2
    num_inputs, num_actions = math.prod(seen.shape), math.prod(actions.shape)
    actor = perceptron(num_inputs, style.num_outputs * num_actions, hidden=hidden, activation=activation)
    critic = perceptron(num_inputs + num_actions, 1, hidden=hidden, activation=activation)
    actor_descent = descent(optax.adam(learning_rate), sparsity)
    critic_descent = descent(optax.adam(critic_learning_rate), critic_sparsity or sparsity)
    tempered = optax.adam(tempering[0]) if tempering else optax.set_to_zero()
    wanted = -float(num_actions) if tempering is None or tempering[1] is None else tempering[1]

    def init(key: jax.Array) -> OffPolicyState:
        actor_key, *critic_keys, actor_topology, critic_topology = jax.random.split(key, 5)
        params, actor_state = actor_descent.init(actor_topology, actor.init(actor_key))
        critics, critic_state = critic_descent.init(critic_topology, tuple(map(critic.init, critic_keys)))
        number, no = jnp.zeros(buffer_size), jnp.zeros(buffer_size, bool)
        obs = jnp.zeros((buffer_size, *seen.shape), seen.dtype)
        buffer = Memories(obs, jnp.zeros((buffer_size, num_actions)), number, obs, no, no, no)
        log_temperature = jnp.log(jnp.maximum(jnp.float32(temperature), 1e-30))
        optimizers, zero = (actor_state, critic_state, tempered.init(log_temperature)), jnp.int32(0)
        target = params if style.delayed else ()
        networks = Networks(params, critics, target, critics, log_temperature, optimizers, zero, zero)
        return OffPolicyState(networks, first_statistics(seen.shape) if normalize_observations else None, buffer, zero)

    def look(statistics: Statistics | None, obs: jax.Array) -> jax.Array:
        """Inputs of the networks, `[..., num_inputs]`."""
        obs = normalize(statistics, obs) if statistics else obs.astype(jnp.float32)
        return obs.reshape(*obs.shape[: obs.ndim - len(seen.shape)], num_inputs)

    def likeliest(outputs: jax.Array) -> jax.Array:
        return jnp.tanh(outputs[..., :num_actions])

    def values(critics: tuple[Any, Any], obs: jax.Array, action: jax.Array) -> jax.Array:
        """`[2, ...]`."""
        both = jnp.concatenate([obs, action], -1)
        return jnp.stack([critic.apply(params, both)[..., 0] for params in critics])

    def in_bounds(action: jax.Array) -> jax.Array:
        return middle + half * action.reshape(*action.shape[:-1], *actions.shape)

    def policy(state: OffPolicyState) -> OffPolicyPolicy:
        return OffPolicyPolicy(state.networks.actor, state.statistics, state.steps < learning_starts)

    def init_memory(parameters: OffPolicyPolicy, num_envs: int | None) -> Statistics | None:
        return parameters.statistics

    def act(
        key: jax.Array, parameters: OffPolicyPolicy, memory: Statistics | None, obs: jax.Array
    ) -> tuple[jax.Array, Statistics | None, tuple[()]]:
        if memory:
            memory = add(memory, obs if obs.ndim > len(seen.shape) else obs[None])
        own_key, random_key = jax.random.split(key)
        action = style.act(own_key, actor.apply(parameters.params, look(memory, obs)))
        uniform = 2 * random_bits.uniform(random_bits.array(random_key, action.size)).reshape(action.shape) - 1
        return in_bounds(jnp.where(parameters.random, uniform, action)), memory, ()

    def act_greedy(
        parameters: OffPolicyPolicy, memory: Statistics | None, obs: jax.Array
    ) -> tuple[jax.Array, Statistics | None]:
        return in_bounds(likeliest(actor.apply(parameters.params, look(memory, obs)))), memory

    def critic_loss(critics: Any, now: Networks, batch: _Batch, key: jax.Array) -> tuple[jax.Array, Metrics]:
        follower = now.target if style.delayed else now.actor
        action, log_prob = style.next(key, actor.apply(follower, batch.next_obs))
        if style.value:
            acting = OffPolicyPolicy(follower, None, jnp.zeros((), bool))
            seen_next = batch.next_obs.reshape(-1, *seen.shape)
            after = style.value(lambda obs: act_greedy(acting, None, obs)[0], seen_next, in_bounds(action))
        else:
            after = values(now.target_critics, batch.next_obs, action).min(0)
        goal = batch.reward + batch.factor * (after - jnp.exp(now.log_temperature) * log_prob)
        value = values(critics, batch.obs, batch.action)
        chex.assert_equal_shape((value[0], goal))
        error = mean(((value - jax.lax.stop_gradient(goal)) ** 2).sum(0), batch.valid)
        return error, {"value_loss": error, "value": value[0].mean()}

    def actor_loss(params: Any, now: Networks, batch: _Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        action, log_prob = style.draw(key, actor.apply(params, batch.obs))
        value = values(now.critics, batch.obs, action)
        value = value[0] if style.delayed else value.min(0)
        return mean(jnp.exp(now.log_temperature) * log_prob - value, batch.valid), mean(log_prob, batch.valid)

    def improve(now: Networks, batch: _Batch, key: jax.Array, may_change: bool) -> Networks:
        """A step of the actor and of the temperature; then the targets follow."""
        gradient, log_prob = jax.grad(actor_loss, has_aux=True)(now.actor, now, batch, key)
        own, of_critics, of_temperature = now.optimizer
        params, own = actor_descent.update(gradient, own, now.actor, may_change)
        slope = -jnp.exp(now.log_temperature) * (log_prob + wanted)
        change, of_temperature = tempered.update(slope, of_temperature)
        target: Any = ()
        if style.delayed:
            target = averaged(actor_descent, own, params, now.target, tau)
        return now._replace(
            actor=params,
            target=target,
            target_critics=averaged(critic_descent, of_critics, now.critics, now.target_critics, tau),
            log_temperature=now.log_temperature + change,
            optimizer=(own, of_critics, of_temperature),
        )

    def draw(key: jax.Array, state: OffPolicyState, now: Networks, num_envs: int) -> _Batch:
        """A minibatch, with the rewards of several steps of the same environment."""
        index = now.oldest + jax.random.randint(random_bits.unrolled(key), (batch_size,), 0, state.steps - now.oldest)
        number = jnp.arange(multi_step)[:, None]
        rows = index + num_envs * number  # [n, B]
        n = jnp.where(now.updates >= multi_step_from, multi_step, 1)
        # Where what is stored ends, or what is to be counted, it is as if the time were up.
        ends = (number == n - 1) | (rows + num_envs >= state.steps)
        buffer, rows, after = state.buffer, rows % buffer_size, (rows + num_envs) % buffer_size
        done = buffer.done[rows]
        if multi_step > 1:  # and where what was stored next goes on with nothing: it came of another actor
            follows = (buffer.obs[after] == buffer.next_obs[rows]).reshape(*rows.shape, -1).all(-1)
            ends |= ~follows & ~done
        truncated = jnp.where(done, buffer.truncated[rows], ends)
        found = multi_steps(buffer.reward[rows], done | ends, truncated, discount, multi_step)
        last = jnp.take_along_axis(rows, found.last[:1], 0)[0]
        obs, next_obs = (look(state.statistics, x) for x in (buffer.obs[rows[0]], buffer.next_obs[last]))
        first = rows[0]
        return _Batch(obs, buffer.action[first], found.reward[0], next_obs, found.factor[0], buffer.valid[first])

    def drop_oldest(state: OffPolicyState, now: Networks) -> Networks:
        """Drops the oldest tenth if the actor would not do what was done then."""
        assert buffer_drift is not None
        stored, rows = state.steps - now.oldest, now.oldest + jnp.arange(MEASURED)
        obs, action = (x[rows % buffer_size] for x in (state.buffer.obs, state.buffer.action))
        chosen = likeliest(actor.apply(now.actor, look(state.statistics, obs)))
        there = rows < state.steps
        distance = 0.5 * mean((chosen - action) ** 2, there)
        if buffer_relative:
            distance /= 0.5 * mean(chosen**2 + action**2, there) + 1e-8
        too_old = (distance > buffer_drift) & (stored > buffer_least)
        return now._replace(oldest=now.oldest + jnp.where(too_old, stored // FORGOTTEN, 0))

    def update(key: jax.Array, state: OffPolicyState, trajectory: Trajectory) -> tuple[OffPolicyState, Metrics]:
        state, num_envs = store(state, trajectory), math.prod(trajectory.reward.shape[1:])

        def step(
            now: Networks, key: jax.Array, may_change: bool, follows: bool | None = None
        ) -> tuple[Networks, Metrics]:
            """A step of the critics; one of the actor `follows` it, or if None by the number of the update."""
            batch_key, critic_key, actor_key = jax.random.split(key, 3)
            batch = draw(batch_key, state, now, num_envs)
            gradient, metrics = jax.grad(critic_loss, has_aux=True)(now.critics, now, batch, critic_key)
            own, of_critics, of_temperature = now.optimizer
            critics, of_critics = critic_descent.update(gradient, of_critics, now.critics, may_change)
            optimizer = own, of_critics, of_temperature
            now = now._replace(critics=critics, optimizer=optimizer, updates=now.updates + 1)
            if follows is None:
                now = sometimes(style.delay, lambda now: improve(now, batch, actor_key, True), now)
            elif follows:
                now = improve(now, batch, actor_key, may_change)
            if buffer_drift is not None and may_change:
                now = sometimes(buffer_every, lambda now: drop_oldest(state, now), now)
            return now, metrics

        def learn(now: Networks) -> Any:
            keys, delay = jax.random.split(key, gradient_steps or trajectory.reward.size), style.delay
            others = [critic_descent.every, buffer_every if buffer_drift is not None else 0]
            if platform() == "cpu" or len(keys) % delay or any(every % delay for every in others):
                return jax.lax.scan(partial(step, may_change=True), now, keys)

            # Elsewhere a branch in each step waits for the host: the actor learns in the last of `delay` steps.
            def several(now: Networks, keys: jax.Array, may_change: bool) -> tuple[Networks, Metrics]:
                if delay == 1:
                    return step(now, keys[0], may_change, follows=True)
                now, metrics = jax.lax.scan(partial(step, may_change=False, follows=False), now, keys[:-1])
                now, last = step(now, keys[-1], may_change, follows=True)
                return now, jax.tree.map(jnp.append, metrics, last)

            every = math.gcd(actor_descent.every, *(every // delay for every in others))
            return scan_steps(several, now, keys.reshape(-1, delay), every)

        def wait(now: Networks) -> Any:
            return now, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learn, now)[1])

        networks, metrics = lazy_cond(state.steps >= learning_starts, learn, wait, state.networks)
        metrics = jax.tree.map(jnp.mean, metrics)
        if tempering:
            metrics["temperature"] = jnp.exp(networks.log_temperature)
        if buffer_drift is not None:
            metrics["remembered"] = (state.steps - networks.oldest).astype(jnp.float32)
        return state._replace(networks=networks), metrics

    def sometimes(every: int, what: Callable[[Networks], Networks], now: Networks) -> Networks:
        if every == 1:
            return what(now)
        found: Networks = lazy_cond(now.updates % every == 0, what, lambda now: now, now)
        return found

    def store(state: OffPolicyState, t: Trajectory) -> OffPolicyState:
        number = t.reward.size
        if buffer_size % number:
            raise ValueError(
                f"buffer_size: got {buffer_size}; a multiple of the {number} steps between two updates is needed"
            )
        action = (t.action.reshape(*t.reward.shape, *actions.shape) - middle) / jnp.where(half > 0, half, 1.0)
        valid = jnp.ones_like(t.done) if t.valid is None else t.valid
        new = Memories(t.obs, action, t.reward, t.next_obs, t.done, t.truncated, valid)
        new = jax.tree.map(lambda x, old: x.reshape(number, *old.shape[1:]), new, state.buffer)
        steps, networks = count(state.steps, number, buffer_size), state.networks
        oldest = jnp.maximum(networks.oldest - (state.steps + number - steps), steps - buffer_size)
        buffer = put(state.buffer, state.steps, new)
        return OffPolicyState(networks._replace(oldest=oldest), t.last_memory, buffer, steps)

    return Learner(
        init=init,
        act=act,
        update=update,
        policy=policy,
        init_memory=init_memory,
        act_greedy=act_greedy,
        seat=seat,
    )


class _Batch(NamedTuple):
    """A minibatch, observations as networks see them."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array  # of all steps that are counted
    next_obs: jax.Array  # after the last of them
    factor: jax.Array  # by which the value there counts
    valid: jax.Array
