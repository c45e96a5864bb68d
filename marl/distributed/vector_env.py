"""Environments on the host: one way to play whatever is no pure function.

A host plays `num_envs` environments at once. Whatever an environment of somebody else's does when an episode ends, a
host says what was seen last and what is seen next, and where nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from games.core.game import Game
from games.core.spaces import Space

Arrays = dict[str, np.ndarray]  # by agent


def seed_of(*numbers: int) -> int:
    """A seed for environments, below 2^31, far from that of neighbouring numbers.

    Gymnasium and EnvPool seed the environments of a vector by numbers in a row, so that trainings with the seeds 0 and
    1 would else have all but one in common.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0]) % 2**31


class EnvStep(NamedTuple):
    """What a step brings, `[N, ...]`; all agents of an environment end at once."""

    obs: Arrays  # what is seen next: of a new episode where one ended
    last_obs: Arrays  # what was seen after the step, before a reset
    reward: Arrays  # [N]
    done: np.ndarray  # [N], whether the episode ended, by its rules or by its time limit
    truncated: np.ndarray  # [N], whether it was the time limit
    valid: np.ndarray | None = None  # [N], whether there was a step; None where all are
    infos: dict[str, np.ndarray] | None = None  # what our games count, `[N, agents]` each


class VectorEnv(Protocol):
    """Environments that are played in one thread."""

    num_envs: int
    has_empty_steps: bool  # whether `EnvStep.valid` is ever given

    @property
    def game(self) -> Game:
        """Its agents and spaces, for factories of learners; it is played by the host alone."""
        ...

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        """New episodes everywhere, and what is seen first; `keys` `[N, words]` are what our own games draw from.

        `seed` is that of the first environment, the others have those after it.
        """
        ...

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        """Begins a step; the keys `[N, words]` are of the step and of a reset after it."""
        ...

    def receive(self) -> EnvStep:
        """Ends it."""
        ...

    def picture(self) -> np.ndarray | None:
        """The first environment now, RGB; None where nobody can draw it."""
        ...

    def close(self) -> None:
        """Lets go of what it has."""
        ...


class Outline(Game):
    """Agents and spaces of an environment that a host plays."""

    def __init__(self, observation_spaces: Sequence[Space], action_spaces: Sequence[Space]):
        self.num_agents = len(observation_spaces)
        both = zip(observation_spaces, action_spaces, strict=True)
        self._spaces = dict(zip(self.agents, both, strict=True))

    def observation_space(self, agent: str) -> Space:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Space:
        return self._spaces[agent][1]
