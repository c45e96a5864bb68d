"""The config of `python -m attacks.act`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import field
from typing import Literal

import jax
import numpy as np

import configs
from attacks import messages
from attacks.control import Puppet
from attacks.messages import Message
from attacks.trials import Schedule
from games import Game, rollout
from games.registry import make_game
from games.wrappers.cheap_talk import CheapTalk, observation_shape
from games.wrappers.goals import GoalConditioned
from marl.core.learn import Learner
from marl.learners.registry import make_learner
from meta import Evolution

Goal = Literal["harm", "help", "control"]


@dataclasses.dataclass(frozen=True)
class AttackConfig:
    """An adversary, an ally or a puppeteer, evolved over the whole learning of its victims."""

    environment: str = "CartPole-v1(max_steps_in_episode=200)"
    """A game of one player by its name, with parameters in brackets."""
    goal: Goal = "harm"
    """harm or help the victim's learning; control makes it obey afterwards, where the environment has goals."""
    victim: str = (
        "ppo(hidden=[32, 32], shared=True, learning_rate=0.005, epochs=16, minibatches=1, normalize_observations=True)"
    )
    """The learner that is talked to: ppo, a2c, dqn or another learner of sampled games, with settings in brackets."""
    num_updates: int = 32
    """Learning steps in a victim's life."""
    steps_per_update: int = 256
    """Steps of each environment between two of them."""
    num_envs: int = 4
    """Environments that a victim plays at once."""
    message: str = "auto"
    """What is evolved: mlp, linear, echo, constant or table, with settings in brackets such as "mlp(hidden=[16])"; auto
    is an echo in units of random play where the goal is harm, and mlp otherwise."""
    controller: str = "mlp(hidden=[32, 32])"
    """For control: what is said to a victim that no longer learns, about its observation and the goal."""
    message_size: int = 2
    """Entries of a message."""
    fitness: Literal["end", "training"] = "end"
    """Judge by the final policy, on fresh episodes without exploration, or by the mean return during training."""
    trials: int = 1
    """Victims of each candidate in each generation, the same for all candidates."""
    evaluation_episodes: int = 32
    """Episodes that show what a victim has become; a multiple of num_envs."""
    evaluation_steps: int = 200
    """Steps of such an episode at most."""
    num_victims: int = 512
    """Fresh victims of the result, at least 2; the same under every message."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    warm_up_updates: int = 8
    """Learning steps in a victim's life at first, in the generations under warm_up; 0 begins with whole lives. For
    control there are as many before them, in which the shaper learns to help."""
    warm_up: Evolution = field(default_factory=lambda: Evolution(population_size=128, generations=100, chunk_size=16))
    evolution: Evolution = field(
        default_factory=lambda: Evolution(
            population_size=128, generations=40, chunk_size=16, sigma=0.05, learning_rate=0.02
        )
    )
    oracle_updates: int = 64
    """For control: learning steps of the PPO controllers that the evolved one is compared with."""

    def __post_init__(self) -> None:
        configs.check_least(self, num_updates=1, steps_per_update=1, num_envs=1, message_size=1, trials=1)
        configs.check_least(self, evaluation_episodes=1, evaluation_steps=1, num_victims=2, oracle_updates=1)
        configs.check_least(self, warm_up_updates=0)
        if self.evaluation_episodes % self.num_envs:
            got = f"evaluation_episodes: got {self.evaluation_episodes}"
            raise ValueError(f"{got}; a multiple of num_envs, {self.num_envs}, is needed")
        configs.check_seed(self.seed)
        if self.goal == "control" and self.fitness == "training":
            raise ValueError("fitness: got 'training'; end is needed with the goal control, which comes after it")

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are, with the reason."""
        idle = {} if self.warm_up_updates else {"warm_up": "with warm_up_updates 0"}
        if self.goal != "control":
            idle |= dict.fromkeys(("controller", "oracle_updates"), f"with the goal {self.goal}; it is for control")
        return idle

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """How long the search is, and what falls over it."""
        return {"evolution.generations": self.evolution.falling}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("num_victims",)

    @property
    def schedule(self) -> Schedule:
        """How long a victim lives, and how it is judged."""
        return Schedule(
            self.num_updates, self.steps_per_update, self.num_envs, self.evaluation_episodes, self.evaluation_steps
        )

    @property
    def stages(self) -> list[tuple[Evolution, int]]:
        """The evolutions one after the other, each with the learning steps of its victims' lives."""
        short = [(self.warm_up, self.warm_up_updates)] if self.warm_up_updates else []
        return short * (2 if self.goal == "control" else 1) + [(self.evolution, self.num_updates)]

    @property
    def steps_of_a_life(self) -> int:
        """Environment steps that a victim learns from."""
        return self.num_updates * self.steps_per_update * self.num_envs

    def make_game(self) -> Game:
        """The bare game."""
        return make_game(self.environment)

    @property
    def message_spec(self) -> str:
        """What is evolved, with auto in full."""
        if self.message != "auto":
            return self.message
        return f"echo(units={_units_of_play(self.environment)})" if self.goal == "harm" else "mlp"

    def make_message(self) -> Message:
        """What is evolved."""
        shape = observation_shape(self.make_game())  # says what is wrong with a game before it is played
        return messages.make_message(self.message_spec, shape, self.message_size)

    def make_controller(self) -> Message:
        """For control: what is evolved beside it, a message about [o, goal]."""
        shape = observation_shape(GoalConditioned(self.make_game()))
        return messages.make_message(self.controller, shape, self.message_size, field="controller")

    def make_victim(self, game: Game) -> Learner:
        """The learner that is talked to, in the game as it sees it."""
        return make_learner(self.victim, game, num_updates=self.num_updates, field="victim")


def checked(config: AttackConfig) -> AttackConfig:
    """The config, of which the victim and what is evolved are known to fit the game.

    Raises:
      ValueError: if they do not.
    """
    game = config.make_game()
    victim = config.make_victim(CheapTalk(game, None, config.make_message().speak, config.message_size))
    if config.goal == "control":
        Puppet(game, None, victim)
        config.make_controller()
    return config


def observations_of_play(game: Game) -> np.ndarray:
    """Observations of random play, in which victims begin, `[number, entries]`."""
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, 64)))(jax.random.split(jax.random.key(0), 64))
    observations = np.asarray(played.observations["agent_0"])
    return observations.reshape(observations.shape[0] * observations.shape[1], -1)


@functools.cache
def _units_of_play(environment: str) -> list[float]:
    """The standard deviation of each entry of an observation in random play; 1 where it does not change."""
    deviations = observations_of_play(make_game(environment)).std(0)
    return [float(f"{x:.2g}") if x > 0 else 1.0 for x in deviations]
