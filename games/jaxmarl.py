"""Every game as an environment of JaxMARL; needs the extra `jaxmarl`.

The library is imported as `jaxmarl`; this module is `games.jaxmarl`.
"""

from __future__ import annotations

from typing import Any

import jax

try:
    from jaxmarl.environments import spaces as their_spaces
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; pip install 'marl-shaping[jaxmarl]'", name=error.name) from None

from games import host_stepping
from games.core.game import Actions, Game, Observations, State, Step, refuse_other_agents
from games.core.spaces import Discrete, MultiDiscrete, Space, shaped


def wrap(game: str | Game, **params: Any) -> JaxMARLGame:
    """A game as a `MultiAgentEnv`: for code that asks for the class or the spaces of JaxMARL, not only their methods.

    Args:
      game: its name, or the game itself.
      **params: the game's parameters.
    """
    return JaxMARLGame(host_stepping.as_game(game, params))


_reset = jax.jit(lambda game, key: game.reset(key))
_step = jax.jit(lambda game, *arguments: game.step(*arguments))
_get_avail_actions = jax.jit(lambda game, state: game.get_avail_actions(state))


class JaxMARLGame(MultiAgentEnv):
    """A game, step for step; what JaxMARL lacks, such as the game's parameters, is the game's own.

    As in JaxMARL, `reset` and `step` are compiled; here once for all games of one class and shape.
    """

    def __init__(self, game: Game):
        super().__init__(game.num_agents)
        self.game = game
        self.agents = list(game.agents)
        self.observation_spaces = {agent: _theirs(game.observation_space(agent)) for agent in self.agents}
        self.action_spaces = {agent: _theirs(game.action_space(agent)) for agent in self.agents}

    def __getattr__(self, name: str) -> Any:
        if name == "game":  # not made yet, as in a copy
            raise AttributeError(name)
        return getattr(self.game, name)

    def reset(self, key: jax.Array) -> tuple[Observations, State]:  # type: ignore[override]
        return _reset(self.game, key)

    def step(  # type: ignore[override]
        self, key: jax.Array, state: State, actions: Actions, reset_state: State | None = None
    ) -> Step[State]:
        """One step with auto-reset. Actions may have any form of their shape; values are those of traced arrays."""
        return _step(self.game, key, state, self._shaped(actions), reset_state)

    def step_env(self, key: jax.Array, state: State, actions: Actions) -> Step[State]:
        return self.game.step_env(key, state, self._shaped(actions))

    def _shaped(self, actions: Actions) -> Actions:
        refuse_other_agents(self.game, actions)
        spaces = {agent: self.game.action_space(agent) for agent in self.agents}
        return {a: shaped(f"actions[{a!r}]", actions[a], space) for a, space in spaces.items()}

    def get_obs(self, state: State) -> Observations:
        return self.game.get_obs(state)

    def get_avail_actions(self, state: State) -> dict[str, jax.Array]:  # type: ignore[override]
        return _get_avail_actions(self.game, state)

    @property
    def name(self) -> str:
        return self.game.name

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        return self.game.agent_classes


def _theirs(space: Space) -> their_spaces.Space:
    if isinstance(space, Discrete):
        return their_spaces.Discrete(space.n, space.dtype)
    if isinstance(space, MultiDiscrete):
        return their_spaces.MultiDiscrete(space.nvec)
    return their_spaces.Box(space.low, space.high, space.shape, space.dtype)
