"""Our own games as vector environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from games.core.game import Game
from games.registry import make_game
from marl.distributed.vector_env import Arrays, EnvStep


class GameVectorEnv:
    """One of our own games, stepped by compiled programs; the keys are those of `learn`, and so are the numbers."""

    has_empty_steps = False

    def __init__(self, game: Game, num_envs: int):
        self.game: Game = game
        self.num_envs = num_envs
        self._reset, self._step = _programs_of(game)

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        del seed
        observations, self._state = self._reset(keys)
        return _to_numpy(observations)

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        self._answer = self._step(self._state, actions, *keys)

    def receive(self) -> EnvStep:
        observations, last, self._state, rewards, done, infos = self._answer
        infos = _to_numpy(infos)
        truncated = infos.pop("truncated")[:, 0]
        observations, last, rewards, done = _to_numpy((observations, last, rewards, done))
        return EnvStep(observations, last, rewards, done, truncated, None, infos)

    def picture(self) -> np.ndarray | None:
        try:
            return self.game.render(jax.tree.map(lambda x: np.asarray(x)[0], self._state))
        except NotImplementedError:
            return None

    def close(self) -> None:
        pass


def make_game_env(name: str, num_envs: int, seen: Sequence[int] = ()) -> GameVectorEnv:
    """Makes a vector environment of a game by its name.

    Raises:
      ValueError: if there is no such game, or for entries that are seen.
    """
    if seen:
        raise ValueError(f"seen: got {list(seen)}; our own games have none")
    return GameVectorEnv(make_game(name), num_envs)


def _programs_of(game: Game) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def reset(keys: jax.Array) -> Any:
        return jax.vmap(game.reset)(jax.random.wrap_key_data(keys))

    def step(state: Any, actions: Any, step_keys: jax.Array, reset_keys: jax.Array) -> Any:
        step_keys, reset_keys = map(jax.random.wrap_key_data, (step_keys, reset_keys))
        last, state, rewards, dones, infos = jax.vmap(game.step_env)(step_keys, state, actions)
        observations, state = jax.vmap(game.auto_reset)(reset_keys, last, state, dones)
        return observations, last, state, rewards, dones["__all__"], infos

    return jax.jit(reset), jax.jit(step)


def _to_numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
