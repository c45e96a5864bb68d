"""Actor-critics that learn from what they remember, for actions that are numbers: TD3 and SAC; and RLx2's settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from games import Box, Game
from games.core import checks, random_bits
from games.core.arguments import factory
from games.core.branching import lazy_cond
from games.core.game import Scalar
from marl.blocks.advantages import mean
from marl.blocks.advantages import multi_step as multi_steps
from marl.blocks.networks import Activation, perceptron
from marl.blocks.normalization import Statistics, add, first_statistics, normalize
from marl.blocks.replay import put
from marl.blocks.sparse import Sparsity, descent
from marl.core.learn import Learner, Metrics, Trajectory

LOG_SCALE = (-20.0, 2.0)  # of SAC's normal distribution


class Memories(NamedTuple):
    """What is remembered, `[buffer_size, ...]`: the steps of all environments, one time after the other."""

    obs: jax.Array  # as the game gives them
    action: jax.Array  # in [-1, 1]
    reward: jax.Array
    next_obs: jax.Array  # before a reset
    done: jax.Array
    truncated: jax.Array
    valid: jax.Array  # whether there was such a step


class Networks(NamedTuple):
    """What gradient steps change."""

    actor: Any
    critics: tuple[Any, Any]
    target: Any  # actor that follows the other slowly; `()` for SAC, whose targets are of the actor itself
    target_critics: tuple[Any, Any]
    log_temperature: jax.Array  # []
    optimizer: tuple[Any, Any, Any]  # of actor, critics and temperature
    updates: jax.Array  # [], of the critics
    oldest: jax.Array  # [], number of the first step that is still remembered


class OffPolicyState(NamedTuple):
    """What learns."""

    networks: Networks
    statistics: Statistics | None  # up to the last update; None where observations are not normalised
    buffer: Memories  # a ring: what is stored next takes the place of the oldest
    steps: jax.Array  # [], stored so far, counting those that were overwritten

    @property
    def params(self) -> Any:
        """Of the actor."""
        return self.networks.actor


class OffPolicyPolicy(NamedTuple):
    """What acts."""

    params: Any
    statistics: Statistics | None  # with which an actor begins
    random: jax.Array  # [], whether actions are still uniform


class _Style(NamedTuple):
    """In what TD3 and SAC differ."""

    num_outputs: int  # of the actor, for each number of an action
    act: Callable[..., jax.Array]  # (key, outputs) -> action, exploring
    draw: Callable[..., tuple[jax.Array, jax.Array]]  # (key, outputs) -> action, log probability; for the actor's loss
    next: Callable[..., tuple[jax.Array, jax.Array]]  # the same, for a critic's target
    delayed: bool  # whether the target's actor is a slow one, and the actor's loss asks the first critic only
    delay: int  # updates of the critics for one of the actor and of the targets


@factory
def td3(
    game: Game,
    seat: int = 0,
    *,
    hidden: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    learning_rate: Scalar = 3e-4,
    discount: Scalar = 0.99,
    buffer_size: int = 2**20,
    batch_size: int = 256,
    gradient_steps: int | None = None,
    learning_starts: Scalar = 1_000,
    tau: Scalar = 0.005,
    exploration_noise: Scalar = 0.1,
    target_noise: Scalar = 0.2,
    noise_clip: Scalar = 0.5,
    policy_delay: int = 2,
    normalize_observations: bool = False,
    multi_step: int = 1,
    multi_step_from: Scalar = 0,
    buffer_drift: Scalar | None = None,
    buffer_relative: bool = False,
    buffer_least: int = 100_000,
    buffer_every: int = 10_000,
    sparsity: Sparsity | None = None,
    critic_sparsity: Sparsity | None = None,
) -> Learner:
    """Learns two values of actions, and an actor that climbs one of them. Actions are arrays in bounds.

    A step of the critics is Adam's on the sum of both means of (Q_i(s, a) - y)^2 over a minibatch of the buffer, with

        y = r + discount min_i Q'_i(s', clip(pi'(s') + clip(target_noise z, -noise_clip, noise_clip), -1, 1)),

    z normal, and y = r where the episode terminated. After every `policy_delay` of them comes a step of the actor up
    the mean of Q_1(s, pi(s)), and Q' and pi' move the share `tau` of their way to Q and pi. Actions and noise are in
    units of half the width of the bounds. The first `learning_starts` actions are uniform, and nothing is learned.

    With `multi_step`, `multi_step_from`, `buffer_drift`, `sparsity` and `critic_sparsity` it is RLx2.

    Args:
      game: what is played.
      seat: its number among the game's agents.
      hidden: units of each layer, of the actor and of each critic.
      activation: after each.
      learning_rate: of Adam, for the actor and the critics.
      discount: of rewards.
      buffer_size: steps that are remembered, a multiple of those between two updates.
      batch_size: of a gradient step.
      gradient_steps: of the critics, in each update; None takes as many as there were steps of the environments.
      learning_starts: steps before the first gradient step.
      tau: 1 takes Q itself for the target.
      exploration_noise: standard deviation of what is added to the actor's actions while it learns.
      target_noise: of what is added to the target's.
      noise_clip: bound of the latter.
      policy_delay: gradient steps of the critics for one of the actor.
      normalize_observations: by their running mean and standard deviation, those of now for what was seen before too.
      multi_step: how many rewards come before a value, fewer at the end of what is stored.
      multi_step_from: gradient steps of the critics from which on they are so many; one before.
      buffer_drift: how far the actor may be from what is remembered: while it is farther, the oldest tenth is
        forgotten. The distance is half the mean square between the actor's actions and those of the oldest 2,048 steps.
        None remembers whatever there is room for.
      buffer_relative: whether that distance is in units of half the mean of both squares together, so that it is 0
        between the same actions, 1 between such as have nothing to do with each other, and 2 between opposite ones,
        whether actions are as large as they can be or small.
      buffer_least: nothing is forgotten where no more steps than these are remembered.
      buffer_every: gradient steps from one measurement of that distance to the next.
      sparsity: of the actor, what `sparse` returns; None is dense. Counts the actor's own steps.
      critic_sparsity: of both critics together; the same as the actor's if None.

    Raises:
      ValueError: for actions that are no `Box` with bounds, observations that are no array, or numbers that are none or
        out of range.

    Source: Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods (2018), arXiv:1802.09477,
    with the sizes and rates of its public code; the rest: Tan et al., RLx2 (2023), arXiv:2205.15043.
    """
    checks.size("policy_delay", policy_delay, 1)
    noises = {"exploration_noise": exploration_noise, "target_noise": target_noise, "noise_clip": noise_clip}
    for name, noise in noises.items():
        checks.number(name, noise, 0)

    def noisy(key: jax.Array, outputs: jax.Array, scale: Scalar, most: Scalar) -> jax.Array:
        noise = jnp.clip(scale * jax.random.normal(random_bits.unrolled(key), outputs.shape), -most, most)
        return jnp.clip(jnp.tanh(outputs) + noise, -1, 1)

    style = _Style(
        1,
        lambda key, outputs: noisy(key, outputs, exploration_noise, jnp.inf),
        lambda key, outputs: (jnp.tanh(outputs), jnp.zeros(outputs.shape[:-1])),
        lambda key, outputs: (noisy(key, outputs, target_noise, noise_clip), jnp.zeros(outputs.shape[:-1])),
        delayed=True,
        delay=policy_delay,
    )
    given = locals()
    return _off_policy(style, 0.0, None, **{name: given[name] for name in _SHARED})


@factory
def sac(
    game: Game,
    seat: int = 0,
    *,
    hidden: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    learning_rate: Scalar = 3e-4,
    discount: Scalar = 0.99,
    buffer_size: int = 2**20,
    batch_size: int = 256,
    gradient_steps: int | None = None,
    learning_starts: Scalar = 1_000,
    tau: Scalar = 0.005,
    temperature: Scalar = 1.0,
    target_entropy: Scalar | None = None,
    learn_temperature: bool = True,
    normalize_observations: bool = False,
    multi_step: int = 1,
    multi_step_from: Scalar = 0,
    buffer_drift: Scalar | None = None,
    buffer_relative: bool = False,
    buffer_least: int = 200_000,
    buffer_every: int = 10_000,
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
      learning_rate: of Adam, for all three.
      discount: of rewards.
      buffer_size: steps that are remembered, a multiple of those between two updates.
      batch_size: of a gradient step.
      gradient_steps: in each update; None takes as many as there were steps of the environments.
      learning_starts: steps before the first gradient step, with uniform actions.
      tau: 1 takes Q itself for the target.
      temperature: in the beginning.
      target_entropy: of actions in [-1, 1]; as many as an action has numbers, and negative, if None.
      learn_temperature: whether it changes.
      normalize_observations: by their running mean and standard deviation, those of now for what was seen before too.
      multi_step: how many rewards come before a value, fewer at the end of what is stored.
      multi_step_from: gradient steps from which on they are so many; one before.
      buffer_drift: as of `td3`, with the actions that are likeliest.
      buffer_relative: as of `td3`.
      buffer_least: nothing is forgotten where no more steps than these are remembered.
      buffer_every: gradient steps from one measurement of that distance to the next.
      sparsity: of the actor, what `sparse` returns; None is dense.
      critic_sparsity: of both critics together; the same as the actor's if None.

    Raises:
      ValueError: as `td3`.

    Source: Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), arXiv:1812.05905.
    """
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

    style = _Style(2, lambda key, outputs: draw(key, outputs)[0], draw, draw, delayed=False, delay=1)
    rate = learning_rate if learn_temperature else 0.0
    given = locals()
    return _off_policy(style, temperature, (rate, target_entropy), **{name: given[name] for name in _SHARED})


