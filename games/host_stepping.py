"""Games played from the host: what the faces for PettingZoo and gymnasium share.

Everything is compiled once for all games of one class and shape: a game is an argument, as are its states.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import one_of, shown
from games.core import checks
from games.core.arguments import check_game
from games.core.game import Actions, Game, Infos, Observations, State
from games.core.modes import in_any_mode
from games.core.spaces import Box, Space, bounds, described, is_real, shaped

_forked = False  # whether this process was forked from one in which JAX had begun


def _note_fork() -> None:
    global _forked
    _forked = _has_begun()


def _has_begun() -> bool:
    """True if a backend of JAX is initialised; False where this version of JAX does not say."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def check_process() -> None:
    """Raises RuntimeError in a process that was forked from one in which JAX had begun: its threads are not here."""
    if _forked:
        raise RuntimeError(
            "this process was forked after JAX had begun in its parent, and would hang or abort; processes of the "
            "method spawn are needed: AsyncVectorEnv(..., context='spawn'), SubprocVecEnv(..., start_method='spawn')"
        )


FRAMES_PER_SECOND = 4
RENDER_MODES = ("human", "rgb_array")
BATCH_RENDER_MODES = ("rgb_array",)  # of many games at once

# Rewards, terminations, truncations and infos, each a dict keyed by agent, as PettingZoo has them.
StepResult = tuple[dict[str, jax.Array], dict[str, jax.Array], dict[str, jax.Array], dict[str, Infos]]


def as_game(game: str | Game, params: dict[str, Any]) -> Game:
    """A game from its name and parameters, or a game with some of its parameters replaced.

    Raises:
      ValueError: if there is no game of that name, or a parameter does not fit.
    """
    if isinstance(game, str):
        from games.registry import make  # here, because it imports every game

        return make(game, **params)
    from games.suite.gymnax import Gymnax, from_gymnax  # as late

    check_game(game)
    if not params:
        return game
    if isinstance(game, Gymnax) and not params.keys() <= {"environment", "params"}:
        now = {field.name: getattr(game.params, field.name) for field in dataclasses.fields(game.params)}
        return from_gymnax(game.environment, **now | params)
    if not dataclasses.is_dataclass(game):
        raise ValueError(f"{game.name}: got {min(params)}; a game by its name, or a dataclass, takes parameters")
    fields = [field.name for field in dataclasses.fields(game) if field.init]  # type: ignore[arg-type]
    for param in params:
        if param not in fields:
            raise ValueError(f"{game.name}: unknown parameter {param}; {one_of(param, fields)}")
    return dataclasses.replace(game, **params)  # type: ignore[type-var]


def check_render_mode(mode: str | None, modes: tuple[str, ...] = RENDER_MODES) -> None:
    """Raises ValueError unless the mode is None or one of those that there are."""
    checks.choice("render_mode", mode, (None, *modes))


class Window:
    """Shows pictures one after the other, as fast as they are to be looked at. It opens with the first of them."""

    def __init__(self, title: str):
        self._title = title
        self._image: Any = None

    def rendered(self, picture: np.ndarray, mode: str) -> np.ndarray | None:
        """The result of `render`: the picture in mode rgb_array; None in mode human, which shows it."""
        if mode == "rgb_array":
            return picture
        self.show(picture)
        return None

    def show(self, picture: np.ndarray) -> None:
        """Shows a picture, RGB, and waits until the next is due; where there is no screen, it warns once."""
        from matplotlib import pyplot  # here, because only rendering needs it

        if self._image is None:
            figure = pyplot.figure(figsize=(picture.shape[1] / 100, picture.shape[0] / 100), dpi=100)
            if figure.canvas.manager:
                figure.canvas.manager.set_window_title(self._title)
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            self._image = axes.imshow(picture)
            if not figure.canvas.required_interactive_framework:
                words = "render_mode: human shows nothing, for matplotlib finds no screen; rgb_array returns pictures"
                warnings.warn(words, stacklevel=2)
        self._image.set_data(picture)
        canvas = self._image.figure.canvas
        if canvas.required_interactive_framework:
            canvas.draw_idle()
            canvas.start_event_loop(1 / FRAMES_PER_SECOND)

    def close(self) -> None:
        """Closes the window, if there is one."""
        if self._image is not None:
            from matplotlib import pyplot

            pyplot.close(self._image.figure)
            self._image = None


