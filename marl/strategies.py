"""Fixed memory-one strategies, and every opponent by its name."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import one_of
from games import InfinitelyRepeated
from marl.learn import Learner, keep_state
from marl.naive import PolicyState, naive, play_policy
from marl.zd import zd_policy

MAX_LOGIT = 20.0  # a certainty: 2e-9 away from 0 or 1, and still a number that a network can read


def memory_one(probabilities: Sequence[float]) -> Learner:
    """A fixed policy: the probabilities of action 0 at the start and after CC, CD, DC, DD, own action first.

    Raises:
      ValueError: if they are not one or five numbers in [0, 1].
    """
    p = _checked("memory_one", probabilities, (1, 5))
    with np.errstate(divide="ignore"):
        logits = np.clip(np.log(p) - np.log1p(-p), -MAX_LOGIT, MAX_LOGIT)

    def init(key: jax.Array) -> PolicyState:
        del key
        return PolicyState(jnp.asarray(logits, jnp.float32))

    return Learner(init, play_policy, keep_state)


def play_memory_one(probabilities: Sequence[float]) -> Learner:
    """The same fixed policy in the sampled games of `games.rounds`: it draws an action in every round.

    What it sees is the one-hot state `[..., 5]`: start, CC, CD, DC, DD.

    Raises:
      ValueError: if they are not five numbers in [0, 1].
    """
    p = jnp.asarray(_checked("play_memory_one", probabilities, (5,)), jnp.float32)

    def act(key: jax.Array, state: tuple, obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        defects = jax.random.uniform(key, obs.shape[:-1]) >= (obs * p).sum(-1)
        return defects.astype(jnp.int32), state, ()

    return Learner(lambda key: (), act, keep_state)


def _checked(name: str, probabilities: Sequence[float], lengths: Sequence[int]) -> np.ndarray:
    p = np.asarray(probabilities, float)
    if p.ndim != 1 or len(p) not in lengths or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"{name}: got {list(probabilities)}; five probabilities in [0, 1] are needed")
    return p


# Each takes the game and the player's number (0 row, 1 column) first; what follows is set as `name(key=value)`.


def _naive(game: InfinitelyRepeated, player: int, *, learning_rate: float = 1.0, init_scale: float = 1.0) -> Learner:
    payoff = partial(game.value, player)
    return naive(payoff, learning_rate=learning_rate, init_scale=init_scale, num_logits=game.num_logits)


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


OPPONENTS: dict[str, Callable[..., Learner]] = {
    "naive": _naive,
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

    Five numbers, as in `0.9,1,0,1,0`, are a memory-one policy.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.
    """
    if spec[:1].isdigit() or spec[:1] == ".":
        spec = f"memory_one(probabilities=[{spec}])"
    try:
        call = ast.parse(spec.strip(), mode="eval").body
        name = call.func if isinstance(call, ast.Call) else call
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords} if isinstance(call, ast.Call) else {}
        if not isinstance(name, ast.Name) or (isinstance(call, ast.Call) and call.args):
            raise ValueError
    except (SyntaxError, ValueError):
        raise ValueError(f"opponent: got {spec!r}; a name such as naive, or name(setting=value), is needed") from None
    if name.id not in OPPONENTS:
        raise ValueError(f"opponent: got {name.id!r}; {one_of(name.id, list(OPPONENTS))}")
    make = OPPONENTS[name.id]
    allowed = [p.name for p in inspect.signature(make).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for setting, value in settings.items():
        if setting not in allowed:
            raise ValueError(f"opponent: {name.id} has no setting {setting!r}; it takes {', '.join(allowed) or 'none'}")
        kind, fits = _KINDS.get(setting, ("a number", _numeric))
        if not fits(value):
            raise ValueError(f"opponent: {name.id}: {setting}: got {value!r}; {kind} is needed")
    try:
        return make(game, player, **settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"opponent: {name.id}: {error}") from None


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "probabilities": ("a list of probabilities", lambda x: isinstance(x, list | tuple) and all(map(_numeric, x))),
    "name": ("a name in quotes", lambda x: isinstance(x, str)),
}
