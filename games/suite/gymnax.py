"""Single-agent environments of gymnax as games of one."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import one_of, shown
from games.core import checks, random_bits
from games.core.game import Actions, Dones, Game, Observations, Scalar, Step, static
from games.core.modes import lenient, single
from games.core.spaces import Box, Discrete, Space
from games.suite.pendulum import draw_pendulum
from games.toolbox.drawing import INK, LINE, PLAYERS, WALL, Canvas, draw_arm

# gymnax is imported inside functions only: it costs seconds.

LARGEST_SIZE = 128  # of a board or a list in the constructor of an environment
_INFINITE = 1e37  # gymnax writes the largest float where it means no bound


@struct.dataclass(eq=False)
class Gymnax(Game):
    """An environment of gymnax as a game with the single player agent_0; `from_gymnax` makes one by its name.

    States, observations, actions and rewards are gymnax's own, in dtypes that do not change from the reset on, as a
    scan needs them. The game ends when the environment terminates, or when it is truncated at its time limit,
    `max_steps_in_episode`; `infos["truncated"]` says which, so that a learner can bootstrap. Where
    gymnax can differentiate transitions, so can the game that `from_gymnax` makes.

    `get_obs` is exact where the observation is a function of the state. It is not where gymnax adds noise to it
    (UmbrellaChain-bsuite with distractors), and MNISTBandit-bsuite, whose state forgets the image, has none. The
    bounds of spaces are those that gymnax declares; observations of MemoryChain-bsuite, MetaMaze-misc and
    GaussianBandit-misc leave them.

    Infos: `truncated`, and those of gymnax that are numbers (`discount`, 0 where the environment terminated).

    Attributes:
      environment: an instance of `gymnax.environments.environment.Environment`.
      params: its parameters; every number of them is a leaf of the game.

    Source: Lange, gymnax: A JAX-based Reinforcement Learning Environment Library (2022), version 1.
    """

    num_agents = 1

    environment: Any = static(None)
    params: Any = None

    @property
    def name(self) -> str:
        return str(self.environment.name)

    def reset(self, key: jax.Array) -> tuple[Observations, Any]:
        observation, state = jax.tree.map(_strong, self.environment.reset_env(random_bits.unrolled(key), self.params))
        return {"agent_0": observation}, state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        observation, new_state, reward, terminated, more = self.environment.step_env(
            random_bits.unrolled(key), state, actions["agent_0"], self.params
        )
        # Some environments change a leaf's dtype or shape after the reset, such as an integer's that becomes an action.
        state = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype).reshape(old.shape), new_state, state)
        truncated = self.environment.is_truncated(state, self.params)
        dones, infos = self._ending(jnp.asarray(terminated, bool).reshape(()), jnp.asarray(truncated, bool))
        numbers = {name: x for name, x in more.items() if jnp.ndim(x) == 0}
        infos |= {name: jnp.asarray(x, jnp.float32)[None] for name, x in numbers.items()}
        rewards = {"agent_0": jnp.asarray(reward, jnp.float32).reshape(())}
        return {"agent_0": jax.tree.map(_strong, observation)}, state, rewards, dones, infos

    def auto_reset(
        self, key: jax.Array, observations: Observations, state: Any, dones: Dones, reset_state: Any | None = None
    ) -> tuple[Observations, Any]:
        # Chooses between observations that were made, because not every state of gymnax determines its observation.
        new = self.reset(key) if reset_state is None else (self.get_obs(reset_state), reset_state)
        return jax.tree.map(lambda x, y: jnp.where(dones["__all__"], x, y), new, (observations, state))

    def get_obs(self, state: Any) -> Observations:
        try:
            observation = self.environment.observe(jax.random.key(0), state, None, self.params)
        except NotImplementedError:
            raise NotImplementedError(f"{self.name}: a state of it does not say what was observed") from None
        return {"agent_0": jax.tree.map(_strong, observation)}

    def observation_space(self, agent: str) -> Space:
        with lenient():  # as it is played
            observation, _ = jax.eval_shape(self.environment.reset_env, jax.random.key(0), self.params)
        return _space(self.environment.observation_space, self.params, self.name, getattr(observation, "dtype", None))

    def action_space(self, agent: str) -> Space:
        return _space(self.environment.action_space, self.params, self.name)

    @property
    def time_limit(self) -> Scalar:
        return self.params.max_steps_in_episode

    def render(self, state: Any) -> np.ndarray:
        if self.name in _DRAWINGS:
            return _DRAWINGS[self.name](state, self.params)
        shape = self.observation_space("agent_0").shape
        if len(shape) not in (2, 3) or min(shape[:2]) < 2:
            raise NotImplementedError(
                f"{self.name}: there is no picture of it; there are of {', '.join(_DRAWINGS)}, and of environments "
                "whose observations are grids"
            )
        return _draw_grid(np.asarray(self.get_obs(state)["agent_0"]).reshape(*shape[:2], -1))


def from_gymnax(environment: Any, **params: Any) -> Gymnax:
    """A game from an environment of gymnax.

    Args:
      environment: a name such as `CartPole-v1`, one of `gymnax.registered_envs`; or an instance.
      **params: fields of the environment's parameters, such as `max_steps_in_episode`, and where a name is given,
        arguments of its constructor, such as the `size` of DeepSea-bsuite.

    Raises:
      ValueError: for a name or a parameter that gymnax does not have, or a value that is no number.
      RuntimeError: if the environment needs data that cannot be downloaded.
    """
    made = environment
    if isinstance(environment, str):
        made = _named(environment)
        fields = made.default_params.__dataclass_fields__
        arguments = {name: params.pop(name) for name in list(params) if name not in fields}
        allowed = inspect.signature(type(made)).parameters
        _known(environment, arguments, [*fields, *allowed])
        for name, value in arguments.items():
            if isinstance(value, int) and value > LARGEST_SIZE and "seed" not in name:
                raise ValueError(f"{environment}: {name}: got {shown(value)}; {LARGEST_SIZE} at most is needed")
        if arguments:
            made = _named(environment, **arguments)
            try:
                with lenient():
                    jax.eval_shape(made.reset, jax.random.key(0), made.default_params)
            except Exception as error:  # which one depends on the environment
                raise ValueError(f"{environment}: cannot be played with {arguments} ({error})") from error
    defaults = made.default_params
    _known(made.name, params, [*defaults.__dataclass_fields__])
    params = {name: np.asarray(x) if isinstance(x, list | tuple) else x for name, x in params.items()}
    for name, value in params.items():
        default = getattr(defaults, name)
        wrong_shape = isinstance(value, np.ndarray) and np.shape(value) != np.shape(default)
        if value is None or isinstance(value, dict | set | complex) or wrong_shape:
            got = shown(value.tolist() if wrong_shape else value)
            raise ValueError(f"{made.name}: {name}: got {got}; a value such as {default} is needed")
        if isinstance(default, bool):
            checks.choice(name, value, (True, False))
        elif name == "max_steps_in_episode":
            checks.whole(name, value, 1)
        else:
            checks.number(name, value)
    return Gymnax(made, defaults.replace(**params))


def _known(environment: str, got: dict[str, Any], allowed: list[str]) -> None:
    for name in got:
        if name not in allowed:
            raise ValueError(f"{environment}: unknown parameter {name}; {one_of(name, allowed)}")


def _named(name: str, **arguments: Any) -> Any:
    """An instance by its name; errors as of `from_gymnax`."""
    import gymnax

    if name not in gymnax.registered_envs:
        raise ValueError(f"environment: got {name!r}; {one_of(name, gymnax.registered_envs)}")
    try:
        with lenient():
            try:
                return cached_instance(name, tuple(sorted(arguments.items())))
            except TypeError:  # of an argument without a hash, such as a list
                return cached_instance.__wrapped__(name, tuple(arguments.items()))
    except OSError as error:
        raise RuntimeError(f"{name}: gymnax downloads its data on first use, and could not ({error})") from error
    except (TypeError, ValueError, AssertionError) as error:
        raise ValueError(f"{name}: cannot be made with {arguments} ({error})") from error


@functools.cache
def cached_instance(name: str, arguments: tuple[tuple[str, Any], ...]) -> Any:
    """One instance for equal arguments, because JAX compiles again for every other instance."""
    import gymnax

    with jax.ensure_compile_time_eval():  # arrays of the instance outlive any trace in which it is made
        made, _ = gymnax.make(name, **dict(arguments))
    return made.with_transition_gradients() if made.supports_transition_gradients else made


def _strong(x: Any) -> jax.Array:
    return jnp.asarray(x, jnp.result_type(x))


def _space(space_of: Callable[[Any], Any], params: Any, name: str, dtype: Any = None) -> Space:
    with jax.ensure_compile_time_eval():
        space = space_of(params)
        kind = type(space).__name__
        if kind == "Discrete":
            return Discrete(space.n)
        if kind != "Box":
            raise NotImplementedError(f"{name}: has a space of the kind {kind}; Discrete and Box are supported")
        low, high = (
            jnp.where(jnp.abs(bound) >= _INFINITE, jnp.copysign(jnp.inf, bound), bound)
            for bound in (jnp.asarray(space.low, float), jnp.asarray(space.high, float))
        )
    # Whatever has three axes there is [height, width, channels].
    entry = single(jnp.zeros((), dtype or space.dtype))
    return Box(low, high, tuple(space.shape), entry.dtype, image=len(space.shape) == 3)


def _draw_grid(grid: np.ndarray) -> np.ndarray:
    """Cells `[height, width, channels]`, each in the colour of the last of its channels that is not 0."""
    height, width, _ = grid.shape
    longest = max(height, width)
    canvas = Canvas(height, width, cell=max(4, 320 // longest), grid=longest <= 16)
    colors = [PLAYERS[1], *(color for color in PLAYERS if color != PLAYERS[1]), INK, "#8B4513"]
    for row, column, channel in zip(*np.nonzero(grid), strict=True):
        canvas.square(row, column, colors[channel % len(colors)], 0.95)
    return canvas.image()


def _draw_cart_pole(state: Any, params: Any) -> np.ndarray:
    canvas = Canvas(4, 8, cell=50, grid=False)
    scale = 3.6 / float(params.x_threshold)  # the track ends where the game does
    column, row = 3.5 + float(state.x) * scale, 2.5
    canvas.line((3.3, 0.4), (3.3, 7.6), LINE, 0.06)
    canvas.square(row + 0.1, column, INK, 1.2, height=0.6)
    draw_arm(canvas, (row + 0.3, column + 0.5), [np.pi / 2 - float(state.theta)], 4 * float(params.length))
    return canvas.image()


def _draw_pendulum(state: Any, params: Any) -> np.ndarray:
    return draw_pendulum(state.theta)


def _draw_acrobot(state: Any, params: Any) -> np.ndarray:
    canvas = Canvas(6, 6, cell=50, grid=False)
    first, second = float(params.link_length_1), float(params.link_length_2)
    scale = 2.5 / (first + second)
    canvas.line((3 - scale * first, 0.3), (3 - scale * first, 5.7), LINE, 0.06)  # above it the game ends
    angles = np.cumsum([float(state.joint_angle1), float(state.joint_angle2)]) - np.pi / 2
    draw_arm(canvas, (3.0, 3.0), angles, [scale * first, scale * second])
    return canvas.image()


def _draw_mountain_car(state: Any, params: Any) -> np.ndarray:
    canvas = Canvas(4, 8, cell=50, grid=False)
    left, right = float(params.min_position), float(params.max_position)

    def place(x: float) -> tuple[float, float]:
        return 2.4 - 1.2 * np.sin(3 * x), 0.4 + 7.2 * (x - left) / (right - left)

    track = [place(x) for x in np.linspace(left, right, 60)]
    for start, end in itertools.pairwise(track):
        canvas.line(start, end, WALL, 0.06)
    row, column = place(float(params.goal_position))
    canvas.line((row, column), (row - 0.8, column), "#009E73", 0.1)
    row, column = place(float(state.position))
    canvas.disc(row - 0.7, column - 0.5, PLAYERS[0], 0.4, outline=True)
    return canvas.image()


_DRAWINGS: dict[str, Callable[[Any, Any], np.ndarray]] = {
    "CartPole-v1": _draw_cart_pole,
    "Pendulum-v1": _draw_pendulum,
    "Acrobot-v1": _draw_acrobot,
    "MountainCar-v0": _draw_mountain_car,
    "MountainCarContinuous-v0": _draw_mountain_car,
}
