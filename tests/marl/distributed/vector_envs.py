"""Faulty environments, for tests of the recovery. They are pickled by name."""

import os
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from marl.distributed.adapters.gymnasium_envs import BatchedVectorEnv
from marl.distributed.adapters.maker import EnvMaker


class Counting(gymnasium.Env):
    """An observation counts the steps of the episode; it ends after `length`, every second time by a time limit."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def __init__(self, length=4):
        self._length, self._episode = length, 0

    def reset(self, *, seed=None, options=None):
        self._episode, self._steps = self._episode + 1, 0
        return np.array([0.0, self._episode]), {}

    def step(self, action):
        assert action in (3, 4)
        self._steps += 1
        over = self._steps == self._length
        odd = self._episode % 2 == 1
        return np.array([self._steps, self._episode]), float(action), over and odd, over and not odd, {}


class Late(NamedTuple):
    """A maker of counting environments that reset in the step that ends an episode, or one step late."""

    num_envs: int = 2
    mode: AutoresetMode = AutoresetMode.NEXT_STEP

    def __call__(self, render=False):
        makers = [partial(Counting, 4 + i) for i in range(self.num_envs)]
        return BatchedVectorEnv(SyncVectorEnv(makers, autoreset_mode=self.mode))


class Faulty(NamedTuple):
    """CartPole with a fault at a step; a folder counts its occurrences."""

    folder: str
    what: str  # raise, nan, hang or die
    at: int = 12
    times: int = 1
    num_envs: int = 2

    def __call__(self, render=False):
        host = EnvMaker("gymnasium", "CartPole-v1", self.num_envs)()
        receive, steps = host.receive, 0

        def faulty():
            nonlocal steps
            steps += 1
            received = receive()
            happened = len(list(Path(self.folder).iterdir()))
            if steps == self.at and happened < self.times:
                (Path(self.folder) / str(happened)).touch()
                if self.what == "raise":
                    raise RuntimeError("the pole broke")
                if self.what == "nan":
                    received.reward["agent_0"][0] = np.nan
                if self.what == "hang":
                    time.sleep(3600)
                if self.what == "die":
                    os.kill(os.getpid(), 9)
            return received

        host.receive = faulty
        return host
