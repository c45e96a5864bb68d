"""Reacher: a planar arm that is to touch a goal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks, random_bits
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.spaces import Box
from games.toolbox.drawing import Canvas, draw_arm


@struct.dataclass
class ReacherState:
    """The arm, the goal and the clock."""

    angles: jax.Array  # `[num_joints]`, of each link against the first axis of the plane, radians
    velocities: jax.Array  # `[num_joints]`, radians per unit of time
    goal: jax.Array  # `[2]`, (x, y)
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Reacher(Game):
    """A game of one: torques turn an arm of links of length 1 in the plane until its tip is at the goal.

    With the torques u, a step of explicit Euler is

        angles <- angles + dt velocities,    velocities <- damping velocities + dt torque_scale u.

    The reward is exp(-d^2), with the distance d of the tip from the goal after the step, and the game ends when
    d < goal_radius. With this reward an agent that touches the goal forgoes all that it would have earned by staying
    close by; `reward="quadratic"`, -d^2 - |u|^2 as in the public code, makes it hurry. All is differentiable.

    gymnax's Reacher-misc is another task: dt 0.05, 100 steps, no damping, velocities first and at random, a goal drawn
    from a square of which the arm cannot reach every part, and no end but the time limit.

    Actions: torques, `[num_joints]`, in [-1, 1]; beyond it they are clipped, or with `squash` their tanh is taken. The
    observation, `[3 num_joints + 4]`, is
    the cosines of the angles, their sines, the velocities, the goal, and the goal from the tip.

    At the reset the angles are uniform, the arm is at rest, and the goal is uniform in the disc that the arm can reach.

    Infos: `distance` from the goal after the step; `reached`, whether the game ended there.

    Attributes:
      num_joints: links of the arm.
      reward: `exponential` or `quadratic`.
      dt: time of a step.
      torque_scale: the acceleration by a torque of 1.
      damping: the share of the velocity that is kept in a step.
      goal_radius: how near is near enough.
      episode_length: steps until the time limit.
      squash: whether torques are squashed and not clipped; the space of actions keeps its bounds, within which torques
        of 0.76 are reached.

    Source: Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, and its public code, which has `squash` and the
    quadratic reward, and starts the first episode at a random time.
    """

    num_agents = 1

    num_joints: int = static(2)
    reward: str = static("exponential")
    dt: Scalar = 0.1
    torque_scale: Scalar = 1.0
    damping: Scalar = 0.9
    goal_radius: Scalar = 0.3
    episode_length: Scalar = 200
    squash: bool = static(False)

    def __post_init__(self) -> None:
        checks.size("num_joints", self.num_joints, 1, 128)
        checks.choice("reward", self.reward, ("exponential", "quadratic"))
        checks.number("dt", self.dt, 0, brackets="(]")
        checks.number("torque_scale", self.torque_scale)
        checks.number("damping", self.damping, 0, 1)
        checks.number("goal_radius", self.goal_radius, 0)
        checks.whole("episode_length", self.episode_length, 1)
        checks.choice("squash", self.squash, (False, True))

    def reset(self, key: jax.Array) -> tuple[Observations, ReacherState]:
        uniform = random_bits.uniform(random_bits.array(key, self.num_joints + 2))
        angles = (2 * uniform[2:] - 1) * jnp.pi
        state = ReacherState(angles, jnp.zeros(self.num_joints), self.draw_goal(uniform[:2]), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: ReacherState, actions: Actions) -> Step[ReacherState]:
        torques = jnp.asarray(actions["agent_0"], jnp.float32)
        torques = jnp.tanh(torques) if self.squash else jnp.clip(torques, -1.0, 1.0)
        angles = state.angles + self.dt * state.velocities
        velocities = self.damping * state.velocities + self.dt * self.torque_scale * torques
        state = ReacherState(angles, velocities, state.goal, state.time + 1)
        squared = ((state.goal - self.tip(angles)) ** 2).sum()
        reached = squared < self.goal_radius**2
        dones, infos = self._ending(reached, state.time >= self.episode_length)
        infos |= {"distance": jnp.sqrt(squared)[None], "reached": reached.astype(jnp.float32)[None]}
        reward = jnp.exp(-squared) if self.reward == "exponential" else -squared - (torques**2).sum()
        return self.get_obs(state), state, {"agent_0": reward}, dones, infos

    def draw_goal(self, uniform: jax.Array) -> jax.Array:
        """A goal `[2]` that is uniform in the disc, from two uniform numbers in [0, 1), `[2]`."""
        direction = 2 * jnp.pi * uniform[0]
        return self.num_joints * jnp.sqrt(uniform[1]) * jnp.stack([jnp.cos(direction), jnp.sin(direction)])

    def tip(self, angles: jax.Array) -> jax.Array:
        """The arm's tip, (x, y)."""
        return jnp.stack([jnp.cos(angles).sum(), jnp.sin(angles).sum()])

    def get_obs(self, state: ReacherState) -> Observations:
        angles, goal = state.angles, state.goal
        parts = [jnp.cos(angles), jnp.sin(angles), state.velocities, goal, goal - self.tip(angles)]
        return {"agent_0": jnp.concatenate(parts)}

    def observation_space(self, agent: str) -> Box:
        high = np.repeat(
            [1.0, np.inf, self.num_joints, 2 * self.num_joints], [2 * self.num_joints, self.num_joints, 2, 2]
        )
        return Box(-high.astype(np.float32), high.astype(np.float32), (3 * self.num_joints + 4,))

    def action_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (self.num_joints,))

    def render(self, state: Any) -> np.ndarray:
        reach = self.num_joints + 0.3
        canvas = Canvas(6, 6, cell=40, grid=False)
        scale = 3 / reach
        canvas.disc(2.5, 2.5, "#F4F4F4", 2 * self.num_joints * scale)
        x, y = np.asarray(state.goal) * scale
        canvas.disc(2.5 - y, 2.5 + x, "#009E73", 2 * max(float(self.goal_radius), 0.05) * scale)
        draw_arm(canvas, (3.0, 3.0), np.asarray(state.angles), scale)
        return canvas.image()
