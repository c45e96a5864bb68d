"""Cheap talk: an adversary appends a message to a player's observation, and changes nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.arguments import check_game
from games.core.game import Actions, Dones, Game, Observations, Scalar, Step, static
from games.core.spaces import Box, Space

# (parameters, observation) -> message [message_size]; with the memory as a third argument where there is one
Speak = Callable[..., jax.Array]
Remember = Callable[[Any, Any, jax.Array], Any]  # (parameters, memory, observation) -> memory


@struct.dataclass
class Heard:
    """The state of a game with a message function that has a memory."""

    bare: Any  # the state of the bare game
    memory: Any  # after what is seen now


@struct.dataclass(eq=False)
class CheapTalk(Game):
    """A game of one player whose observation ends with a message about it.

        o' = [o, speak(parameters, o)]

    The message is a function of the observation before it and of nothing else, unless the message function has a
    memory: then it is one of the observation and of all before it,

        m' = remember(parameters, m, o),   o' = [o, speak(parameters, o, m')],

    and the memory goes on where an episode ends and another begins, so that it sees a whole training run. Rewards,
    transitions, the end of the game and everything that is drawn are the bare game's, bit for bit. What is seen is
    flattened into one vector, or with `planes` an image whose last channels hold the message in every pixel.

    Attributes:
      game: the bare game; its observation is an array.
      parameters: of `speak`, a pytree of arrays.
      speak: `(parameters, observation) -> message`, pure, for one observation of the bare game's shape; with the memory
        as a third argument where there is one.
      message_size: entries of a message.
      planes: whether the message comes as channels of an image.
      remember: `(parameters, memory, observation) -> memory`, pure; None for a talker without memory.
      memory: before the first observation; unused without `remember`.

    Raises:
      TypeError: for what is no game.
      ValueError: for a game of several players, observations that are no array (or with `planes` no image), or a
        message size below 1; and at the reset, where the message is of another size.

    Source: the Cheap Talk MDP of Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, section 3.
    """

    num_agents = 1

    game: Game
    parameters: Any
    speak: Speak = static(None)
    message_size: int = static(2)
    planes: bool = static(False)
    remember: Remember | None = static(None)
    memory: Any = ()

    def __post_init__(self) -> None:
        check_game(self.game)
        checks.size("message_size", self.message_size, 1)
        checks.choice("planes", self.planes, (True, False))
        if self.game.num_agents != 1:
            raise ValueError(f"game: got {self.game.name} of {self.game.num_agents} players; a game of one is needed")
        shape = observation_shape(self.game)
        if self.planes and not getattr(self.game.observation_space("agent_0"), "image", False):
            raise ValueError(
                f"planes: {self.game.name} has observations {shape}; images [height, width, channels] are needed"
            )

    def reset(self, key: jax.Array) -> tuple[Observations, Any]:
        observations, state = self.game.reset(key)
        return self._after(observations, state, self.memory)

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        observations, bare, *rest = self.game.step_env(key, self.bare(state), actions)
        return *self._after(observations, bare, self._memory(state)), *rest

    def auto_reset(
        self, key: jax.Array, observations: Observations, state: Any, dones: Dones, reset_state: Any | None = None
    ) -> tuple[Observations, Any]:
        seen = self._without_message(observations)
        given = None if reset_state is None else self.bare(reset_state)
        observations, bare = self.game.auto_reset(key, seen, self.bare(state), dones, given)
        if self.remember is None:
            return self._with_message(observations, ()), bare
        memory = self.remember(self.parameters, state.memory, observations["agent_0"])  # of the first one of a new game
        memory = jax.tree.map(lambda new, old: jnp.where(dones["__all__"], new, old), memory, state.memory)
        return self._with_message(observations, memory), Heard(bare, memory)

    def get_obs(self, state: Any) -> Observations:
        return self._with_message(self.game.get_obs(self.bare(state)), self._memory(state))

    def get_avail_actions(self, state: Any) -> dict[str, jax.Array]:
        return self.game.get_avail_actions(self.bare(state))

    def bare(self, state: Any) -> Any:
        """The state of the bare game in a state of this one."""
        return state.bare if self.remember else state

    def going_on(self, state: Any) -> CheapTalk:
        """The same game, in which the message's memory begins as it is in a state."""
        return dataclasses.replace(self, memory=self._memory(state))

    def _memory(self, state: Any) -> Any:
        return state.memory if self.remember else ()

    def _after(self, observations: Observations, bare: Any, memory: Any) -> tuple[Observations, Any]:
        """Observations with their messages, and the state, after one more observation."""
        if self.remember is None:
            return self._with_message(observations, ()), bare
        memory = self.remember(self.parameters, memory, observations["agent_0"])
        return self._with_message(observations, memory), Heard(bare, memory)

    def _with_message(self, observations: Observations, memory: Any) -> Observations:
        observation = observations["agent_0"]
        heard = (memory,) if self.remember else ()
        message = self.speak(self.parameters, observation, *heard)
        if jnp.shape(message) != (self.message_size,):
            raise ValueError(f"message_size: got {self.message_size}; what is said has shape {jnp.shape(message)}")
        if self.planes:
            planes = jnp.broadcast_to(message, (*observation.shape[:2], self.message_size))
            return {"agent_0": jnp.concatenate([observation.astype(jnp.float32), planes], -1)}
        return {"agent_0": jnp.concatenate([observation.reshape(-1).astype(jnp.float32), message])}

    def _without_message(self, observations: Observations) -> Observations:
        bare = observations["agent_0"][..., : -self.message_size]
        like = jax.eval_shape(self.game.reset, jax.random.key(0))[0]["agent_0"]
        return {"agent_0": bare.reshape(like.shape).astype(like.dtype)}

    def observation_space(self, agent: str) -> Space:
        bare = self.game.observation_space(agent)
        low, high = (
            np.broadcast_to(np.asarray(bound, np.float32), bare.shape)
            for bound in ((bare.low, bare.high) if isinstance(bare, Box) else (0, getattr(bare, "n", np.inf) - 1))
        )
        endless = np.full(
            (*bare.shape[:2], self.message_size) if self.planes else self.message_size, np.inf, np.float32
        )
        if self.planes:
            low, high = np.concatenate([low, -endless], -1), np.concatenate([high, endless], -1)
        else:
            low, high = np.concatenate([low.reshape(-1), -endless]), np.concatenate([high.reshape(-1), endless])
        return Box(low, high, low.shape, image=self.planes)

    def action_space(self, agent: str) -> Space:
        return self.game.action_space(agent)

    @property
    def time_limit(self) -> Scalar | None:
        return self.game.time_limit

    @property
    def name(self) -> str:
        return f"{self.game.name} with cheap talk"

    def render(self, state: Any) -> np.ndarray:
        return self.game.render(self.bare(state))


def observation_shape(game: Game) -> tuple[int, ...]:
    """The shape of what the only player of a game sees.

    Raises:
      ValueError: where that is no array.
    """
    seen = jax.eval_shape(game.reset, jax.random.key(0))[0]["agent_0"]
    if not isinstance(seen, jax.ShapeDtypeStruct):
        raise ValueError(f"game: {game.name} has observations with several parts; an array is needed")
    return tuple(seen.shape)
