"""Two-player, two-action games, and the exact value of repeating one for ever.

The state of a repeated game is the last joint action, always listed as CC, CD, DC, DD from the point of view of
one player, its own action first. Action 0 is "cooperate" in a dilemma, and simply the first action elsewhere.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from games.core import checks

Scalar = Any  # a float or a float array of shape [], batched by vmap


@dataclasses.dataclass(frozen=True)
class MatrixGame:
    """Payoffs of a two-player, two-action game.

    Attributes:
      name: what the game is called in tables and on the command line.
      row: `row[i][j]`, the row player's payoff when it plays `i` and the column player plays `j`.
      column: `column[i][j]`, the column player's payoff for the same joint action.

    Example:
      >>> import games
      >>> pennies = games.MatrixGame.of("pennies", row=(1, -1, -1, 1), column=(-1, 1, 1, -1))
      >>> pennies.seen_by(1)  # own payoffs and the other's, of the column player
      ([-1, 1, 1, -1], [1, -1, -1, 1])
    """

    name: str
    row: Sequence[Sequence[Scalar]]
    column: Sequence[Sequence[Scalar]]

    def __post_init__(self) -> None:
        for field in ("row", "column"):
            table = getattr(self, field)
            _refuse_other_tables(f"MatrixGame.{field}", table)
            object.__setattr__(self, field, tuple(map(tuple, table)))  # lists have no hash

    @classmethod
    def of(cls, name: str, row: Sequence[Scalar], column: Sequence[Scalar]) -> MatrixGame:
        """From both players' payoffs after CC, CD, DC, DD, the row player's action first."""
        for field, payoffs in (("row", row), ("column", column)):
            if len(payoffs) != 4:
                raise ValueError(f"MatrixGame.of: {field}: got {payoffs!r}; payoffs after CC, CD, DC, DD are needed")
        return cls(name, *(((p[0], p[1]), (p[2], p[3])) for p in (row, column)))

    @property
    def row_payoffs(self) -> list[Scalar]:
        """The row player's payoffs after CC, CD, DC, DD (own action first): R, S, T, P of a dilemma."""
        return [self.row[0][0], self.row[0][1], self.row[1][0], self.row[1][1]]

    @property
    def column_payoffs(self) -> list[Scalar]:
        """The column player's payoffs after the same joint actions, the *row* player's action first."""
        return [self.column[0][0], self.column[0][1], self.column[1][0], self.column[1][1]]

    def seen_by(self, seat: int) -> tuple[list[Scalar], list[Scalar]]:
        """(own, other's) payoffs after CC, CD, DC, DD with the action of `seat` (0 row, 1 column) first."""
        checks.choice("seat", operator.index(seat), (0, 1))
        if seat == 0:
            return self.row_payoffs, self.column_payoffs
        swap = [0, 2, 1, 3]
        return [self.column_payoffs[s] for s in swap], [self.row_payoffs[s] for s in swap]


def symmetric(name: str, payoffs: Sequence[Sequence[Scalar]]) -> MatrixGame:
    """A game that looks the same to both players.

    Args:
      name: of the game.
      payoffs: `payoffs[own][other]`, by both players' actions.

    Example:
      >>> import games
      >>> games.symmetric("deadlock", ((1.0, 0.0), (3.0, 2.0))).column_payoffs  # after CC, CD, DC, DD of the row
      [1.0, 3.0, 0.0, 2.0]
    """
    _refuse_other_tables("symmetric: payoffs", payoffs)
    return MatrixGame(name, payoffs, tuple(tuple(payoffs[j][i] for j in range(2)) for i in range(2)))


def _refuse_other_tables(field: str, table: Sequence[Sequence[Scalar]]) -> None:
    def is_pair(one: Any) -> bool:
        return hasattr(one, "__len__") and len(one) == 2

    if not (is_pair(table) and all(map(is_pair, table))):
        raise ValueError(f"{field}: got {table!r}; a two by two table of payoffs is needed")
    for payoff in (*table[0], *table[1]):
        checks.number(field, payoff)


