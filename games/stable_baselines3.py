"""One seat of many games as a `VecEnv` of Stable-Baselines3; needs the extra `stable-baselines3`.

The library is imported as `stable_baselines3`; this module is `games.stable_baselines3`. Copies of
`games.gymnasium.env` in processes need `SubprocVecEnv(..., start_method="spawn")`, because a fork of JAX hangs;
`vec_env` is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

try:
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; pip install 'marl-shaping[stable-baselines3]'", name=error.name) from None

from games.core.game import Game
from games.gymnasium import SeatVectorEnv, vector_env
from games.single_agent import Opponent


def vec_env(
    game: str | Game,
    num_envs: int,
    *,
    seat: int = 0,
    opponents: Opponent | Sequence[Opponent] | None = None,
    render_mode: str | None = None,
    **params: Any,
) -> SeatVecEnv:
    """Makes games of `games.gymnasium.vector_env` for Stable-Baselines3.

    An example is `PPO("MlpPolicy", vec_env("ipd", 64))`. The arguments are those of `vector_env` without
    `autoreset_mode`, because Stable-Baselines3 resets in the same step. With `VecMonitor(vec_env(...))` it prints the
    returns of episodes.
    """
    mode = AutoresetMode.SAME_STEP
    return SeatVecEnv(
        vector_env(
            game, num_envs, seat=seat, opponents=opponents, render_mode=render_mode, autoreset_mode=mode, **params
        )
    )


class SeatVecEnv(VecEnv):
    """The vector of Gymnasium in the older form that Stable-Baselines3 wants: one `done`, and a dict for each game.

    Infos are what the game counts, `TimeLimit.truncated`, and where a game ended `terminal_observation`.
    """

    def __init__(self, vector: SeatVectorEnv):
        self._vector = vector
        super().__init__(vector.num_envs, vector.single_observation_space, vector.single_action_space)

    def reset(self) -> np.ndarray:
        """First observations; seeded by the first of the seeds that `seed` has set, if it was called before."""
        observations, _ = self._vector.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """(observations, rewards, dones, infos) of the actions of `step_async`."""
        observations, rewards, terminations, truncations, infos = self._vector.step(self._actions)
        dones, final = terminations | truncations, infos.pop("final_obs", None)
        last = infos.pop("final_info", {})
        counted = {name: np.where(dones, last[name], x) if last else x for name, x in infos.items() if name[0] != "_"}
        infos_of_each = [
            {"TimeLimit.truncated": bool(truncated)} | {name: x[i] for name, x in counted.items()}
            for i, truncated in enumerate(truncations)
        ]
        for i in np.flatnonzero(dones):
            infos_of_each[i]["terminal_observation"] = final[i]
        return observations, rewards, dones, infos_of_each

    def get_images(self) -> Sequence[np.ndarray | None]:
        return self._vector.render() or [None] * self.num_envs

    def close(self) -> None:
        self._vector.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute of the vector, which all its games share, once for each that is asked for."""
        return [getattr(self._vector, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(f"set_attr: {attr_name}: the games are one program; make new ones instead")

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        raise NotImplementedError(f"env_method: {method_name}: the games are one program, and none is an object")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))
