"""A check of a game of one's own: what its functions return fits its agents and its spaces."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from configs import ContractError, shown
from games.core.game import Game
from games.core.spaces import Box


def check_contract(game: Any) -> None:
    """Raises ContractError, in one line, for a game whose `reset` or `step_env` returns what `learn` cannot use.

    Nothing is computed: both are traced, and errors of their own pass. What a game does not define is not looked at.
    """
    if not isinstance(game, Game):
        raise ContractError(f"game: got {shown(game)} of a factory; a Game is needed")
    key = jax.random.key(0)
    observations, state = _parts(game, "reset", jax.eval_shape(game.reset, key), ["observations", "state"])
    _check_observations(game, "reset", observations)
    with contextlib.suppress(NotImplementedError):
        actions = {agent: jax.eval_shape(game.action_space(agent).sample, key) for agent in game.agents}
        names = ["observations", "state", "rewards", "dones", "infos"]
        found = jax.eval_shape(game.step_env, key, state, actions)
        observations, after, rewards, dones, infos = _parts(game, "step_env", found, names)
        _check_observations(game, "step_env", observations)
        _check_shapes(game, "rewards", rewards, game.agents, ())
        _check_shapes(game, "dones", dones, [*game.agents, "__all__"], ())
        _check_shapes(game, "infos", infos, ["truncated"], (game.num_agents,))
        _check_state(game, state, after)


def _parts(game: Any, name: str, found: Any, parts: Sequence[str]) -> Sequence[Any]:
    if not isinstance(found, tuple | list) or len(found) != len(parts):
        got = f"{len(found)} values" if isinstance(found, tuple | list) else f"a {type(found).__name__}"
        raise ContractError(f"{type(game).__name__}.{name} returned {got}; ({', '.join(parts)}) is needed")
    return found


def _check_observations(game: Any, name: str, observations: Any) -> None:
    _check_names(game, f"{name} returned observations", observations, game.agents)
    for agent in game.agents:
        with contextlib.suppress(NotImplementedError):
            space, got = game.observation_space(agent), getattr(observations[agent], "shape", None)
            if isinstance(space, Box) and got is not None and tuple(space.shape) != got:
                said = f"{type(game).__name__}.{name} returned an observation of shape {got} for {agent}"
                raise ContractError(f"{said}; {tuple(space.shape)}, as in its observation_space, is needed")


def _check_shapes(game: Any, what: str, values: Any, names: Sequence[str], needed: tuple[int, ...]) -> None:
    _check_names(game, f"step_env returned {what}", values, names)
    for name in names:
        if (shape := jnp.shape(values[name])) != needed:
            said = f"{type(game).__name__}.step_env returned {what} of shape {shape} for {name}"
            raise ContractError(f"{said}; {needed or 'a scalar'} is needed")


def _check_names(game: Any, said: str, values: Any, names: Sequence[str]) -> None:
    if not isinstance(values, Mapping):
        raise ContractError(f"{type(game).__name__}.{said} that are a {type(values).__name__}; a dict is needed")
    if missing := [name for name in names if name not in values]:
        got = f"without {missing[0]}, but with {shown(list(values))}"
        raise ContractError(f"{type(game).__name__}.{said} {got}; {', '.join(names)} are needed")


def _check_state(game: Any, before: Any, after: Any) -> None:
    """A new game's state takes the place of the old one where that is done."""
    said = f"{type(game).__name__}.step_env returned a state"
    structures: list[Any] = [jax.tree.structure(x) for x in (before, after)]
    if structures[0] != structures[1]:
        raise ContractError(f"{said} of another structure than that of reset; the same is needed")
    for (place, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        try:
            fits = jnp.broadcast_shapes(old.shape, new.shape) == old.shape
        except ValueError:
            fits = False
        keys = jnp.issubdtype(old.dtype, jax.dtypes.prng_key) or jnp.issubdtype(new.dtype, jax.dtypes.prng_key)
        same = old.dtype == new.dtype if keys else jnp.result_type(old.dtype, new.dtype) == old.dtype
        if not (fits and same):
            where, got = jax.tree_util.keystr(place), f"{new.dtype}{list(new.shape)}"
            raise ContractError(f"{said} with {got} at {where or 'its root'}; {old.dtype}{list(old.shape)} is needed")