prisoners_dilemma = symmetric("prisoners_dilemma", ((-1.0, -3.0), (0.0, -2.0)))
chicken = symmetric("chicken", ((0.0, -1.0), (1.0, -100.0)))
# Stag (0) or hare (1); Skyrms, The Stag Hunt (2004), with a sure 3 for a lone hare.
stag_hunt = symmetric("stag_hunt", ((4.0, 0.0), (3.0, 2.0)))
# Dove (0) or hawk (1) over a resource of value 2 at a cost of 4; Maynard Smith and Price (1973).
hawk_dove = symmetric("hawk_dove", ((1.0, 0.0), (2.0, -1.0)))
matching_pennies = MatrixGame("matching_pennies", ((1.0, -1.0), (-1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0)))
# The row player prefers meeting at 0, the column player at 1; Luce and Raiffa (1957).
battle_of_the_sexes = MatrixGame("battle_of_the_sexes", ((3.0, 0.0), (0.0, 2.0)), ((2.0, 0.0), (0.0, 3.0)))

matrix_games: dict[str, MatrixGame] = {
    game.name: game
    for game in (prisoners_dilemma, matching_pennies, chicken, stag_hunt, battle_of_the_sexes, hawk_dove)
}

ACTION_NAMES = {
    "prisoners_dilemma": ("cooperate", "defect"),
    "matching_pennies": ("heads", "tails"),
    "chicken": ("swerve", "straight"),
    "stag_hunt": ("stag", "hare"),
    "battle_of_the_sexes": ("fight", "ballet"),
    "hawk_dove": ("dove", "hawk"),
}


def action_names(payoffs: Any) -> tuple[str, ...]:
    """Names of the actions of a known game, by its payoffs `[2, 2, 2]`; empty for other payoffs."""
    for name, game in matrix_games.items():
        if np.array_equal(np.stack([game.row, game.column], -1), payoffs):
            return ACTION_NAMES[name]
    return ()


