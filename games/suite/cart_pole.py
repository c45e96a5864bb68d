"""A pole on a cart, pushed by a force: to be balanced, or swung up first."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks, random_bits
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.spaces import Box
from games.toolbox.drawing import INK, LINE, Canvas, draw_arm

Start = Literal["upright", "hanging"]


@struct.dataclass
class CartPoleState:
    """Cart, pole and clock."""

    place: jax.Array  # `[]`, of the cart from the middle, metres
    speed: jax.Array  # `[]`, metres per second
    angle: jax.Array  # `[]`, of the pole from upright, to the right, radians; it is not wrapped
    turning: jax.Array  # `[]`, radians per second
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class CartPole(Game):
    """A game of one: a force F pushes a cart along a track, with a pole on it that turns about its lower end.

    With M the mass of both, m that of the pole, l half its length and a the pole's angle,

        a'' = (g sin a - cos a (F + m l a'^2 sin a) / M - d a' / (m l)) / (l (4 / 3 - m cos^2 a / M)),
        x'' = (F + m l (a'^2 sin a - a'' cos a)) / M,

    d being the damping of the joint, in steps of semi-implicit Euler: velocities first. At an end of the track the cart
    stops.

    From "upright" the pole is to be balanced: the reward is 1 a step, and the game ends when the pole leans by more
    than `most_angle` or, with `ends_at_track`, the cart is at an end. From "hanging" it is to be swung up: the reward
    is (1 + cos a) / 2 (1 - (x / track)^2), 1 upright in the middle, and the game ends by its time limit only.

    Actions: the force as a part of `max_force`, `[1]` in [-1, 1]. The observation, `[5]`, is place, speed, cosine and
    sine of the angle, and how fast it turns. At the reset all four are uniform within 0.05 of rest.

    Attributes:
      start: upright or hanging.
      gravity: g, metres per second squared.
      mass_cart: kilograms.
      mass_pole: m, kilograms.
      half_length: l, metres.
      damping: d, of the pole's joint, newton metre seconds.
      max_force: newtons.
      dt: time of a step, seconds.
      track: how far the cart can go from the middle, metres.
      ends_at_track: whether the game from upright ends at an end of the track.
      most_angle: radians.
      episode_length: steps until the time limit.

    Source: Barto, Sutton and Anderson, Neuronlike adaptive elements that can solve difficult learning control problems
    (1983), with no friction but the damping of the joint; the equations as corrected by Florian, Correct equations for
    the dynamics of the cart-pole system (2007).
    """

    num_agents = 1

    start: Start = static("upright")
    gravity: Scalar = 9.8
    mass_cart: Scalar = 1.0
    mass_pole: Scalar = 0.1
    half_length: Scalar = 0.5
    damping: Scalar = 0.0
    max_force: Scalar = 10.0
    dt: Scalar = 0.02
    track: Scalar = 2.4
    ends_at_track: bool = static(True)
    most_angle: Scalar = 0.2
    episode_length: Scalar = 500

    def __post_init__(self) -> None:
        checks.choice("start", self.start, ("upright", "hanging"))
        checks.number("gravity", self.gravity)
        for name in ("mass_cart", "mass_pole", "half_length", "dt"):
            checks.number(name, getattr(self, name), 0, brackets="(]")
        for name in ("damping", "max_force"):
            checks.number(name, getattr(self, name), 0)
        for name in ("track", "most_angle"):
            checks.number(name, getattr(self, name), 0.1)
        checks.choice("ends_at_track", self.ends_at_track, (True, False))
        checks.whole("episode_length", self.episode_length, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, CartPoleState]:
        near = 0.05 * (2 * random_bits.uniform(random_bits.array(key, 4)) - 1)
        first = 0.0 if self.start == "upright" else jnp.pi
        state = CartPoleState(near[0], near[1], first + near[2], near[3], jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: CartPoleState, actions: Actions) -> Step[CartPoleState]:
        share = jnp.clip(jnp.asarray(actions["agent_0"], jnp.float32).reshape(()), -1, 1)
        sine, cosine = jnp.sin(state.angle), jnp.cos(state.angle)
        mass, arm = self.mass_cart + self.mass_pole, self.mass_pole * self.half_length
        push = (self.max_force * share + arm * state.turning**2 * sine) / mass
        inertia = self.half_length * (4 / 3 - self.mass_pole * cosine**2 / mass)
        angular = (self.gravity * sine - cosine * push - self.damping * state.turning / arm) / inertia
        turning = state.turning + self.dt * angular
        speed = state.speed + self.dt * (push - arm * angular * cosine / mass)
        place = state.place + self.dt * speed
        stopped = jnp.abs(place) >= self.track
        place, speed = jnp.clip(place, -self.track, self.track), jnp.where(stopped, 0.0, speed)
        state = CartPoleState(place, speed, state.angle + self.dt * turning, turning, state.time + 1)
        if self.start == "upright":
            fallen = (stopped & self.ends_at_track) | (jnp.abs(state.angle) > self.most_angle)
            reward = jnp.ones(())
        else:
            fallen = jnp.zeros((), bool)
            reward = (1 + jnp.cos(state.angle)) / 2 * (1 - (state.place / self.track) ** 2)
        dones, infos = self._ending(fallen, state.time >= self.episode_length)
        return self.get_obs(state), state, {"agent_0": reward}, dones, infos

    def get_obs(self, state: CartPoleState) -> Observations:
        turned = jnp.cos(state.angle), jnp.sin(state.angle)
        return {"agent_0": jnp.stack([state.place, state.speed, *turned, state.turning])}

    def state_of(self, obs: jax.Array) -> CartPoleState:
        """The state with this observation `[5]`; the angle is in [-pi, pi] and the clock at 0."""
        place, speed, cosine, sine, turning = obs
        return CartPoleState(place, speed, jnp.arctan2(sine, cosine), turning, jnp.zeros((), jnp.int32))

    def observation_space(self, agent: str) -> Box:
        with jax.ensure_compile_time_eval():
            high = jnp.array([self.track, jnp.inf, 1.0, 1.0, jnp.inf])
            low = -high
        return Box(low, high, (5,))

    def action_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (1,))

    def render(self, state: Any) -> np.ndarray:
        return draw_cart_pole(state.place / self.track, state.angle, self.half_length)


def draw_cart_pole(place: Any, angle: Any, half_length: Any) -> np.ndarray:
    """A picture of a cart, its place a part of the track from the middle on, and of a pole, its angle to the right."""
    canvas = Canvas(6, 8, cell=50, grid=False)
    column, row = 3.5 + 3.6 * float(place), 3.0
    canvas.line((3.8, 0.4), (3.8, 7.6), LINE, 0.06)
    canvas.square(row + 0.1, column, INK, 1.2, height=0.6)
    draw_arm(canvas, (row + 0.3, column + 0.5), [np.pi / 2 - float(angle)], 4 * float(half_length))
    return canvas.image()
