"""Shapers that act in every step of a sampled game, with parameters that stay as they are while the others learn.

Each is a policy with a memory, and evolution or PPO finds its parameters. Memory is what they are about: that of the
whole trial (context), of the episode (history), or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from games import Game
from games.core import checks
from games.core.arguments import factory
from games.core.spaces import Box, Space
from marl.blocks.distributions import Distribution, distribution
from marl.blocks.layers import where_done
from marl.core.learner import Learner, Trajectory
from meta.xla.backend import platform

Parameters = dict[str, jax.Array]
Memory = dict[str, jax.Array]  # `[N, ...]` each
MemorySpan = Literal["trial", "episode"]


class Policy(NamedTuple):
    """A policy with a memory, as pure functions. `N` is the number of environments.

    Attributes:
      init: (key) -> parameters
      init_memory: (N) -> memory before the first step of a trial
      act: (parameters, memory, obs [N, ...]) -> outputs [N, ...] of `actions`, values [N], memory
      reset_memory: (memory, done [N]) -> memory, after every step
      actions: the space of the player's actions, or a distribution of them
      turn: when the others have learned

    Example:
      >>> import games, jax, jax.numpy as jnp, marl
      >>> def linear(game, seat=0):  # one layer, without a memory
      ...     agent = game.agents[seat]
      ...     actions, size = game.action_space(agent), game.observation_space(agent).shape[0]
      ...     def act(p, memory, obs):
      ...         return obs @ p["w"], jnp.zeros(len(obs)), memory
      ...     init = lambda key: {"w": 0.1 * jax.random.normal(key, (size, actions.n))}
      ...     return marl.shapers.Policy(init, lambda n: {}, act, lambda memory, done: memory, actions)
      >>> game = games.make("ipd", episode_length=10)
      >>> trial = marl.shaping_trial(game, linear(game), [marl.make_learner("tft", game, 1)], meta_steps=2)
      >>> bool(trial(linear(game).init(jax.random.key(0)), jax.random.key(1)).fitness < 0)
      True
    """

    init: Callable[[jax.Array], Parameters]
    init_memory: Callable[[int], Memory]
    act: Callable[[Parameters, Memory, jax.Array], tuple[jax.Array, jax.Array, Memory]]
    reset_memory: Callable[[Memory, jax.Array], Memory]
    actions: Distribution | Space
    turn: Callable[[Memory], Memory] = lambda memory: memory

    @property
    def distribution(self) -> Distribution:
        """The distribution of the player's actions."""
        return self.actions if isinstance(self.actions, Distribution) else distribution(self.actions)

    def learner(self, parameters: Parameters) -> Learner:
        """The player of `learn` with these parameters, which stay as they are while the others learn.

        How often they have learned is its state, which says when to `turn`.
        """

        def init_memory(turns: jax.Array, num_envs: int | None) -> PlayerMemory:
            if num_envs is None:
                raise ValueError("num_envs: got None; a shaper of a sampled game needs the number of environments")
            return PlayerMemory(self.init_memory(num_envs), turns)

        def act(
            key: jax.Array, turns: jax.Array, memory: PlayerMemory, obs: jax.Array
        ) -> tuple[jax.Array, PlayerMemory, Extras]:
            own = jax.tree.map(partial(jnp.where, turns > memory.turns), self.turn(memory.own), memory.own)
            outputs, value, own = self.act(parameters, own, obs)
            action = self.distribution.sample(key, outputs)
            extras = Extras(self.distribution.log_prob(outputs, action), value)
            return action, PlayerMemory(own, turns), extras

        def update(key: jax.Array, turns: jax.Array, trajectory: Trajectory) -> tuple[jax.Array, dict[str, jax.Array]]:
            del key, trajectory
            return turns + 1, {}

        def reset_memory(memory: PlayerMemory, done: jax.Array) -> PlayerMemory:
            return memory._replace(own=self.reset_memory(memory.own, done))

        return Learner(
            init=lambda key: jnp.int32(0), act=act, update=update, init_memory=init_memory, reset_memory=reset_memory
        )


