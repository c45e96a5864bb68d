"""The system of actors and learners, and the setup of a training whose parts are known to fit."""

from __future__ import annotations

from typing import Literal, NamedTuple

from marl.core.learner import Learner
from marl.distributed.vector_env import MakeVectorEnv

Where = Literal["here", "threads", "ray"]
Inference = Literal["actor", "central"]
Path = Literal["queue", "barrier", "gradients"]
WHERE, INFERENCE, PATHS = ("here", "threads", "ray"), ("actor", "central"), ("queue", "barrier", "gradients")


class System(NamedTuple):
    """The place of actors and of inference, the data for the learners, and the age of policies.

    Attributes:
      where: `here`, actors take turns in this thread; `threads`, one for each; `ray`, processes of a Ray cluster.
      inference: `actor`, each evaluates its policy; `central`, one thread does for all actors of a process.
      path: `queue`, rollouts one by one; `barrier`, one of all actors at once; `gradients`, taken by actors.
      lag: age of policies in updates, which makes results reproducible; None: as old as they get.
      patience: seconds for a rollout in threads or on Ray; the first of an actor may take five times as long, or 300 s.
      address: of a Ray cluster; one is started on this machine if empty.
    """

    where: Where = "here"
    inference: Inference = "actor"
    path: Path = "queue"
    lag: int | None = None
    patience: float = 60.0
    address: str = ""


class Setup(NamedTuple):
    """Learners, environments and a system that are known to fit each other."""

    learners: tuple[Learner, ...]  # one for each agent
    make_envs: tuple[MakeVectorEnv, ...]  # one for each actor
    num_envs: int  # of an actor
    steps_per_update: int  # of each environment in a rollout
    system: System

    @property
    def num_actors(self) -> int:
        """The number of actors."""
        return len(self.make_envs)

    @property
    def takes_gradients(self) -> bool:
        """True if actors take the gradients."""
        return self.system.path == "gradients"
