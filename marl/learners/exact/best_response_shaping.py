"""Best Response Shaping in exact games: a step up one's payoff against the best reply to what one has become."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from games import InfinitelyRepeated
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.core.learner import Learner
from marl.learners.exact.naive import follow, normal_logits

NEWTON_STEPS = 12  # of the values of a reply; they converge quadratically


@factory
def best_response_shaping(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: Scalar = 1.0,
    temperature: Scalar = 1.0,
    self_play: Scalar = 1.0,
    init_scale: Scalar = 1.0,
) -> Learner:
    """Gradient ascent on the payoff against a detective, which plays the best reply to the policy that is moved.

        x <- x + alpha d/dx [V1(x, y*(x)) + w V1(x, x)],        y*(b | s) = exp((Q_x(s, b) - v(s)) / tau),
        Q_x(s, b) = E_a [r2 + discount v(s')],        v(s) = tau log sum_b exp(Q_x(s, b) / tau)

    with a from x, so that the whole of the reply is differentiated and not one step towards it, as by `lola`. Below
    certainty tau keeps the reply differentiable. The co-player's own policy is not read: this player shapes whatever
    replies best, as a leader of Stackelberg does. The second term, of a game that looks the same to both, keeps two of
    a kind from extorting each other.

    Args:
      game: what is played.
      seat: 0 row, 1 column.
      learning_rate: step size, alpha.
      temperature: tau, above 0, in units of the discounted return.
      self_play: w, 0 or more; of no effect in a game that is not symmetric.
      init_scale: standard deviation of the normal initial logits.

    Raises:
      ValueError: for a rate, a weight or a scale below 0, or a temperature that is not above 0.

    Source: Aghajohari et al., Best Response Shaping (2024), arXiv:2404.06519. There the detective is a network that
    learns to reply to any policy from its answers to questions; here it is exact.
    """
    checks.number("temperature", temperature, 0, brackets="()")
    checks.number("self_play", self_play, 0)
    row, column = (jnp.asarray(game.payoffs.seen_by(seat)) for seat in (0, 1))
    weight = jnp.where((row == column).all(), self_play, 0.0)

    def payoff(own: jax.Array) -> jax.Array:
        shaped = game.value(seat, own, soft_best_response(game, 1 - seat, own, temperature))
        return shaped + weight * game.value(seat, own, own)

    gradient = jax.grad(payoff)
    init = normal_logits(init_scale, game.num_logits)
    return follow(lambda own, other: gradient(own), init, learning_rate=learning_rate)._replace(seat=seat)


def soft_best_response(game: InfinitelyRepeated, seat: int, other: jax.Array, temperature: Scalar) -> jax.Array:
    """The logits `[logits]` of the player of a seat that replies best to `other`, up to the entropy of its policy.

    Args:
      game: what is played.
      seat: the number of the player that replies.
      other: logits `[logits]` of its co-player, in the co-player's view.
      temperature: of the reply, in units of the discounted return.
    """
    payoffs = jnp.stack([jnp.asarray(x, jnp.float32) for x in game.payoffs.seen_by(seat)[0]]).reshape(2, 2)
    if game.num_logits == 1:
        q = _action_values(payoffs, jnp.zeros(4), jax.nn.sigmoid(other), 0.0)
        return (q[:, 0] - q[:, 1]) / temperature
    first, then = jax.nn.sigmoid(other[:1]), jax.nn.sigmoid(other[1:][jnp.array([0, 2, 1, 3])])
    q_of = partial(_action_values, payoffs, discount=game.discount)

    def newton(values: jax.Array, _: None) -> tuple[jax.Array, None]:
        return _improved(q_of, values, then, temperature, game.discount), None

    values, _ = jax.lax.scan(newton, jnp.zeros(4), None, NEWTON_STEPS)
    # One more step from the solution has its derivative, by the implicit function theorem.
    values = _improved(q_of, jax.lax.stop_gradient(values), then, temperature, game.discount)
    q = q_of(values, jnp.concatenate([first, then]))
    return (q[:, 0] - q[:, 1]) / temperature


def _action_values(payoffs: jax.Array, values: jax.Array, other: jax.Array, discount: Scalar) -> jax.Array:
    """Q `[states, 2]` of the values `[4]` after CC, CD, DC, DD, where the co-player's first action has `other`."""
    after = payoffs + discount * values.reshape(2, 2)  # [own action, the co-player's]
    return other[:, None] * after[:, 0] + (1 - other[:, None]) * after[:, 1]


def _improved(
    q_of: partial[jax.Array], values: jax.Array, other: jax.Array, temperature: Scalar, discount: Scalar
) -> jax.Array:
    """A step of Newton's method towards v = tau log sum_b exp(Q(v) / tau)."""
    q = q_of(values, other)
    error = temperature * jax.nn.logsumexp(q / temperature, -1) - values
    own, theirs = jax.nn.softmax(q / temperature, -1), jnp.stack([other, 1 - other], -1)
    transitions = (own[:, :, None] * theirs[:, None, :]).reshape(4, 4)
    slope = jax.lax.stop_gradient(jnp.eye(4) - discount * transitions)
    return values + jnp.linalg.solve(slope, error)
