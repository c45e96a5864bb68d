"""Every opponent by its name: `make_opponent("lola(learning_rate=0.5)", game)`, and whole populations of them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from games import InfinitelyRepeated
from marl import model_free, white_box
from marl.consistent import cola_opponent
from marl.learn import Learner
from marl.meta_mapg import mmaml
from marl.naive import naive
from marl.population import Member, population
from marl.specs import defaults, first_line, numeric, parse, whole
from marl.strategies import memory_one
from marl.zd import zd_policy

# Each takes the game and the player's number (0 row, 1 column) first; what follows is set as `name(key=value)`.
Make = Callable[..., Learner]


def _naive(game: InfinitelyRepeated, player: int, **settings: Any) -> Learner:
    return naive(partial(game.value, player), num_logits=game.num_logits, **settings)


def _white_box(factory: Make, **fixed: Any) -> Make:
    def make(game: InfinitelyRepeated, player: int, **settings: Any) -> Learner:
        return factory(partial(game.values, player), num_logits=game.num_logits, **fixed, **settings)

    return _with_settings(make, factory, fixed)


def _with_settings(make: Make, factory: Make, fixed: dict[str, Any]) -> Make:
    """`make` with the keyword arguments of `factory` as its settings, less those that are given."""
    hidden = {"num_logits", *fixed}
    keywords = [
        p for p in inspect.signature(factory).parameters.values() if p.kind is p.KEYWORD_ONLY and p.name not in hidden
    ]
    make.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return make


def _fixed(*probabilities: float) -> Callable[[InfinitelyRepeated, int], Learner]:
    def make(game: InfinitelyRepeated, player: int) -> Learner:
        del player
        if game.num_logits == 1 and len(set(probabilities)) > 1:
            raise ValueError("it answers to earlier rounds, and this game has one; a discount above 0 is needed")
        return memory_one(probabilities[: game.num_logits])

    return make


def _random(game: InfinitelyRepeated, player: int, *, probability: float = 0.5) -> Learner:
    return _fixed(*[probability] * 5)(game, player)


def _gtft(game: InfinitelyRepeated, player: int, *, generosity: float | None = None) -> Learner:
    """Forgives a defection with probability min(1 - (T - R) / (R - S), (R - P) / (T - P)); Nowak and Sigmund (1992)."""
    if generosity is None:
        r, s, t, p = game.payoffs.seen_by(player)[0]
        if not t > r > p > s:
            raise ValueError(
                f"generosity: {game.payoffs.name} is no prisoner's dilemma; gtft(generosity=...) is needed"
            )
        generosity = min(1 - (t - r) / (r - s), (r - p) / (t - p))
    return _fixed(1.0, 1.0, generosity, 1.0, generosity)(game, player)


def _zd(game: InfinitelyRepeated, player: int, *, chi: float = 3.0, phi: float | None = None) -> Learner:
    if not game.discount:
        raise ValueError("it needs a repeated game: a discount above 0")
    return memory_one(zd_policy(game.payoffs, chi, phi, discount=game.discount, player=player).tolist())


def _memory_one(game: InfinitelyRepeated, player: int, *, probabilities: Sequence[float] = ()) -> Learner:
    del player
    if len(probabilities) != game.num_logits:
        raise ValueError(f"probabilities: got {len(probabilities)} of them; {game.num_logits} are needed")
    return memory_one(probabilities)


def _axelrod(game: InfinitelyRepeated, player: int, *, name: str = "") -> Learner:
    """A strategy of the Axelrod library, as it plays that library's own game."""
    try:
        from marl.axelrod import strategy  # an optional library, which takes seconds to import
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None
    return _fixed(*strategy(name))(game, player)