def discounted_payoffs(
    game: MatrixGame, policy_1: Float[Array, "logits"], policy_2: Float[Array, "logits"], discount: Scalar
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Expected discounted returns of two memory-one policies in the infinitely repeated game, in closed form.

    With P the transition matrix of the joint action, p0 its first distribution and r_k player k's payoffs,

        V_k = sum_t discount^t E[r_k(t)] = m . r_k,        m = (I - discount P^T)^-1 p0,

    where m counts the discounted visits to each state. Every order of derivative is available and cheap to compile.
    A policy of a single logit is one that plays the game once, and needs `discount` 0.

    Args:
      game: the payoffs; floats or arrays.
      policy_1: the row player's logits `[5]` of playing action 0 first and after CC, CD, DC, DD, or `[1]`.
      policy_2: the column player's, in its own view (own action first).
      discount: in [0, 1).

    Returns:
      (row's, column's) discounted return, not multiplied by `1 - discount`.

    Raises:
      ValueError: if a policy is not of shape `[5]` (or `[1]` with a discount of 0), or for a discount out of range.

    Example:
      >>> import games, jax.numpy as jnp
      >>> cooperate = jnp.full(5, 50.0)  # logits
      >>> payoffs = games.discounted_payoffs(games.prisoners_dilemma, cooperate, cooperate, discount=0.5)
      >>> [round(float(x), 3) for x in payoffs]  # -1 / (1 - 0.5)
      [-2.0, -2.0]

    Source: Letcher et al., Stable Opponent Shaping (2019), appendix; Lu et al. (2022), section 4.
    """
    policy_1, policy_2 = jnp.asarray(policy_1), jnp.asarray(policy_2)
    _refuse_other_shapes(policy_1, policy_2, discount)
    start, transitions = _chain(policy_1, policy_2)
    rewards, discount = [[_real(x) for x in row] for row in (game.row_payoffs, game.column_payoffs)], _real(discount)
    if not transitions:
        return _dot(start, rewards[0]), _dot(start, rewards[1])
    first, second = _returns(transitions, start, discount, rewards, _inverse(transitions, discount))
    return first, second


def state_visits(
    policy_1: Float[Array, "logits"], policy_2: Float[Array, "logits"], discount: Scalar
) -> list[Float[Array, ""]]:
    """Expected discounted visits to CC, CD, DC, DD (the row player's action first); they add up to 1 / (1 - discount).

    Each is accurate to a few units in the last place, however extreme the policies: nothing is ever subtracted.

    Args:
      policy_1: as of `discounted_payoffs`.
      policy_2: as of `discounted_payoffs`.
      discount: in [0, 1).

    Raises:
      ValueError: for policies of other shapes, which would be broadcast, or a discount out of range.

    Example:
      >>> import games, jax.numpy as jnp
      >>> cooperate = jnp.full(5, 50.0)  # logits
      >>> [round(float(x), 3) for x in games.state_visits(cooperate, cooperate, 0.75)]  # 1 / (1 - 0.75) rounds, all CC
      [4.0, 0.0, 0.0, 0.0]
    """
    policy_1, policy_2 = jnp.asarray(policy_1), jnp.asarray(policy_2)
    _refuse_other_shapes(policy_1, policy_2, discount)
    start, transitions = _chain(policy_1, policy_2)
    discount = _real(discount)
    return _visits(transitions, start, discount, _inverse(transitions, discount)) if transitions else start


def _real(number: Scalar) -> Scalar:
    """A number as a float: a whole one has no derivative."""
    return number if jnp.issubdtype(jnp.result_type(number), jnp.floating) else 1.0 * number


def _refuse_other_shapes(policy_1: jax.Array, policy_2: jax.Array, discount: Scalar) -> None:
    checks.number("discount", discount, 0, 1, brackets="[)")
    once = isinstance(discount, int | float | np.number) and discount == 0
    needed = (1,) if once and jnp.shape(policy_1) != (5,) else (5,)
    for name, policy in (("policy_1", policy_1), ("policy_2", policy_2)):
        if jnp.shape(policy) != needed:
            raise ValueError(f"{name}: got shape {jnp.shape(policy)}; logits of shape {needed} are needed")


def _chain(policy_1: jax.Array, policy_2: jax.Array) -> tuple[list[Scalar], list[list[Scalar]]]:
    """The joint action's first distribution, and its distribution after each joint action (if there is an after)."""
    # Unstacked on purpose: the arithmetic below is elementwise, so that a batch of games fills the vector units.
    (first, *then_1), (second, *then_2) = (
        [_probability(jax.lax.index_in_dim(policy, i, keepdims=False)) for i in range(policy.shape[0])]
        for policy in (policy_1, policy_2)
    )
    if then_2:
        then_2 = [then_2[s] for s in (0, 2, 1, 3)]
    return _joint(first, second), [_joint(p, q) for p, q in zip(then_1, then_2, strict=True)]


@jax.custom_jvp
def _probability(logit: Scalar) -> tuple[Scalar, Scalar]:
    """(p, 1 - p), both to full relative accuracy, which `1 - sigmoid` would lose."""
    return jax.nn.sigmoid(logit), jax.nn.sigmoid(-logit)


@_probability.defjvp
def _probability_jvp(primals: Any, tangents: Any) -> Any:
    p, complement = _probability(*primals)
    slope = _times(_times(p, complement), tangents[0])
    return (p, complement), (slope, -slope)


def _primitive(operator: Callable[[Any, Any], Any], primitive: Callable[..., jax.Array]) -> Callable[..., Scalar]:
    """An operator as the primitive that it is of two scalars of one type.

    The operators of arrays are functions under `jit`, each of which is traced and differentiated on its own: there are
    thousands in the derivatives here, and tracing them takes longer than all else.
    """

    def of_type(x: Scalar, other: Scalar) -> Scalar:
        alike = isinstance(other, jax.Array) and getattr(x, "dtype", other.dtype) == other.dtype
        return other.dtype.type(x) if isinstance(x, float) and alike else x

    def apply(x: Scalar, y: Scalar) -> Scalar:
        x, y = of_type(x, y), of_type(y, x)
        scalars = all(isinstance(z, jax.Array | np.generic) for z in (x, y)) and jnp.shape(x) == jnp.shape(y)
        return primitive(x, y) if scalars and x.dtype == y.dtype else operator(x, y)

    return apply


_plus, _times = _primitive(add, jax.lax.add), _primitive(mul, jax.lax.mul)


def _joint(p: tuple[Scalar, Scalar], q: tuple[Scalar, Scalar]) -> list[Scalar]:
    return [_times(x, y) for x in p for y in q]


def _dot(xs: Sequence[Scalar], ys: Sequence[Scalar]) -> Scalar:
    return reduce(_plus, [_times(x, y) for x, y in zip(xs, ys, strict=True)])


@jax.custom_jvp
def _inverse(transitions: list[list[Scalar]], discount: Scalar) -> list[list[Scalar]]:
    """(I - discount P)^-1: the discounted visits to each state (column) from each state (row).

    Elimination in the form of Grassmann, Taksar and Heyman (1985): every row of P adds up to one, so that a pivot is
    the sum of what leaves its state, and no pivoting and no subtraction is needed. `leave[i]` is what leaves by the
    end of the game, `flow[i][j]` what leaves to j.
    """
    leave = [1 - discount] * 4
    flow = [[_times(discount, transitions[i][j]) for j in range(4)] for i in range(4)]
    inverse = []
    for k in range(4):
        inverse.append(1 / (_plus(leave[k], reduce(_plus, flow[k][k + 1 :])) if k < 3 else leave[k]))
        for i in range(k + 1, 4):
            flow[i][k] = _times(flow[i][k], inverse[k])
            leave[i] = _plus(leave[i], _times(flow[i][k], leave[k]))
            for j in range(k + 1, 4):
                if i != j:
                    flow[i][j] = _plus(flow[i][j], _times(flow[i][k], flow[k][j]))
    rows = []
    for first in range(4):
        visits: list[Scalar] = [0.0] * first + [inverse[first]]
        for i in range(first + 1, 4):
            visits.append(_times(_dot([flow[k][i] for k in range(first, i)], visits[first:]), inverse[i]))
        for i in reversed(range(3)):
            visits[i] = _plus(visits[i], _dot([flow[k][i] for k in range(i + 1, 4)], visits[i + 1 :]))
        rows.append(visits)
    return rows


@_inverse.defjvp
def _inverse_jvp(primals: Any, tangents: Any) -> Any:
    transitions, discount = primals
    inverse = _inverse(transitions, discount)
    moved = _moved(transitions, discount, *tangents)
    columns = [[row[j] for row in inverse] for j in range(4)]
    left = [[_dot(row, [m[j] for m in moved]) for j in range(4)] for row in inverse]
    return inverse, [[_dot(row, column) for column in columns] for row in left]


# Each rule below differentiates the equation that its function solves, by the same inverse: derivatives of what is
# solved are solved for again, and shallow. Without them every order of derivative goes through the elimination once
# more, and XLA takes minutes to compile the second.


@jax.custom_jvp
def _visits(
    transitions: list[list[Scalar]], start: list[Scalar], discount: Scalar, inverse: list[list[Scalar]]
) -> list[Scalar]:
    """Solves m = start + discount P^T m, given the inverse of I - discount P."""
    return [_dot(start, [row[j] for row in inverse]) for j in range(4)]


@_visits.defjvp
def _visits_jvp(primals: Any, tangents: Any) -> Any:
    transitions, start, discount, inverse = primals
    visits = _visits(transitions, start, discount, inverse)
    moved = _moved(transitions, discount, tangents[0], tangents[2])
    right = [_plus(tangents[1][j], _dot(visits, [row[j] for row in moved])) for j in range(4)]
    return visits, _visits(transitions, right, discount, inverse)


@jax.custom_jvp
def _values(
    transitions: list[list[Scalar]], rewards: list[Scalar], discount: Scalar, inverse: list[list[Scalar]]
) -> list[Scalar]:
    """Solves v = r + discount P v, the values of states, given the inverse of I - discount P."""
    return [_dot(row, rewards) for row in inverse]


@_values.defjvp
def _values_jvp(primals: Any, tangents: Any) -> Any:
    transitions, rewards, discount, inverse = primals
    values = _values(transitions, rewards, discount, inverse)
    moved = _moved(transitions, discount, tangents[0], tangents[2])
    right = [_plus(tangents[1][i], _dot(moved[i], values)) for i in range(4)]
    return values, _values(transitions, right, discount, inverse)


@jax.custom_jvp
def _returns(
    transitions: list[list[Scalar]],
    start: list[Scalar],
    discount: Scalar,
    rewards: list[list[Scalar]],
    inverse: list[list[Scalar]],
) -> list[Scalar]:
    """The return of each player, start . v, which is m . r."""
    visits = _visits(transitions, start, discount, inverse)
    return [_dot(visits, r) for r in rewards]


@_returns.defjvp
def _returns_jvp(primals: Any, tangents: Any) -> Any:
    transitions, start, discount, rewards, inverse = primals
    visits = _visits(transitions, start, discount, inverse)
    moved = _moved(transitions, discount, tangents[0], tangents[2])
    slopes = []
    for r, r_dot in zip(rewards, tangents[3], strict=True):
        values = _values(transitions, r, discount, inverse)
        moving = [_dot(row, values) for row in moved]
        slopes.append(_dot([*visits, *tangents[1], *visits], [*moving, *values, *r_dot]))
    return [_dot(visits, r) for r in rewards], slopes


def _moved(transitions: Any, discount: Scalar, transitions_dot: Any, discount_dot: Scalar) -> list[list[Scalar]]:
    """The derivative of discount P."""
    return [
        [_dot((discount, discount_dot), (x_dot, x)) for x, x_dot in zip(row, row_dot, strict=True)]
        for row, row_dot in zip(transitions, transitions_dot, strict=True)
    ]
