"""The interface of a game: an n-player simultaneous-move Markov game in the functional API of JaxMARL."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import shown
from games.core import random_bits
from games.core.branching import where_cheap
from games.core.modes import in_any_mode
from games.core.spaces import Discrete, Space, refuse_impossible, shaped

Observations = dict[str, jax.Array]
Actions = dict[str, jax.Array]
Rewards = dict[str, jax.Array]
Dones = dict[str, jax.Array]
Infos = dict[str, jax.Array]
State = Any  # a pytree of arrays, by custom a flax.struct dataclass with the `time` since the reset
Of = TypeVar("Of")
Step = tuple[Observations, Of, Rewards, Dones, Infos]  # what `step_env` returns, of a state of some kind
# A number or an array of shape []: traced where a game is an argument of a compiled function.
Scalar: TypeAlias = Annotated[Any, "scalar"]


class Game:
    """An n-player game of pure functions. A subclass writes `reset`, `step_env`, `get_obs` and the spaces.

    The methods are unbatched: `jax.vmap` plays many games at once. Code written for JaxMARL's `MultiAgentEnv` plays
    these games.

    A game is a `flax.struct.dataclass` of its own parameters, and so a pytree: what changes shapes (the size of a
    grid, the number of players) is static, every other number is a leaf. `jax.jit(lambda game, key: ...)` compiles
    once for all payoffs, and `jax.vmap` over a game plays many variants at once.

    An action that its space does not have is refused where it is known: a number of Python or NumPy, or an array of
    JAX outside of `jit` and `vmap`. Inside of them the value is unknown, and the result is undefined: a repeated game
    pays what some other joint action pays. Beyond the bounds of a `Box` actions are clipped, as each game says. (The
    faces to PettingZoo and Gymnasium refuse them all.)

    Attributes:
      num_agents: the number of players.
      agents: their names, the keys of every dict: agent_0, agent_1, ...
      costly_reset: True where a reset costs more than a step; on a CPU it is then computed only where a game ends.
    """

    num_agents: int = 2
    costly_reset = False

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "step_env" in vars(cls):
            cls.step_env = _refusing(cls.step_env)  # type: ignore[method-assign]
        if cls.__module__.startswith("games."):
            for name in ("reset", "step_env", "auto_reset", "get_obs", "get_avail_actions"):
                if name in vars(cls):
                    setattr(cls, name, in_any_mode(vars(cls)[name]))

    @property
    def agents(self) -> list[str]:
        return [f"agent_{i}" for i in range(self.num_agents)]

    def reset(self, key: jax.Array) -> tuple[Observations, State]:
        """A first observation of every agent, and the state."""
        raise NotImplementedError(f"{type(self).__name__} does not define reset")

    def step_env(self, key: jax.Array, state: State, actions: Actions) -> Step[State]:
        """One step without auto-reset: (observations, state, rewards, dones, infos).

        `dones["__all__"]` ends the game, whether by its rules or by its time limit; `infos["truncated"]` says that it
        was the limit. Every entry of infos has the shape `[num_agents]`: what papers plot, for each agent.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step_env")

    def auto_reset(
        self, key: jax.Array, observations: Observations, state: State, dones: Dones, reset_state: State | None = None
    ) -> tuple[Observations, State]:
        """(observations, state) of a new game where the old one is done; of `reset_state`, if one is given."""
        del observations  # computed again from the chosen state: cheaper than to compute both and to choose then

        def begin(key: jax.Array, state: State) -> State:
            return self.reset(key)[1] if reset_state is None else reset_state

        done = dones["__all__"]
        if self.costly_reset:
            state = where_cheap(done, begin, lambda key, state: state, key, state)
        else:
            state = jax.tree.map(lambda new, old: jnp.where(done, new, old), begin(key, state), state)
        return self.get_obs(state), state

    def step(self, key: jax.Array, state: State, actions: Actions, reset_state: State | None = None) -> Step[State]:
        """One step; when the game ends, observation and state are those of a new one (of `reset_state`, if given).

        A learner that needs the last observation of the old one calls `step_env` and `auto_reset`, as `learn` does.
        An action may have axes of length 1 more than its space: JaxMARL's own scripts hand over `[1]` for `[]`.
        """
        refuse_other_agents(self, actions)
        actions = {a: shaped(f"actions: {a}", action, self.action_space(a)) for a, action in actions.items()}
        _look_at(self, actions)
        key, reset_key = random_bits.split(key)
        actions = {a: jnp.asarray(action) for a, action in actions.items()}
        observations, state, rewards, dones, infos = self.step_env(key, state, actions)
        observations, state = self.auto_reset(reset_key, observations, state, dones, reset_state)
        return observations, state, rewards, dones, infos

    def get_obs(self, state: State) -> Observations:
        """Observations of a state, one for each agent."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_obs")

    def get_avail_actions(self, state: State) -> dict[str, jax.Array]:
        """Masks of the actions that are possible now, `[n]` for `Discrete`; all, unless a game says otherwise."""
        del state
        spaces = {agent: self.action_space(agent) for agent in self.agents}
        return {a: jnp.ones(s.n if isinstance(s, Discrete) else s.shape, bool) for a, s in spaces.items()}

    def observation_space(self, agent: str) -> Space:
        raise NotImplementedError(f"{type(self).__name__} does not define observation_space")

    def action_space(self, agent: str) -> Space:
        raise NotImplementedError(f"{type(self).__name__} does not define action_space")

    @property
    def time_limit(self) -> Scalar | None:
        """Steps after which a game is truncated; None where there is no such limit."""
        return getattr(self, "episode_length", None)

    def render(self, state: State) -> np.ndarray:
        """A picture of a state, RGB `[height, width, 3]` of uint8, drawn on the host."""
        raise NotImplementedError(f"{type(self).__name__} does not define render")

    def frames(self, states: State) -> list[np.ndarray]:
        """Pictures of equal size, one for each state along the leading axis."""
        return [self.render(jax.tree.map(lambda x, t=t: x[t], states)) for t in range(len(jax.tree.leaves(states)[0]))]

    # The rest of JaxMARL's protocol.

    @property
    def observation_spaces(self) -> dict[str, Space]:
        return {agent: self.observation_space(agent) for agent in self.agents}

    @property
    def action_spaces(self) -> dict[str, Space]:
        return {agent: self.action_space(agent) for agent in self.agents}

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """Agents grouped by their role; one group, unless a game says otherwise."""
        return {"agents": self.agents}

    # What subclasses share.

    def _by_agent(self, values: Any) -> dict[str, jax.Array]:
        """A dict keyed by agent from a sequence or an array with the agents in front."""
        return {agent: values[i] for i, agent in enumerate(self.agents)}

    def _ending(self, terminated: Any, truncated: Any) -> tuple[dict[str, jax.Array], Infos]:
        """(dones, infos) of a game that ends for all at once."""
        truncated = truncated & jnp.logical_not(terminated)
        dones = dict.fromkeys((*self.agents, "__all__"), terminated | truncated)
        return dones, {"truncated": jnp.broadcast_to(truncated, (self.num_agents,))}


def _refusing(step_env: Callable[..., Step[Any]]) -> Callable[..., Step[Any]]:
    """The step of a game, behind a look at the actions."""
    written = inspect.unwrap(step_env)

    @functools.wraps(step_env)
    def step(self: Game, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        if inspect.unwrap(type(self).step_env) is not written:  # called by a subclass, which may take other actions
            return step_env(self, key, state, actions)
        refuse_other_agents(self, actions)
        for agent, action in actions.items():
            with contextlib.suppress(NotImplementedError):  # of a game without spaces
                if np.shape(action) != (space := self.action_space(agent)).shape:
                    actions = {**actions, agent: shaped(f"actions: {agent}", action, space)}
        _look_at(self, actions)
        return step_env(self, key, state, actions)

    return step


def refuse_other_agents(game: Game, actions: Any) -> None:
    """Raises ValueError unless there is an action of each agent, and of no other."""
    if not isinstance(actions, Mapping):
        raise ValueError(f"actions: got {shown(actions)}; a dict with those of {', '.join(game.agents)} is needed")
    if set(actions) != set(game.agents):
        given = ", ".join(map(str, actions)) or "none"
        raise ValueError(f"actions: got those of {given}; those of {', '.join(game.agents)} are needed")


def _look_at(game: Game, actions: Actions) -> None:
    """Raises ValueError for an action that there is not, of those that are known."""
    for agent, action in actions.items():
        if not isinstance(action, jax.core.Tracer):
            refuse_impossible(f"actions: {agent}", action, game.action_space(agent))


def static(default: Any) -> Any:
    """A field of a game that changes shapes or the program: no leaf of the pytree."""
    return struct.field(pytree_node=False, default=default)
