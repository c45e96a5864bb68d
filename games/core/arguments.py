"""Checks of the arguments of public functions, by their type hints."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import jax
import jax.numpy as jnp
import numpy as np

from configs import one_of, shown
from games.core.game import Game, Scalar
from games.core.modes import in_any_mode

Function = TypeVar("Function", bound=Callable[..., Any])


def check_arguments(function: Function) -> Function:
    """A decorator that checks the arguments of each call by the type hints, and `seat` by the `game` of the call.

    Classes, functions, choices, True and False, numbers and lists are checked. Whole numbers and the ranges of numbers
    are not, because the function says more about them. A value that JAX traces passes, but a traced seat does not.

    A keyword whose hint is a TypedDict is a group of settings, with a dict as its default. A call may give some of
    them: the function gets these, and the default for the others.

    Raises:
      TypeError: of the decorated function, for an argument of another type; one sentence.
      ValueError: of the decorated function, for a choice or a seat that does not exist.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature, kinds, groups = _signature(function)
        for name, members in groups.items():
            for member in members.keys() & kwargs.keys():
                raise TypeError(f"{member}: got {shown(kwargs[member])}; {name}={{'{member}': ...}} is needed")
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        for name, value in given.items():
            _check(name, value, kinds)
        for name, members in groups.items():
            for member, value in given.get(name, {}).items():
                if member not in members:
                    raise TypeError(f"{name}: got {shown(member)}; {one_of(str(member), list(members))}")
                _check(member, value, members)
            kwargs[name] = signature.parameters[name].default | given.get(name, {})
        game, seat = given.get("game"), given.get("seat", 0)
        seats = range(game.num_agents) if isinstance(game, Game) and "seat" in signature.parameters else ()
        if seats and (isinstance(seat, jax.core.Tracer) or not (_whole(seat) and int(seat) in seats)):
            raise ValueError(f"seat: got {shown(seat)}; one of 0 to {seats[-1]} is needed")
        return function(*args, **kwargs)

    return typing.cast(Function, call)


def check_game(game: Any) -> None:
    """Raises TypeError for what is no game."""
    if not isinstance(game, Game):
        raise TypeError(f"game: got {shown(game)}; a Game is needed, such as games.make('ipd')")


def factory(function: Function) -> Function:
    """A decorator for a function that makes a tuple of functions, such as a learner or a network.

    The arguments are checked as by `check_arguments`, and the functions compute the same in all modes of JAX.
    """

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        return _in_any_mode(checked(*args, **kwargs))

    checked = check_arguments(function)
    return typing.cast(Function, make)


def _check(name: str, value: Any, kinds: Mapping[str, _Kind | None]) -> None:
    if (kind := kinds.get(name)) and not isinstance(value, jax.core.Tracer) and not kind.fits(value):
        raise kind.error(f"{name}: got {shown(value)}; {kind.words} is needed")


def _in_any_mode(made: Any) -> Any:
    if hasattr(made, "_asdict"):
        return made._replace(**{name: _in_any_mode(x) for name, x in made._asdict().items()})
    return in_any_mode(made) if callable(made) else made


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]
    error: type[Exception] = TypeError


@functools.cache
def _signature(
    function: Callable[..., Any],
) -> tuple[inspect.Signature, dict[str, _Kind | None], dict[str, dict[str, _Kind | None]]]:
    """(signature, kinds of arguments, kinds of the members of groups of settings)."""
    signature = inspect.signature(function, eval_str=True)
    single = [x for x in signature.parameters.values() if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
    groups = {x.name: get_type_hints(x.annotation, include_extras=True) for x in single if is_typeddict(x.annotation)}
    of_groups = {name: {member: _kind(hint) for member, hint in hints.items()} for name, hints in groups.items()}
    return signature, {x.name: _kind(x.annotation) for x in single}, of_groups


def _kind(hint: Any) -> _Kind | None:
    """The values that a type hint allows; None if it allows all, or is not checked here."""
    if hint in (float, Scalar):
        return _Kind("a number", _scalar)
    if is_typeddict(hint):
        return _Kind(f"a dict with some of {', '.join(get_type_hints(hint))}", lambda x: isinstance(x, dict))
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        kinds = [_kind(x) for x in arguments if x is not NoneType]
        if not all(kinds):
            return None
        words = [kind.words for kind in kinds if kind] + ["None"] * (NoneType in arguments)
        error = next((kind.error for kind in kinds if kind and kind.error is ValueError), TypeError)

        def fits(value: Any) -> bool:
            return (value is None and NoneType in arguments) or any(kind.fits(value) for kind in kinds if kind)

        return _Kind(" or ".join(words), fits, error)
    if origin is Literal:
        return _Kind(f"one of {', '.join(map(str, arguments))}", lambda x: _hashable(x) and x in arguments, ValueError)
    if origin is Callable or getattr(origin, "_is_protocol", False):
        return _Kind("a function", callable) if origin is Callable or "__call__" in vars(origin) else None
    if origin in (Sequence, list, tuple):
        one = _WHOLE if arguments[:1] == (int,) else _kind(arguments[0]) if arguments else None
        several = {"a whole number": "a list of whole numbers", "a number": "a list of numbers"}
        return _Kind(several.get(one.words if one else "", "a list"), functools.partial(_listed, one))
    if origin in _PLAIN:
        return _PLAIN[origin]
    if isinstance(origin, type) and issubclass(origin, Game):
        such = ", such as games.make('ipd')," if origin is Game else f" of the class {origin.__name__}"
        return _Kind(f"a game{such}", functools.partial(_instance, origin))
    if isinstance(origin, type) and origin not in (Any, int, float, complex, jax.Array, np.ndarray, object):
        article = "an" if origin.__name__[0] in "AEIOU" else "a"
        return _Kind(f"{article} {origin.__name__}", functools.partial(_instance, origin))
    return None


def _instance(kind: type, value: Any) -> bool:
    return isinstance(value, kind)


def _scalar(value: Any) -> bool:
    if isinstance(value, np.ndarray | jax.Array):
        return value.ndim == 0 and jnp.issubdtype(value.dtype, np.number)
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _listed(one: _Kind | None, values: Any) -> bool:
    if isinstance(values, np.ndarray | jax.Array):
        plain = values.ndim == 1
    else:
        plain = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    return plain and (one is None or all(map(one.fits, values)))


def _hashable(value: Any) -> bool:
    return getattr(value, "__hash__", None) is not None


def _whole(value: Any) -> bool:
    if isinstance(value, jax.Array):
        return value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.integer)
    return isinstance(value, Integral) and not isinstance(value, bool)


_WHOLE = _Kind("a whole number", _whole)
_PLAIN: dict[Any, _Kind] = {
    bool: _Kind("True or False", lambda x: isinstance(x, bool | np.bool_)),
    str: _Kind("text", lambda x: isinstance(x, str)),
}
