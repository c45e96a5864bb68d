"""Shapers: players whose parameters are evolved over the whole learning of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from games import InfinitelyRepeated
from games.core import checks
from games.core.arguments import factory
from games.exact.matrix import state_visits
from marl.core.learner import Learner, keep_state
from marl.learners.exact.fixed import MAX_LOGIT

# Of a learner's policy a shaper sees what it has become after its last step, or what it played, before that step.
Observe = Literal["after", "before"]
NUM_JOINT_ACTIONS = 4  # CC, CD, DC, DD


class Shaper(NamedTuple):
    """A shaper: initial parameters for `evolve`, and the learner that parameters make.

    Attributes:
      init: (key) -> parameters
      learner: (parameters) -> a learner that keeps them throughout
    """

    init: Callable[[jax.Array], Any]
    learner: Callable[[Any], Learner]


class ShaperState(NamedTuple):
    """Draws of a trial; the parameters are the same in all trials."""

    first: jax.Array  # `[logits]`, the random policy of the first step


class LateState(NamedTuple):
    """The same, of a shaper that sees what the other played, and not yet what it has learned since."""

    first: jax.Array

    @property
    def late(self) -> bool:
        """The mark by which `play` recognises a shaper, also in states that contain one."""
        return True


class ShaperMemory(NamedTuple):
    """The memory of a shaper within a trial."""

    started: jax.Array  # `[]`, whether the first step has been taken
    hidden: jax.Array  # `[hidden]`, of a recurrent shaper; empty for the others


@factory
def mfos(num_logits: int = 5, *, hidden_units: int = 32, observe: Observe = "after") -> Shaper:
    """The M-FOS meta-policy: from both players' last policies to one's own next, by a tanh network of one layer.

        logits = W2 tanh(W1 [sigmoid(own), sigmoid(other)] + b1) + b2

    As in the paper, the first step of a trial is played with random logits from N(0, 1), and only makes the first
    observation.

    Args:
      num_logits: length of a policy, 5 for memory one.
      hidden_units: width of the hidden layer.
      observe: a learner's policy "after" its last step, which is all that it has become, or "before", as in the public
        code: what it played. Of another shaper, which does not learn, both are the same.

    Raises:
      ValueError: for units that are no whole number of at least 1, or another word.

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447; there trained by PPO and by a genetic
    algorithm, here the parameters are evolved.
    """
    checks.choice("observe", observe, get_args(Observe))
    init, network = _one_hidden_layer(2 * num_logits, hidden_units, num_logits)

    def learner(parameters: dict[str, jax.Array]) -> Learner:
        def policy(key: jax.Array, hidden: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, tuple[()]]:
            return network(parameters, obs), hidden, ()

        return after_a_random_step(policy, num_logits, observe=observe)

    return Shaper(init, learner)


def _one_hidden_layer(
    inputs: int, hidden_units: int, num_logits: int
) -> tuple[Callable[[jax.Array], Any], Callable[[Any, jax.Array], jax.Array]]:
    """A tanh network of one layer, as `(key) -> parameters` and `(parameters, [..., inputs]) -> [..., num_logits]`."""
    checks.size("hidden_units", hidden_units, 1)

    def init(key: jax.Array) -> dict[str, jax.Array]:
        # Scaled by the square root of the number of inputs (LeCun), all in one draw.
        w1, w2 = jnp.split(jax.random.normal(key, ((inputs + num_logits) * hidden_units,)), [inputs * hidden_units])
        return {
            "w1": w1.reshape(inputs, hidden_units) / inputs**0.5,
            "b1": jnp.zeros(hidden_units),
            "w2": w2.reshape(hidden_units, num_logits) / hidden_units**0.5,
            "b2": jnp.zeros(num_logits),
        }

    def network(parameters: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        w1, b1, w2, b2 = (parameters[name] for name in ("w1", "b1", "w2", "b2"))
        # The first product as a sum of columns: elementwise, it fuses with tanh and with what made `x`.
        hidden = jnp.tanh(b1 + sum(x[..., i, None] * w1[i] for i in range(inputs)))
        return hidden @ w2 + b2

    return init, network


@factory
def counts(game: InfinitelyRepeated, seat: int = 0, *, hidden_units: int = 32) -> Shaper:
    """A meta-policy that sees a compressed history: how often each joint action was played so far in the trial.

        logits = W2 tanh(W1 c + b1) + b2,        c = 1 / t sum_{s < t} d(own_s, other_s)

    with d the shares of CC, CD, DC, DD (own action first) in the rounds of one meta-step, which are the discounted
    visits of the two policies times `1 - discount`. The four shares take the place of the ten probabilities of `mfos`,
    and neither policy is seen. The random first step counts. In several environments c is the mean over them.

    Args:
      game: whose discount weighs the rounds.
      seat: the player's number; both see themselves first.
      hidden_units: width of the hidden layer.

    Raises:
      ValueError: for units that are no whole number of at least 1.

    Source: the observation of Garcia Segura, Hailes and Musolesi, Opponent Shaping in LLM Agents (2025),
    arXiv:2510.08255, without the language model. There the counts grow, and so tell the time in the trial too, and the
    last joint action stands beside them, on which a memory-one policy depends anyway.
    """
    del seat
    num_logits = game.num_logits
    init, network = _one_hidden_layer(NUM_JOINT_ACTIONS, hidden_units, num_logits)

    def shares(obs: jax.Array) -> jax.Array:
        logits = jnp.clip(jnp.log(obs) - jnp.log1p(-obs), -MAX_LOGIT, MAX_LOGIT)
        visits = state_visits(logits[:num_logits], logits[num_logits:], game.discount)
        return (1 - game.discount) * jnp.stack(visits)

    def learner(parameters: dict[str, jax.Array]) -> Learner:
        def policy(key: jax.Array, hidden: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, tuple[()]]:
            played = jax.vmap(shares)(obs.reshape(-1, 2 * num_logits)).mean(0)
            hidden = hidden + jnp.append(played, 1.0)  # sums of the shares, and how many
            logits = network(parameters, hidden[:NUM_JOINT_ACTIONS] / hidden[NUM_JOINT_ACTIONS])
            return jnp.broadcast_to(logits, (*obs.shape[:-1], num_logits)), hidden, ()

        # What was played, and not what the other has become since, is the history.
        return after_a_random_step(policy, num_logits, NUM_JOINT_ACTIONS + 1, observe="before")

    return Shaper(init, learner)


@factory
def good_shepherd(num_logits: int = 5) -> Shaper:
    """One fixed policy, best for the whole of the opponent's learning: the parameters are its logits.

    The first step of a trial is played at random, as by `mfos`, so that the two compare.

    Args:
      num_logits: length of a policy, 5 for memory one.

    Source: Balaguer et al., The Good Shepherd: An Oracle Agent for Mechanism Design (2022), arXiv:2202.10135.
    """

    def learner(parameters: jax.Array) -> Learner:
        def policy(key: jax.Array, hidden: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, tuple[()]]:
            return jnp.broadcast_to(parameters, (*obs.shape[:-1], num_logits)), hidden, ()

        return after_a_random_step(policy, num_logits)

    return Shaper(lambda key: jax.random.normal(key, (num_logits,)), learner)


@factory
def shaper(num_logits: int = 5, *, hidden_units: int = 32, observe: Observe = "after") -> Shaper:
    """A recurrent meta-policy: a gated recurrent unit over both players' policies remembers the whole trial.

        r, z = sigmoid(W_r [o, h] + b_r), sigmoid(W_z [o, h] + b_z),        n = tanh(W_n [o, r h] + b_n)
        h <- (1 - z) n + z h,        logits = W h + b

    Memory distinguishes an opponent that learns in one way from one that learns in another. In several environments it
    is the mean over them.

    Args:
      num_logits: length of a policy, 5 for memory one.
      hidden_units: size of h.
      observe: as of `mfos`.

    Raises:
      ValueError: for units that are no whole number of at least 1, or another word.

    Source: Khan et al., Scaling Opponent Shaping to High Dimensional Games (2023), arXiv:2312.12568, whose SHAPER is
    one recurrent policy that keeps its memory between episodes; an episode is here one exact repeated game. The unit:
    Cho et al. (2014), arXiv:1406.1078.
    """
    checks.size("hidden_units", hidden_units, 1)
    checks.choice("observe", observe, get_args(Observe))
    inputs = 2 * num_logits + hidden_units

    def init(key: jax.Array) -> dict[str, jax.Array]:
        gates_key, candidate_key, out_key = jax.random.split(key, 3)
        return {
            "gates": jax.random.normal(gates_key, (inputs, 2 * hidden_units)) / inputs**0.5,
            "gates_bias": jnp.zeros(2 * hidden_units),
            "candidate": jax.random.normal(candidate_key, (inputs, hidden_units)) / inputs**0.5,
            "candidate_bias": jnp.zeros(hidden_units),
            "out": jax.random.normal(out_key, (hidden_units, num_logits)) / hidden_units**0.5,
            "out_bias": jnp.zeros(num_logits),
        }

    def learner(parameters: dict[str, jax.Array]) -> Learner:
        def step(key: jax.Array, hidden: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array, tuple[()]]:
            before = jnp.broadcast_to(hidden, (*obs.shape[:-1], hidden_units))
            gates = jnp.concatenate([obs, before], -1) @ parameters["gates"] + parameters["gates_bias"]
            reset, keep = jnp.split(jax.nn.sigmoid(gates), 2, -1)
            gated = jnp.concatenate([obs, reset * before], -1)
            candidate = jnp.tanh(gated @ parameters["candidate"] + parameters["candidate_bias"])
            after = (1 - keep) * candidate + keep * before
            # One memory for all environments, their mean, as in the paper.
            return after @ parameters["out"] + parameters["out_bias"], after.reshape(-1, hidden_units).mean(0), ()

        return after_a_random_step(step, num_logits, hidden_units, observe=observe)

    return Shaper(init, learner)


@factory
def after_a_random_step(
    policy: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array, Any]],
    num_logits: int,
    hidden_units: int = 0,
    observe: Observe = "after",
) -> Learner:
    """A learner that plays its first step at random, and then as `policy` says; its parameters are fixed.

    Args:
      policy: `(key, hidden [hidden_units], obs) -> (logits, hidden, extras)`.
      num_logits: length of a policy.
      hidden_units: of what a recurrent policy remembers, which is 0 at first.
      observe: as of `mfos`.
    """
    State = LateState if observe == "before" else ShaperState

    def init(key: jax.Array) -> ShaperState | LateState:
        return State(jax.random.normal(key, (num_logits,)))

    def init_memory(state: ShaperState | LateState, num_envs: int | None) -> ShaperMemory:
        return ShaperMemory(jnp.zeros((), bool), jnp.zeros(hidden_units))

    def act(
        key: jax.Array, state: ShaperState | LateState, memory: ShaperMemory, obs: jax.Array
    ) -> tuple[jax.Array, ShaperMemory, Any]:
        logits, hidden, extras = policy(key, memory.hidden, obs)
        logits = jnp.where(memory.started, logits, state.first)
        hidden = jnp.where(memory.started, hidden, memory.hidden)
        return logits, ShaperMemory(jnp.ones((), bool), hidden), extras

    return Learner(init=init, act=act, update=keep_state, init_memory=init_memory)
