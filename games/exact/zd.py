"""Zero-determinant strategies: construct, fit, verify, with the discount where it belongs.

In the view of player X, with the states CC, CD, DC, DD, payoffs g_X = (R, S, T, P) and g_Y = (R, T, S, P), a
memory-one policy (p0; p) enforces s_X - P = chi (s_Y - P) on every co-player if, for some phi > 0,

    discount p + (1 - discount) p0 - (1, 1, 0, 0) = phi [(g_X - P) - chi (g_Y - P)].

With R in place of P the strategy is generous: it takes chi times its co-player's loss below mutual cooperation.

Sources: Press and Dyson (2012), doi:10.1073/pnas.1206569109, for a discount of 1; Stewart and Plotkin (2013),
doi:10.1073/pnas.1306246110, for generosity; Hilbe, Traulsen and Sigmund (2015), doi:10.1016/j.geb.2015.05.005, for
discounted games; Knight, Harper, Glynatsi and Gillard (2024), doi:10.1371/journal.pone.0304641, for histories of play.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from games.core import checks
from games.core.arguments import check_arguments
from games.exact.matrix import MatrixGame

CO_PLAYERS = 10_000  # how many random policies a strategy is held against
MAX_RESIDUAL = 0.05  # root mean square, in probability, up to which a policy is called zero-determinant
# Meta-steps in a row for which a trial's policies have to be extortion. Of uniformly random policies one in two hundred
# is: the best of a hundred in 40 % of trials, but five in a row in fewer than one of a billion.
IN_A_ROW = 5
REPEAT = np.array([1.0, 1.0, 0.0, 0.0])  # the policy that repeats its own last action


class Fit(NamedTuple):
    """Distance of policies `[...]` from zero-determinant strategies through (P, P).

    Attributes:
      chi: `[...]`, extortion factor of the nearest strategy; without meaning where the residual is large.
      phi: `[...]`, scale of the nearest strategy.
      residual: `[...]`, root mean square over the four states.
      least_chi: the least extortion factor that any strategy enforces in this game.
    """

    chi: np.ndarray
    phi: np.ndarray
    residual: np.ndarray
    least_chi: float

    @property
    def near(self) -> np.ndarray:
        """Which are zero-determinant to within `MAX_RESIDUAL`, with a line that rises: `[...]`."""
        return (self.residual <= MAX_RESIDUAL) & (self.phi > 0)

    @property
    def extortionate(self) -> np.ndarray:
        """Which are near a strategy that there is and that takes more than its share: chi > 1, feasible; `[...]`."""
        return self.near & (self.chi > 1) & (self.chi >= self.least_chi - 1e-6)


def is_dilemma(game: MatrixGame) -> bool:
    """True if both players face a prisoner's dilemma: T > R > P > S.

    Args:
      game: payoffs of both players.
    """
    return all(t > r > p > s for r, s, t, p in (game.seen_by(seat)[0] for seat in (0, 1)))


@check_arguments
def zd_policy(
    game: MatrixGame,
    chi: float,
    phi: float | None = None,
    *,
    discount: float,
    seat: int = 0,
    generous: bool = False,
) -> np.ndarray:
    """Probabilities `[5]` (start, CC, CD, DC, DD) that enforce s_X - P = chi (s_Y - P) on any co-player.

    Args:
      game: the game that is repeated.
      chi: slope of the line, above 1; the least feasible one depends on the discount and is `least_chi` for extortion.
      phi: scale; None takes the middle of what is feasible.
      discount: in (0, 1).
      seat: 0 for the row player, 1 for the column player.
      generous: whether the line goes through (R, R) and the first action is C; through (P, P) and D otherwise.

    Raises:
      ValueError: if no such policy exists, naming the feasible range of phi; for a discount or a seat out of range.

    Example:
      >>> import games
      >>> dilemma, defect = games.prisoners_dilemma, [[0.0] * 5]
      >>> extortioner = games.zd.zd_policy(dilemma, chi=3.0, discount=0.96)
      >>> own, other = games.zd.exact_payoffs(dilemma, extortioner, defect, discount=0.96)
      >>> float(own.round(3)[0]), float(other.round(3)[0])  # a defector gets no more than P, the payoff of DD
      (-2.0, -2.0)
    """
    _check(discount, seat)
    first, through = (1.0, 0) if generous else (0.0, 3)
    line, kept = _line(game, chi, discount, seat, first, through)
    low, high = _feasible(line, kept, discount)
    if not low <= high:
        raise ValueError(f"zd: chi: got {chi}; no strategy of {game.name} enforces it at a discount of {discount}")
    if phi is None:
        phi = (low + high) / 2
    if not (phi > 0 and low - 1e-9 <= phi <= high + 1e-9):
        raise ValueError(f"zd: phi: got {phi}; a number in [{low:.4g}, {high:.4g}] is needed for chi = {chi}")
    return np.concatenate([[first], np.clip((kept + phi * line) / discount, 0, 1)])


def feasible_phi(game: MatrixGame, chi: float, *, discount: float, seat: int = 0) -> tuple[float, float]:
    """The least and the largest scale of extortion with a given factor; the first is the larger if there is none.

    Args:
      game: the game that is repeated.
      chi: extortion factor.
      discount: in (0, 1).
      seat: 0 for the row player, 1 for the column player.

    Example:
      >>> import games
      >>> low, high = games.zd.feasible_phi(games.prisoners_dilemma, 3.0, discount=0.96)
      >>> round(float(low), 4), round(float(high), 4)  # 1 - 2 phi is at most the discount, 1 - 7 phi at least 0
      (0.02, 0.1429)
    """
    _check(discount, seat)
    line, kept = _line(game, chi, discount, seat, 0.0, 3)
    return _feasible(line, kept, discount)


def _check(discount: float, seat: int) -> None:
    checks.number("discount", discount, 0, 1, brackets="()")
    checks.choice("seat", seat, (0, 1))


def _line(
    game: MatrixGame, chi: float, discount: float, seat: int, first: float, through: int
) -> tuple[np.ndarray, np.ndarray]:
    own, other = _directions(game, seat, through)
    return own - chi * other, REPEAT - (1 - discount) * first


def _feasible(line: np.ndarray, kept: np.ndarray, discount: float) -> tuple[float, float]:
    """The scales phi for which all p = (kept + phi line) / discount lie in [0, 1]."""
    low, high = 0.0, np.inf
    for base, slope in zip(kept, line, strict=True):
        for bound, sign in ((0.0, -1.0), (discount, 1.0)):
            room, speed = sign * (bound - base), sign * slope
            if speed > 1e-12:
                high = min(high, room / speed)
            elif speed < -1e-12:
                low = max(low, room / speed)
            elif room < -1e-12:
                high = -1.0
    return low, high


def least_chi(game: MatrixGame, *, discount: float, seat: int = 0) -> float:
    """The least extortion factor, of at least 1, that any strategy enforces through (P, P); infinite if there is none.

    A strategy exists if for some phi > 0 all of its probabilities lie in [0, 1]. Divided by phi, with t = 1 / phi and
    g the payoffs less P, these are linear in chi and t:

        0 <= t (1, 1, 0, 0) + g_X - chi g_Y <= t discount.

    Args:
      game: the game that is repeated.
      discount: in (0, 1].
      seat: 0 for the row player, 1 for the column player.

    Example:
      >>> import games
      >>> round(games.zd.least_chi(games.prisoners_dilemma, discount=0.96), 4)  # 1.04 / 0.92
      1.1304
    """
    checks.number("discount", discount, 0, 1, brackets="(]")
    own, other = _directions(game, seat)
    return _least_chi(tuple(own.tolist()), tuple(other.tolist()), float(discount))


@functools.cache
def _least_chi(own: tuple[float, ...], other: tuple[float, ...], discount: float) -> float:
    from scipy.optimize import linprog  # here, for it takes a while

    above, below = np.stack([other, -REPEAT], 1), np.stack([-np.array(other), REPEAT - discount], 1)
    rows, limits = np.concatenate([above, below]), np.concatenate([own, -np.array(own)])
    found = linprog([1.0, 0.0], A_ub=rows, b_ub=limits, bounds=[(1, None), (0, None)])
    return float(found.fun) if found.success else np.inf


@check_arguments
def fit(game: MatrixGame, probabilities: np.ndarray, *, discount: float, seat: int = 0) -> Fit:
    """The zero-determinant strategies through (P, P) that are nearest to policies, by least squares.

    Args:
      game: the game that is repeated.
      probabilities: `[..., 5]`, start first, own action first.
      discount: in (0, 1]; 1 where policies are those of play without a discount.
      seat: 0 for the row player, 1 for the column player.

    Example:
      >>> import games
      >>> policy = games.zd.zd_policy(games.prisoners_dilemma, chi=3.0, discount=0.96)
      >>> found = games.zd.fit(games.prisoners_dilemma, policy, discount=0.96)
      >>> round(float(found.chi), 3), bool(found.extortionate)
      (3.0, True)
    """
    probabilities = np.asarray(probabilities, float)
    if probabilities.shape[-1:] != (5,):
        raise ValueError(f"probabilities: got shape {probabilities.shape}; [..., 5] is needed")
    _refuse_no_probabilities("probabilities", probabilities)
    checks.number("discount", discount, 0, 1, brackets="(]")
    left = discount * probabilities[..., 1:] + (1 - discount) * probabilities[..., :1] - REPEAT
    columns = np.stack(_directions(game, seat), axis=1)
    solved = left @ np.linalg.pinv(columns).T
    phi, minus_phi_chi = solved[..., 0], solved[..., 1]
    chi = np.divide(-minus_phi_chi, phi, out=np.full_like(phi, np.nan), where=phi != 0)
    residual = np.sqrt(np.mean((left - solved @ columns.T) ** 2, -1))
    return Fit(chi, phi, residual, least_chi(game, discount=discount, seat=seat))


def longest_extortion(game: MatrixGame, policies: np.ndarray, *, discount: float, seat: int = 0) -> np.ndarray:
    """Length of the longest run of meta-steps in which the policies of a trial are extortion, `[...]`.

    A trial is called zero-determinant extortion from `IN_A_ROW` on: a policy shapes by being held while others learn.

    Args:
      game: the game that is repeated.
      policies: `[..., meta_steps, 5]`, of each trial by itself, because the mean of several policies is not a policy
        that played.
      discount: in (0, 1).
      seat: 0 for the row player, 1 for the column player.
    """
    extortionate = fit(game, policies, discount=discount, seat=seat).extortionate
    longest = current = np.zeros(extortionate.shape[:-1], int)
    for now in np.moveaxis(extortionate, -1, 0):
        current = (current + 1) * now
        longest = np.maximum(longest, current)
    return longest


def observed_policy(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Shares of cooperation `[..., 5]` (start, CC, CD, DC, DD) in a history of play, which need not be memory-one.

    A state without a visit gets the share of cooperation in all rounds. The distance of a history from extortion is
    `fit(game, observed_policy(own, other), discount=1.0)`, because the histories of the source are not discounted; its
    sum of squared errors is four times the square of the residual.

    Args:
      own: `[..., games, rounds]`, true where the player cooperates.
      other: the same of its co-player.

    Example:
      >>> import games, numpy as np
      >>> own, other = np.array([[0, 1, 1, 0, 1]], bool), np.array([[1, 1, 0, 1, 1]], bool)  # tit for tat, first D
      >>> games.zd.observed_policy(own, other).tolist()  # DD was not visited
      [0.0, 1.0, 0.0, 1.0, 0.6]

    Source: Knight, Harper, Glynatsi and Gillard (2024), doi:10.1371/journal.pone.0304641, section 2.
    """
    own, other = np.asarray(own, bool), np.asarray(other, bool)  # ~1 is -2
    before = np.stack([own & other, own & ~other, ~own & other, ~own & ~other])[..., :-1]
    after = own[..., 1:]
    visits, cooperations = before.sum((-2, -1)), (before & after).sum((-2, -1))
    overall = np.broadcast_to(own.mean((-2, -1)), visits.shape)
    shares = np.divide(cooperations, visits, out=overall.astype(float).copy(), where=visits > 0)
    return np.concatenate([own[..., 0].mean(-1)[None], shares]).transpose(*range(1, shares.ndim), 0)


