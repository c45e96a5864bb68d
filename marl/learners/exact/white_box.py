"""Learners that differentiate through the game and through the other's learning: LOLA and its family.

All take a differentiable game as one function `payoffs(own, other) -> (own payoff, other's payoff)` of the two
players' parameters, from the point of view of the learner: V1(x, y) and V2(x, y) below, where x is one's own and y is
the other's. Papers write losses; here payoffs are ascended, and every sign is turned accordingly. Each returns a
`Learner` of one policy, and steps by `learning_rate` (alpha) along its direction; what it imagines of the other's
learning has the same step size unless `lookahead_rate` (eta) says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from games.core import checks
from games.core.arguments import check_arguments
from marl.core.learner import Learner
from marl.learners.exact.naive import follow, normal_logits

Payoffs = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
Direction = Callable[[jax.Array, jax.Array], jax.Array]
HIGHEST_ORDER = 3  # of HOLA: programs grow by a factor with each, and this one takes minutes to compile


@check_arguments
def lookahead(
    payoffs: Payoffs,
    *,
    learning_rate: float = 1.0,
    lookahead_rate: float | None = None,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """The best step against where the other will be after its own naive step, which is taken as given.

        x <- x + alpha dV1/dx (x, y + eta dV2/dy)

    Args:
      payoffs: `(own, other) -> (own payoff, other's)`, differentiable; own and other are logits.
      learning_rate: step size, alpha.
      lookahead_rate: step size of the other's anticipated step, eta; the learning rate if None.
      init_scale: standard deviation of the normal initial logits.
      num_logits: length of the policy, 5 for memory one.

    Source: Zhang and Lesser, Multi-Agent Learning with Policy Prediction (2010).
    """
    mine, theirs = _mine(payoffs), _theirs(payoffs)
    eta = _lookahead_rate(learning_rate, lookahead_rate)

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        return jax.grad(mine)(own, other + eta * jax.grad(theirs, 1)(own, other))

    return follow(direction, normal_logits(init_scale, num_logits), learning_rate=learning_rate)


@check_arguments
def lola(
    payoffs: Payoffs,
    *,
    learning_rate: float = 1.0,
    lookahead_rate: float | None = None,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """Learning with opponent-learning awareness, in its Taylor form: one's influence on the other's next step counts.

        x <- x + alpha d/dx [ V1 + eta dV1/dy . dV2/dy ]        (the whole term is differentiated)

    The form that is not expanded is `hola(order=1)`.

    Args:
      payoffs: `(own, other) -> (own payoff, other's)`, differentiable; own and other are logits.
      learning_rate: step size, alpha.
      lookahead_rate: step size of the other's anticipated step, eta; the learning rate if None.
      init_scale: standard deviation of the normal initial logits.
      num_logits: length of the policy, 5 for memory one.

    Source: Foerster et al., Learning with Opponent-Learning Awareness (2018), arXiv:1709.04326, equation 4.1; the
    LOLA of Lu et al. (2022), arXiv:2205.01447, with step sizes of 1.
    """
    mine, theirs = _mine(payoffs), _theirs(payoffs)
    eta = _lookahead_rate(learning_rate, lookahead_rate)

    def anticipated(own: jax.Array, other: jax.Array) -> jax.Array:
        value, pull = jax.value_and_grad(mine, 1)(own, other)
        return value + eta * (pull * jax.grad(theirs, 1)(own, other)).sum()

    return follow(jax.grad(anticipated), normal_logits(init_scale, num_logits), learning_rate=learning_rate)


@check_arguments
def hola(
    payoffs: Payoffs,
    *,
    order: int = 2,
    learning_rate: float = 1.0,
    lookahead_rate: float | None = None,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """Higher-order LOLA: the other is taken for a LOLA learner of one order less, and nothing is expanded.

        h1_n(x, y) = eta d/dx V1(x, y + h2_{n-1}(x, y)),        h2_n(x, y) = eta d/dy V2(x + h1_{n-1}(x, y), y),
        x <- x + alpha / eta h1_n(x, y)

    with h_{-1} = 0, so that order 1 is exact LOLA; order 0 would be the naive learner.

    Args:
      payoffs: `(own, other) -> (own payoff, other's)`.
      order: of the lookahead, from 1 to 3; each has a program several times as large.
      learning_rate: alpha.
      lookahead_rate: eta; None for alpha.
      init_scale: standard deviation of the normal initial parameters.
      num_logits: how many parameters.

    Raises:
      ValueError: for an order that is no such whole number, or rates or a scale below 0.

    Source: Willi, Letcher, Treutlein and Foerster, COLA (2022), arXiv:2203.04098, definition 3.
    """
    checks.size("order", order, 1, HIGHEST_ORDER)
    eta = _lookahead_rate(learning_rate, lookahead_rate)
    direction = _hola_gradients(payoffs, order, eta)[0]
    return follow(direction, normal_logits(init_scale, num_logits), learning_rate=learning_rate)


def _hola_gradients(payoffs: Payoffs, order: int, eta: float) -> tuple[Direction, Direction]:
    """(one's own, the other's) gradient of order n, both as functions of (own, other)."""
    mine, theirs = _mine(payoffs), _theirs(payoffs)
    if order == 0:
        return jax.grad(mine, 0), jax.grad(theirs, 1)
    own_below, other_below = _hola_gradients(payoffs, order - 1, eta)

    def own_gradient(own: jax.Array, other: jax.Array) -> jax.Array:
        step, pull_back = jax.vjp(lambda own: other_below(own, other), own)
        direct, through = _barrier(jax.grad(mine, (0, 1))(own, other + eta * _barrier(step)))
        return direct + eta * pull_back(through)[0]

    def other_gradient(own: jax.Array, other: jax.Array) -> jax.Array:
        step, pull_back = jax.vjp(lambda other: own_below(own, other), other)
        through, direct = _barrier(jax.grad(theirs, (0, 1))(own + eta * _barrier(step), other))
        return direct + eta * pull_back(through)[0]

    return own_gradient, other_gradient


@check_arguments
def sos(
    payoffs: Payoffs,
    *,
    learning_rate: float = 1.0,
    a: float = 0.5,
    b: float = 0.1,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """Stable opponent shaping: LookAhead plus as much of LOLA's shaping term as keeps fixed points stable.

    With xi the simultaneous gradient of both, H_o the part of its Jacobian off the diagonal blocks and
    chi_1 = d/dx [ dV2/dy ] dV1/dy (likewise chi_2), both over the players together,

        xi_0 = (I + alpha H_o) xi,        x <- x + alpha (xi_0 + p alpha chi)_1,        p = min(p_1, p_2),
        p_1 = 1 if alpha chi . xi_0 >= 0, else min(1, a |xi_0|^2 / |alpha chi . xi_0|),
        p_2 = |xi|^2 if |xi| < b, else 1.

    Args:
      payoffs: `(own, other) -> (own payoff, other's)`.
      learning_rate: alpha.
      a: in (0, 1), how far the direction may turn from LookAhead's; 0.5 in the paper.
      b: in (0, 1), within which norm of the gradient a fixed point is taken to be near; 0.1 in the paper.
      init_scale: standard deviation of the normal initial parameters.
      num_logits: how many parameters.

    Raises:
      ValueError: for numbers out of these ranges.

    Source: Letcher et al., Stable Opponent Shaping in Differentiable Games (2019), arXiv:1811.08469, algorithm 1.
    """
    checks.number("a", a, 0, 1, brackets="()")
    checks.number("b", b, 0, 1, brackets="()")
    mine, theirs = _mine(payoffs), _theirs(payoffs)

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        pull_1, pull_2 = jax.grad(mine, 1)(own, other), jax.grad(theirs, 0)(own, other)
        # Mixed second derivatives times a vector, by moving one argument along it.
        xi_1, look_1 = _along(lambda y: jax.grad(mine, 0)(own, y), other, jax.grad(theirs, 1)(own, other))
        xi_2, look_2 = _along(lambda x: jax.grad(theirs, 1)(x, other), own, xi_1)
        chi_1 = _along(lambda y: jax.grad(theirs, 0)(own, y), other, pull_1)[1]
        chi_2 = _along(lambda x: jax.grad(mine, 1)(x, other), own, pull_2)[1]
        first, second = xi_1 + learning_rate * look_1, xi_2 + learning_rate * look_2
        agreement = learning_rate * _dot((chi_1, chi_2), (first, second))
        size = _dot((first, second), (first, second))
        p_1 = jnp.where(agreement >= 0, 1.0, jnp.minimum(1.0, a * size / jnp.where(agreement < 0, -agreement, 1.0)))
        squared = _dot((xi_1, xi_2), (xi_1, xi_2))
        p_2 = jnp.where(squared < b**2, squared, 1.0)
        return first + learning_rate * jnp.minimum(p_1, p_2) * chi_1

    return follow(direction, normal_logits(init_scale, num_logits), learning_rate=learning_rate)


@check_arguments
def cgd(payoffs: Payoffs, *, learning_rate: float = 1.0, init_scale: float = 1.0, num_logits: int = 5) -> Learner:
    """Competitive gradient descent: the Nash equilibrium of the bilinear approximation of the game with proximal terms.

        x <- x + alpha (I - alpha^2 D_xy V1 D_yx V2)^-1 (dV1/dx + alpha D_xy V1 dV2/dy)

    Args:
      payoffs: `(own, other) -> (own payoff, other's)`, differentiable; own and other are logits.
      learning_rate: step size, of both players.
      init_scale: standard deviation of the normal initial logits.
      num_logits: length of the policy, 5 for memory one.

    Source: Schäfer and Anandkumar, Competitive Gradient Descent (2019), arXiv:1905.12103, equation 4.
    """
    mine, theirs = _mine(payoffs), _theirs(payoffs)

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        gradient, rows_1 = jax.vjp(lambda y: jax.grad(mine, 0)(own, y), other)
        reply, rows_2 = jax.vjp(lambda x: jax.grad(theirs, 1)(x, other), own)
        basis = jnp.eye(own.size, dtype=own.dtype)
        mixed_1 = [rows_1(basis[i])[0] for i in range(own.size)]
        mixed_2 = [rows_2(jnp.eye(other.size, dtype=own.dtype)[i])[0] for i in range(other.size)]
        # Rows as they are, and products as sums: elementwise, and so fast in a batch.
        products = [sum(row[k] * mixed_2[k] for k in range(other.size)) for row in mixed_1]
        matrix = [basis[i] - learning_rate**2 * product for i, product in enumerate(products)]
        right = gradient + learning_rate * jnp.stack([(row * reply).sum() for row in mixed_1])
        return _solve(*_barrier((matrix, right)))

    return follow(direction, normal_logits(init_scale, num_logits), learning_rate=learning_rate)


def _solve(matrix: list[jax.Array], right: jax.Array) -> jax.Array:
    """Solves a small system by elimination with partial pivoting, unrolled: elementwise, and so fast in a batch."""
    n = len(right)
    rows = [[*matrix[i], right[i]] for i in range(n)]
    for k in range(n):
        for i in range(k + 1, n):  # the largest entry of the column comes up
            larger = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            swapped = [
                (jnp.where(larger, x, y), jnp.where(larger, y, x)) for x, y in zip(rows[i], rows[k], strict=True)
            ]
            rows[k], rows[i] = ([pair[side] for pair in swapped] for side in (0, 1))
        inverse = 1 / rows[k][k]
        for i in range(k + 1, n):
            factor = rows[i][k] * inverse
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
        rows[k] = [x * inverse for x in rows[k]]
    solution: list[jax.Array] = []
    for k in reversed(range(n)):
        known = sum((x * y for x, y in zip(rows[k][k + 1 : n], solution, strict=True)), jnp.zeros_like(right[k]))
        solution = [rows[k][n] - known, *solution]
    return jnp.stack(solution)


@check_arguments
def sga(
    payoffs: Payoffs,
    *,
    learning_rate: float = 1.0,
    adjustment: float = 1.0,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """Symplectic gradient adjustment: against the rotation of the game, and towards stable fixed points only.

    With xi = -(dV1/dx, dV2/dy) the losses' gradient, H its Jacobian and A = (H - H^T) / 2 its antisymmetric part,

        x <- x - alpha (xi + lambda A^T xi)_1,        lambda = adjustment sign(<xi, H^T xi> <A^T xi, H^T xi> / d + 0.1),

    d being the number of parameters.

    Args:
      payoffs: `(own, other) -> (own payoff, other's)`.
      learning_rate: alpha.
      adjustment: size of lambda, 0 or more; 1 in the paper.
      init_scale: standard deviation of the normal initial parameters.
      num_logits: how many parameters.

    Raises:
      ValueError: for a rate, an adjustment or a scale below 0.

    Source: Balduzzi et al., The Mechanics of n-Player Differentiable Games (2018), arXiv:1802.05642, algorithm 2.
    """
    checks.number("adjustment", adjustment, 0)
    mine, theirs = _mine(payoffs), _theirs(payoffs)

    def losses_gradient(own: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
        return -jax.grad(mine, 0)(own, other), -jax.grad(theirs, 1)(own, other)

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        xi, transposed = jax.vjp(losses_gradient, own, other)
        forward = jax.jvp(losses_gradient, (own, other), xi)[1]
        hamiltonian = transposed(xi)  # the gradient of |xi|^2 / 2
        turned = jax.tree.map(lambda x, y: (x - y) / 2, hamiltonian, forward)
        agreement = _dot(xi, hamiltonian) * _dot(turned, hamiltonian) / (own.size + other.size)
        return -(xi[0] + adjustment * jnp.sign(agreement + 0.1) * turned[0])

    return follow(direction, normal_logits(init_scale, num_logits), learning_rate=learning_rate)


@check_arguments
def pola(
    payoffs: Payoffs,
    *,
    outer_beta: float = 4.0,
    inner_beta: float = 4.0,
    outer_steps: int = 10,
    inner_steps: int = 5,
    init_scale: float = 1.0,
    num_logits: int = 5,
) -> Learner:
    """Proximal LOLA with exact payoffs: LOLA's two steps as proximal steps in the space of policies.

        y'(x) = argmax_y V2(x, y) - inner_beta D(y_0 | y),
        x <- argmax_x V1(x, y'(x)) - outer_beta D(x_0 | x),

    with D the sum over the states of the Kullback-Leibler divergences between the old and the new probabilities of
    action. Both maxima are climbed by gradient steps of size 4 / beta (D curves by at most 1/4 along a logit, so that
    the divergence alone would be solved without overshooting), the outer ones through the inner ones. A single inner
    and a single outer step at beta 4 are exact LOLA with step sizes of 1, whose scale the defaults keep; the paper
    tunes its own to each game (its tabular experiments have an outer beta of 0.1 and one inner step of size 5).

    Args:
      payoffs: `(own, other) -> (own payoff, other's)` of logits.
      outer_beta: weight of one's own divergence.
      inner_beta: weight of the other's.
      outer_steps: gradient steps of the outer maximum.
      inner_steps: gradient steps of the inner one, in each outer step.
      init_scale: standard deviation of the normal initial logits.
      num_logits: how many logits.

    Raises:
      ValueError: for steps that are no whole numbers of at least 1, or a beta that is not above 0.

    Source: Zhao et al., Proximal Learning with Opponent-Learning Awareness (2022), arXiv:2210.10125, section 3.
    """
    for name, steps in (("outer_steps", outer_steps), ("inner_steps", inner_steps)):
        checks.size(name, steps, 1)
    for name, beta in (("outer_beta", outer_beta), ("inner_beta", inner_beta)):
        checks.number(name, beta, 0, brackets="()")
    mine, theirs = _mine(payoffs), _theirs(payoffs)

    def climb(objective: Callable[[jax.Array], jax.Array], start: jax.Array, beta: float, steps: int) -> jax.Array:
        def step(logits: jax.Array, _: None) -> tuple[jax.Array, None]:
            pull = jax.nn.sigmoid(logits) - jax.nn.sigmoid(start)  # the gradient of D
            return logits + 4 / beta * jax.grad(objective)(logits) - 4 * pull, None

        return jax.lax.scan(step, start, None, steps)[0]

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        def shaped(x: jax.Array) -> jax.Array:
            return mine(x, climb(lambda y: theirs(x, y), other, inner_beta, inner_steps))

        return climb(shaped, own, outer_beta, outer_steps) - own

    return follow(direction, normal_logits(init_scale, num_logits))


def _lookahead_rate(learning_rate: float, lookahead_rate: float | None) -> float:
    """Size of the other's imagined step, 0 or more: one's own unless it is given."""
    checks.number("lookahead_rate", 0 if lookahead_rate is None else lookahead_rate, 0)
    return learning_rate if lookahead_rate is None else lookahead_rate


def _mine(payoffs: Payoffs) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda own, other: payoffs(own, other)[0]


def _theirs(payoffs: Payoffs) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda own, other: payoffs(own, other)[1]


def _along(
    function: Callable[[jax.Array], jax.Array], point: jax.Array, tangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(value, derivative along the tangent)."""
    return jax.jvp(function, (point,), (tangent,))


def _barrier(values: Any) -> Any:
    """Keeps what has many readers from being computed again for each of them; `meta.scalarize` makes it hold."""
    return jax.lax.optimization_barrier(values)


def _dot(xs: tuple[jax.Array, ...], ys: tuple[jax.Array, ...]) -> jax.Array:
    return sum(((x * y).sum() for x, y in zip(xs, ys, strict=True)), jnp.zeros(()))
