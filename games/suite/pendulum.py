"""Pendulum: a rod that is to be swung up and held there."""

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
class PendulumState:
    """The rod and the clock."""

    angle: jax.Array  # `[]`, from upright, radians; it is not wrapped
    velocity: jax.Array  # `[]`, radians per second
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Pendulum(Game):
    """A game of one: a torque u turns a rod about its end, under gravity g, until it stands upright.

    A step is, with the mass m and the length l,

        velocity <- velocity + dt (3 g / (2 l) sin(angle) + 3 u / (m l^2)),    angle <- angle + dt velocity,

    with the new velocity in the second, or with `explicit` the old one, by which the rod gains energy.

    The reward is (cos(angle) + 1) / 2 after the step: 1 upright, 0 hanging. The rod is too heavy to be lifted at once,
    so it has to be swung. The game ends by its time limit only. All is differentiable.

    gymnax's Pendulum-v1 moves in the same way, with torques up to 2, and pays minus the square of the angle, of the
    velocity and of the torque.

    Actions: the torque, `[1]`; beyond `max_torque` it is clipped, or with `squash` it is `max_torque` times the tanh of
    the action. The observation, `[3]`, is the cosine of the angle, its sine, and the velocity.

    At the reset the angle is uniform, and the velocity is uniform in [-1, 1].

    Attributes:
      gravity: g, metres per second squared.
      mass: m, kilograms.
      length: l, metres.
      dt: time of a step, seconds.
      max_torque: newton metres.
      max_speed: bound of the velocity, radians per second; at least 1, for so fast a game may begin.
      episode_length: steps until the time limit.
      explicit: whether steps are those of explicit Euler.
      squash: whether torques are squashed and not clipped; the space of actions keeps its bounds, within which 0.76 of
        `max_torque` are reached where it is 1.

    Source: Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, with the mechanics of Gym's Pendulum-v1
    (Brockman et al., 2016). The paper's public code has g = 9.8, no bound of the velocity, `explicit` and `squash`; it
    starts the first episode at a random time.
    """

    num_agents = 1

    gravity: Scalar = 10.0
    mass: Scalar = 1.0
    length: Scalar = 1.0
    dt: Scalar = 0.05
    max_torque: Scalar = 1.0
    max_speed: Scalar = 8.0
    episode_length: Scalar = 200
    explicit: bool = static(False)
    squash: bool = static(False)

    def __post_init__(self) -> None:
        checks.number("gravity", self.gravity)
        for name in ("mass", "length", "dt"):
            checks.number(name, getattr(self, name), 0, brackets="(]")
        checks.number("max_torque", self.max_torque, 0)
        checks.number("max_speed", self.max_speed, 1)
        checks.whole("episode_length", self.episode_length, 1)
        checks.choice("explicit", self.explicit, (False, True))
        checks.choice("squash", self.squash, (False, True))

    def reset(self, key: jax.Array) -> tuple[Observations, PendulumState]:
        uniform = 2 * random_bits.uniform(random_bits.array(key, 2)) - 1
        state = PendulumState(jnp.pi * uniform[0], uniform[1], jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: PendulumState, actions: Actions) -> Step[PendulumState]:
        torque = jnp.asarray(actions["agent_0"], jnp.float32).reshape(())
        limit = self.max_torque
        torque = limit * jnp.tanh(torque) if self.squash else jnp.clip(torque, -limit, limit)
        gravity = 3 * self.gravity / (2 * self.length) * jnp.sin(state.angle)
        velocity = state.velocity + self.dt * (gravity + 3 * torque / (self.mass * self.length**2))
        velocity = jnp.clip(velocity, -self.max_speed, self.max_speed)
        angle = state.angle + self.dt * (state.velocity if self.explicit else velocity)
        state = PendulumState(angle, velocity, state.time + 1)
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        return self.get_obs(state), state, {"agent_0": (jnp.cos(state.angle) + 1) / 2}, dones, infos

    def get_obs(self, state: PendulumState) -> Observations:
        return {"agent_0": jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity])}

    def observation_space(self, agent: str) -> Box:
        with jax.ensure_compile_time_eval():
            high = jnp.array([1.0, 1.0, self.max_speed])
            low = -high
        return Box(low, high, (3,))

    def action_space(self, agent: str) -> Box:
        return Box(-self.max_torque, self.max_torque, (1,))

    def render(self, state: Any) -> np.ndarray:
        return draw_pendulum(state.angle)


def draw_pendulum(angle: Any) -> np.ndarray:
    """A picture of a rod at an angle from upright, counterclockwise, radians."""
    canvas = Canvas(5, 5, cell=50, grid=False)
    draw_arm(canvas, (2.5, 2.5), [np.pi / 2 + float(angle)], 2.0)
    return canvas.image()
