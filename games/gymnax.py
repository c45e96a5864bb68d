"""One seat of a game as an environment of gymnax, against opponents that do not learn.

The library is imported as `gymnax`; this module is `games.gymnax`. Its import makes all our games known to
`gymnax.make`, as `marl-shaping/ipd-v0`: a caller that makes environments by name, such as evosax's `GymnaxProblem`,
passes `opponents` and the rest as arguments of the environment.

`step` returns gymnax's six values, with termination and truncation apart. Code that was written for the five of gymnax
before 1.0, as PureJaxRL's `ppo.py`, gets them from `gymnax.wrappers.LegacyStepAPIWrapper(env(...))`; if it makes its
environment itself, then by a name under which `gymnax.register(name, factory)` has put that. Gymnax's own wrappers
unpack six values, so that this one goes around them, and not into them; PureJaxRL's `dqn.py` has such.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import environment, spaces

from games import host_stepping, registry
from games.core import checks
from games.core.game import Game
from games.core.modes import in_any_mode
from games.core.spaces import Box, Discrete, Space, shaped
from games.single_agent import Opponent, Seat


@struct.dataclass
class SeatParams(environment.EnvParams):
    """Parameters that may differ between calls, or be batched: `params.replace(game=params.game.replace(...))`.

    An episode ends at the earlier of both limits: for longer ones than at first `max_steps_in_episode` has to rise too.
    """

    max_steps_in_episode: int = 100
    game: Any = None  # of the same class and static fields as the environment's


@struct.dataclass
class SeatState(environment.EnvState):
    """An episode at one time."""

    carried: Any  # as of `Seat`: all observations, the state of the game, the states of the opponents
    truncated: jax.Array  # `[]`, whether the game's own time limit is reached


def env(
    game: str | Game,
    *,
    seat: int = 0,
    opponents: Opponent | Sequence[Opponent] | None = None,
    max_steps_in_episode: int | None = None,
    **params: Any,
) -> SeatEnvironment:
    """A game of one agent, or one seat of a game, as a gymnax `Environment`: `env("ipd", opponents=...)`.

    Args:
      game: its name, or the game itself.
      seat: the number of the agent that the caller plays.
      opponents: players of the other seats, one for all or one for each in their order. None, the default: uniformly
        random actions, of those that are possible. A name: a memory-one strategy of a repeated game of two players and
        actions, such as "tft", "zd(chi=2)" or "0.9,1,0,1,0" (`games.exact.strategies`). Otherwise in JAX: a function
        `(key, observation) -> action`, an object with `init(key) -> state` and
        `act(key, state, observation) -> (action, state, anything)`, or a learner of `marl`, which does not learn here;
        all begin again in every episode.
      max_steps_in_episode: when an episode is truncated at the latest; None: at the game's own time limit.
      **params: the game's parameters.

    Raises:
      ValueError: for an unknown name or seat, a parameter that does not fit, or a game without a time limit if none is
        given here.
    """
    made = host_stepping.as_game(game, params)
    if max_steps_in_episode is not None:
        checks.size("max_steps_in_episode", max_steps_in_episode, 1)
    limit = made.time_limit if max_steps_in_episode is None else max_steps_in_episode
    if limit is None:
        raise ValueError(
            f"max_steps_in_episode: got None; {made.name} has no time limit of its own, and a whole number is needed"
        )
    return SeatEnvironment(Seat.of(made, seat, opponents), int(limit))


class SeatEnvironment(environment.Environment[SeatState, SeatParams]):
    """One seat of one game; `reset(key, params)` and `step(key, state, action, params)` are gymnax's own."""

    def __init__(self, seat: Seat, max_steps_in_episode: int):
        self._seat, self._limit = seat, max_steps_in_episode

    @property
    def default_params(self) -> SeatParams:
        return SeatParams(self._limit, self._seat.game)

    def _seat_in(self, params: SeatParams) -> Seat:
        return Seat(params.game, self._seat.agent, self._seat.opponents)

    @in_any_mode
    def reset_env(self, key: jax.Array, params: SeatParams) -> tuple[jax.Array, SeatState]:
        observation, carried = self._seat_in(params).reset(key)
        return observation, SeatState(jnp.int32(0), carried, jnp.zeros((), bool))

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: jax.Array, state: SeatState, action: Any, params: SeatParams | None = None
    ) -> tuple[jax.Array, SeatState, jax.Array, jax.Array, jax.Array, dict[str, Any]]:
        """As gymnax's own, with the game's `auto_reset`: a message's memory goes on across episodes."""
        params = params or self.default_params
        step_key, reset_key = jax.random.split(key)
        last, state, reward, terminated, infos = self.step_env(step_key, state, action, params)
        truncated = self.is_truncated(state, params)
        done = terminated | truncated
        observation, carried = self._seat_in(params).auto_reset(reset_key, state.carried, done)
        state = SeatState(jnp.where(done, 0, state.time), carried, state.truncated & ~done)
        infos = infos | {"terminated": terminated, "truncated": truncated, "final_observation": last}
        return observation, state, reward, terminated, truncated, infos

    @in_any_mode
    def step_env(
        self, key: jax.Array, state: SeatState, action: Any, params: SeatParams
    ) -> tuple[jax.Array, SeatState, jax.Array, jax.Array, dict[str, jax.Array]]:
        """Without auto-reset: (observation, state, reward, terminated, what the game counts and `discount`)."""
        space = self._seat.game.action_space(self._seat.agent)
        action = jnp.asarray(shaped("action", action, space), space.dtype)
        observation, carried, (reward, terminated, truncated, infos) = self._seat_in(params).step(
            key, state.carried, action
        )
        infos = infos | {"discount": 1.0 - terminated}
        return observation, SeatState(state.time + 1, carried, truncated), reward, terminated, infos

    def is_truncated(self, state: SeatState, params: SeatParams) -> jax.Array:
        return state.truncated | (state.time >= params.max_steps_in_episode)

    @property
    def name(self) -> str:
        return self._seat.game.name

    @property
    def num_actions(self) -> int:
        """The number of actions; the number of entries for actions with several."""
        space = self._seat.game.action_space(self._seat.agent)
        return space.n if isinstance(space, Discrete) else int(np.prod(space.shape))

    def action_space(self, params: SeatParams | None = None) -> Any:
        """Gymnax's `Discrete` or `Box`; of several choices at once our own `MultiDiscrete`, for gymnax has none."""
        return _theirs((params or self.default_params).game.action_space(self._seat.agent))

    def observation_space(self, params: SeatParams | None = None) -> Any:
        return _theirs((params or self.default_params).game.observation_space(self._seat.agent))


def _theirs(space: Space) -> Any:
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    return spaces.Box(space.low, space.high, space.shape, space.dtype) if isinstance(space, Box) else space


for _id, _name in registry.ids().items():
    gymnax.register(_id, partial(env, _name))