OPPONENTS: dict[str, Make] = {
    "naive": _with_settings(_naive, naive, {}),
    "lookahead": _white_box(white_box.lookahead),
    "lola": _white_box(white_box.lola),
    "exact_lola": _white_box(white_box.hola, order=1),
    "hola2": _white_box(white_box.hola, order=2),
    "hola": _white_box(white_box.hola),
    "sos": _white_box(white_box.sos),
    "cgd": _white_box(white_box.cgd),
    "sga": _white_box(white_box.sga),
    "pola": _white_box(white_box.pola),
    "cola": cola_opponent,
    "mmaml": mmaml,
    "reinforce": model_free.reinforce,
    "tabular_ppo": model_free.tabular_ppo,
    "q_learning": model_free.q_learning,
    "best_response": model_free.best_response,
    "all_c": _fixed(1.0, 1.0, 1.0, 1.0, 1.0),
    "all_d": _fixed(0.0, 0.0, 0.0, 0.0, 0.0),
    "tft": _fixed(1.0, 1.0, 0.0, 1.0, 0.0),
    "wsls": _fixed(1.0, 1.0, 0.0, 0.0, 1.0),  # win-stay, lose-shift; Nowak and Sigmund (1993)
    "grim": _fixed(1.0, 1.0, 0.0, 0.0, 0.0),
    "gtft": _gtft,
    "random": _random,
    "zd": _zd,
    "memory_one": _memory_one,
    "axelrod": _axelrod,
}


def make_opponent(spec: str, game: InfinitelyRepeated, player: int = 1) -> Learner:
    """An opponent from its name, or its name with settings: `naive`, `zd(chi=2, phi=0.1)`, `axelrod(name="Bully")`.

    Five numbers, as in `0.9,1,0,1,0`, are a memory-one policy. Several with a plus between them are a population, of
    which one is drawn for each trial: `naive + lola + tft`. A setting of a learner that is given as two numbers in
    brackets is drawn for each trial too, evenly on a logarithmic scale if both are above 0:
    `naive(learning_rate=[0.1, 3])`.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.
    """
    members = [_member(one.strip(), game, player) for one in _terms(spec)]
    if len(members) == 1 and not members[0].ranges:
        return members[0].make({})
    return population(members)


def _terms(spec: str) -> list[str]:
    """The members of a population; a plus inside brackets or quotes is none of ours."""
    depth, quote, terms = 0, "", [""]
    for letter in spec:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([") - (letter in ")]")
        if letter == "+" and not depth and not quote:
            terms.append("")
        else:
            terms[-1] += letter
    return terms


def _member(spec: str, game: InfinitelyRepeated, player: int) -> Member:
    if spec[:1].isdigit() or spec[:1] == ".":
        spec = f"memory_one(probabilities=[{spec}])"
    name, settings = parse("opponent", spec, {name: defaults(make) for name, make in OPPONENTS.items()}, "naive")
    make, ranges = OPPONENTS[name], {}
    known = defaults(make)
    for setting, value in settings.items():
        kind, fits = _KINDS.get(setting) or (_WHOLE if isinstance(known[setting], int) else _NUMBER)
        if not fits(value):
            raise ValueError(f"opponent: {name}: {setting}: got {value!r}; {kind} is needed")
        if setting not in _KINDS and isinstance(value, list):
            ranges[setting] = (float(value[0]), float(value[1]))
    fixed = {setting: value for setting, value in settings.items() if setting not in ranges}

    def build(drawn: dict[str, Any]) -> Learner:
        try:
            return make(game, player, **fixed, **drawn)
        except (TypeError, ValueError) as error:
            raise ValueError(f"opponent: {name}: {first_line(error)}") from None

    # What does not fit is said now: at the ends of all ranges (once if there are none), and where values are traced.
    for ends in itertools.product(*ranges.values()):
        build(dict(zip(ranges, ends, strict=True)))
    if ranges:
        try:
            jax.eval_shape(lambda drawn: build(drawn).init(jax.random.key(0)), dict.fromkeys(ranges, 0.0))
        except (TypeError, ValueError):
            message = f"opponent: {name}: {', '.join(ranges)}: cannot be drawn anew for each trial"
            raise ValueError(f"{message}; a plain number is needed") from None
    return Member(build, ranges)


def _number_or_range(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and all(map(numeric, value)) and value[0] < value[1]
    return numeric(value)


_Kind = tuple[str, Callable[[Any], bool]]  # in words, and whether a value is of it
_NUMBER: _Kind = ("a number, or [lowest, highest] of a range,", _number_or_range)
_WHOLE: _Kind = ("a whole number", whole)
_KINDS: dict[str, _Kind] = {
    "probabilities": ("a list of probabilities", lambda x: isinstance(x, list | tuple) and all(map(numeric, x))),
    "learned_rate": ("True or False", lambda x: isinstance(x, bool)),
    "name": ("a name in quotes", lambda x: isinstance(x, str)),
    "file": ("the name of a file in quotes", lambda x: isinstance(x, str)),
}
