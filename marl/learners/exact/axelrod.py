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

import jax
import jax.numpy as jnp
import numpy as np

from configs import one_of
from games import Game, InfinitelyRepeated, RepeatedGame
from games.core import checks
from marl.core.interactive import Play, Steps, make_steps
from marl.core.learner import Learner

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


def player(
    agent: Sequence[float] | Learner,
    game: Game | None = None,
    *,
    seat: int = 0,
    rounds_per_update: int = 100,
    name: str = "Adaptive",
) -> axelrod.Player:
    """A policy, or a learner, as a player of Axelrod's matches and tournaments: `player([0.9, 1, 0, 1, 0])`.

    Args:
      agent: probabilities of cooperating (action 0) first and after CC, CD, DC, DD, own action first; for logits,
        give `jax.nn.sigmoid(logits)`. Or a learner of the `game`, such as
        `make_learner("tabular_ppo", game)` or a trained shaper's, `agent.learner(agent.parameters)` of
        `agent = marl.load_agent(DIR)`; it begins from its initial state in every match and learns in it.
      game: what the learner plays and is paid by; the match counts by its own. A sampled game of two players with two
        actions, or an `InfinitelyRepeated`: its learner plays its policy for `rounds_per_update` rounds, and takes the
        frequencies of what the opponent did after each state, with one round of each action added, for the
        opponent's policy.
      seat: in which the learner takes itself to sit.
      rounds_per_update: after how many rounds it learns.
      name: of the learner, in the tables of tournaments.

    Raises:
      ValueError: for a policy that is not five numbers in [0, 1], a learner without a game of that kind, or an update
        after no rounds.
    """
    if isinstance(agent, Learner):
        exact = isinstance(game, InfinitelyRepeated) and game.num_logits == 5
        if game is None or not (exact or (isinstance(game, RepeatedGame) and game.num_actions == (2, 2))):
            raise ValueError(
                f"player: game: got {game!r:.200}; a repeated game of two players with two actions is needed"
            )
        checks.whole("rounds_per_update", rounds_per_update, 1)
        checks.whole("seat", seat, 0, 1)
        return (_Policies if exact else _Rounds)(make_steps(game, agent, seat), rounds_per_update, name)
    values = tuple(map(float, agent))
    if len(values) != 5 or not all(0 <= p <= 1 for p in values):
        raise ValueError(f"player: got {list(values)}; five probabilities in [0, 1] are needed")
    return MemoryOne(values)


class Adaptive(axelrod.Player):
    """A learner, in one match as if in `learn`. What it draws depends on the seed that the match gives it."""

    classifier = {  # noqa: RUF012
        "memory_depth": float("inf"),
        "stochastic": True,
        "long_run_time": False,
        "inspects_source": False,
        "manipulates_source": False,
        "manipulates_state": False,
    }
    _play: Play  # since the first round

    def __init__(self, steps: Steps, rounds_per_update: int, name: str) -> None:
        super().__init__()
        self.name, self._steps, self._rounds_per_update = name, steps, rounds_per_update

    def __repr__(self) -> str:
        return self.name

    def _begin(self, steps_per_update: int) -> Play:
        key = jax.random.key(self._random.random_seed_int())
        return Play(self._steps, steps_per_update=steps_per_update, key=key)


class _Rounds(Adaptive):
    """A learner of the sampled game: every round is a step."""

    def strategy(self, opponent: axelrod.Player) -> axelrod.Action:
        """The next action."""
        if self.history:  # noise may have turned its action into the other
            self._play.go_on(*(jnp.int32(one.history[-1] == D) for one in (opponent, self)))
        else:
            self._play = self._begin(self._rounds_per_update)
        return D if self._play.act() else C


class _Policies(Adaptive):
    """A learner of the exact game: every `rounds_per_update` rounds are a step."""

    def strategy(self, opponent: axelrod.Player) -> axelrod.Action:
        """The next action."""
        rounds = len(self.history)
        if not rounds:
            self._play = self._begin(1)
            self._counts = np.ones((5, 2))  # what the opponent did at the start and after CC, CD, DC, DD, as it sees it
        else:
            before = (opponent.history[-2], self.history[-2]) if rounds > 1 else ()
            self._counts[_state(*before), int(opponent.history[-1] == D)] += 1
            if rounds % self._rounds_per_update == 0:
                self._play.go_on(jnp.log(self._counts[:, 0] / self._counts[:, 1]))
                self._counts[1:] = 1  # a match has one start
        if rounds % self._rounds_per_update == 0:
            self._policy = np.asarray(jax.nn.sigmoid(self._play.act()), float)
        state = _state(self.history[-1], opponent.history[-1]) if rounds else 0
        return self._random.random_choice(self._policy[state])


def _state(*played: axelrod.Action) -> int:
    """The number of a state, from the player's own action and the other's; none at the start."""
    return 1 + 2 * int(played[0] == D) + int(played[1] == D) if played else 0


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
        """The next action."""
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
