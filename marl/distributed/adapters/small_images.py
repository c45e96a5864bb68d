"""Preprocessing of large images as for Atari since 2015: grey, small, and the last four stacked."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from games.core import spaces
from games.core.game import Game
from marl.distributed.vector_env import Arrays, EnvStep, Outline, VectorEnv

FRAMES = 4
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue, as ITU-R BT.601 weighs them


class SmallImages:
    """A vector environment with grey images, each stacked with the three before it, `[N, side, side, 4]`.

    A pixel is the mean of the pixels that it replaces. An episode begins with four copies of its first image.

    Args:
      env: the vector environment; its agents all see images of bytes in one or three colours.
      side: pixels of a side of an image.

    Raises:
      ValueError: for other observations.

    Source: Mnih et al., Human-level control through deep reinforcement learning (2015).
    """

    def __init__(self, env: VectorEnv, side: int):
        self._env, self.num_envs, self.has_empty_steps, self._side = env, env.num_envs, env.has_empty_steps, side
        agents = env.game.agents
        for agent in agents:
            space: Any = env.game.observation_space(agent)
            if not getattr(space, "image", False) or space.shape[-1] not in (1, 3):
                raise ValueError(f"images: got observations {space.shape}; images in one or three colours are needed")
        small = spaces.Box(0, 255, (side, side, FRAMES), jnp.uint8, True)
        self.game: Game = Outline([small] * len(agents), [env.game.action_space(agent) for agent in agents])

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        """As `VectorEnv.reset`; the other methods likewise."""
        self._seen = {agent: _first(self._small(obs)) for agent, obs in self._env.reset(seed, keys).items()}
        return self._seen

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        self._env.send(actions, keys)

    def receive(self) -> EnvStep:
        step = self._env.receive()
        last, seen = {}, {}
        for agent, before in self._seen.items():
            last[agent] = seen[agent] = np.concatenate([before[..., 1:], self._small(step.last_obs[agent])], -1)
            if step.done.any():
                begun = _first(self._small(step.obs[agent][step.done]))
                seen[agent] = last[agent].copy()
                seen[agent][step.done] = begun
        self._seen = seen
        return step._replace(obs=seen, last_obs=last)

    def picture(self) -> np.ndarray | None:
        return self._env.picture()

    def close(self) -> None:
        self._env.close()

    def _small(self, images: np.ndarray) -> np.ndarray:
        """`[N, height, width, colours]` to `[N, side, side, 1]`."""
        grey = images @ GREY if images.shape[-1] == 3 else images[..., 0].astype(np.float32)
        for axis in (1, 2):
            first = np.arange(self._side) * grey.shape[axis] // self._side
            each = np.maximum(np.diff(first, append=grey.shape[axis]), 1).astype(np.float32)
            grey = np.add.reduceat(grey, first, axis) / each.reshape(-1, *[1] * (2 - axis))
        return np.round(grey).astype(np.uint8)[..., None]


def _first(images: np.ndarray) -> np.ndarray:
    return np.repeat(images, FRAMES, -1)
