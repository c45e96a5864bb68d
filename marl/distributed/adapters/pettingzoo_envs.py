"""PettingZoo's parallel environments."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from configs.specs import first_line
from games.core.game import Game
from marl.distributed.adapters.gymnasium_spaces import acted, observed
from marl.distributed.vector_env import Arrays, EnvStep, Outline

FAMILIES = ("atari", "butterfly", "classic", "mpe", "sisl")


class ParallelVectorEnv:
    """Copies of a PettingZoo parallel environment, stepped in turn; an episode ends when it has ended for all agents.

    An agent that is out before the others keeps its last observation and gets a reward of 0. At the end it is truncated
    unless the rules have ended it.
    """

    has_empty_steps = False

    def __init__(self, make: Callable[[], Any], num_envs: int):
        self._envs = [make() for _ in range(num_envs)]
        self.num_envs, first = num_envs, self._envs[0]
        self._names = list(first.possible_agents)
        looks = [observed(first.observation_space(name)) for name in self._names]
        acts = [acted(first.action_space(name)) for name in self._names]
        self._looks, self._acts = [look for _, look in looks], [act for _, act in acts]
        self.game: Game = Outline([space for space, _ in looks], [space for space, _ in acts])
        self._agents = self.game.agents
        self._terminated = np.zeros((num_envs, len(self._names)), bool)  # in this episode

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        del keys
        self._seen = [self._begin(i, seed + i) for i in range(self.num_envs)]
        self._terminated[:] = False
        return self._stacked(self._seen)

    def _begin(self, i: int, seed: int | None = None) -> list[np.ndarray]:
        obs, _ = self._envs[i].reset(seed=seed)
        return [look(np.asarray(obs[name])[None])[0] for name, look in zip(self._names, self._looks, strict=True)]

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        del keys
        self._chosen = [act(actions[agent]) for agent, act in zip(self._agents, self._acts, strict=True)]

    def receive(self) -> EnvStep:
        last, after = [], []
        rewards = np.zeros((self.num_envs, len(self._names)), np.float32)
        done = np.zeros(self.num_envs, bool)
        for i, env in enumerate(self._envs):
            there = set(env.agents)
            actions = {name: self._chosen[j][i] for j, name in enumerate(self._names) if name in there}
            obs, reward, terminations, _, _ = env.step(actions)
            seen = list(self._seen[i])
            for j, name in enumerate(self._names):
                if name in obs:
                    seen[j] = self._looks[j](np.asarray(obs[name])[None])[0]
                rewards[i, j] = reward.get(name, 0.0)
                self._terminated[i, j] |= terminations.get(name, False)
            done[i] = not env.agents
            last.append(seen)
            after.append(self._begin(i) if done[i] else seen)
        self._seen = after
        truncated = done[:, None] & ~self._terminated
        self._terminated[done] = False
        by_agent, cut = ({agent: x[:, j] for j, agent in enumerate(self._agents)} for x in (rewards, truncated))
        return EnvStep(self._stacked(after), self._stacked(last), by_agent, done, cut)

    def _stacked(self, seen: list[list[np.ndarray]]) -> Arrays:
        return {agent: np.stack([one[j] for one in seen]) for j, agent in enumerate(self._agents)}

    def picture(self) -> np.ndarray | None:
        return self._envs[0].render() if getattr(self._envs[0], "render_mode", None) else None

    def close(self) -> None:
        for env in self._envs:
            env.close()


def make_pettingzoo_env(
    name: str, num_envs: int, seen: Sequence[int] = (), *, render_mode: str | None = None
) -> ParallelVectorEnv:
    """Makes copies of an environment by the name of its module, such as pistonball_v6.

    Raises:
      ValueError: if PettingZoo has no such environment, if its packages are missing, or for entries that are seen.
    """
    module = _module(name)
    if seen:
        raise ValueError(f"seen: got {list(seen)}; those of PettingZoo have none")
    return ParallelVectorEnv(lambda: module.parallel_env(render_mode=render_mode), num_envs)


def pettingzoo_names() -> list[str]:
    """Names in the installed families, whether or not the packages that they need are installed."""
    return [name for family in FAMILIES for name in _modules(family) if "_v" in name]


def _modules(family: str) -> list[str]:
    import pettingzoo

    return [module.name for module in pkgutil.iter_modules([f"{path}/{family}" for path in pettingzoo.__path__])]


def _module(name: str) -> Any:
    for family in FAMILIES:
        if name in _modules(family):
            try:
                return importlib.import_module(f"pettingzoo.{family}.{name}")
            except ModuleNotFoundError as error:
                raise ValueError(f'{first_line(error)}; pip install "pettingzoo[{family}]"') from None
    raise ValueError("PettingZoo has no such environment")
