"""One seat of a game as a gymnasium environment, against opponents that do not learn.

The library is imported as `gymnasium`; this module is `games.gymnasium`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from games import host
from games.core import checks
from games.core.game import Game
from games.core.rollout import random_actions

# A function `(key, observation) -> action`, or an object with `init(key) -> state` and
# `act(key, state, observation) -> (action, state, anything)`, as the learners of `marl` have them.
Opponent = Any


def env(
    game: str | Game,
    *,
    seat: int = 0,
    opponents: Opponent | Sequence[Opponent] | None = None,
    render_mode: str | None = None,
    **params: Any,
) -> SeatEnv:
    """A game of one agent, or one seat of a game, as a `gymnasium.Env`: `env("coin_game", seat=1)`.

    Args:
      game: its name, or the game itself.
      seat: the number of the agent that the caller plays.
      opponents: who plays the other seats: one for all, or one for each in their order, in JAX. A function
        `(key, observation) -> action`, or an object with `init(key) -> state` and
        `act(key, state, observation) -> (action, state, anything)`, whose state is made anew in every episode.
        None: uniformly random actions, of those that are possible.
      render_mode: None, or rgb_array for pictures from `render()`.
      **params: the game's parameters.

    Raises:
      ValueError: for an unknown name, seat or mode, or a parameter that does not fit.
    """
    return SeatEnv(_Seat.of(host.as_game(game, params), seat, opponents), render_mode)


def vector_env(
    game: str | Game,
    num_envs: int,
    *,
    seat: int = 0,
    opponents: Opponent | Sequence[Opponent] | None = None,
    render_mode: str | None = None,
    **params: Any,
) -> SeatVectorEnv:
    """Many copies of what `env` makes as a `gymnasium.vector.VectorEnv`, played in one compiled call.

    Arguments as for `env`, and `num_envs`, how many copies.
    """
    checks.whole("num_envs", num_envs, 1)
    return SeatVectorEnv(_Seat.of(host.as_game(game, params), seat, opponents), num_envs, render_mode)


@partial(jax.tree_util.register_dataclass, data_fields=["game"], meta_fields=["agent", "opponents"])
@dataclasses.dataclass(frozen=True)
class _Seat:
    """A game seen from one seat."""

    game: Game
    agent: str
    opponents: tuple[tuple[str, Opponent], ...]  # the other agents, and who plays them; None: at random

    @staticmethod
    def of(game: Game, seat: int, opponents: Opponent | Sequence[Opponent] | None) -> _Seat:
        checks.whole("seat", seat, 0, game.num_agents - 1)
        others = [agent for agent in game.agents if agent != game.agents[seat]]
        if hasattr(opponents, "act") or isinstance(opponents, str) or not isinstance(opponents, Sequence):
            opponents = [opponents] * len(others)
        if len(opponents) != len(others):
            raise ValueError(
                f"opponents: got {len(opponents)}; one, or one for each of the {len(others)} other seats, is needed"
            )
        for opponent in opponents:
            if not (opponent is None or callable(opponent) or (hasattr(opponent, "init") and hasattr(opponent, "act"))):
                raise ValueError(f"opponents: got {opponent!r}; a function or an object with init and act is needed")
        return _Seat(game, game.agents[seat], tuple(zip(others, opponents, strict=True)))

    def reset(self, key: jax.Array) -> tuple[jax.Array, Any]:
        """(observation, what is carried on: all observations, state of the game, states of the opponents)."""
        key, *keys = jax.random.split(key, 1 + len(self.opponents))
        observations, state = self.game.reset(key)
        states = [o.init(k) if hasattr(o, "act") else () for k, (_, o) in zip(keys, self.opponents, strict=True)]
        return observations[self.agent], (observations, state, states)

    def step(self, key: jax.Array, carried: Any, action: jax.Array) -> tuple[jax.Array, Any, tuple]:
        """(observation, what is carried on, (reward, terminated, truncated, infos)), without auto-reset."""
        observations, state, states = carried
        key, random_key, *keys = jax.random.split(key, 2 + len(self.opponents))
        actions = random_actions(random_key, self.game, state) | {self.agent: action}
        for i, (agent, opponent) in enumerate(self.opponents):
            if hasattr(opponent, "act"):
                chosen, new, *_ = opponent.act(keys[i], states[i], observations[agent])
                states = [*states[:i], new, *states[i + 1 :]]
            elif opponent is not None:
                chosen = opponent(keys[i], observations[agent])
            else:
                continue
            actions[agent] = jnp.asarray(chosen, self.game.action_space(agent).dtype)
        observations, state, *rest = self.game.step_env(key, state, actions)
        told = tuple(part[self.agent] for part in host.told(*rest))
        return observations[self.agent], (observations, state, states), told

    def auto_step(self, key: jax.Array, carried: Any, action: jax.Array) -> tuple[jax.Array, jax.Array, Any, tuple]:
        """(observation, the one before a reset, ...): as `step`; a new episode where the old one is done."""
        key, reset_key = jax.random.split(key)
        last, carried, told = self.step(key, carried, action)
        done = told[1] | told[2]
        fresh, new = self.reset(reset_key)
        observation, carried = jax.tree.map(lambda x, y: jnp.where(done, x, y), (fresh, new), (last, carried))
        return observation, last, carried, told


@jax.jit
def _reset(seat: _Seat, seed: jax.Array) -> tuple[jax.Array, Any]:
    return seat.reset(jax.random.key(seed))


@jax.jit
def _step(seat: _Seat, seed: jax.Array, time: jax.Array, carried: Any, action: jax.Array) -> tuple:
    return seat.step(host.step_key(seed, time), carried, action)


@partial(jax.jit, static_argnames="num_envs")
def _reset_many(seat: _Seat, seed: jax.Array, *, num_envs: int) -> tuple[jax.Array, Any]:
    return jax.vmap(seat.reset)(jax.random.split(jax.random.key(seed), num_envs))


@jax.jit
def _step_many(seat: _Seat, seed: jax.Array, time: jax.Array, carried: Any, actions: jax.Array) -> tuple:
    return jax.vmap(seat.auto_step)(jax.random.split(host.step_key(seed, time), len(actions)), carried, actions)


class SeatEnv(gymnasium.Env):
    """One seat of one game."""

    metadata = {"render_modes": list(host.RENDER_MODES), "render_fps": host.FRAMES_PER_SECOND}  # noqa: RUF012

    def __init__(self, seat: _Seat, render_mode: str | None):
        host.check_render_mode(render_mode)
        self._seat, self.render_mode = seat, render_mode
        self._space = seat.game.action_space(seat.agent)
        self.observation_space = seat.game.observation_space(seat.agent).to_gymnasium()
        self.action_space = self._space.to_gymnasium()
        self._carried: Any = None  # None where no episode is on

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A new episode. With a seed, this one and those after it are the same every time; no options are known."""
        super().reset(seed=seed)
        self._seed, self._time, self._done = self.np_random.integers(2**32, dtype=np.uint32), 0, False
        observation, self._carried = _reset(self._seat, self._seed)
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, what the game counts).

        Raises:
          ValueError: if the action is not allowed.
          ResetNeeded: if no episode is on.
        """
        if self._carried is None or self._done:
            raise ResetNeeded("step: no episode is on; reset() is needed")
        acted = host.check_action("action", action, self._space)
        self._time += 1
        observation, self._carried, told = _step(self._seat, self._seed, np.uint32(self._time), self._carried, acted)
        reward, terminated, truncated, infos = jax.tree.map(lambda x: x.item(), told)
        self._done = terminated or truncated
        return np.array(observation), reward, terminated, truncated, infos

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """A picture of the game now, RGB, with `render_mode="rgb_array"`."""
        if self.render_mode and self._carried is None:
            raise ResetNeeded("render: no episode is on; reset() is needed")
        return self._seat.game.render(self._carried[1]) if self.render_mode else None


class SeatVectorEnv(VectorEnv):
    """One seat of many games: numpy arrays in and out, with the games in front.

    A game that ends begins anew in the same step (`AutoresetMode.SAME_STEP`), with a new opponent of the same kind; its
    last observation and infos are in `infos["final_obs"]` and `infos["final_info"]`, as gymnasium's own vectors have
    them.
    """

    metadata = {  # noqa: RUF012
        "render_modes": list(host.RENDER_MODES),
        "render_fps": host.FRAMES_PER_SECOND,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, seat: _Seat, num_envs: int, render_mode: str | None):
        host.check_render_mode(render_mode)
        self._seat, self.num_envs, self.render_mode = seat, num_envs, render_mode
        self._space = seat.game.action_space(seat.agent)
        self.single_observation_space = seat.game.observation_space(seat.agent).to_gymnasium()
        self.single_action_space = self._space.to_gymnasium()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._carried: Any = None  # None before the first reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """New episodes everywhere. With a seed, they and those after them are the same every time."""
        super().reset(seed=seed)
        self._seed, self._time = self.np_random.integers(2**32, dtype=np.uint32), 0
        observations, self._carried = _reset_many(self._seat, self._seed, num_envs=self.num_envs)
        return np.array(observations), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """(observations, rewards, terminations, truncations, infos).

        Raises:
          ValueError: if an action is not allowed.
          ResetNeeded: before the first reset.
        """
        if self._carried is None:
            raise ResetNeeded("step: no episode is on; reset() is needed")
        acted = host.check_action("actions", actions, self._space, (self.num_envs,))
        self._time += 1
        observations, last, self._carried, told = _step_many(
            self._seat, self._seed, np.uint32(self._time), self._carried, acted
        )
        observations, (rewards, terminations, truncations, infos) = host.to_numpy((observations, told))
        done = terminations | truncations
        if not done.any():
            return observations, rewards, terminations, truncations, _masked(infos, ~done)
        final = np.full(self.num_envs, None, object)
        last = np.array(last)
        for i in np.flatnonzero(done):
            final[i] = last[i]
        told_last = {"final_obs": final, "final_info": _masked(infos, done), "_final_obs": done, "_final_info": done}
        infos = _masked(infos, ~done) | told_last
        return observations, rewards, terminations, truncations, infos

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        """Pictures of all games now, RGB, with `render_mode="rgb_array"`."""
        return tuple(self._seat.game.frames(self._carried[1])) if self.render_mode else None


def _masked(infos: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, Any]:
    """Infos as gymnasium's vectors have them: zero where an environment says nothing, and `_name` says where."""
    return {name: np.where(mask, info, 0) for name, info in infos.items()} | {f"_{name}": mask for name in infos}
