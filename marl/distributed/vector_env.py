"""Vector environments: the one interface of environments that are no pure functions.

A vector environment plays `num_envs` environments at once. Libraries differ in what they return when an episode ends; a
step here always has the last observation of the episode, the first one of the next, and a mark of empty steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from games.core.game import Game
from games.core.spaces import Space

Arrays = dict[str, np.ndarray]  # by agent


def seed_of(*numbers: int) -> int:
    """A seed for environments, below 2^31, far from that of neighbouring numbers.

    Gymnasium and EnvPool seed the environments of a vector by consecutive numbers. Trainings with the seeds 0 and 1
    would otherwise share all environments but one.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0]) % 2**31


class EnvStep(NamedTuple):
    """Results of a step, `[N, ...]`; all agents of an environment end at once."""

    obs: Arrays  # the next observations: of a new episode where one ended
    last_obs: Arrays  # the observations after the step, before a reset
    reward: Arrays  # [N]
    done: np.ndarray  # [N], whether the episode ended, by its rules or by its time limit
    truncated: np.ndarray | Arrays  # [N], whether it ended by the time limit; by agent where not for all alike
    valid: np.ndarray | None = None  # [N], False for empty steps; None if there are none
    infos: dict[str, np.ndarray] | None = None  # infos of our games, `[N, agents]` each

    def truncated_of(self, agent: str) -> np.ndarray:
        """`truncated` of an agent, `[N]`."""
        return self.truncated[agent] if isinstance(self.truncated, dict) else self.truncated


class VectorEnv(Protocol):
    """Environments that are stepped together."""

    num_envs: int
    has_empty_steps: bool  # whether steps have `EnvStep.valid`

    @property
    def game(self) -> Game:
        """Agents and spaces, for factories of learners; only the environment itself may step it."""
        ...

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        """Begins new episodes in all environments and returns the first observations.

        Our own games take `keys` `[N, words]`. Others take `seed` in the first environment and the numbers after it in
        the others.
        """
        ...

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        """Begins a step; the keys `[N, words]` are for the step and for a reset after it."""
        ...

    def receive(self) -> EnvStep:
        """Ends a step."""
        ...

    def picture(self) -> np.ndarray | None:
        """A picture of the first environment, RGB; None if it cannot be drawn."""
        ...

    def close(self) -> None:
        """Closes the environments."""
        ...


MakeVectorEnv = Callable[[], VectorEnv]


class Outline(Game):
    """Agents and spaces of a vector environment."""

    def __init__(self, observation_spaces: Sequence[Space], action_spaces: Sequence[Space]):
        self.num_agents = len(observation_spaces)
        both = zip(observation_spaces, action_spaces, strict=True)
        self._spaces = dict(zip(self.agents, both, strict=True))

    def observation_space(self, agent: str) -> Space:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Space:
        return self._spaces[agent][1]
