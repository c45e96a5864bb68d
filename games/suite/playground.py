"""Robots of MuJoCo Playground, simulated in JAX by MJX, as games of one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import one_of
from games.core import checks, random_bits
from games.core.branching import lazy_cond
from games.core.game import Actions, Dones, Game, Observations, Scalar, Step, static
from games.core.spaces import Box

# Its import takes ten seconds, so that it is done inside functions only.

SUFFIX = "-playground"  # behind the names of its environments


@struct.dataclass
class PlaygroundState:
    """The simulation and the clock."""

    inner: Any  # the environment's own state
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Playground(Game):
    """An environment of Playground as a game with the single player agent_0; `from_playground` makes one by its name.

    Any object with its three members will do, as Brax's have them: `reset(key) -> state`,
    `step(state, action [n]) -> state` with `obs`, `reward` and `done`, and `action_size`. Where the observation is a
    dict it is the entry "state", the robot's own state.

    The game ends where the environment says `done`, or at its time limit; `infos["truncated"]` says which.
    A reset costs as much as a step, and is computed only when some game of a batch has ended.

    Actions are `[n]` in [-1, 1]; the observation is `[m]`.

    Attributes:
      environment: the environment.
      episode_length: steps until the time limit.

    Source: Zakka et al., MuJoCo Playground (2025), arXiv:2502.08844.
    """

    num_agents = 1

    environment: Any = static(None)
    episode_length: Scalar = 1000

    def __post_init__(self) -> None:
        checks.whole("episode_length", self.episode_length, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, PlaygroundState]:
        inner = self.environment.reset(jax.random.key_data(random_bits.unrolled(key)))
        state = PlaygroundState(inner, jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: PlaygroundState, actions: Actions) -> Step[PlaygroundState]:
        action = jnp.clip(jnp.asarray(actions["agent_0"], jnp.float32), -1, 1)
        inner = self.environment.step(state.inner, action)
        # Some change a leaf's dtype after the reset, which a scan does not allow.
        inner = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), inner, state.inner)
        time = state.time + 1
        dones, infos = self._ending(inner.done > 0.5, time >= self.episode_length)
        state = PlaygroundState(inner, time)
        return self.get_obs(state), state, {"agent_0": jnp.asarray(inner.reward, jnp.float32)}, dones, infos

    def auto_reset(
        self,
        key: jax.Array,
        observations: Observations,
        state: PlaygroundState,
        dones: Dones,
        reset_state: PlaygroundState | None = None,
    ) -> tuple[Observations, PlaygroundState]:
        def begin(key: jax.Array, state: PlaygroundState) -> PlaygroundState:
            return self.reset(key)[1] if reset_state is None else reset_state

        state = lazy_cond(dones["__all__"], begin, lambda key, state: state, key, state)
        return self.get_obs(state), state

    def get_obs(self, state: PlaygroundState) -> Observations:
        seen = state.inner.obs
        return {"agent_0": jnp.asarray(seen["state"] if isinstance(seen, dict) else seen, jnp.float32)}

    def observation_space(self, agent: str) -> Box:
        (size,) = jax.eval_shape(lambda key: self.reset(key)[0]["agent_0"], jax.random.key(0)).shape
        return Box(-jnp.inf, jnp.inf, (size,))

    def action_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (self.environment.action_size,))

    def render(self, state: PlaygroundState) -> np.ndarray:
        return np.asarray(self.environment.render([state.inner])[0])


def from_playground(name: str, **params: Any) -> Playground:
    """An environment of MuJoCo Playground by its name, such as `CheetahRun`.

    Args:
      name: as Playground's registry has it.
      **params: `episode_length`; the environment's own if none is given.

    Raises:
      ValueError: for a name that there is not, another parameter, or if Playground is not installed.
    """
    if "episode_length" in params and params["episode_length"] is None:
        raise ValueError(f"{name}{SUFFIX}: episode_length: got None; a whole number is needed")
    if unknown := params.keys() - {"episode_length"}:
        raise ValueError(f"{name}{SUFFIX}: unknown parameter {min(unknown)}; episode_length is what it has")
    try:
        from mujoco_playground import registry
    except ModuleNotFoundError as error:
        raise ValueError(
            f"game: got '{name}{SUFFIX}'; MuJoCo Playground is not installed ({error.name}): "
            'pip install "marl-shaping[control]"'
        ) from None
    if name not in registry.ALL_ENVS:
        raise ValueError(f"game: got '{name}{SUFFIX}'; {one_of(name, registry.ALL_ENVS)}")
    config = registry.get_default_config(name)
    if "impl" in config:
        config.impl = "jax"  # Warp's simulator is none that JAX can batch as it does the rest
    length = params.get("episode_length", config.get("episode_length", 1000))
    return Playground(registry.load(name, config=config), length)
