"""A check of a game of one's own: what its functions return fits its agents and its spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from configs import ContractError, shown
from games.core.arguments import check_game


def check_contract(game: Any) -> None:
    """Raises ContractError or ValueError, in one line, for a game whose functions return what they should not.

    Nothing is computed: `reset` and `step_env` are traced.
    """
    check_game(game)
    key = jax.random.key(0)
    observations, state = _parts(game, "reset", jax.eval_shape(game.reset, key), ["observations", "state"])
    _check_observations(game, "reset", observations)

    def step(state: Any) -> Any:
        return game.step_env(key, state, {agent: game.action_space(agent).sample(key) for agent in game.agents})

    names = ["observations", "state", "rewards", "dones", "infos"]
    observations, after, rewards, dones, _ = _parts(game, "step_env", jax.eval_shape(step, state), names)
    _check_observations(game, "step_env", observations)
    _check_scalars(game, "rewards", rewards, game.agents)
    _check_scalars(game, "dones", dones, ["__all__"])
    said = f"{type(game).__name__}.step_env returned a state"
    if repr(jax.tree.structure(after)) != repr(jax.tree.structure(state)):
        raise ContractError(f"{said} of another structure than that of reset; the same is needed")
    for (place, old), new in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            where, got = jax.tree_util.keystr(place), f"{new.dtype}{list(new.shape)}"
            raise ContractError(f"{said} with {got} at {where or 'its root'}; {old.dtype}{list(old.shape)} is needed")


def _parts(game: Any, name: str, found: Any, parts: Sequence[str]) -> tuple[Any, ...]:
    if not isinstance(found, tuple) or len(found) != len(parts):
        got = f"{len(found)} values" if isinstance(found, tuple) else f"a {type(found).__name__}"
        raise ContractError(f"{type(game).__name__}.{name} returned {got}; ({', '.join(parts)}) is needed")
    return found


def _check_observations(game: Any, name: str, observations: Any) -> None:
    _check_names(game, f"{name} returned observations", observations, game.agents)
    for agent in game.agents:
        if (got := getattr(observations[agent], "shape", None)) is None:  # of several parts
            continue
        space = game.observation_space(agent)
        needed = getattr(space, "shape", None)
        if needed is not None and tuple(needed) != tuple(got):
            said = f"{type(game).__name__}.{name} returned an observation of shape {tuple(got)} for {agent}"
            raise ValueError(f"{said}; {tuple(needed)}, as in its observation_space, is needed")


def _check_scalars(game: Any, what: str, values: Any, names: Sequence[str]) -> None:
    _check_names(game, f"step_env returned {what}", values, names)
    for name, value in values.items():
        if jnp.shape(value):
            said = f"{type(game).__name__}.step_env returned {what} of shape {jnp.shape(value)} for {name}"
            raise ValueError(f"{said}; a scalar is needed")


def _check_names(game: Any, said: str, values: Any, names: Sequence[str]) -> None:
    if not isinstance(values, dict):
        raise ContractError(f"{type(game).__name__}.{said} that are a {type(values).__name__}; a dict is needed")
    if missing := [name for name in names if name not in values]:
        got = f"without {missing[0]}, but with {shown(list(values))}"
        raise ValueError(f"{type(game).__name__}.{said} {got}; one for each of {', '.join(names)} is needed")
