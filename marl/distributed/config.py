"""The config of `marl.distributed`: learners trained by actors, in environments of other libraries."""

from __future__ import annotations

import dataclasses
import os

import jax

import configs
from configs.specs import change, read
from games.core import checks
from marl.distributed.adapters.maker import make_env
from marl.distributed.system import INFERENCE, PATHS, WHERE
from marl.learners.registry import SAMPLED, terms
from meta.xla.devices import claim_cores

# Steps of each environment in a rollout that suit a learner.
STEPS = {"ppo": 128, "a2c": 5, "a3c": 5, "dqn": 8, "ape_x": 8, "pqn": 32, "r2d2": 20, "impala": 5, "td3": 8, "sac": 8}


@dataclasses.dataclass(frozen=True)
class DistributedConfig(configs.CommandConfig):
    """Learners trained by actors, in environments of other libraries."""

    environment: str = "CartPole-v1"
    """An environment of Gymnasium, PettingZoo or ours by its name; envpool(NAME) and games(NAME) choose one."""
    learner: str = "impala"
    """impala, a3c, ape_x, r2d2, ppo, a2c, dqn, td3, sac or another learner of sampled games, with settings in brackets.
    In a game of several players all have one like it, or each its own, with a plus between them. Learning rates fall
    to 0 over the training in learners that have the setting anneal, unless it is False; td3 and sac have none."""
    where: str = "here"
    """Place of the actors: here takes them in turn, threads gives each one, ray a process of a Ray cluster."""
    inference: str = "actor"
    """Evaluation of policies: by each actor, or central: by one thread for all actors of a process, in batches."""
    path: str = ""
    """Data for the learners: queue, one rollout after the other as they come; barrier, one of all actors at once; or
    gradients, which actors take. Empty: gradients for a3c, and queue for others."""
    actors: int = 1
    """Actors, each with environments of its own."""
    num_envs: int = 8
    """Environments of each actor, played at once."""
    steps_per_update: int = 0
    """Steps of each environment in a rollout; 0 is what suits the learner."""
    lag: int | None = None
    """Age of the policies that act, in updates, which makes results reproducible. None: as old as they get."""
    past_selves: float | None = None
    """Self-play: one learner, in the first seat, against its latest policy in the others, and in this share of the
    updates against an earlier one. None: all agents learn, each for itself."""
    seen: tuple[int, ...] = ()
    """Entries of the observation that are seen; all if empty. CartPole without velocities is 0 2."""
    processes: bool = False
    """Give each environment of Gymnasium a process of its own, which shares memory with the actor."""
    images: int | None = None
    """Side of the grey squares that images become, of which the last four are seen; 0 leaves images as they are. None:
    84, where they have a side of more than 100."""
    total_steps: int = 400_000
    """Environment steps of all actors, with the empty ones in which a vector environment begins new episodes; what is
    left over after the last whole update is not taken."""
    seed: int = 0
    """Seed of all random numbers, and of environments that have seeds."""
    evaluation_episodes: int = 32
    """Fresh episodes in the end, without exploration."""
    patience: float = 60.0
    """Seconds for a rollout of an actor in threads or on Ray; then it starts again."""
    address: str = ""
    """Address of a Ray cluster: ray://HOST:PORT, or auto; one is started on this machine if empty."""
    checkpoint_seconds: float = 15.0
    """Least seconds between checkpoints, and ten times as long as the last took to write; 0 saves after each update."""

    def __post_init__(self) -> None:
        configs.check_least(self, actors=1, num_envs=1, evaluation_episodes=1)
        configs.check_seed(self.seed)
        configs.check(self, "a number of at least 0", lambda x: 0 <= x <= configs.LARGEST, "checkpoint_seconds")
        configs.check(self, "a number above 0", lambda x: 0 < x <= configs.LARGEST, "patience")
        if self.past_selves is not None:
            checks.number("past_selves", self.past_selves, 0, 1)
        for name, allowed in (("where", WHERE), ("inference", INFERENCE), ("path", ("", *PATHS))):
            checks.choice(name, getattr(self, name), allowed)
        checks.whole("steps_per_update", self.steps_per_update, 0)
        if self.images is not None:
            checks.size("images", self.images, 0, 1000)
        if self.lag is not None:
            checks.whole("lag", self.lag, 0)
        if not 1 <= self.num_updates <= configs.MOST:
            most = "at least" if self.num_updates < 1 else f"at most {configs.MOST} times"
            raise ValueError(
                f"total_steps: got {configs.shown(self.total_steps)}; {most} the {self.steps_of_an_update} steps of an "
                "update are needed"
            )

    @property
    def learner_name(self) -> str:
        """Without its settings; of several the first one's."""
        return terms(self.learner)[0].partition("(")[0].strip()

    @property
    def data_path(self) -> str:
        """The data for the learners."""
        return self.path or ("gradients" if self.learner_name == "a3c" else "queue")

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a rollout."""
        if self.steps_per_update:
            return self.steps_per_update
        if self.learner_name == "r2d2":
            given = read("learner", terms(self.learner)[0].strip(), "r2d2")[1].get("sequence_length")
            return given if isinstance(given, int) and given > 0 else STEPS["r2d2"]
        return STEPS.get(self.learner_name, 20)

    @property
    def steps_of_an_update(self) -> int:
        """Environment steps that are learned from in an update."""
        return self.num_envs * self.rollout_steps * (self.actors if self.data_path == "barrier" else 1)

    @property
    def num_updates(self) -> int:
        """Number of updates of all learners."""
        return self.total_steps // self.steps_of_an_update

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The length of the training, and settings that fall over it."""
        timed = "anneal=True" in annealed(self.learner) or ".safetensors" in self.learner  # objectives depend on time
        return {"total_steps": ["learner"] if timed else []}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation, and where it runs."""
        return ("evaluation_episodes", "address", "patience")

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing with these values of the others, and the reasons."""
        idle = {} if self.where == "ray" else {"address": f"with where {self.where}"}
        if self.where == "here":
            idle["patience"] = "with where here, because nothing interrupts environments in the learner's own thread"
        if make_env(self.environment).kind != "gymnasium":
            idle["processes"] = f"with {self.environment}; it is for environments of Gymnasium"
        return idle


def annealed(spec: str) -> str:
    """The spec of a learner, or of several with a plus, with `anneal=True` where it can be and is not given."""

    def one(term: str) -> str:
        name, given = read("learner", term.strip(), "ppo")
        if name not in SAMPLED or "anneal" not in SAMPLED.settings(name):
            return term.strip()
        return change(term.strip(), **({"anneal": True} | given))

    return " + ".join(map(one, terms(spec)))


def choose_devices(config: DistributedConfig) -> None:
    """Claims one device, because learners are one program, after Ray, whose processes must not be forks of JAX's."""
    claim_cores(1)
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # another thread costs small programs a tenth of the time
    if config.where == "ray":
        from marl.distributed.actors.ray_pool import connect

        connect(config.address, 1 if config.inference == "central" else config.actors)


def config_of(first: str) -> DistributedConfig:
    """The config from a preset, a file, or an environment by its name; a preset comes before an environment."""
    if first in configs.presets("distributed") or first.endswith((".yaml", ".yml")) or os.path.isfile(first):
        return configs.load(DistributedConfig, "distributed", first)
    return configs.build(DistributedConfig, {"environment": first}, "environment")