def random_policies(generator: np.random.Generator, number: int = CO_PLAYERS) -> np.ndarray:
    """Memory-one policies `[number, 5]`: half with uniform probabilities, half Beta(1/2, 1/2) to have corners too.

    Args:
      generator: of the draws.
      number: of policies.
    """
    uniform = generator.uniform(size=(number, 5))
    return np.where(np.arange(number)[:, None] % 2 == 0, uniform, np.sin(np.pi / 2 * uniform) ** 2)


def exact_payoffs(
    game: MatrixGame, own: np.ndarray, others: np.ndarray, *, discount: float
) -> tuple[np.ndarray, np.ndarray]:
    """Average payoffs per round (own, other's), `[N]` each in double precision, of the row player against N others.

        (1 - discount) m . r,        (I - discount P^T) m = p0,

    with P the transition matrix of the joint action, p0 its first distribution and r a player's payoffs.

    Args:
      game: the game that is repeated.
      own: probabilities `[5]` of the row player, start first; zeros and ones are allowed.
      others: probabilities `[N, 5]` of the column players, each in its own view.
      discount: in [0, 1).
    """
    checks.number("discount", discount, 0, 1, brackets="[)")
    p, q = np.asarray(own, np.float64), np.asarray(others, np.float64)
    for name, policy, axes, needed in (("own", p, 1, "[5]"), ("others", q, 2, "[N, 5]")):
        if policy.ndim != axes or policy.shape[-1] != 5:
            raise ValueError(f"{name}: got shape {policy.shape}; {needed} is needed")
        _refuse_no_probabilities(name, policy)
    q = q[:, [0, 1, 3, 2, 4]]  # its CD is the row player's DC
    joint = np.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], -1)  # `[N, 5, 4]`
    kept = np.eye(4) - discount * np.swapaxes(joint[:, 1:], 1, 2)
    visits = np.linalg.solve(kept, joint[:, 0, :, None])[..., 0]
    payoffs = (np.asarray(one, np.float64) for one in (game.row_payoffs, game.column_payoffs))
    own_payoffs, other_payoffs = ((1 - discount) * visits @ one for one in payoffs)
    return own_payoffs, other_payoffs


def _refuse_no_probabilities(name: str, values: np.ndarray) -> None:
    """Raises ValueError for numbers that are no probabilities, such as logits; NaN of a diverged learner passes."""
    wrong = values[(values < -1e-6) | (values > 1 + 1e-6)]
    if wrong.size:
        raise ValueError(f"{name}: got {wrong.flat[0]:g}; probabilities from 0 to 1 are needed")


def _directions(game: MatrixGame, seat: int, through: int = 3) -> tuple[np.ndarray, np.ndarray]:
    own, other = (np.asarray(payoffs, float) for payoffs in game.seen_by(seat))
    return own - own[through], other - other[through]
