"""Goals: a game in which something is to be brought to a place that is drawn in every episode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import random_bits
from games.core.arguments import check_game
from games.core.game import Actions, Game, Observations, Scalar, Step
from games.core.spaces import Box, Space, bounds
from games.toolbox.drawing import mark


class Goals(NamedTuple):
    """The goals of a game."""

    draw: Callable[[Any, jax.Array], jax.Array]  # (game, key) -> goal [size]
    place: Callable[[Any, Any], jax.Array]  # (game, state) -> what is to come to the goal [size]
    spot: Callable[[Any, np.ndarray], tuple[Any, Any]]  # (game, goal) -> (row, column) as shares of the picture


@struct.dataclass
class GoalState:
    """The bare game's state, and the goal."""

    bare: Any
    goal: jax.Array  # `[size]`


@struct.dataclass(eq=False)
class GoalConditioned(Game):
    """A game of one player with a goal: it is drawn at the reset, and seen at the end of every observation.

        o' = [o, goal],    reward = exp(-|place - goal|^2) after the step

    Transitions and the end of the game are the bare game's. There are goals in

    - CartPole-v1: the cart's position, uniform within the track (+-2.4);
    - Reacher: the arm's tip, uniform in the disc that it reaches; the game's own goal stays what it is, an end of the
      game and a part of the observation, and is another one;
    - Pendulum and Pendulum-v1: the rod's end on the unit circle, (cos, sin) of the angle as in the observation, at a
      uniform angle;

    and in what `register_goals` has registered.

    Infos: the bare game's, and `bare_reward`.

    Attributes:
      game: the bare game.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game without goals.

    Source: the test-time attack of Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030. In its public code a
    goal of the pendulum is seen as (cos, sin) but paid as (cos, cos), a flaw that is not repeated here; the places of
    Pendulum and Reacher are those before the step; and after a reset the same goals come again.
    """

    num_agents = 1

    game: Game

    def __post_init__(self) -> None:
        check_game(self.game)
        self._goals  # noqa: B018

    @property
    def _goals(self) -> Goals:
        if self.game.name not in GOALS:
            raise ValueError(f"game: got {self.game.name}, which has no goals; one of {', '.join(GOALS)} is needed")
        return GOALS[self.game.name]

    def reset(self, key: jax.Array) -> tuple[Observations, GoalState]:
        bare_key, goal_key = random_bits.split(key)
        observations, bare = self.game.reset(bare_key)
        state = GoalState(bare, self._goals.draw(self.game, goal_key))
        return self._with_goal(observations, state.goal), state

    def step_env(self, key: jax.Array, state: GoalState, actions: Actions) -> Step[GoalState]:
        observations, bare, rewards, dones, infos = self.game.step_env(key, state.bare, actions)
        infos = infos | {"bare_reward": jnp.asarray(rewards["agent_0"], jnp.float32)[None]}
        state = GoalState(bare, state.goal)
        reward = self.goal_reward(state)
        return self._with_goal(observations, state.goal), state, {"agent_0": reward}, dones, infos

    def goal_reward(self, state: GoalState) -> jax.Array:
        """exp(-d^2), `[]`, with the distance d from the goal."""
        return jnp.exp(-((self._goals.place(self.game, state.bare) - state.goal) ** 2).sum())

    def get_obs(self, state: GoalState) -> Observations:
        return self._with_goal(self.game.get_obs(state.bare), state.goal)

    def get_avail_actions(self, state: GoalState) -> dict[str, jax.Array]:
        return self.game.get_avail_actions(state.bare)

    def _with_goal(self, observations: Observations, goal: jax.Array) -> Observations:
        return {"agent_0": jnp.concatenate([observations["agent_0"].reshape(-1).astype(jnp.float32), goal])}

    def observation_space(self, agent: str) -> Box:
        bare = self.game.observation_space(agent)
        goal = jax.eval_shape(lambda: self._goals.draw(self.game, jax.random.key(0)))
        endless = np.full(math.prod(goal.shape), np.inf, np.float32)
        size = math.prod(bare.shape)
        if any(isinstance(x, jax.core.Tracer) for x in bounds(bare)):
            return Box(-np.inf, np.inf, (size + endless.size,))
        low, high = (np.broadcast_to(np.asarray(x, np.float32), bare.shape).ravel() for x in bounds(bare))
        return Box(np.concatenate([low, -endless]), np.concatenate([high, endless]), (size + endless.size,))

    def action_space(self, agent: str) -> Space:
        return self.game.action_space(agent)

    @property
    def time_limit(self) -> Scalar | None:
        return self.game.time_limit

    @property
    def name(self) -> str:
        return f"{self.game.name} with a goal"

    def render(self, state: Any) -> np.ndarray:
        return mark(self.game.render(state.bare), *self._goals.spot(self.game, np.asarray(state.goal)))


def register_goals(name: str, goals: Goals) -> None:
    """Gives goals to the games of a name, as in `game.name`."""
    GOALS[name] = goals


def has_goals(game: Game) -> bool:
    """True for a game that `GoalConditioned` takes."""
    return game.name in GOALS


def _draw_position(game: Any, key: jax.Array) -> jax.Array:
    return (2 * random_bits.uniform(random_bits.array(key, 1)) - 1) * game.params.x_threshold


def _draw_direction(game: Any, key: jax.Array) -> jax.Array:
    return _on_circle(2 * jnp.pi * random_bits.uniform(random_bits.array(key, 1))[0])


def _on_circle(angle: jax.Array) -> jax.Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _end_of_rod(game: Any, goal: np.ndarray) -> tuple[Any, Any]:
    return 0.5 - 0.4 * goal[0], 0.5 - 0.4 * goal[1]  # the first axis points up, the second to the left


def _tip_of_arm(game: Any, goal: np.ndarray) -> tuple[Any, Any]:
    scale = 0.5 / (game.num_joints + 0.3)
    return 0.5 - scale * goal[1], 0.5 + scale * goal[0]


# By the names of the games.
GOALS: dict[str, Goals] = {
    "CartPole-v1": Goals(
        _draw_position,
        lambda game, state: state.x[None],
        lambda game, goal: (0.825, 0.5 + 0.45 * goal[0] / float(game.params.x_threshold)),
    ),
    "Reacher": Goals(
        lambda game, key: game.draw_goal(random_bits.uniform(random_bits.array(key, 2))),
        lambda game, state: game.tip(state.angles),
        _tip_of_arm,
    ),
    "Pendulum": Goals(_draw_direction, lambda game, state: _on_circle(state.angle), _end_of_rod),
    "Pendulum-v1": Goals(_draw_direction, lambda game, state: _on_circle(state.theta), _end_of_rod),
}
