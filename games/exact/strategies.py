"""Memory-one strategies by their names: probabilities of cooperating after START, CC, CD, DC and DD.

One list for formulas and sampled games, as opponents, learners and players: `strategy("tft", game)`,
`strategy("zd(chi=2)", game)`, `strategy("0.9,1,0,1,0", game)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs.specs import Registry, naming
from games.core import checks
from games.core.game import Game
from games.exact.infinite import InfinitelyRepeated
from games.exact.matrix import MatrixGame
from games.exact.zd import zd_policy

Probabilities = tuple[float, ...]  # 5 of them

STRATEGIES: Registry[Probabilities] = Registry("tft")  # factories: (formula, seat, **settings)


def strategy(spec: str, game: Game, seat: int = 0, *, field: str = "strategy") -> Probabilities:
    """The probabilities of a strategy in a repeated game of two players with two actions: five, or one if played once.

    Args:
      spec: a name with settings, or five numbers with commas between them.
      game: a formula, or a sampled `RepeatedGame` or `SocialDilemma` with payoffs.
      seat: of the player.
      field: for messages.

    Raises:
      ValueError: for a spec that does not exist, or a game in which it has no meaning.
    """
    if spec[:1].isdigit() or spec[:1] == ".":  # numbers alone
        spec = f"memory_one(probabilities=[{spec}])"
    name, given = STRATEGIES.read(field, spec)
    with naming(field, name):
        return STRATEGIES.build(name, given, formula_of(game), seat)


def formula_of(game: Game) -> InfinitelyRepeated:
    """A sampled repeated game as a formula; that of a fixed number of rounds ends after as many on average.

    Raises:
      ValueError: for a game of other players or actions, or without payoffs.
    """
    if isinstance(game, InfinitelyRepeated):
        return game
    payoffs: Any = getattr(game, "payoffs", None)
    if np.shape(payoffs) == (2, 2):  # of a `SocialDilemma`: [own action][number of others that cooperate]
        own = np.asarray(payoffs)[:, ::-1]
        payoffs = np.stack([own, own.T], -1)
    if np.shape(payoffs) != (2, 2, 2) or not hasattr(game, "memory"):
        raise ValueError(f"got {game.name}; a repeated game of two players with two actions each is needed")
    row, column = (np.asarray(payoffs, float)[..., i].ravel().tolist() for i in range(2))
    rounds: Any = getattr(game, "episode_length", None)
    discount: Any = getattr(game, "discount", None)
    if discount is None:
        discount = 1 - 1 / (100 if rounds is None else rounds)
    return InfinitelyRepeated(MatrixGame.of(game.name, row, column), float(discount))


@dataclasses.dataclass(frozen=True)
class MemoryOne:
    """A fixed strategy in a sampled game: `(key, observation [..., states]) -> action [...]`, 0 or 1."""

    probabilities: Probabilities

    def __call__(self, key: jax.Array, observation: jax.Array) -> jax.Array:
        """Draws an action; the first five entries of the observation are one-hot of the last round."""
        cooperates = (observation[..., :5] * jnp.asarray(self.probabilities, jnp.float32)).sum(-1)
        return (jax.random.uniform(key, observation.shape[:-1], jnp.float32) >= cooperates).astype(jnp.int32)


def _fixed(*probabilities: float) -> Callable[..., Probabilities]:
    def make(game: InfinitelyRepeated, seat: int) -> Probabilities:
        del seat
        if game.num_logits == 1 and len(set(probabilities)) > 1:
            raise ValueError("it answers to earlier rounds, and this game has one; a discount above 0 is needed")
        return probabilities

    return make


def _random(game: InfinitelyRepeated, seat: int, *, probability: float = 0.5) -> Probabilities:
    checks.number("probability", probability, 0, 1)
    return (probability,) * 5


def _gtft(game: InfinitelyRepeated, seat: int, *, generosity: float | None = None) -> Probabilities:
    """Forgives a defection with probability min(1 - (T - R) / (R - S), (R - P) / (T - P)); Nowak and Sigmund (1992).

    Where the former is below 0, because 2 R < T + S, the probability is 0.
    """
    if generosity is None:
        r, s, t, p = game.payoffs.seen_by(seat)[0]
        if not t > r > p > s:
            raise ValueError(
                f"generosity: {game.payoffs.name} is no prisoner's dilemma; gtft(generosity=...) is needed"
            )
        generosity = max(0.0, min(1 - (t - r) / (r - s), (r - p) / (t - p)))
    checks.number("generosity", generosity, 0, 1)
    return _fixed(1.0, 1.0, generosity, 1.0, generosity)(game, seat)


def _zd(
    game: InfinitelyRepeated, seat: int, *, chi: float = 3.0, phi: float | None = None, generous: bool = False
) -> Probabilities:
    if not game.discount:
        raise ValueError("it needs a repeated game: a discount above 0")
    return tuple(zd_policy(game.payoffs, chi, phi, discount=game.discount, seat=seat, generous=generous).tolist())


def _memory_one(game: InfinitelyRepeated, seat: int, *, probabilities: Sequence[float]) -> Probabilities:
    del seat
    if len(probabilities) != game.num_logits:
        raise ValueError(f"probabilities: got {len(probabilities)} of them; {game.num_logits} are needed")
    if not all(0 <= p <= 1 for p in probabilities):
        words = "one probability in [0, 1] is" if game.num_logits == 1 else "five probabilities in [0, 1] are"
        raise ValueError(f"probabilities: got {list(probabilities)}; {words} needed")
    return tuple(probabilities)


_strategies: dict[str, Callable[..., Probabilities]] = {
    "all_c": _fixed(1.0, 1.0, 1.0, 1.0, 1.0),
    "all_d": _fixed(0.0, 0.0, 0.0, 0.0, 0.0),
    "tft": _fixed(1.0, 1.0, 0.0, 1.0, 0.0),
    "wsls": _fixed(1.0, 1.0, 0.0, 0.0, 1.0),  # win-stay, lose-shift; Nowak and Sigmund (1993)
    "grim": _fixed(1.0, 1.0, 0.0, 0.0, 0.0),
    "gtft": _gtft,
    "random": _random,
    "zd": _zd,
    "memory_one": _memory_one,
}
for _name, _factory in _strategies.items():
    STRATEGIES.register(_name, _factory)
