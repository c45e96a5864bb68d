"""Checks of a learner's shapes while `learn` is traced, with one-sentence errors.

Everything here runs at trace time: a compiled program is the same with and without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from configs import MOST, ContractError
from games.core.arguments import check_game
from games.core.modes import in_any_mode
from games.core.spaces import Space, described
from marl.core.learner import Learner


def check_key(key: Any) -> None:
    """Raises ValueError for anything but one key of `jax.random.key`."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0):
        raise ValueError(f"key: got {_shown(key)}; one key of jax.random.key(seed) is needed")


def check_number(name: str, number: Any, least: int = 1) -> None:
    """Raises ValueError for anything but a whole number of at least `least` that is counted in 32 bits."""
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MOST:
        limits = f"at most {MOST}" if isinstance(number, int) and number > MOST else f"at least {least}"
        raise ValueError(f"{name}: got {_shown(number)}; a whole number of {limits} is needed")


def check_state(learner: Learner, state: Any) -> None:
    """Raises TypeError for what is no learner, or no state of this one."""
    if not isinstance(learner, Learner):
        raise ContractError(f"learner: got {_shown(learner)}; a Learner is needed")
    wrong = ContractError(f"state: got {_shown(state)}; a state of this learner{_name(learner.act)} is needed")
    try:
        found = jax.tree.map(jnp.shape, jax.eval_shape(learner.policy, state))
    except (AttributeError, TypeError, KeyError, IndexError):
        raise wrong from None
    try:
        own = jax.tree.map(jnp.shape, jax.eval_shape(lambda key: learner.policy(learner.init(key)), jax.random.key(0)))
    except Exception:  # of an `init` that cannot be traced
        return
    if found != own:
        raise wrong


def check_learners(game: Any, learners: Sequence[Learner]) -> None:
    """Raises ValueError or TypeError where there is no learner for every seat, made for that seat."""
    check_game(game)
    if hasattr(learners, "act") or not isinstance(learners, Sequence):
        raise ContractError(f"learners: got {_shown(learners)}; a list with a Learner for each player is needed")
    for i, learner in enumerate(learners):
        if not isinstance(learner, Learner):
            raise ContractError(f"learners: got {_shown(learner)} in seat {i}; a Learner is needed")
    seats = sum(learner.num_seats for learner in learners)
    if seats != len(game.agents):
        raise ValueError(f"learners: got {seats}; {type(game).__name__} has {len(game.agents)} players")
    first = 0
    for learner in learners:
        if learner.seat not in (None, first):
            needed = "one made for that seat is needed"
            raise ValueError(f"learners: got one for seat {learner.seat} in seat {first}; {needed}")
        first += learner.num_seats


def checked(learner: Learner, seat: int, num_envs: int | None, actions: Space | None) -> Learner:
    """The learner with functions that check what they return.

    Args:
      learner: as a user made it.
      seat: where it plays, for messages.
      num_envs: the size of the environments' axis; None if there is none.
      actions: the action space of the game, if it has one.
    """
    functions: dict[str, Any] = {name: _in_any_mode(x) for name, x in learner._asdict().items() if callable(x)}
    learner = learner._replace(**functions)
    learner_name = f"the learner in seat {seat}{_name(learner.act)}"

    def act(key: jax.Array, parameters: Any, memory: Any, obs: jax.Array) -> Any:
        found = _call(learner_name, "act", num_envs, learner.act, key, parameters, memory, obs)
        action, after, _ = _parts(learner_name, "act", found, ("action", "memory", "extras"))
        shape = jnp.shape(action)
        if num_envs is not None and shape[:1] != (num_envs,):
            needed = f"one action for each of the {num_envs} environments, [{num_envs}, ...],"
            raise ValueError(f"{learner_name}: act returned an action of shape {shape}; {needed} is needed")
        one = shape if num_envs is None else shape[1:]
        if actions and [size for size in one if size != 1] != [size for size in actions.shape if size != 1]:
            needed = f"one of shape {actions.shape}, {described(actions)}, as the game takes it,"
            raise ValueError(f"{learner_name}: act returned an action of shape {one}; {needed} is needed")
        _same(learner_name, "act", "memory", memory, after)
        return found

    def update(key: jax.Array, state: Any, trajectory: Any) -> Any:
        found = _call(learner_name, "update", num_envs, learner.update, key, state, trajectory)
        after, metrics = _parts(learner_name, "update", found, ("state", "metrics"))
        if not isinstance(metrics, dict):
            raise ContractError(
                f"{learner_name}: update returned {_shown(metrics)} as metrics; a dict, which may be empty, is needed"
            )
        _same(learner_name, "update", "state", state, after)
        return found

    def init_memory(parameters: Any, envs: int | None) -> Any:
        return _call(learner_name, "init_memory", num_envs, learner.init_memory, parameters, envs)

    def init(key: jax.Array) -> Any:
        return _call(learner_name, "init", num_envs, learner.init, key)

    return learner._replace(init=init, act=act, update=update, init_memory=init_memory)


