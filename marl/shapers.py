"""Shapers: players whose parameters are evolved over the whole learning of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from marl.learn import Learner, keep_state


class Shaper(NamedTuple):
    """What `evolve` works on: parameters, and the learner that they make."""

    init: Callable[[jax.Array], Any]  # (key) -> parameters
    learner: Callable[[Any], Learner]  # (parameters) -> a learner that keeps them throughout


class MFOSState(NamedTuple):
    """Memory of the M-FOS meta-policy within a trial."""

    first: jax.Array  # `[logits]`, the random policy of the first step
    started: jax.Array  # `[]`, whether that step has been taken


def mfos(num_logits: int = 5, *, hidden_units: int = 16) -> Shaper:
    """The M-FOS meta-policy: from both players' last policies to one's own next, by a tanh network of one layer.

        logits = W2 tanh(W1 [sigmoid(own), sigmoid(other)] + b1) + b2

    As in the paper, the first step of a trial is played with random logits from N(0, 1), and only makes the first
    observation.

    Args:
      num_logits: length of a policy, 5 for memory one.
      hidden_units: width of the hidden layer.

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447; there trained by PPO and by a genetic
    algorithm, here the parameters are evolved.
    """

    def init(key: jax.Array) -> dict[str, jax.Array]:
        # Scaled by the square root of the number of inputs (LeCun), all in one draw.
        inputs = 2 * num_logits
        w1, w2 = jnp.split(jax.random.normal(key, ((inputs + num_logits) * hidden_units,)), [inputs * hidden_units])
        return {
            "w1": w1.reshape(inputs, hidden_units) / inputs**0.5,
            "b1": jnp.zeros(hidden_units),
            "w2": w2.reshape(hidden_units, num_logits) / hidden_units**0.5,
            "b2": jnp.zeros(num_logits),
        }

    def learner(parameters: dict[str, jax.Array]) -> Learner:
        w1, b1, w2, b2 = (parameters[name] for name in ("w1", "b1", "w2", "b2"))

        def network(obs: jax.Array) -> jax.Array:
            # The first product as a sum of columns: elementwise, it fuses with tanh and with what made `obs`.
            hidden = jnp.tanh(b1 + sum(obs[i] * w1[i] for i in range(2 * num_logits)))
            return hidden @ w2 + b2

        def begin(key: jax.Array) -> MFOSState:
            return MFOSState(jax.random.normal(key, (num_logits,)), jnp.zeros((), bool))

        def act(key: jax.Array, state: MFOSState, obs: jax.Array) -> tuple[jax.Array, MFOSState, tuple]:
            del key
            logits = jnp.where(state.started, jnp.vectorize(network, signature="(i)->(o)")(obs), state.first)
            return logits, state._replace(started=jnp.ones((), bool)), ()

        return Learner(begin, act, keep_state)

    return Shaper(init, learner)
