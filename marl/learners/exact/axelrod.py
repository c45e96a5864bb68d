"""The memory-one strategies of the Axelrod library by their names, and our policies as its players.

Needs the extra `axelrod`, and ten seconds to import: the library reads the source of all its strategies.

Axelrod's own game pays 3, 0, 5, 1 after CC, CD, DC, DD. Its four-vectors have this order too, own action first; the
first action is apart.

Source: Knight, Harper et al., Axelrod, https://github.com/Axelrod-Python/Axelrod.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

try:
    import axelrod
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; pip install 'marl-shaping[axelrod]'", name=error.name) from None

from configs import one_of

C, D = axelrod.Action.C, axelrod.Action.D
ROUNDS = 4  # for which a strategy is watched: it must do the same whenever it is in the same state

Probabilities = tuple[float, float, float, float, float]


@functools.cache
def strategies() -> dict[str, Probabilities]:
    """Every memory-one strategy of the library, by its name there, as its policy in the library's own game.

    Found by watching those that claim no more memory than the last round, in every course of the first rounds. Those
    that turn out to do different things in one state, or whose probabilities cannot be seen, are left out.
    """
    short = (cls for cls in axelrod.all_strategies if cls().classifier["memory_depth"] <= 1)
    policies = {cls.name: _watch(cls) for cls in short}
    return {name: policy for name, policy in policies.items() if policy}


def strategy(name: str) -> Probabilities:
    """The probabilities of cooperating first and after CC, CD, DC, DD of a strategy: `strategy("ZD-Extort-2")`.

    `marl.memory_one` makes a learner of them for the exact games, `marl.play_memory_one` for the sampled ones.

    Raises:
      ValueError: if the library has no memory-one strategy of that name.
    """
    known = strategies()
    if name not in known:
        raise ValueError(f"name: got {name!r}; {one_of(name, list(known))}")
    return known[name]


def player(probabilities: Sequence[float]) -> MemoryOne:
    """A memory-one policy as a player of Axelrod's matches and tournaments: `player([0.9, 1, 0, 1, 0])`.

    Args:
      probabilities: of cooperating (action 0) first and after CC, CD, DC, DD, own action first. For logits, give
        `jax.nn.sigmoid(logits)`.

    Raises:
      ValueError: if they are not five numbers in [0, 1].
    """
    values = tuple(map(float, probabilities))
    if len(values) != 5 or not all(0 <= p <= 1 for p in values):
        raise ValueError(f"player: got {list(values)}; five probabilities in [0, 1] are needed")
    return MemoryOne(values)


class MemoryOne(axelrod.MemoryOnePlayer):
    """The player that `player` makes: Axelrod's own, with a first action that may be drawn too."""

    name = "Memory one"

    def __init__(self, probabilities: Probabilities) -> None:
        super().__init__(probabilities[1:])
        self.first = probabilities[0]

    def _post_init(self) -> None:
        super()._post_init()
        self.classifier["stochastic"] |= 0 < self.first < 1

    def strategy(self, opponent: axelrod.Player) -> axelrod.Action:
        """What it does next."""
        if self.history:
            return super().strategy(opponent)
        if self.first in (0, 1):  # a player that draws nothing has no random numbers
            return C if self.first else D
        return self._random.random_choice(self.first)


class _Draws:
    """In the place of a player's random numbers: always one action, and how probable it would have been."""

    def __init__(self) -> None:
        self.action, self.probability = C, 1.0

    def random_choice(self, p: float = 0.5) -> axelrod.Action:
        self.probability *= p if self.action == C else 1 - p
        return self.action

    def uniform(self, low: float, high: float) -> float:
        """The mean, which does as well: the probability of an action is linear in what is drawn for it."""
        return (low + high) / 2


def _watch(cls: type[axelrod.Player]) -> Probabilities | None:
    """The policy of a strategy; None if the last round does not say what it does."""
    seen: dict[tuple, float] = {}
    states = tuple(itertools.product((C, D), repeat=2))
    try:
        for course in itertools.chain(*(itertools.product(states, repeat=rounds) for rounds in range(ROUNDS))):
            p = _after(cls, course)
            if p is not None and seen.setdefault(course[-1:], p) != p:
                return None
        for state in states:  # also those to which its own play does not lead
            if (state,) not in seen:
                seen[state,] = _after(cls, [state], forced=True) or 0.0
    except AttributeError:  # draws something else
        return None
    first, *then = (float(seen[key]) for key in ((), *((state,) for state in states)))
    return first, then[0], then[1], then[2], then[3]


def _after(cls: type[axelrod.Player], course: Sequence[tuple], *, forced: bool = False) -> float | None:
    """The probability of cooperating after a course of (own, other's) actions; None where it does not come to that."""
    watched, other, draws = cls(), axelrod.Cooperator(), _Draws()
    watched._random = draws
    for own, opposite in course:
        draws.action, draws.probability = own, 1.0
        if not forced and (watched.strategy(other) != own or not draws.probability):
            return None
        watched.update_history(own, opposite)
        other.update_history(opposite, own)
    draws.action, draws.probability = C, 1.0
    return draws.probability if watched.strategy(other) == C else 0.0
