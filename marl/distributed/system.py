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
    """The place of actors and of inference, the data for the learners, and the age of policies."""

    where: Where = "here"  # actors take turns in this thread, have threads of their own, or processes of a Ray cluster
    inference: Inference = "actor"  # each actor evaluates its policy, or one thread for all actors of a process
    path: Path = "queue"  # rollouts one by one, one of all actors at once, or gradients that actors have taken
    lag: int | None = None  # age of policies in updates, which makes results reproducible; None: as old as they get
    patience: float = 60.0  # seconds for a rollout; the first of an actor may take five times as long, or 300 s
    address: str = ""  # of a Ray cluster; one is started on this machine if empty


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