def check_action(field: str, action: Any, space: Space, batch: tuple[int, ...] = ()) -> np.ndarray:
    """An action, or a batch of them in front, as an array of the space's dtype.

    Raises:
      ValueError: if it has another shape or leaves the space, naming the field, what was got and what is allowed.
    """
    array = np.asarray(shaped(field, action, space, batch))
    if not is_real(array.dtype):
        raise ValueError(f"{field}: got {shown(action)}; {described(space)} is needed")
    low, high = bounds(space)
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):  # a bound may be another number in its dtype
        array, low, high = (np.asarray(x, space.dtype) for x in (array, low, high))
    fits = (array >= low) & (array <= high)
    if not isinstance(space, Box):
        fits &= array == np.floor(array)
    if not fits.all():
        worst = array if not batch else array[~fits].flat[0]
        raise ValueError(f"{field}: got {worst}; {described(space)} is needed")
    return array.astype(space.dtype)


def to_numpy(tree: Any) -> Any:
    """Copies on the host, which the caller may write to."""
    return jax.tree.map(np.array, tree)


@in_any_mode
def step_result(
    agents: Sequence[str], rewards: dict[str, jax.Array], dones: dict[str, jax.Array], infos: Infos
) -> StepResult:
    """Rewards, ends and infos of a step, for each agent; infos have the order of `agents`, and dicts need not."""
    truncated = infos.get("truncated", jnp.zeros(len(agents), bool)) & dones["__all__"]
    numbered = list(enumerate(agents))
    return (
        {agent: jnp.asarray(rewards[agent], jnp.float32) for _, agent in numbered},
        {agent: dones["__all__"] & ~truncated[i] for i, agent in numbered},
        {agent: truncated[i] for i, agent in numbered},
        {agent: {name: info[i] for name, info in infos.items() if name != "truncated"} for i, agent in numbered},
    )


def step_key(seed: jax.Array, time: jax.Array | int) -> jax.Array:
    """The key of a step, from the seed of an episode: seeds are numbers, and so an environment can be copied.

    Steps count from 1, and 0 is the reset.
    """
    return jax.random.fold_in(jax.random.key(seed), time)


@jax.jit
def reset(game: Game, seed: jax.Array) -> tuple[Observations, State]:
    """The first observations and state of an episode."""
    return game.reset(step_key(seed, 0))


@jax.jit
def step(
    game: Game, seed: jax.Array, time: jax.Array, state: State, actions: Actions
) -> tuple[State, Observations, StepResult]:
    """One step, without auto-reset."""
    observations, state, *rest = game.step_env(step_key(seed, time), state, actions)
    return state, observations, step_result(game.agents, *rest)


@partial(jax.jit, static_argnames="num_envs")
def reset_many(game: Game, seed: jax.Array, *, num_envs: int) -> tuple[Observations, State]:
    """The first observations and states of a batch of games."""
    return jax.vmap(game.reset)(jax.random.split(step_key(seed, 0), num_envs))


@jax.jit
def step_many(
    game: Game, seed: jax.Array, time: jax.Array, state: State, actions: Actions
) -> tuple[State, Observations, Observations, StepResult]:
    """One step of a batch of games with auto-reset: (states, observations, those before the reset, ...)."""

    def one(key: jax.Array, state: State, actions: Actions) -> Any:
        key, reset_key = jax.random.split(key)
        last, state, rewards, dones, infos = game.step_env(key, state, actions)
        observations, state = game.auto_reset(reset_key, last, state, dones)
        return state, observations, last, step_result(game.agents, rewards, dones, infos)

    num_envs = len(jax.tree.leaves(actions)[0])
    return jax.vmap(one)(jax.random.split(step_key(seed, time), num_envs), state, actions)