def _call(learner_name: str, what: str, num_envs: int | None, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except AssertionError as error:  # of a rank or shape that the learner itself checks
        why = " ".join(str(error).removeprefix("[Chex] ").split())[:160]
        axis = "num_envs is None, and it may need an axis of environments: num_envs=1" if num_envs is None else why
        raise ValueError(f"{learner_name}: {what} does not fit what it was given; {axis}") from error


def _in_any_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a learner of this library that computes the same in all of JAX's modes; others as they are."""
    package = str(getattr(_plain(function), "__module__", "")).partition(".")[0]
    return in_any_mode(function) if package in ("marl", "attacks") else function


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _parts(learner_name: str, what: str, found: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(found, tuple) or len(found) != len(names):
        got = f"{len(found)} values" if isinstance(found, tuple) else _shown(found)
        raise ContractError(f"{learner_name}: {what} returned {got}; ({', '.join(names)}) is needed")
    return found


def _same(learner_name: str, what: str, name: str, before: Any, after: Any) -> None:
    """Raises TypeError where a state that goes on has another structure, shape or dtype than before."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (before, after)]
    if structures[0] != structures[1]:
        raise ContractError(
            f"{learner_name}: {what} returned a {name} of another structure than it got: {_differ(*structures)}"
        )
    paths = jax.tree_util.tree_flatten_with_path(before)[0]
    for (path, old), new in zip(paths, jax.tree.leaves(after), strict=True):
        if (jnp.shape(old), _dtype(old)) != (jnp.shape(new), _dtype(new)):
            got, needed = (f"{_dtype(x)}{list(jnp.shape(x))}" for x in (new, old))
            where = f"{name}{jax.tree_util.keystr(path)}"
            raise ContractError(f"{learner_name}: {what} returned {where} as {got}; {needed}, as it got it, is needed")


def _dtype(leaf: Any) -> str:
    return str(leaf.dtype) if hasattr(leaf, "dtype") else str(jnp.result_type(leaf))


def _differ(before: Any, after: Any) -> str:
    old, new = (" ".join(str(one).removeprefix("PyTreeDef").split())[:90] for one in (before, after))
    return f"{new}; {old} is needed"


def _name(function: Any) -> str:
    """The factory in which a learner's function stands, `ppo.<locals>.act`, in brackets; nothing of others."""
    name, *inside = str(getattr(_plain(function), "__qualname__", "")).split(".<locals>")
    name = name if inside else "<"
    return "" if name.startswith("<") else f" ({name})"


def _shown(value: Any) -> str:
    """A value in a few words; of an array, its dtype and shape."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"an array {value.dtype}{list(value.shape)}"
    if callable(value):
        return f"a function {getattr(value, '__name__', type(value).__name__)}"
    words = repr(value)
    return words if len(words) <= 60 and "\n" not in words else f"a {type(value).__name__}"
