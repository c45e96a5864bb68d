"""One seat of a game as a gymnasium environment, against opponents that do not learn.

The library is imported as `gymnasium`; this module is `games.gymnasium`. Many copies are fastest as `vector_env`; in
processes of their own they need `AsyncVectorEnv(..., context="spawn")`, because a fork of JAX's threads hangs. The
import of this module makes all our games known to `gymnasium.make` and `gymnasium.make_vec`, as `marl-shaping/ipd-v0`;
so does their name with the module in front, `gymnasium.make("games.gymnasium:marl-shaping/ipd-v0", opponents=...)`.
"""

from __future__ import annotations

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

from configs import shown
from games import host_stepping, registry
from games.core import checks
from games.core.game import Game
from games.single_agent import Opponent, Seat


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
      opponents: players of the other seats, one for all or one for each in their order. None, the default: uniformly
        random actions, of those that are possible. A name: a memory-one strategy of a repeated game of two players and
        actions, such as "tft", "zd(chi=2)" or "0.9,1,0,1,0" (`games.exact.strategies`). Otherwise in JAX: a function
        `(key, observation) -> action`, an object with `init(key) -> state` and
        `act(key, state, observation) -> (action, state, anything)`, or a learner of `marl`, which does not learn here;
        all begin again in every episode.
      render_mode: None; rgb_array for pictures from `render()`; human for a window that shows every step.
      **params: the game's parameters.

    Raises:
      ValueError: for an unknown name, seat or mode, or a parameter that does not fit.
    """
    return SeatEnv(Seat.of(host_stepping.as_game(game, params), seat, opponents), render_mode)


def vector_env(
    game: str | Game,
    num_envs: int,
    *,
    seat: int = 0,
    opponents: Opponent | Sequence[Opponent] | None = None,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    **params: Any,
) -> SeatVectorEnv:
    """Many copies of what `env` makes as a `gymnasium.vector.VectorEnv`, played in one compiled call.

    Args:
      game: as for `env`.
      num_envs: number of copies.
      seat: as for `env`.
      opponents: as for `env`.
      render_mode: None or rgb_array.
      autoreset_mode: what happens after an episode's end, `AutoresetMode.SAME_STEP` or `NEXT_STEP`, or its name.
        Wrappers such as `RecordEpisodeStatistics` need NEXT_STEP in Gymnasium before 1.4, which counts every step of
        SAME_STEP after the first episode as an episode (its issue 1624).
      **params: as for `env`.

    Raises:
      ValueError: as `env`, and for a number or mode that does not fit.
    """
    checks.size("num_envs", num_envs, 1)
    return SeatVectorEnv(
        Seat.of(host_stepping.as_game(game, params), seat, opponents), num_envs, render_mode, autoreset_mode
    )


@jax.jit
def _reset(seat: Seat, seed: jax.Array) -> tuple[jax.Array, Any]:
    return seat.reset(host_stepping.step_key(seed, 0))


@jax.jit
def _step(seat: Seat, seed: jax.Array, time: jax.Array, carried: Any, action: jax.Array) -> tuple:
    return seat.step(host_stepping.step_key(seed, time), carried, action)


@partial(jax.jit, static_argnames="num_envs")
def _reset_many(seat: Seat, seed: jax.Array, *, num_envs: int) -> tuple[jax.Array, Any]:
    return jax.vmap(seat.reset)(jax.random.split(host_stepping.step_key(seed, 0), num_envs))


@jax.jit
def _step_many(seat: Seat, seed: jax.Array, time: jax.Array, carried: Any, actions: jax.Array) -> tuple:
    return jax.vmap(seat.auto_step)(
        jax.random.split(host_stepping.step_key(seed, time), len(actions)), carried, actions
    )


@jax.jit
def _step_or_reset_many(
    seat: Seat, seed: jax.Array, time: jax.Array, carried: Any, actions: jax.Array, over: jax.Array
) -> tuple:
    """`_step_many` where an episode that is over begins again in this step, in which nothing else happens."""

    def one(key: jax.Array, carried: Any, action: jax.Array, over: jax.Array) -> tuple:
        step_key, reset_key = jax.random.split(key)
        played, begun = seat.step(step_key, carried, action), seat.auto_reset(reset_key, carried, over)
        nothing = jax.tree.map(jnp.zeros_like, played[2])
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), (*begun, nothing), played)

    return jax.vmap(one)(jax.random.split(host_stepping.step_key(seed, time), len(actions)), carried, actions, over)


class SeatEnv(gymnasium.Env):
    """One seat of one game. Masks of possible actions, as environments of JaxMARL have them, are not passed on.

    The memory of a message (`games.CheapTalk`) begins again at each `reset`; in `SeatVectorEnv` it goes on.
    """

    metadata = {"render_modes": list(host_stepping.RENDER_MODES), "render_fps": host_stepping.FRAMES_PER_SECOND}  # noqa: RUF012

    def __init__(self, seat: Seat, render_mode: str | None):
        host_stepping.check_render_mode(render_mode)
        self._seat, self.render_mode, self._window = seat, render_mode, host_stepping.Window(seat.game.name)
        self.metadata = {**type(self).metadata, "opponents": _said(seat)}
        self._space = seat.game.action_space(seat.agent)
        self.observation_space = seat.game.observation_space(seat.agent).to_gymnasium()
        self.action_space = self._space.to_gymnasium()
        self._carried: Any = None  # None where no episode is on

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A new episode. With a seed, this one and those after it are the same every time; no options are known."""
        host_stepping.check_process()
        super().reset(seed=seed)
        self._seed, self._time, self._done = self.np_random.integers(2**32, dtype=np.uint32), 0, False
        observation, self._carried = _reset(self._seat, self._seed)
        if self.render_mode == "human":
            self.render()
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, what the game counts).

        Raises:
          ValueError: if the action is not allowed.
          ResetNeeded: if no episode is on.
        """
        if self._carried is None or self._done:
            raise ResetNeeded("step: no episode is on; reset() is needed")
        acted = host_stepping.check_action("action", action, self._space)
        self._time += 1
        observation, self._carried, result = _step(self._seat, self._seed, np.uint32(self._time), self._carried, acted)
        reward, terminated, truncated, infos = jax.tree.map(lambda x: x.item(), result)
        self._done = terminated or truncated
        if self.render_mode == "human":
            self.render()
        return np.array(observation), reward, terminated, truncated, infos

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """A picture of the game now, RGB, with `render_mode="rgb_array"`; with human it is shown."""
        if self.render_mode is None:
            return None
        if self._carried is None:
            raise ResetNeeded("render: no episode is on; reset() is needed")
        return self._window.rendered(self._seat.game.render(self._carried[1]), self.render_mode)

    def close(self) -> None:
        """Closes the window, if there is one."""
        self._window.close()


class SeatVectorEnv(VectorEnv):
    """One seat of many games: numpy arrays in and out, with the games in front.

    A game that ends begins again in the same step (`AutoresetMode.SAME_STEP`), with a new opponent of its kind; its
    last observation and infos are in `infos["final_obs"]` and `infos["final_info"]`, as gymnasium's own vectors have
    them. With `NEXT_STEP` it does so in the next step, which takes no action and gives no reward.
    """

    metadata = {  # noqa: RUF012
        "render_modes": list(host_stepping.BATCH_RENDER_MODES),
        "render_fps": host_stepping.FRAMES_PER_SECOND,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        seat: Seat,
        num_envs: int,
        render_mode: str | None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    ):
        host_stepping.check_render_mode(render_mode, host_stepping.BATCH_RENDER_MODES)
        modes = {mode.name: mode for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)}
        name = getattr(autoreset_mode, "name", str(autoreset_mode).upper())
        checks.choice("autoreset_mode", name, tuple(modes))
        self.metadata = {**type(self).metadata, "autoreset_mode": modes[name], "opponents": _said(seat)}
        self._over = np.zeros(num_envs, bool)  # with NEXT_STEP, episodes that begin again in the next step
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
        host_stepping.check_process()
        if seed is not None and np.ndim(seed):
            needed = "one whole number is needed, from which those of all environments are drawn"
            raise ValueError(f"seed: got {shown(np.asarray(seed).tolist())}; {needed}")
        super().reset(seed=seed)
        self._seed, self._time = self.np_random.integers(2**32, dtype=np.uint32), 0
        observations, self._carried = _reset_many(self._seat, self._seed, num_envs=self.num_envs)
        self._over = np.zeros(self.num_envs, bool)
        return np.array(observations), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """(observations, rewards, terminations, truncations, infos).

        Raises:
          ValueError: if an action is not allowed.
          ResetNeeded: before the first reset.
        """
        if self._carried is None:
            raise ResetNeeded("step: no episode is on; reset() is needed")
        acted = host_stepping.check_action("actions", actions, self._space, (self.num_envs,))
        self._time += 1
        if self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP:
            observations, self._carried, result = _step_or_reset_many(
                self._seat, self._seed, np.uint32(self._time), self._carried, acted, self._over
            )
            observations, (rewards, terminations, truncations, infos) = host_stepping.to_numpy((observations, result))
            played, self._over = ~self._over, terminations | truncations
            return observations, rewards, terminations, truncations, _masked(infos, played)
        observations, last, self._carried, result = _step_many(
            self._seat, self._seed, np.uint32(self._time), self._carried, acted
        )
        observations, (rewards, terminations, truncations, infos) = host_stepping.to_numpy((observations, result))
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
        if self.render_mode is None:
            return None
        if self._carried is None:
            raise ResetNeeded("render: no episode is on; reset() is needed")
        states = host_stepping.to_numpy(self._carried[1])
        each = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(self.num_envs)]
        return tuple(map(self._seat.game.render, each))  # not `frames`, for which they would be one game over time


def _said(seat: Seat) -> tuple[str, ...]:
    """The players of the other seats in words."""
    return tuple("random" if opponent is None else repr(opponent) for _, opponent in seat.opponents)


def _masked(infos: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, Any]:
    """Infos as gymnasium's vectors have them: zero where an environment says nothing, and `_name` says where."""
    return {name: np.where(mask, info, 0) for name, info in infos.items()} | {f"_{name}": mask for name in infos}


for _id, _name in registry.ids().items():
    gymnasium.register(
        _id, "games.gymnasium:env", vector_entry_point="games.gymnasium:vector_env", kwargs={"game": _name}
    )
