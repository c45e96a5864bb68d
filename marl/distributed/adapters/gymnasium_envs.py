"""Environments with Gymnasium's vector interface: its own, Atari's and EnvPool's."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from configs import one_of
from games.core.game import Game
from marl.distributed.adapters.gymnasium_spaces import acted, observed
from marl.distributed.vector_env import Arrays, EnvStep, Outline


class BatchedVectorEnv:
    """An environment of Gymnasium's vector interface: its own, `AtariVectorEnv`, or EnvPool's.

    An environment that resets in the step that ends an episode has the last observation in `infos["final_obs"]`. One
    that resets a step later gives an empty step, marked as not valid.
    """

    def __init__(self, env: Any, seen: Sequence[int] = ()):
        from gymnasium.vector import AutoresetMode

        self._env, self.num_envs = env, env.num_envs
        self._late = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP) != AutoresetMode.SAME_STEP
        self.has_empty_steps = self._late
        found, self._look = observed(env.single_observation_space, seen)
        actions, self._act = acted(env.single_action_space)
        self.game: Game = Outline([found], [actions])
        self._begins = np.zeros(self.num_envs, bool)
        self._sends = hasattr(env, "send") and hasattr(env, "recv")

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        del keys
        self._begins = np.zeros(self.num_envs, bool)
        self._last = self._look(np.array(self._env.reset(seed=seed)[0]))  # a copy, as of every step
        return {"agent_0": self._last}

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        del keys
        chosen = self._act(actions["agent_0"])
        if hasattr(self._env, "step_async"):
            self._env.step_async(chosen)
        elif self._sends:
            self._env.send(chosen)
        else:
            self._chosen = chosen

    def receive(self) -> EnvStep:
        if hasattr(self._env, "step_async"):
            obs, reward, terminated, truncated, infos = self._env.step_wait()
        elif self._sends:
            obs, reward, terminated, truncated, infos = self._env.recv()
        else:
            obs, reward, terminated, truncated, infos = self._env.step(self._chosen)
        obs = last = self._look(np.array(obs))  # a copy, because some environments write in place
        self._last = obs
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        done, truncated, reward = terminated | truncated, truncated & ~terminated, np.asarray(reward, np.float32)
        valid = None
        if self._late:
            valid, self._begins = ~self._begins, done & ~self._begins
            reward = np.where(valid, reward, np.float32(0))
            done, truncated = done | ~valid, truncated & valid
        elif done.any():
            last = obs.copy()
            final = infos["final_obs"]
            for i in np.flatnonzero(done):
                last[i] = self._look(np.asarray(final[i])[None])[0]
        return EnvStep({"agent_0": obs}, {"agent_0": last}, {"agent_0": reward}, done, truncated, valid)

    def picture(self) -> np.ndarray | None:
        frames = self._env.render() if getattr(self._env, "render_mode", None) else None
        if frames is not None:
            return np.asarray(frames[0])
        seen: Any = self.game.observation_space("agent_0")
        if not getattr(seen, "image", False):
            return None
        return np.repeat(self._last[0][..., -1:], 3, -1)  # the newest frame of the observation

    def close(self) -> None:
        self._env.close()


def make_gymnasium_env(
    name: str,
    num_envs: int,
    seen: Sequence[int] = (),
    *,
    limit: int | None = None,
    processes: bool = False,
    render_mode: str | None = None,
) -> BatchedVectorEnv:
    """Makes an environment of Gymnasium's registry; the arguments are the fields of `EnvMaker`."""
    import gymnasium
    from gymnasium.vector import AutoresetMode

    spec = gymnasium.spec(name)
    lasting: dict[str, Any] = {} if limit is None else {"max_episode_steps": limit}
    if spec.vector_entry_point and not processes and render_mode is None:
        env = gymnasium.make_vec(name, num_envs, vectorization_mode="vector_entry_point", **lasting)
    else:
        env = gymnasium.make_vec(
            name,
            num_envs,
            vectorization_mode="async" if processes else "sync",
            # Spawned processes, because a fork of JAX's process may hang.
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP} | ({"context": "spawn"} if processes else {}),
            render_mode=render_mode,
            **lasting,
        )
    return BatchedVectorEnv(env, seen)


def make_atari_env(name: str, num_envs: int, seen: Sequence[int] = ()) -> BatchedVectorEnv:
    """Makes an environment of ale-py by its name in Gymnasium, such as ALE/Pong-v5.

    Raises:
      ValueError: if ale-py is not installed or has no such game.
    """
    from gymnasium.vector import AutoresetMode

    try:
        import ale_py
    except ModuleNotFoundError:
        raise ValueError('ale-py is not installed; pip install "marl-shaping[systems]"') from None
    game = name.removeprefix("ALE/").rpartition("-v")[0]
    rom = "".join("_" + letter.lower() if letter.isupper() else letter for letter in game).lstrip("_")
    roms = ale_py.roms.get_all_rom_ids()
    if rom not in roms:
        raise ValueError(one_of(name, [f"ALE/{rom.title().replace('_', '')}-v5" for rom in roms]))
    env = ale_py.AtariVectorEnv(rom, num_envs, num_threads=1, autoreset_mode=AutoresetMode.SAME_STEP)
    return BatchedVectorEnv(env, seen)


def make_envpool_env(name: str, num_envs: int, seen: Sequence[int] = ()) -> BatchedVectorEnv:
    """Makes an environment of EnvPool.

    Raises:
      ValueError: if EnvPool is not installed.
    """
    try:
        import envpool
    except ModuleNotFoundError:
        raise ValueError("EnvPool is not installed; pip install envpool") from None
    # EnvPool's spaces have single precision and limits of double precision.
    warnings.filterwarnings("ignore", r".*Box (low|high)'s precision lowered", UserWarning)
    return BatchedVectorEnv(
        _EnvPool(functools.partial(envpool.make_gymnasium, name, num_envs=num_envs), num_envs), seen
    )


class _EnvPool:
    """EnvPool's environments with the names of Gymnasium's vectors."""

    metadata: dict[str, Any] = {}  # noqa: RUF012 (they reset one step late)

    def __init__(self, make: Callable[..., Any], num_envs: int):
        self._make, self._pool, self.num_envs = make, make(), num_envs
        self.single_observation_space, self.single_action_space = self._pool.observation_space, self._pool.action_space

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        self._pool.close()
        self._pool = self._make(seed=seed)  # EnvPool takes a seed nowhere else; without one all actors play the same
        return self._pool.reset()

    def step(self, actions: np.ndarray) -> Any:
        return self._pool.step(actions)

    def close(self) -> None:
        self._pool.close()