_SHARED = (
    "game",
    "seat",
    "hidden",
    "activation",
    "learning_rate",
    "discount",
    "buffer_size",
    "batch_size",
    "gradient_steps",
    "learning_starts",
    "tau",
    "normalize_observations",
    "multi_step",
    "multi_step_from",
    "buffer_drift",
    "buffer_relative",
    "buffer_least",
    "buffer_every",
    "sparsity",
    "critic_sparsity",
)
MEASURED = 2_048  # oldest steps, of which the distance to the actor is taken
FORGOTTEN = 10  # one of so many is forgotten at a time


def _off_policy(
    style: _Style,
    temperature: Scalar,
    tempering: tuple[Scalar, Scalar | None] | None,  # its learning rate and the entropy that is wanted
    *,
    game: Game,
    seat: int,
    hidden: Sequence[int],
    activation: Activation,
    learning_rate: Scalar,
    discount: Scalar,
    buffer_size: int,
    batch_size: int,
    gradient_steps: int | None,
    learning_starts: Scalar,
    tau: Scalar,
    normalize_observations: bool,
    multi_step: int,
    multi_step_from: Scalar,
    buffer_drift: Scalar | None,
    buffer_relative: bool,
    buffer_least: int,
    buffer_every: int,
    sparsity: Sparsity | None,
    critic_sparsity: Sparsity | None,
) -> Learner:
    sizes = {"buffer_size": buffer_size, "batch_size": batch_size, "multi_step": multi_step}
    sizes |= {"gradient_steps": 1 if gradient_steps is None else gradient_steps}
    for name, size in (sizes | {"buffer_least": buffer_least, "buffer_every": buffer_every}).items():
        checks.size(name, size, 1)
    checks.number("learning_rate", learning_rate, 0)
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
    low, high = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), actions.shape) for x in bounds)
    middle, half = (low + high) / 2, (high - low) / 2
    num_inputs, num_actions = math.prod(seen.shape), math.prod(actions.shape)
    actor = perceptron(num_inputs, style.num_outputs * num_actions, hidden=hidden, activation=activation)
    critic = perceptron(num_inputs + num_actions, 1, hidden=hidden, activation=activation)
    actor_descent = descent(optax.adam(learning_rate), sparsity)
    critic_descent = descent(optax.adam(learning_rate), critic_sparsity or sparsity)
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
        """What networks see, `[..., num_inputs]`."""
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

    def begin(parameters: OffPolicyPolicy, num_envs: int | None) -> Statistics | None:
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

    def exploit(
        parameters: OffPolicyPolicy, memory: Statistics | None, obs: jax.Array
    ) -> tuple[jax.Array, Statistics | None]:
        return in_bounds(likeliest(actor.apply(parameters.params, look(memory, obs)))), memory

    def critic_loss(critics: Any, now: Networks, batch: _Batch, key: jax.Array) -> tuple[jax.Array, Metrics]:
        action, log_prob = style.next(key, actor.apply(now.target if style.delayed else now.actor, batch.next_obs))
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

    def improve(now: Networks, batch: _Batch, key: jax.Array) -> Networks:
        """A step of the actor and of the temperature; then the targets follow."""
        gradient, log_prob = jax.grad(actor_loss, has_aux=True)(now.actor, now, batch, key)
        own, of_critics, of_temperature = now.optimizer
        params, own = actor_descent.update(gradient, own, now.actor)
        slope = -jnp.exp(now.log_temperature) * (log_prob + wanted)
        change, of_temperature = tempered.update(slope, of_temperature)
        target: Any = ()
        if style.delayed:
            target = actor_descent.mask(own, optax.incremental_update(params, now.target, tau))
        target_critics = optax.incremental_update(now.critics, now.target_critics, tau)
        return now._replace(
            actor=params,
            target=target,
            target_critics=critic_descent.mask(of_critics, target_critics),
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

    def forget(state: OffPolicyState, now: Networks) -> Networks:
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

        def step(now: Networks, key: jax.Array) -> tuple[Networks, Metrics]:
            batch_key, critic_key, actor_key = jax.random.split(key, 3)
            batch = draw(batch_key, state, now, num_envs)
            gradient, metrics = jax.grad(critic_loss, has_aux=True)(now.critics, now, batch, critic_key)
            own, of_critics, of_temperature = now.optimizer
            critics, of_critics = critic_descent.update(gradient, of_critics, now.critics)
            optimizer = own, of_critics, of_temperature
            now = now._replace(critics=critics, optimizer=optimizer, updates=now.updates + 1)
            now = sometimes(style.delay, lambda now: improve(now, batch, actor_key), now)
            if buffer_drift is not None:
                now = sometimes(buffer_every, lambda now: forget(state, now), now)
            return now, metrics

        def learn(now: Networks) -> Any:
            return jax.lax.scan(step, now, jax.random.split(key, gradient_steps or trajectory.reward.size))

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
        steps, networks = state.steps + number, state.networks
        oldest = jnp.maximum(networks.oldest, steps - buffer_size)
        buffer = put(state.buffer, state.steps, new)
        return OffPolicyState(networks._replace(oldest=oldest), t.last_memory, buffer, steps)

    return Learner(init, act, update, policy, begin, None, exploit, seat)


class _Batch(NamedTuple):
    """A minibatch, observations as networks see them."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array  # of all steps that are counted
    next_obs: jax.Array  # after the last of them
    factor: jax.Array  # by which the value there counts
    valid: jax.Array
