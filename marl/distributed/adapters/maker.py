"""Environments by their names: `make_env` finds the library that has one, and its `EnvMaker` makes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from configs import one_of, shown
from configs.specs import first_line
from games.core import checks
from games.core.arguments import check_arguments
from marl.distributed.adapters.game_env import make_game_env
from marl.distributed.adapters.gymnasium_envs import make_atari_env, make_envpool_env, make_gymnasium_env
from marl.distributed.adapters.pettingzoo_envs import make_pettingzoo_env, pettingzoo_names
from marl.distributed.adapters.small_images import SmallImages
from marl.distributed.vector_env import VectorEnv

KINDS = ("gymnasium", "ale", "envpool", "pettingzoo", "games")
LARGEST, SIDE = 100, 84  # images with a longer side become squares of 84 pixels by default, as Atari's do


@check_arguments
def make_env(
    name: str,
    num_envs: int = 1,
    *,
    seen: Sequence[int] = (),
    processes: bool = False,
    images: int | None = None,
) -> EnvMaker:
    """A factory of environments, by their name: `CartPole-v1`, `ALE/Pong-v5`, `pistonball_v6`, `coin_game`.

    Gymnasium is searched first, then our own games, which may have parameters in brackets, and then PettingZoo. A
    library in front chooses: `games(CartPole-v1)`, `envpool(CartPole-v1)`, `gymnasium(CartPole-v1)`.

    Args:
      name: the environment's.
      num_envs: how many an actor plays at once.
      seen: the entries of a vector that are seen; all if empty. CartPole without velocities is `(0, 2)`.
      processes: whether each environment of Gymnasium is a process of its own, with shared memory.
      images: the side of the grey images that its images become, of which the last four are seen; 0 leaves them as
        they are. None: 84, where they have a side of more than 100.

    Returns:
      A function without arguments that makes a `VectorEnv`, here or in another process.

    Raises:
      TypeError: for arguments of another type.
      ValueError: for a name that no library has, naming those with nearly that name, or a number out of range.
    """
    checks.size("num_envs", num_envs, 1)
    if images is not None:
        checks.size("images", images, 0)
    kind, bracket, inside = name.partition("(")
    given = (num_envs, tuple(seen), None, processes, images)
    if bracket and kind in KINDS and inside.endswith(")"):
        name = inside[:-1].strip().strip("'\"")
        return EnvMaker("ale" if kind == "gymnasium" and name.startswith("ALE/") else kind, name, *given)
    if name.startswith("ALE/"):
        return EnvMaker("ale", name, *given)
    import gymnasium

    if name in gymnasium.registry:
        return EnvMaker("gymnasium", name, *given)
    from games.registry import exists, names

    if exists(kind.strip()):
        return EnvMaker("games", name, *given)
    zoo = pettingzoo_names()
    if name in zoo:
        return EnvMaker("pettingzoo", name, *given)
    known = sorted({*gymnasium.registry, *zoo, *names()})
    raise ValueError(f"environment: got {shown(name)}; {one_of(name, known)}")


class EnvMaker(NamedTuple):
    """Makes vector environments of one kind, here or in another process: only its fields travel."""

    kind: str  # one of KINDS
    name: str
    num_envs: int = 1
    seen: tuple[int, ...] = ()  # entries of a vector that are seen; all if empty
    limit: int | None = None  # steps of an episode of Gymnasium, in place of its own
    processes: bool = False  # whether each environment of Gymnasium is a process of its own, with shared memory
    images: int | None = None  # side of the squares that large images become; 0 leaves them; None: SIDE, if larger

    def __call__(self, render: bool = False) -> VectorEnv:
        """Makes a vector environment.

        Args:
          render: whether it has to draw pictures.

        Raises:
          ValueError: if there is no such environment, or if learners cannot learn in it.
        """
        if render:
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # pygame looks for a sound card, and complains
            if sys.platform == "linux" and not os.environ.get("DISPLAY"):
                os.environ.setdefault("MUJOCO_GL", "egl")  # robots are drawn without a screen
        try:
            return self._with_small_images(self._original("rgb_array" if render else None))
        except (ValueError, ImportError) as error:
            raise ValueError(f"environment: {shown(self.name)}: {first_line(error)}") from None
        except Exception as error:  # of a library
            message = f"{type(error).__name__}: {first_line(error)}"
            if "gymnasium[mujoco]" in message:
                message = 'MuJoCo is not installed; pip install "marl-shaping[control]"'
            raise ValueError(f"environment: {shown(self.name)}: {message}") from None

    def _original(self, render_mode: str | None) -> VectorEnv:
        given = self.name, self.num_envs, self.seen
        if self.kind == "gymnasium":
            return make_gymnasium_env(*given, limit=self.limit, processes=self.processes, render_mode=render_mode)
        if self.kind == "ale":
            return make_atari_env(*given)
        if self.kind == "envpool":
            return make_envpool_env(*given)
        if self.kind == "pettingzoo":
            return make_pettingzoo_env(*given, render_mode=render_mode)
        return make_game_env(*given)

    def _with_small_images(self, env: VectorEnv) -> VectorEnv:
        side = self.images
        if side is None:
            seen: list[Any] = [env.game.observation_space(agent) for agent in env.game.agents]
            side = SIDE * all(getattr(space, "image", False) and max(space.shape[:2]) > LARGEST for space in seen)
        return SmallImages(env, side) if side else env
