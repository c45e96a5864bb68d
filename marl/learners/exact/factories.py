"""Learners of two-player formula games, made from a game and a seat: `lola(game, seat=1, learning_rate=0.5)`.

Their forms for any differentiable payoffs are in `marl.learners.exact.naive` and `marl.learners.exact.white_box`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from games import Differentiable, InfinitelyRepeated
from games.core.arguments import check_arguments
from marl.core.learner import Learner
from marl.learners.exact import naive as of_payoff
from marl.learners.exact import white_box

FormulaGame = InfinitelyRepeated | Differentiable
_ARGS = """Args:
  game: a game with differentiable payoffs, repeated or of one step.
  seat: the player's number among the game's agents."""


_NAIVE = """Example:
  >>> import games, jax, marl
  >>> game = games.InfinitelyRepeated(games.prisoners_dilemma)
  >>> history = marl.learn(jax.random.key(0), game, [marl.naive(game), marl.naive(game, seat=1)], num_updates=100)
  >>> round(float(history.rewards[0][-1]), 1)  # mutual defection, per round
  -2.0"""
_LOLA = """Example:
  >>> import games, jax, marl
  >>> game = games.InfinitelyRepeated(games.matching_pennies, discount=0.0)  # played once
  >>> history = marl.learn(jax.random.key(0), game, [marl.lola(game), marl.lola(game, seat=1)], num_updates=200)
  >>> abs(round(float(history.rewards[0][-1]), 2))  # the equilibrium, around which naive learners circle
  0.0"""


def _made_of(
    form: Callable[..., Learner], payoffs: Callable[[FormulaGame, int], Callable[..., Any]], example: str = ""
) -> Any:
    """A form of payoffs as a factory of a game and a seat, with the same settings but for the length of the policy."""

    def make(game: FormulaGame, seat: int = 0, **settings: Any) -> Learner:
        return form(payoffs(game, seat), num_logits=game.num_logits, **settings)._replace(seat=seat)

    own = list(inspect.signature(make, eval_str=True).parameters.values())[:2]
    given = inspect.signature(form, eval_str=True).parameters.values()
    settings = [x for x in given if x.kind is x.KEYWORD_ONLY and x.name != "num_logits"]
    make.__signature__ = inspect.Signature([*own, *settings], return_annotation=Learner)  # type: ignore[attr-defined]
    make.__name__ = make.__qualname__ = form.__name__
    make.__doc__ = f"{_doc_of(form)}\n\n{example}".rstrip()
    return check_arguments(make)


def _doc_of(form: Callable[..., Learner]) -> str:
    """The docstring of a form, with the arguments of the factory."""
    sections = (inspect.getdoc(form) or "").split("\n\n")
    own = next((x.removeprefix("Args:\n") for x in sections if x.startswith("Args:")), "") + "\n"
    kept = re.sub(r"^  (payoffs?|num_logits):.*\n(?:    .*\n)*", "", own, flags=re.MULTILINE).splitlines()
    about = [x for x in sections if not x.startswith(("Args:", "Raises:", "Source:"))]
    rest = [x for x in sections if x.startswith(("Raises:", "Source:"))]
    return "\n\n".join([*about, "\n".join([_ARGS, *kept]), *rest])


def _own_payoff(game: FormulaGame, seat: int, own: jax.Array, other: jax.Array) -> jax.Array:
    return game.values(seat, own, other)[0]


def _payoffs(game: FormulaGame, seat: int) -> Callable[..., Any]:
    return partial(game.values, seat)


naive = _made_of(of_payoff.naive, lambda game, seat: partial(_own_payoff, game, seat), _NAIVE)
lookahead = _made_of(white_box.lookahead, _payoffs)
lola = _made_of(white_box.lola, _payoffs, _LOLA)
hola = _made_of(white_box.hola, _payoffs)
sos = _made_of(white_box.sos, _payoffs)
cgd = _made_of(white_box.cgd, _payoffs)
sga = _made_of(white_box.sga, _payoffs)
pola = _made_of(white_box.pola, _payoffs)
