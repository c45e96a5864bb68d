"""Hosts of Gymnasium's environments, Atari's, EnvPool's, PettingZoo's, and our own games, by their names."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs import one_of, shown
from configs.specs import first_line
from games.core import checks, spaces
from games.core.arguments import check_arguments
from games.core.game import Game
from games.core.spaces import Space
from marl.distributed.images import SmallImages
from marl.distributed.vector_env import Arrays, EnvStep, Outline, VectorEnv


class GameVectorEnv:
    """One of our own games, stepped by compiled programs; the keys are those of `learn`, and so are the numbers."""

    has_empty_steps = False

    def __init__(self, game: Game, num_envs: int):
        self.game: Game = game
        self.num_envs = num_envs
        self._reset, self._step = _programs_of(game)

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        del seed
        observations, self._state = self._reset(keys)
        return _to_numpy(observations)

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        self._answer = self._step(self._state, actions, *keys)

    def receive(self) -> EnvStep:
        observations, last, self._state, rewards, done, infos = self._answer
        infos = _to_numpy(infos)
        truncated = infos.pop("truncated")[:, 0]
        observations, last, rewards, done = _to_numpy((observations, last, rewards, done))
        return EnvStep(observations, last, rewards, done, truncated, None, infos)

    def picture(self) -> np.ndarray | None:
        try:
            return self.game.render(jax.tree.map(lambda x: np.asarray(x)[0], self._state))
        except NotImplementedError:
            return None

    def close(self) -> None:
        pass


def _programs_of(game: Game) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def reset(keys: jax.Array) -> Any:
        return jax.vmap(game.reset)(jax.random.wrap_key_data(keys))

    def step(state: Any, actions: Any, step_keys: jax.Array, reset_keys: jax.Array) -> Any:
        step_keys, reset_keys = map(jax.random.wrap_key_data, (step_keys, reset_keys))
        last, state, rewards, dones, infos = jax.vmap(game.step_env)(step_keys, state, actions)
        observations, state = jax.vmap(game.auto_reset)(reset_keys, last, state, dones)
        return observations, last, state, rewards, dones["__all__"], infos

    return jax.jit(reset), jax.jit(step)


class BatchedVectorEnv:
    """An environment of Gymnasium's vector interface: its own, `AtariVectorEnv`, or EnvPool's.

    With those that reset in the step in which an episode ends, the last observation is in `infos["final_obs"]`. With
    those that do so one step late, that step is told as empty, and the one before it as it is.
    """

    def __init__(self, env: Any, seen: Sequence[int] = ()):
        from gymnasium.vector import AutoresetMode

        self._env, self.num_envs = env, env.num_envs
        self._late = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP) != AutoresetMode.SAME_STEP
        self.has_empty_steps = self._late
        found, self._look = observed(env.single_observation_space, seen)
        actions, self._act = acted(env.single_action_space)
        self.game: Game = Outline([found], [actions])
        self._begins = np.zeros(self.num_envs, bool)
        self._sends = hasattr(env, "send") and hasattr(env, "recv")

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        del keys
        self._begins = np.zeros(self.num_envs, bool)
        self._last = self._look(self._env.reset(seed=seed)[0])
        return {"agent_0": self._last}

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        del keys
        chosen = self._act(actions["agent_0"])
        if hasattr(self._env, "step_async"):
            self._env.step_async(chosen)
        elif self._sends:
            self._env.send(chosen)
        else:
            self._chosen = chosen

    def receive(self) -> EnvStep:
        if hasattr(self._env, "step_async"):
            obs, reward, terminated, truncated, infos = self._env.step_wait()
        elif self._sends:
            obs, reward, terminated, truncated, infos = self._env.recv()
        else:
            obs, reward, terminated, truncated, infos = self._env.step(self._chosen)
        obs = last = self._look(np.array(obs))  # a copy, for some environments write in place
        self._last = obs
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        done, truncated, reward = terminated | truncated, truncated & ~terminated, np.asarray(reward, np.float32)
        valid = None
        if self._late:
            valid, self._begins = ~self._begins, done & ~self._begins
            reward = np.where(valid, reward, np.float32(0))
            done, truncated = done | ~valid, truncated & valid
        elif done.any():
            last = obs.copy()
            final = infos["final_obs"]
            for i in np.flatnonzero(done):
                last[i] = self._look(np.asarray(final[i])[None])[0]
        return EnvStep({"agent_0": obs}, {"agent_0": last}, {"agent_0": reward}, done, truncated, valid)

    def picture(self) -> np.ndarray | None:
        frames = self._env.render() if getattr(self._env, "render_mode", None) else None
        if frames is not None:
            return np.asarray(frames[0])
        seen: Any = self.game.observation_space("agent_0")
        if not getattr(seen, "image", False):
            return None
        return np.repeat(self._last[0][..., -1:], 3, -1)  # the newest frame of those that are seen

    def close(self) -> None:
        self._env.close()


class ParallelVectorEnv:
    """Copies of a PettingZoo parallel environment, one after the other; an episode ends when it has for everybody.

    An agent that is out before the others is told nothing more: its observation stays, and it is paid 0.
    """

    has_empty_steps = False

    def __init__(self, make: Callable[[], Any], num_envs: int):
        self._envs = [make() for _ in range(num_envs)]
        self.num_envs, first = num_envs, self._envs[0]
        self._names = list(first.possible_agents)
        looks = [observed(first.observation_space(name)) for name in self._names]
        acts = [acted(first.action_space(name)) for name in self._names]
        self._looks, self._acts = [look for _, look in looks], [act for _, act in acts]
        self.game: Game = Outline([space for space, _ in looks], [space for space, _ in acts])
        self._agents = self.game.agents

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        del keys
        self._seen = [self._begin(i, seed + i) for i in range(self.num_envs)]
        return self._stacked(self._seen)

    def _begin(self, i: int, seed: int | None = None) -> list[np.ndarray]:
        obs, _ = self._envs[i].reset(seed=seed)
        return [look(np.asarray(obs[name])[None])[0] for name, look in zip(self._names, self._looks, strict=True)]

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        del keys
        self._chosen = [act(actions[agent]) for agent, act in zip(self._agents, self._acts, strict=True)]

    def receive(self) -> EnvStep:
        last, after = [], []
        rewards = np.zeros((self.num_envs, len(self._names)), np.float32)
        done, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for i, env in enumerate(self._envs):
            there = set(env.agents)
            actions = {name: self._chosen[j][i] for j, name in enumerate(self._names) if name in there}
            obs, reward, terminations, truncations, _ = env.step(actions)
            seen = list(self._seen[i])
            for j, name in enumerate(self._names):
                if name in obs:
                    seen[j] = self._looks[j](np.asarray(obs[name])[None])[0]
                rewards[i, j] = reward.get(name, 0.0)
            done[i] = not env.agents
            truncated[i] = done[i] and any(truncations.values()) and not any(terminations.values())
            last.append(seen)
            after.append(self._begin(i) if done[i] else seen)
        self._seen = after
        by_agent = {agent: rewards[:, j] for j, agent in enumerate(self._agents)}
        return EnvStep(self._stacked(after), self._stacked(last), by_agent, done, truncated)

    def _stacked(self, seen: list[list[np.ndarray]]) -> Arrays:
        return {agent: np.stack([one[j] for one in seen]) for j, agent in enumerate(self._agents)}

    def picture(self) -> np.ndarray | None:
        return self._envs[0].render() if getattr(self._envs[0], "render_mode", None) else None

    def close(self) -> None:
        for env in self._envs:
            env.close()


def observed(space: Any, seen: Sequence[int] = ()) -> tuple[Space, Callable[[np.ndarray], np.ndarray]]:
    """A space of Gymnasium as ours, and what brings a batch of its observations into it.

    Images with their channels in front, as PyTorch has them, get them behind; a `Discrete` observation is one-hot.

    Args:
      space: of one environment.
      seen: the entries of a vector that are seen; all if empty.

    Raises:
      ValueError: for a space that is no array, or entries that there are not.
    """
    from gymnasium import spaces as theirs

    if isinstance(space, theirs.Discrete) and not seen:
        count, first = int(space.n), int(space.start)
        hot = np.eye(count, dtype=np.float32)
        return spaces.Box(0.0, 1.0, (count,)), lambda obs: hot[obs - first]
    if not isinstance(space, theirs.Box):
        raise ValueError(f"observations: got {space}; a Box or Discrete is needed")
    shape = space.shape
    if seen:
        if len(shape) != 1 or not all(0 <= i < shape[0] for i in seen):
            raise ValueError(f"seen: got {list(seen)}; numbers of entries of a vector, here of {shape}, are needed")
        index = np.array(seen)
        return spaces.Box(-np.inf, np.inf, (len(seen),)), lambda obs: np.asarray(obs[..., index], np.float32)
    if space.dtype == np.uint8 and len(shape) == 3:
        if shape[0] < min(shape[1:]):
            turned = (*shape[1:], shape[0])
            return spaces.Box(0, 255, turned, jnp.uint8, True), lambda obs: np.moveaxis(obs, -3, -1)
        return spaces.Box(0, 255, shape, jnp.uint8, True), lambda obs: obs
    return spaces.Box(-np.inf, np.inf, shape), lambda obs: np.asarray(obs, np.float32)


def acted(space: Any) -> tuple[Space, Callable[[np.ndarray], np.ndarray]]:
    """A space of actions of Gymnasium as ours, and what brings a batch of our actions into it.

    Raises:
      ValueError: for a space without a distribution.
    """
    from gymnasium import spaces as theirs

    if isinstance(space, theirs.Discrete):
        first, dtype = int(space.start), np.dtype(space.dtype)
        return spaces.Discrete(int(space.n)), lambda actions: np.asarray(actions, dtype) + dtype.type(first)
    if isinstance(space, theirs.MultiDiscrete) and space.nvec.ndim == 1:
        return spaces.MultiDiscrete(tuple(map(int, space.nvec))), lambda actions: np.asarray(actions, space.dtype)
    if isinstance(space, theirs.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = space.low, space.high

        def clipped(actions: np.ndarray) -> np.ndarray:
            return np.clip(actions, low, high).astype(space.dtype)

        return spaces.Box(low, high, space.shape), clipped
    raise ValueError(f"actions: got {space}; Discrete, MultiDiscrete or a Box of floats is needed")


LARGEST, SIDE = 100, 84  # images with a longer side become squares of 84 pixels, as Atari's do, unless told otherwise
KINDS = ("gymnasium", "ale", "envpool", "pettingzoo", "games")


class EnvMaker(NamedTuple):
    """Makes hosts of one kind, here or elsewhere: it travels by its numbers."""

    kind: str  # one of KINDS
    name: str
    num_envs: int = 1
    seen: tuple[int, ...] = ()  # entries of a vector that are seen; all if empty
    limit: int | None = None  # steps of an episode of Gymnasium, in place of its own
    processes: bool = False  # whether each environment of Gymnasium is a process of its own, with shared memory
    images: int | None = None  # side of those that large ones become; 0 leaves them; None: SIDE, of larger ones

    def __call__(self, render: bool = False) -> VectorEnv:
        """A host.

        Args:
          render: whether it is to have pictures.

        Raises:
          ValueError: if there is no such environment, or if it is none that can be learned in.
        """
        if render:
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # who draws with it looks for a sound card, and complains
            if sys.platform == "linux" and not os.environ.get("DISPLAY"):
                os.environ.setdefault("MUJOCO_GL", "egl")  # robots are drawn without a screen
        try:
            return self._with_small_images(getattr(self, f"_{self.kind}")("rgb_array" if render else None))
        except (ValueError, ImportError) as error:
            raise ValueError(f"environment: {shown(self.name)}: {first_line(error)}") from None
        except Exception as error:  # of somebody else's code
            words = f"{type(error).__name__}: {first_line(error)}"
            if "gymnasium[mujoco]" in words:
                words = 'MuJoCo is not installed; pip install "marl-shaping[control]"'
            raise ValueError(f"environment: {shown(self.name)}: {words}") from None

    def _with_small_images(self, host: VectorEnv) -> VectorEnv:
        side = self.images
        if side is None:
            seen: list[Any] = [host.game.observation_space(agent) for agent in host.game.agents]
            side = SIDE * all(getattr(space, "image", False) and max(space.shape[:2]) > LARGEST for space in seen)
        return SmallImages(host, side) if side else host

    def _games(self, render_mode: str | None) -> VectorEnv:
        del render_mode
        from games.registry import make_game

        if self.seen:
            raise ValueError(f"seen: got {list(self.seen)}; our own games have none")
        return GameVectorEnv(make_game(self.name), self.num_envs)

    def _gymnasium(self, render_mode: str | None) -> VectorEnv:
        import gymnasium
        from gymnasium.vector import AutoresetMode

        spec = gymnasium.spec(self.name)
        limit: dict[str, Any] = {} if self.limit is None else {"max_episode_steps": self.limit}
        own = bool(spec.vector_entry_point) and not self.processes and render_mode is None
        if own:
            env = gymnasium.make_vec(self.name, self.num_envs, vectorization_mode="vector_entry_point", **limit)
        else:
            env = gymnasium.make_vec(
                self.name,
                self.num_envs,
                vectorization_mode="async" if self.processes else "sync",
                # Processes that begin anew, for those that were forked from JAX's may hang.
                vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
                | ({"context": "spawn"} if self.processes else {}),
                render_mode=render_mode,
                **limit,
            )
        return BatchedVectorEnv(env, self.seen)

    def _ale(self, render_mode: str | None) -> VectorEnv:
        del render_mode
        from gymnasium.vector import AutoresetMode

        try:
            import ale_py
        except ModuleNotFoundError:
            raise ValueError('ale-py is not installed; pip install "marl-shaping[systems]"') from None
        name = self.name.removeprefix("ALE/").rpartition("-v")[0]
        words = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")
        roms = ale_py.roms.get_all_rom_ids()
        if words not in roms:
            raise ValueError(one_of(self.name, [f"ALE/{rom.title().replace('_', '')}-v5" for rom in roms]))
        env = ale_py.AtariVectorEnv(words, self.num_envs, num_threads=1, autoreset_mode=AutoresetMode.SAME_STEP)
        return BatchedVectorEnv(env, self.seen)

    def _envpool(self, render_mode: str | None) -> VectorEnv:
        del render_mode
        try:
            import envpool
        except ModuleNotFoundError:
            raise ValueError("EnvPool is not installed; pip install envpool") from None
        # It makes spaces of single precision with limits of double precision, which nobody here can help.
        warnings.filterwarnings("ignore", r".*Box (low|high)'s precision lowered", UserWarning)
        make = functools.partial(envpool.make_gymnasium, self.name, num_envs=self.num_envs)
        return BatchedVectorEnv(_Pooled(make, self.num_envs), self.seen)

    def _pettingzoo(self, render_mode: str | None) -> VectorEnv:
        module = _pettingzoo_module(self.name)
        if self.seen:
            raise ValueError(f"seen: got {list(self.seen)}; those of PettingZoo have none")
        return ParallelVectorEnv(lambda: module.parallel_env(render_mode=render_mode), self.num_envs)


class _Pooled:
    """EnvPool's environments with the names of Gymnasium's vectors."""

    metadata: dict[str, Any] = {}  # noqa: RUF012 (they reset one step late)

    def __init__(self, make: Callable[..., Any], num_envs: int):
        self._make, self._pool, self.num_envs = make, make(), num_envs
        self.single_observation_space, self.single_action_space = self._pool.observation_space, self._pool.action_space

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        self._pool.close()
        self._pool = self._make(seed=seed)  # EnvPool takes a seed nowhere else; with none all actors play the same
        return self._pool.reset()

    def step(self, actions: np.ndarray) -> Any:
        return self._pool.step(actions)

    def close(self) -> None:
        self._pool.close()


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

    Gymnasium is searched first, then PettingZoo, then our own games, which may have parameters in brackets. A library
    in front chooses: `games(CartPole-v1)`, `envpool(CartPole-v1)`, `gymnasium(CartPole-v1)`.

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
    from games.registry import names

    if kind.strip() in names():
        return EnvMaker("games", name, *given)
    zoo = _pettingzoo_names()
    if name in zoo:
        return EnvMaker("pettingzoo", name, *given)
    everybody = sorted({*gymnasium.registry, *zoo, *names()})
    raise ValueError(f"environment: got {shown(name)}; {one_of(name, everybody)}")


def _pettingzoo_names() -> list[str]:
    """Those of the installed families, whether or not what they need is installed."""
    import pettingzoo

    found = []
    for family in ("atari", "butterfly", "classic", "mpe", "sisl"):
        folders = [f"{path}/{family}" for path in pettingzoo.__path__]
        found += [module.name for module in pkgutil.iter_modules(folders) if "_v" in module.name]
    return found


def _pettingzoo_module(name: str) -> Any:
    import pettingzoo

    for family in ("atari", "butterfly", "classic", "mpe", "sisl"):
        folders = [f"{path}/{family}" for path in pettingzoo.__path__]
        if any(module.name == name for module in pkgutil.iter_modules(folders)):
            try:
                return importlib.import_module(f"pettingzoo.{family}.{name}")
            except ModuleNotFoundError as error:
                raise ValueError(f'{first_line(error)}; pip install "pettingzoo[{family}]"') from None
    raise ValueError("PettingZoo has no such environment")


def _to_numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
