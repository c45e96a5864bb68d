"""Every game as a PettingZoo environment.

The library is imported as `pettingzoo`; this module is `games.pettingzoo`. Its import makes all our games known to
`pettingzoo.make`, in both forms: `pettingzoo.make("parallel", "marl-shaping/coin_game-v0")`, and "aec".
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pettingzoo
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from games import host_stepping, registry
from games.core import checks
from games.core.game import Game

Dicts = tuple[dict[str, np.ndarray], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


def parallel_env(game: str | Game, *, render_mode: str | None = None, **params: Any) -> ParallelGame:
    """A game as a `ParallelEnv`: `parallel_env("coin_game", render_mode="rgb_array")`.

    Args:
      game: its name, or the game itself.
      render_mode: None; rgb_array for pictures from `render()`; human for a window that shows every step.
      **params: the game's parameters.

    Raises:
      ValueError: for an unknown name or mode, or a parameter that does not fit.
    """
    return ParallelGame(host_stepping.as_game(game, params), render_mode)


def env(game: str | Game, *, render_mode: str | None = None, **params: Any) -> AECEnv:
    """A game as an `AECEnv`, in which the agents act one after the other and the game moves when all have."""
    return OrderEnforcingWrapper(_AECGame(parallel_env(game, render_mode=render_mode, **params)))


def batched_parallel_env(
    game: str | Game, num_envs: int, *, render_mode: str | None = None, **params: Any
) -> BatchedParallelGame:
    """Many copies of a game in the shape of a `ParallelEnv`, played in one compiled call.

    Args:
      game: its name, or the game itself.
      num_envs: how many copies.
      render_mode: None, or rgb_array for pictures of the first copy from `render()`.
      **params: the game's parameters.

    Raises:
      ValueError: for an unknown name or mode, or a parameter that does not fit.
    """
    checks.size("num_envs", num_envs, 1)
    return BatchedParallelGame(host_stepping.as_game(game, params), num_envs, render_mode)


class _Agents:
    """Base of one game and of a batch: names, spaces, seeds and checks."""

    def __init__(self, game: Game, render_mode: str | None, render_modes: tuple[str, ...]):
        host_stepping.check_render_mode(render_mode, render_modes)
        self.game, self.render_mode = game, render_mode
        self.metadata = {
            "name": game.name,
            "render_modes": list(render_modes),
            "is_parallelizable": True,
            "render_fps": host_stepping.FRAMES_PER_SECOND,
        }
        self.possible_agents = list(game.agents)
        self.agents: list[str] = []  # filled by reset
        self._observation_spaces = {a: game.observation_space(a).to_gymnasium() for a in self.possible_agents}
        self._action_spaces = {a: game.action_space(a).to_gymnasium() for a in self.possible_agents}
        self._random: np.random.Generator | None = None

    def observation_space(self, agent: str) -> spaces.Space:
        """The agent's observation space in one game."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """The agent's action space in one game."""
        return self._action_spaces[agent]

    def _new_episode(self, seed: int | None) -> np.uint32:
        """The episode's own seed: from `seed`, or the next one of the seed given before."""
        host_stepping.check_process()
        if seed is not None or self._random is None:
            self._random, _ = seeding.np_random(seed)
        self._seed, self._time = self._random.integers(2**32, dtype=np.uint32), 0
        self.agents = list(self.possible_agents)
        return self._seed

    def _checked(self, actions: dict[str, Any], batch: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
        """The actions as arrays; ValueError that names the agent, what it did and what is allowed."""
        if set(actions) != set(self.agents):
            expected = f"those of {', '.join(self.agents)} are needed" if self.agents else "no game is on; call reset()"
            raise ValueError(f"actions: got those of {', '.join(map(str, actions)) or 'no agent'}; {expected}")
        checked = {
            a: host_stepping.check_action(f"actions[{a!r}]", actions[a], self.game.action_space(a), batch)
            for a in self.agents
        }
        self._time += 1  # here, for an action that is refused is no step
        return checked

    def _now(self) -> Any:
        """The state; ValueError before the first reset."""
        if not hasattr(self, "_state"):
            raise ValueError("render: no episode is on; reset() is needed")
        return self._state

    def close(self) -> None:
        """There is nothing to close."""


class ParallelGame(_Agents, ParallelEnv):
    """One game. After its end `agents` is empty, and `reset` begins a new one; infos are what the game counts.

    Of environments of JaxMARL it does not pass on masks of possible actions, nor the end of single players, which go on
    acting until the game ends for all.

    For many at once take `batched_parallel_env`, not processes: JAX has threads, and a fork of them may hang.
    """

    def __init__(self, game: Game, render_mode: str | None):
        super().__init__(game, render_mode, host_stepping.RENDER_MODES)
        self._window = host_stepping.Window(game.name)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """A new episode. With a seed, this one and those after it are the same every time; no options are known."""
        observations, self._state = host_stepping.reset(self.game, self._new_episode(seed))
        if self.render_mode == "human":
            self.render()
        return host_stepping.to_numpy(observations), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Dicts:
        """All agents act at once: (observations, rewards, terminations, truncations, infos).

        Raises:
          ValueError: if an action is missing or not allowed.
        """
        if not self.agents and not actions:
            return {}, {}, {}, {}, {}
        acted = self._checked(actions)
        self._state, observations, result = host_stepping.step(
            self.game, self._seed, np.uint32(self._time), self._state, acted
        )
        rewards, terminations, truncations, infos = jax.tree.map(lambda x: x.item(), result)
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        if self.render_mode == "human":
            self.render()
        return host_stepping.to_numpy(observations), rewards, terminations, truncations, infos

    def render(self) -> np.ndarray | None:
        """A picture of the game now, RGB, with `render_mode="rgb_array"`; with human it is shown."""
        if self.render_mode is None:
            return None
        return self._window.rendered(self.game.render(self._now()), self.render_mode)

    def close(self) -> None:
        """Closes the window, if there is one."""
        self._window.close()


class _AECGame(parallel_to_aec_wrapper):
    """PettingZoo's conversion, which refuses an action at once and not when the last agent has acted."""

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if not (self.terminations[agent] or self.truncations[agent]):
            action = host_stepping.check_action(
                f"actions[{agent!r}]", action, self.env.unwrapped.game.action_space(agent)
            )
        super().step(action)


class BatchedParallelGame(_Agents):
    """Many games at once: the dicts of `ParallelEnv` hold JAX arrays with the games in front, `[num_envs, ...]`.

    A game that ends is reset in the same step: its observation is that of the new game, and the last one of the old
    is in `infos[agent]["final_obs"]`. The agents stay. A caller that is itself written in JAX is faster still
    with the game's own `step` inside its own `jit`.
    """

    def __init__(self, game: Game, num_envs: int, render_mode: str | None):
        super().__init__(game, render_mode, host_stepping.BATCH_RENDER_MODES)
        self.num_envs = num_envs

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, jax.Array], dict[str, dict[str, Any]]]:
        """New episodes everywhere."""
        observations, self._state = host_stepping.reset_many(self.game, self._new_episode(seed), num_envs=self.num_envs)
        return observations, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """All agents act at once in all games: (observations, rewards, terminations, truncations, infos).

        Raises:
          ValueError: if an action is missing or not allowed.
        """
        acted = self._checked(actions, (self.num_envs,))
        self._state, observations, last, result = host_stepping.step_many(
            self.game, self._seed, np.uint32(self._time), self._state, acted
        )
        rewards, terminations, truncations, infos = result
        infos = {agent: {**info, "final_obs": last[agent]} for agent, info in infos.items()}
        return observations, rewards, terminations, truncations, infos

    def render(self) -> np.ndarray | None:
        """A picture of the first game now, RGB, with `render_mode="rgb_array"`."""
        if self.render_mode is None:
            return None
        return self.game.render(jax.tree.map(lambda x: x[0], self._now()))


for _id, _name in registry.ids().items():
    pettingzoo.register("parallel", _id, "games.pettingzoo:parallel_env", kwargs={"game": _name})
    pettingzoo.register("aec", _id, "games.pettingzoo:env", kwargs={"game": _name})