def replay(policy: Policy, parameters: Parameters, obs: jax.Array, done: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The outputs and values of a policy on observations that were made before, in differentiable form.

    Args:
      policy: whose memory is as before the first step of a trial.
      parameters: of the policy.
      obs: `[episodes, T, N, ...]`, where the others learn after each of the episodes.
      done: `[episodes, T, N]`, where one of the game ended.

    Returns:
      (outputs, values), `[episodes, T, N, ...]` each.
    """

    def step(memory: Memory, inputs: tuple[jax.Array, jax.Array]) -> tuple[Memory, tuple[jax.Array, jax.Array]]:
        obs, done = inputs
        outputs, value, memory = policy.act(parameters, memory, obs)
        return policy.reset_memory(memory, done), (outputs, value)

    @jax.checkpoint  # or else the steps of all episodes would be kept for the way back
    def episode(memory: Memory, inputs: tuple[jax.Array, jax.Array]) -> tuple[Memory, tuple[jax.Array, jax.Array]]:
        memory, found = jax.lax.scan(step, memory, inputs)
        return policy.turn(memory), found

    return jax.lax.scan(episode, policy.init_memory(done.shape[-1]), (obs, done))[1]


class PlayerMemory(NamedTuple):
    """The memory of a player."""

    own: Memory  # the policy's
    turns: jax.Array  # `[]`, how often the others had learned when it last acted


class Extras(NamedTuple):
    """Values of a step, `[N]`, from which meta-learners learn."""

    log_prob: jax.Array
    value: jax.Array


@factory
def shaper(
    game: Game,
    seat: int = 0,
    *,
    hidden_units: int = 16,
    memory: MemorySpan = "trial",
    averaging: bool = True,
    channels: int = 0,
) -> Policy:
    """One recurrent policy, whose memory h survives the end of an episode.

        x = relu(W o + b),        h <- GRU(x, h),        outputs = W_a h + b_a

    The same opponent learns in all environments; before every step h becomes (h + its mean over the environments) / 2,
    so that what happened in one is known in the others.

    Args:
      game: what is played.
      seat: the player's number among its agents.
      hidden_units: size of x and of h.
      memory: trial; or episode, where h is 0 at the beginning of each: the ablation.
      averaging: whether h is averaged over the environments.
      channels: of a convolution of 3 x 3 over images, before x; 0 for none. Other observations have none.

    Raises:
      ValueError: for units or channels that are no such whole numbers, or a game that has no such observations or
        actions.

    Source: Khan et al., Scaling Opponent Shaping to High Dimensional Games (2023), arXiv:2312.12568; the weights of the
    average are those of its public code.
    """
    seen, actions = _spaces(game, seat)
    see, layers = _encoder("see", seen, hidden_units, channels)
    layers |= _unit("unit", hidden_units) | _heads(hidden_units, actions)

    def init_memory(num_envs: int) -> Memory:
        return {"h": jnp.zeros((num_envs, hidden_units))}

    def act(p: Parameters, m: Memory, obs: jax.Array) -> tuple[jax.Array, jax.Array, Memory]:
        h = _recur(p, "unit", see(p, obs), _mixed(m["h"]) if averaging else m["h"])
        return _outputs(p, actions, h), _dense(p, "value", h)[..., 0], {"h": h}

    def reset_memory(m: Memory, done: jax.Array) -> Memory:
        return m if memory == "trial" else where_done(done, init_memory(len(done)), m)

    return Policy(
        init=lambda key: _first(key, layers),
        init_memory=init_memory,
        act=act,
        reset_memory=reset_memory,
        actions=actions,
    )


@factory
def good_shepherd(game: Game, seat: int = 0, *, hidden_units: int = 16, channels: int = 0) -> Policy:
    """`shaper` without context: its memory is of the episode alone, and no environment sees the others.

    So all episodes are played in one and the same way, which is best for the whole of the opponent's learning.

    Args:
      game: what is played.
      seat: the player's number among its agents.
      hidden_units: as of `shaper`.
      channels: as of `shaper`.

    Source: Balaguer et al., The Good Shepherd: An Oracle Agent for Mechanism Design (2022), arXiv:2202.10135; with the
    recurrent policy of Khan et al. (2023).
    """
    return shaper(game, seat, hidden_units=hidden_units, memory="episode", averaging=False, channels=channels)


@factory
def mfos(
    game: Game,
    seat: int = 0,
    *,
    hidden_units: int = 16,
    memory: MemorySpan = "trial",
    averaging: bool = True,
    channels: int = 16,
) -> Policy:
    """Two levels: what a meta-policy has seen of the last episode gates the policy that acts in the next one.

        m <- GRU_m(x_m, m),   c = sigmoid(2 + W_c m + b_c), taken over when an episode has ended and the others learned
        h <- GRU_a(x_a, h),   outputs = W_a (c h) + b_a

    with x_m and x_a from the observation by layers of their own. c is 1 in the first episode, and nearly so at the
    beginning of a search, as the gates of other units are. (By ranks of fitness, two searches with half-closed ones
    stood at mutual defection for 80 and for all 200 generations; of two with open ones one left after 28, one not by
    70: too few to say how much it helps.) The meta-memory m reads every step and is kept for the whole trial; h is kept
    for an episode.

    Args:
      game: what is played.
      seat: the player's number among its agents.
      hidden_units: size of m, c and h.
      memory: trial; or episode, where m is 0 at the beginning of each and c depends on the last episode alone.
      averaging: whether m is averaged over the environments, as the memory of `shaper`.
      channels: of the convolutions of 3 x 3 over images; 0 for none. Other observations have none.

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447, section 4.3 (there c is drawn from a
    distribution, where PPO trains it); evolved, and with averaging, in Khan et al. (2023), arXiv:2312.12568.
    """
    seen, actions = _spaces(game, seat)
    see, layers = _encoder("see", seen, hidden_units, channels)
    survey, more = _encoder("survey", seen, hidden_units, channels)
    layers |= more | _unit("unit", hidden_units) | _unit("meta", hidden_units)
    layers |= _heads(hidden_units, actions) | {"condition": (hidden_units, hidden_units)}

    def init_memory(num_envs: int) -> Memory:
        none = jnp.zeros((num_envs, hidden_units))
        return {"h": none, "m": none, "next": none + 1, "condition": none + 1}

    def act(p: Parameters, m: Memory, obs: jax.Array) -> tuple[jax.Array, jax.Array, Memory]:
        h = _recur(p, "unit", see(p, obs), m["h"])
        meta = _recur(p, "meta", survey(p, obs), _mixed(m["m"]) if averaging else m["m"])
        condition = jax.nn.sigmoid(OPEN + _dense(p, "condition", meta))
        gated = m["condition"] * h
        after = {"h": h, "m": meta, "next": condition, "condition": m["condition"]}
        return _outputs(p, actions, gated), _dense(p, "value", gated)[..., 0], after

    def reset_memory(m: Memory, done: jax.Array) -> Memory:
        first = init_memory(len(done))
        names = ("h",) if memory == "trial" else ("h", "m")
        return m | {name: where_done(done, first[name], m[name]) for name in names}

    def turn(m: Memory) -> Memory:
        return m | {"condition": m["next"]}

    return Policy(
        init=lambda key: _first(key, layers),
        init_memory=init_memory,
        act=act,
        reset_memory=reset_memory,
        actions=actions,
        turn=turn,
    )


@factory
def counts(game: Game, seat: int = 0, *, hidden_units: int = 16) -> Policy:
    """A policy without recurrence, which sees beside its observation o how often each was made so far in the trial.

        x = relu(W [o, c] + b),        outputs = W_a x + b_a

    with c the mean of all earlier observations, over steps and environments, and 0 in the first step. Observations of a
    matrix game are one-hot, so that c has the shares of the start of an episode and of CC, CD, DC, DD, own action
    first.

    Args:
      game: what is played.
      seat: the player's number among its agents.
      hidden_units: size of x.

    Raises:
      ValueError: for units that are no whole number of at least 1, or a game that has no such observations or actions.

    Source: Garcia Segura, Hailes and Musolesi, Opponent Shaping in LLM Agents (2025), arXiv:2510.08255, whose
    prompt has the last joint action and a summary of those before.
    """
    seen, actions = _spaces(game, seat)
    size = math.prod(seen.shape)
    see, layers = _encoder("see", Box(0.0, 1.0, (2 * size,)), hidden_units, 0)
    layers |= _heads(hidden_units, actions)

    def init_memory(num_envs: int) -> Memory:
        return {"sum": jnp.zeros((num_envs, size)), "steps": jnp.zeros(num_envs)}

    def act(p: Parameters, m: Memory, obs: jax.Array) -> tuple[jax.Array, jax.Array, Memory]:
        flat = obs.reshape(len(obs), size).astype(jnp.float32)
        history = m["sum"].mean(0) / jnp.maximum(m["steps"][0], 1)
        x = see(p, jnp.concatenate([flat, jnp.broadcast_to(history, flat.shape)], -1))
        after = {"sum": m["sum"] + flat, "steps": m["steps"] + 1}
        return _outputs(p, actions, x), _dense(p, "value", x)[..., 0], after

    return Policy(
        init=lambda key: _first(key, layers),
        init_memory=init_memory,
        act=act,
        reset_memory=lambda m, done: m,
        actions=actions,
    )


OPEN = 2.0  # where a gate begins, before the sigmoid
FEW = 128  # numbers, up to which a layer's inputs are multiplied one by one on CPUs

_Layers = dict[str, tuple[int, int]]  # inputs and units, by name


def _spaces(game: Game, seat: int) -> tuple[Space, Distribution]:
    seen = game.observation_space(game.agents[seat])
    if not hasattr(seen, "shape"):
        raise ValueError(f"observations: got {seen}; an array is needed")
    return seen, distribution(game.action_space(game.agents[seat]))


def _encoder(
    name: str, seen: Space, units: int, channels: int
) -> tuple[Callable[[Parameters, jax.Array], jax.Array], _Layers]:
    """(parameters, obs [N, ...]) -> [N, units]: a layer, of images behind a convolution; and what it needs."""
    checks.size("hidden_units", units, 1)
    checks.size("channels", channels, 0)
    inputs = math.prod(seen.shape)

    def flat(p: Parameters, obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, (None, *seen.shape))
        return jax.nn.relu(_dense(p, name, obs.reshape(len(obs), inputs)))

    if not channels or not getattr(seen, "image", False):
        return flat, {name: (inputs, units)}
    height, width, depth = seen.shape

    def see(p: Parameters, obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, (None, *seen.shape))
        padded = jnp.pad(obs.astype(jnp.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
        # Patches and one product: a convolution with other weights for every member of a population is slow on CPUs.
        patches = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        x = jax.nn.relu(_dense(p, f"{name}_convolution", jnp.concatenate(patches, -1)))
        return jax.nn.relu(_dense(p, name, x.reshape(len(obs), -1)))

    return see, {f"{name}_convolution": (9 * depth, channels), name: (height * width * channels, units)}


def _unit(name: str, units: int) -> _Layers:
    return {f"{name}_gates": (2 * units, 2 * units), f"{name}_new": (units, units), f"{name}_old": (units, units)}


def _recur(p: Parameters, name: str, x: jax.Array, h: jax.Array) -> jax.Array:
    """A gated recurrent unit; Cho et al. (2014), arXiv:1406.1078, with the reset after the product."""
    gates = _dense(p, f"{name}_gates", jnp.concatenate([x, h], -1))
    reset, keep = jnp.split(jax.nn.sigmoid(gates), 2, -1)
    new = jnp.tanh(_dense(p, f"{name}_new", x) + reset * _dense(p, f"{name}_old", h))
    return (1 - keep) * new + keep * h


def _mixed(h: jax.Array) -> jax.Array:
    return 0.5 * (h + h.mean(0))


def _heads(units: int, actions: Distribution) -> _Layers:
    return {"policy": (units, actions.num_outputs), "value": (units, 1)} | (
        {"scales": (0, actions.num_scales)} if actions.num_scales else {}
    )


def _outputs(p: Parameters, actions: Distribution, h: jax.Array) -> jax.Array:
    outputs = _dense(p, "policy", h)
    if not actions.num_scales:
        return outputs
    scales = jnp.broadcast_to(p["scales_b"], (*outputs.shape[:-1], actions.num_scales))
    return jnp.concatenate([outputs, scales], -1)


def _dense(p: Parameters, name: str, x: jax.Array) -> jax.Array:
    weights, bias = p[f"{name}_w"], p[f"{name}_b"]
    if x.size > FEW or platform() != "cpu":
        return x @ weights + bias
    # Of a few rows, with other weights for every member of a population: to pack these costs more than to multiply.
    return sum((x[..., i, None] * row for i, row in enumerate(weights)), bias)


def _first(key: jax.Array, layers: _Layers) -> Parameters:
    """Weights from N(0, 1 / inputs), biases 0."""
    parameters: Parameters = {}
    for i, (name, (inputs, units)) in enumerate(layers.items()):
        weights = jax.random.normal(jax.random.fold_in(key, i), (inputs, units)) / max(inputs, 1) ** 0.5
        parameters |= {f"{name}_b": jnp.zeros(units)} | ({f"{name}_w": weights} if inputs else {})
    return parameters
