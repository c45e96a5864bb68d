"""The config of `python -m attacks.act`: what is asked for, as data."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import field
from typing import Any, Literal

import configs
from attacks.defences import DEFENCES, learned_steps
from attacks.victim_training import TrainingSchedule
from configs import one_of, short
from marl.learners.registry import SAMPLED
from marl.learners.spec_dependencies import digests
from meta import Evolution

Goal = Literal["harm", "help", "control"]
# Victims differ so much that a generation has to have many: one for each antithetic pair, compared without ranks.
SEARCH: dict[str, Any] = {
    "population_size": 64,
    "chunk_size": 16,
    "shared_trials": "pair",
    "fitness_shaping": "standardize",
}
NUM_JUDGES = 128  # victims by which the parameters are chosen, at most
MOST_ENTRIES = 4096  # of a message
EXPERTS = 8  # of which the best is listened to
EXPERT_TRAININGS = 12  # of a victim, that an expert has learned for
# Environments, and steps of each, that these learn from at a time.
PIECES = {"a2c": (8, 5), "dqn": (8, 8), "td3": (8, 8), "sac": (8, 8)}


@dataclasses.dataclass(frozen=True)
class AttackConfig(configs.CommandConfig):
    """An adversary, an ally or a puppeteer, evolved over the whole learning of its victims."""

    environment: str = "CartPole-v1(max_steps_in_episode=201)"
    """A game of one player by its name, with parameters in brackets."""
    goal: Goal = "harm"
    """harm or help the victim's learning; control steers it afterwards, where the environment has goals."""
    victim: str = (
        "ppo(hidden=[32, 32], shared=True, init='lecun_normal', learning_rate=0.005, epochs=16, minibatches=1, "
        "normalize_observations=True, observation_epsilon=1e-4, bootstrap_limits=False, learn_last_step=False)"
    )
    """The learner that is talked to: ppo, a2c, dqn or another learner of sampled games, with settings in brackets."""
    num_updates: int = 32
    """Learning steps in a victim's training run. A2C, DQN, TD3 and SAC learn from few steps at a time: where more are
    given, a run of as many is cut into pieces of theirs, 5 or 8 steps in 8 environments."""
    steps_per_update: int = 256
    """Steps of each environment between two of them; those four take fewer."""
    num_envs: int = 4
    """Environments that a victim plays at once; those four have eight."""
    message: str = "auto"
    """What is evolved: mlp, linear, quadratic, echo, constant, table, lstm or turn, with settings in brackets such as
    "mlp(hidden=[16])"; auto is linear in units of random play, small at first where the goal is control, and a
    network if it begins with an expert and observations are small; where the goal is harm two such functions, and the
    time of a training run at which one takes the place of the other."""
    controller: str = "auto"
    """For control: what is said to a victim that no longer learns, about its observation and the goal; a message
    without memory, and auto is linear in units of random play and of goals, or a network as above."""
    message_size: int = 2
    """Entries of a message."""
    fitness: Literal["auto", "end", "training", "second_half", "last_update"] = "auto"
    """Judge by the final policy, on fresh episodes without exploration; by the mean return during training, or during
    the second half of it; or by the metric of the paper's code, the last update's rewards over the number of episodes
    that ended in it. auto is training for help, of which the end shows little more than noise, if an episode ends in
    every training run, and otherwise end."""
    begin: str = "random"
    """Where the search begins: random, zero as in the paper's code, expert, or the directory of a finished run with the
    same message, or another, to which that of this run is fitted if both have no memory. An expert is the best of eight
    learners of the victim's kind that have learned in silence for twelve training runs."""
    defence: str = "none"
    """Defence of the victims, as in attacks.examine, against which the attack is evolved: none, dropout, masking,
    noise, decay, power, ensemble or ensemble_of_trainings."""
    trials: int = 0
    """Victims of each candidate in each generation; 0: four for control, as in the paper, and otherwise one."""
    evaluation_episodes: int = 32
    """Episodes that show what a victim has become; a multiple of num_envs."""
    evaluation_steps: int = 200
    """Steps of such an episode at most."""
    evaluation_trials: int = 512
    """Fresh victims of the result, at least 2; the same under every message."""
    seed: int = 0
    """Seed of all draws of the run."""
    warm_up_updates: int = 8
    """Learning steps in a victim's training run at first, in the generations under warm_up; 0 begins with whole
    training runs."""
    warm_up: Evolution = field(default_factory=lambda: Evolution(generations=40, **SEARCH))
    evolution: Evolution = field(
        default_factory=lambda: Evolution(generations=24, sigma=0.05, learning_rate=0.03, **SEARCH)
    )
    shapers: int = 8
    """For control: random shapers, for the victims of each of which a controller is evolved at first, under warm_up, on
    whole training runs; the best pair is where shaper and controller begin to be evolved together, unless with an
    expert, as large as whose shaper the random ones are then."""
    oracle_updates: int = 64
    """For control: learning steps of the PPO controllers that the evolved one is compared with."""

    def __post_init__(self) -> None:
        configs.check_least(self, num_updates=1, steps_per_update=1, num_envs=1)
        needed = f"a whole number from 1 to {MOST_ENTRIES}"
        configs.check(self, needed, lambda x: 1 <= x <= MOST_ENTRIES, "message_size")
        configs.check_least(
            self, evaluation_episodes=1, evaluation_steps=1, evaluation_trials=2, oracle_updates=1, shapers=1
        )
        configs.check_least(self, warm_up_updates=0, trials=0)
        configs.check_product(self, "num_envs", "steps_per_update")
        configs.check_product(self, "evaluation_episodes", "evaluation_steps")
        if self.evaluation_episodes % self.num_envs:
            got = f"evaluation_episodes: got {self.evaluation_episodes}"
            raise ValueError(f"{got}; a multiple of num_envs, {self.num_envs}, is needed")
        configs.check_seed(self.seed)
        if self.defence not in DEFENCES:
            raise ValueError(f"defence: got {short(self.defence)!r}; {one_of(self.defence, list(DEFENCES))}")

    @property
    def start_name(self) -> str:
        """The name of the start of the search, if it has a row of its own; else empty."""
        return {"random": "", "zero": "", "expert": "expert"}.get(self.begin, "start")

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are, with the reason."""
        if self.goal == "control":
            idle = {"warm_up_updates": "with the goal control, which begins with whole training runs"}
            idle |= {"begin": "with the goal control, if it is zero"} if self.begin == "zero" else {}
            # All controllers are judged by the same training runs, and at once; but a chunk may be named, because the
            # default does not fit every population.
            other = ("warm_up.shared_trials", "fitness", "defence")
            return idle | dict.fromkeys(other, "with the goal control")
        idle = {} if self.warm_up_updates else {"warm_up": "with warm_up_updates 0"}
        only = ("controller", "shapers", "oracle_updates")
        return idle | dict.fromkeys(only, f"with the goal {self.goal}; it is for control")

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the search's length, and the fields that fall over it."""
        return {"evolution.generations": self.evolution.falling}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation, which may not change the choice of the parameters."""
        is_choice = self.goal == "control" or self.start_name or self.warm_up_updates
        return ("evaluation_trials",) if self.evaluation_trials >= NUM_JUDGES or not is_choice else ()

    @property
    def reads(self) -> str:
        """Digests of the files that the victim reads, such as an evolved objective. Of its start a run has a copy."""
        return "".join(digests(self.victim))

    @property
    def num_judges(self) -> int:
        """Victims by which the parameters are chosen."""
        return min(NUM_JUDGES, self.evaluation_trials)

    @property
    def schedule(self) -> TrainingSchedule:
        """Length of a victim's training run, and of its evaluation."""
        given = self.num_envs, self.steps_per_update
        own = PIECES.get(SAMPLED.read("victim", self.victim)[0], given)
        envs, steps = own if math.prod(own) < math.prod(given) else given
        updates = self.num_updates
        if (envs, steps) != given:
            updates = max(self.steps_of_a_training // (envs * steps), 1)
        episodes = -(-self.evaluation_episodes // envs) * envs  # a learner with a memory has one for each environment
        return TrainingSchedule(updates, steps, envs, episodes, self.evaluation_steps)

    def in_chunks(self) -> AttackConfig:
        """The config for a cluster."""
        return dataclasses.replace(self, evolution=self.evolution.in_chunks(), warm_up=self.warm_up.in_chunks())

    @property
    def learned_steps(self) -> int:
        """Steps of each environment that a victim learns from."""
        return learned_steps(self.schedule, self.defence)

    @property
    def shortest_learned_steps(self) -> int:
        """The `learned_steps` of the shortest training runs in the search."""
        return dataclasses.replace(self, num_updates=min(updates for _, updates in self.stages)).learned_steps

    @property
    def stages(self) -> list[tuple[Evolution, int]]:
        """The evolutions one after the other, each with the learning steps of its victims' training runs."""
        short = [(self.warm_up, self.warm_up_updates)] if self.warm_up_updates and self.goal != "control" else []
        return [*short, (self.evolution, self.num_updates)]

    @property
    def shared_trainings(self) -> int:
        """Training runs of control under shapers that are not evolved, each controlled by all candidates."""
        return self.warm_up.generations * (self.shapers + 1) * self.victims_each

    @property
    def victims_trained(self) -> int:
        """Victims in all evolutions, those of short training runs among them."""
        victims = sum(evolution.generations * evolution.population_size for evolution, _ in self.stages)
        return victims * self.victims_each + (self.shared_trainings if self.goal == "control" else 0)

    @property
    def trained(self) -> int:
        """The experience of all victims of all evolutions, in whole training runs."""
        updates = sum(evolution.generations * evolution.population_size * updates for evolution, updates in self.stages)
        alone = updates * self.victims_each // self.num_updates
        return alone + (self.shared_trainings if self.goal == "control" else 0)

    @property
    def steps_of_a_training(self) -> int:
        """Environment steps that a victim learns from."""
        return self.num_updates * self.steps_per_update * self.num_envs

    @property
    def at_once(self) -> int:
        """Fresh victims that a core trains together: as many as candidates in the search, at most as by default."""
        return min(self.evolution.chunk_size or SEARCH["chunk_size"], SEARCH["chunk_size"])

    @property
    def victims_each(self) -> int:
        """Victims of a candidate in a generation."""
        return self.trials or (4 if self.goal == "control" else 1)

    @property
    def judged_steps(self) -> int:
        """Environment steps of one evaluation."""
        return self.evaluation_episodes * self.evaluation_steps
