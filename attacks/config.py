"""The config of `python -m attacks.act`."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import configs
from attacks import messages
from attacks.control import Puppet
from attacks.defences import DEFENCES, SHARES, share_of
from attacks.messages import Message
from attacks.trials import TrainingSchedule
from configs import one_of, short
from configs.specs import change, first_line
from games import Game, rollout
from games.registry import make_game
from games.wrappers.cheap_talk import CheapTalk, observation_shape
from games.wrappers.goals import GoalConditioned
from marl.core.learn import check_update
from marl.core.learner import Learner
from marl.learners.registry import SAMPLED, make_learner
from meta import Evolution
from meta.runs import array_files
from meta.xla.memory import bytes_of, check_bytes

Goal = Literal["harm", "help", "control"]
# Victims differ so much that a generation has to meet many: one for each antithetic pair, compared without ranks.
SEARCH: dict[str, Any] = {
    "population_size": 64,
    "chunk_size": 16,
    "shared_trials": "pair",
    "fitness_shaping": "standardize",
}
ADVERSARY_FILE = "adversary.safetensors"
# Environments, and steps of each, that these learn from at a time.
PIECES = {"a2c": (8, 5), "dqn": (8, 8), "td3": (8, 8), "sac": (8, 8)}


@dataclasses.dataclass(frozen=True)
class AttackConfig(configs.CommandConfig):
    """An adversary, an ally or a puppeteer, evolved over the whole learning of its victims."""

    environment: str = "CartPole-v1(max_steps_in_episode=201)"
    """A game of one player by its name, with parameters in brackets."""
    goal: Goal = "harm"
    """harm or help the victim's learning; control makes it obey afterwards, where the environment has goals."""
    victim: str = (
        "ppo(hidden=[32, 32], shared=True, init='lecun_normal', learning_rate=0.005, epochs=16, minibatches=1, "
        "normalize_observations=True, observation_epsilon=1e-4, bootstrap_limits=False, learn_last_step=False)"
    )
    """The learner that is talked to: ppo, a2c, dqn or another learner of sampled games, with settings in brackets."""
    num_updates: int = 32
    """Learning steps in a victim's life. A2C, DQN, TD3 and SAC learn from few steps at a time: where more are given, a
    life of as many is cut into pieces of theirs, 5 or 8 steps in 8 environments."""
    steps_per_update: int = 256
    """Steps of each environment between two of them; those four take fewer."""
    num_envs: int = 4
    """Environments that a victim plays at once; those four have eight."""
    message: str = "auto"
    """What is evolved: mlp, linear, quadratic, echo, constant, table, lstm or turn, with settings in brackets such as
    "mlp(hidden=[16])"; auto is linear in units of random play, a whisper at first where the goal is control, and a
    network if it begins with an expert and observations are small; where the goal is harm two such functions, and the
    time of a life at which one takes the place of the other."""
    controller: str = "auto"
    """For control: what is said to a victim that no longer learns, about its observation and the goal; a message
    without memory, and auto is linear in units of random play and of goals, or a network as above."""
    message_size: int = 2
    """Entries of a message."""
    fitness: Literal["auto", "end", "training", "second_half", "last_update"] = "auto"
    """Judge by the final policy, on fresh episodes without exploration; by the mean return during training, or during
    the second half of it; or by the metric of the paper's code, the last update's rewards over the number of episodes
    that ended in it. auto is training for help, of which the end shows little more than noise, if an episode ends in
    every life, and otherwise end."""
    begin: str = "random"
    """Where the search begins: random, zero as in the paper's code, expert, or the directory of a finished run with the
    same message, or another, to which that of this run is fitted if both have no memory. An expert is the best of eight
    learners of the victim's kind that have learned in silence for twelve lives."""
    defence: str = "none"
    """What the victims do against talk, one of those that attacks.examine tries: so is an attack evolved that knows
    it."""
    trials: int = 0
    """Victims of each candidate in each generation; 0: four for control, as in the paper, and otherwise one."""
    evaluation_episodes: int = 32
    """Episodes that show what a victim has become; a multiple of num_envs."""
    evaluation_steps: int = 200
    """Steps of such an episode at most."""
    num_victims: int = 512
    """Fresh victims of the result, at least 2; the same under every message."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    warm_up_updates: int = 8
    """Learning steps in a victim's life at first, in the generations under warm_up; 0 begins with whole lives."""
    warm_up: Evolution = field(default_factory=lambda: Evolution(generations=40, **SEARCH))
    evolution: Evolution = field(
        default_factory=lambda: Evolution(generations=24, sigma=0.05, learning_rate=0.03, **SEARCH)
    )
    shapers: int = 8
    """For control: random shapers, for the victims of each of which a controller is evolved at first, under warm_up, on
    whole lives; the best pair is where shaper and controller begin to be evolved together, unless with an expert."""
    oracle_updates: int = 64
    """For control: learning steps of the PPO controllers that the evolved one is compared with."""

    def __post_init__(self) -> None:
        configs.check_least(self, num_updates=1, steps_per_update=1, num_envs=1, message_size=1)
        configs.check_least(self, evaluation_episodes=1, evaluation_steps=1, num_victims=2, oracle_updates=1, shapers=1)
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
        """What it is called with which the search begins, where that is worth a row of its own; else empty."""
        return {"random": "", "zero": "", "expert": "expert"}.get(self.begin, "start")

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are, with the reason."""
        if self.goal == "control":
            idle = {"warm_up_updates": "with the goal control, which begins with whole lives"}
            idle |= {"begin": "with the goal control, if it is zero"} if self.begin == "zero" else {}
            # All controllers are judged by the same lives, and at once; but a chunk may be named, for the one that is
            # there by default does not fit every population.
            other = ("warm_up.shared_trials", "fitness", "defence")
            return idle | dict.fromkeys(other, "with the goal control")
        idle = {} if self.warm_up_updates else {"warm_up": "with warm_up_updates 0"}
        only = ("controller", "shapers", "oracle_updates")
        return idle | dict.fromkeys(only, f"with the goal {self.goal}; it is for control")

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """How long the search is, and what falls over it."""
        return {"evolution.generations": self.evolution.falling}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("num_victims",)

    @property
    def schedule(self) -> TrainingSchedule:
        """How long a victim lives, and how it is judged."""
        envs, steps = self.pieces
        updates = self.num_updates
        if (envs, steps) != (self.num_envs, self.steps_per_update):
            updates = max(self.steps_of_a_training // (envs * steps), 1)
        episodes = -(-self.evaluation_episodes // envs) * envs  # a learner with a memory has one for each environment
        return TrainingSchedule(updates, steps, envs, episodes, self.evaluation_steps)

    @property
    def pieces(self) -> tuple[int, int]:
        """(environments, steps of each between two updates) of the victim's life."""
        own = PIECES.get(SAMPLED.read("victim", self.victim)[0], (self.num_envs, self.steps_per_update))
        given = self.num_envs, self.steps_per_update
        return own if math.prod(own) < math.prod(given) else given

    def in_chunks(self) -> AttackConfig:
        """For a cluster."""
        return dataclasses.replace(self, evolution=self.evolution.in_chunks(), warm_up=self.warm_up.in_chunks())

    @property
    def stages(self) -> list[tuple[Evolution, int]]:
        """The evolutions one after the other, each with the learning steps of its victims' lives."""
        short = [(self.warm_up, self.warm_up_updates)] if self.warm_up_updates and self.goal != "control" else []
        return [*short, (self.evolution, self.num_updates)]

    @property
    def lives_shared(self) -> int:
        """For control: lives of the victims of shapers that are not evolved, each controlled by all candidates."""
        return self.warm_up.generations * (self.shapers + 1) * self.victims_each

    @property
    def victims_trained(self) -> int:
        """Victims in all evolutions, those of short lives among them."""
        victims = sum(evolution.generations * evolution.population_size for evolution, _ in self.stages)
        return victims * self.victims_each + (self.lives_shared if self.goal == "control" else 0)

    @property
    def trained(self) -> int:
        """What all victims of all evolutions have learned from, in whole lives."""
        updates = sum(evolution.generations * evolution.population_size * updates for evolution, updates in self.stages)
        alone = updates * self.victims_each // self.num_updates
        return alone + (self.lives_shared if self.goal == "control" else 0)

    @property
    def steps_of_a_training(self) -> int:
        """Environment steps that a victim learns from."""
        return self.num_updates * self.steps_per_update * self.num_envs

    @property
    def judged_by(self) -> str:
        """What the victim's return is in the search, with auto resolved; one of `trials.FITNESS`.

        Lives in which no episode need end have no mean return.
        """
        if self.fitness != "auto":
            return self.fitness
        limit = self.make_game().time_limit
        ends = limit is not None and self.steps_of_the_shortest >= limit
        return "training" if self.goal == "help" and ends else "end"

    @property
    def steps_of_the_shortest(self) -> int:
        """Steps of each environment in the shortest lives of the search."""
        short = min(updates for _, updates in self.stages)
        schedule = dataclasses.replace(self, num_updates=short).schedule
        return share_of(schedule.num_updates, SHARES.get(self.defence, 1.0)) * schedule.steps_per_update

    @property
    def at_once(self) -> int:
        """Fresh victims that live together on a device: as many as candidates in the search."""
        return self.evolution.chunk_size or SEARCH["chunk_size"]

    @property
    def victims_each(self) -> int:
        """Victims of a candidate in a generation."""
        return self.trials or (4 if self.goal == "control" else 1)

    @property
    def judged_steps(self) -> int:
        """Environment steps of one evaluation."""
        return self.evaluation_episodes * self.evaluation_steps

    def make_game(self) -> Game:
        """The bare game."""
        return make_game(self.environment)

    def with_training(self, **changes: Any) -> AttackConfig:
        """The same of another victim, or of shorter lives: what turns at some time of a life turns at that share."""
        other = dataclasses.replace(self, **changes)
        if self.message == "auto" or not self.message.strip().startswith("turn"):
            return other
        name, given = messages.MESSAGES.read("message", self.message_spec)
        before, now = (one.num_updates * one.steps_per_update for one in (self.schedule, other.schedule))
        return dataclasses.replace(other, message=change(name, **given | {"steps": given["steps"] * now / before}))

    @property
    def message_spec(self) -> str:
        """What is evolved, with auto in full, and the steps in which a victim learns where none are given."""
        schedule = self.schedule
        steps = share_of(schedule.num_updates, SHARES.get(self.defence, 1.0)) * schedule.steps_per_update
        if self.message != "auto":
            name, given = messages.MESSAGES.read("message", self.message)
            return change(self.message, steps=steps) if name == "turn" and "steps" not in given else self.message
        own = self._function_of(_units_of_play(self.environment))
        if self.goal == "control":
            return change(own, volume=0.135) if own.startswith("linear") else own
        return own if self.goal == "help" else f"turn(steps={steps}, what={own!r})"

    @property
    def controller_spec(self) -> str:
        """The controller, with auto in full."""
        if self.controller != "auto":
            return self.controller
        return self._function_of(_units_of_play(self.environment) + _units_of_goals(self.environment))

    def _function_of(self, units: list[float]) -> str:
        """The kind that auto means; what experts do is seldom linear."""
        if self.begin == "expert" and len(units) <= messages.MOST_ENTRIES:
            return f"mlp(hidden=[32, 32], units={units})"
        return f"linear(units={units})"

    def make_message(self) -> Message:
        """What is evolved."""
        shape = observation_shape(self.make_game())  # says what is wrong with a game before it is played
        return messages.make_message(self.message_spec, shape, self.message_size)

    def make_controller(self) -> Message:
        """For control: what is evolved beside it, a message about [o, goal]."""
        shape = observation_shape(GoalConditioned(self.make_game()))
        controller = messages.make_message(self.controller_spec, shape, self.message_size, field="controller")
        if controller.remember is not None:
            raise ValueError(f"controller: got {self.controller!r}; a message without memory is needed")
        return controller

    def make_victim(self, game: Game) -> Learner:
        """The learner that is talked to, in the game as it sees it."""
        return make_learner(self.victim, game, num_updates=self.schedule.num_updates, field="victim")


def check_defence(config: AttackConfig, defence: str) -> None:
    """Raises ValueError where victims of this kind cannot defend themselves so."""
    game, size = config.make_game(), config.message_size
    talk = CheapTalk(game, None, lambda parameters, obs: jnp.zeros(size), size)
    defend, schedule = DEFENCES[defence], config.schedule
    try:
        jax.eval_shape(lambda key: defend(key, talk, config.make_victim, schedule, size), jax.random.key(0))
    except (AssertionError, AttributeError):
        got = f"defence: got {defence!r} for {config.victim}"
        raise ValueError(f"{got}; a victim with networks, that can play its best, is needed") from None
    except ValueError as error:
        raise ValueError(f"defence: {defence}: {first_line(error)}") from None


def checked(config: AttackConfig, *, begun: bool = False) -> AttackConfig:
    """The config, of which the victim and what is evolved are known to fit the game.

    Args:
      config: of the attack.
      begun: whether the search goes on, which keeps where it began.

    Raises:
      ValueError: if they do not, or for what no memory can hold.
    """
    game, size = config.make_game(), config.message_size
    check_bytes("message_size", size, 4.0 * config.num_envs * size)
    # Whatever is said: a message may need the units of play, which take seconds to find.
    talk = CheapTalk(game, None, lambda parameters, obs: jnp.zeros(size), size)
    victim = config.make_victim(talk)
    try:
        envs, steps = config.pieces
        carry = check_update(talk, [victim], steps_per_update=steps, num_envs=envs)
    except ValueError as error:
        raise ValueError(f"victim: {config.victim}: {first_line(error)}") from None
    if config.begin == "expert":
        name, message = messages.MESSAGES.read("message", config.message_spec)[0], config.make_message()
        if message.remember is not None and name != "turn":
            raise ValueError(f"begin: got 'expert' with the message {name!r}; one without memory, or turn, is needed")
        if victim.reset_memory is not None:
            raise ValueError(f"begin: got 'expert' with {config.victim}; a victim without memory is needed")
    elif config.start_name and not begun:
        if config.goal == "control":
            raise ValueError(f"begin: got {short(config.begin)!r}; with the goal control random or expert is needed")
        needed = "random, zero, expert or the directory of a finished run"
        other, said, _ = load_adversary(Path(config.begin), "begin", needed)
        remembers = said.remember is not None or config.make_message().remember is not None
        theirs, ours = (observation_shape(one) for one in (other.make_game(), game))
        if theirs != ours:
            raise ValueError(f"begin: {config.begin} reads observations {theirs}; {ours} are needed")
        if other.message_size != size or (remembers and other.message_spec != config.message_spec):
            given = f"begin: {config.begin} has the message {other.message_spec}, of {other.message_size} entries"
            without = "" if remembers else ", or another without memory,"
            raise ValueError(f"{given}; {config.message_spec}{without} of {size} is needed")
    if config.defence != "none":
        check_defence(config, config.defence)
    size = bytes_of(jax.eval_shape(config.make_message().init, jax.random.key(0)))
    check_bytes("message", config.message, size * max(one.population_size for one, _ in config.stages))
    for evolution, _ in config.stages:
        at_once = (evolution.chunk_size or evolution.population_size) * config.victims_each
        check_bytes("victim", config.victim, at_once * bytes_of(carry.states))
        check_bytes("num_envs", config.num_envs, at_once * bytes_of(carry))
        judged = 16 * config.evaluation_steps * config.evaluation_episodes  # the keys of all steps
        check_bytes("evaluation_episodes", config.evaluation_episodes, at_once * judged)
    if config.goal == "control":  # all candidates of a generation at once, for each of the shapers
        trainings = config.shapers * config.victims_each
        check_bytes("shapers", config.shapers, trainings * bytes_of(carry))
        judged = 16 * config.judged_steps * trainings * config.warm_up.population_size
        check_bytes("warm_up.population_size", config.warm_up.population_size, judged)
    check_bytes("num_victims", config.num_victims, 12.0 * config.num_victims * (config.schedule.num_updates + 5))
    limit = game.time_limit
    halves = {"training": 1, "second_half": 2}.get(config.fitness, 0)
    if halves and limit is not None and config.steps_of_the_shortest < halves * limit:
        raise ValueError(
            f"fitness: got {config.fitness!r}, of lives of {config.steps_of_the_shortest} steps; of at least "
            f"{halves * limit} are needed"
        )
    if config.fitness == "last_update" and config.goal != "control" and limit is not None:
        got = f"fitness: got 'last_update', of {envs} x {steps} steps"
        if envs * steps < limit:
            raise ValueError(f"{got}; an update of at least an episode's {limit} is needed")
        if steps < limit and not _ends_early(config.environment, limit):
            needed = f"an update of at least an episode's {limit} steps of each environment is needed"
            raise ValueError(f"{got}; {needed}, for no episode ends sooner in random play")
    if config.goal == "control":
        Puppet(game, None, victim)
        config.make_controller()
    return config


def load_adversary(
    path: Path, field: str = "directory", needed: str = "that of a finished run of python -m attacks.act"
) -> tuple[AttackConfig, Message, Any]:
    """The config, the message function and its parameters from the directory of a finished run.

    Args:
      path: the directory.
      field: the setting that names it, in errors.
      needed: what else it may be, likewise.

    Raises:
      ValueError: if there is none, or if its file is damaged; one line.
    """
    file = path / ADVERSARY_FILE
    if not os.path.isfile(file):
        raise ValueError(f"{field}: got {str(path)!r}; {needed} is needed")
    arrays, metadata = array_files.load(file)
    config = configs.build(AttackConfig, metadata.get("config"), str(file))
    if config.goal == "control":
        raise ValueError(f"{field}: {path} is a run with the goal control; one that harms or helps is needed")
    message = config.make_message()
    return config, message, array_files.as_tree(arrays, jax.eval_shape(message.init, jax.random.key(0)), str(file))


def observations_of_play(game: Game) -> np.ndarray:
    """Observations of random play, in which victims begin, `[number, entries]`."""
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, 64)))(jax.random.split(jax.random.key(0), 64))
    observations = np.asarray(played.observations["agent_0"])
    return observations.reshape(observations.shape[0] * observations.shape[1], -1)


@functools.cache
def _ends_early(environment: str, limit: int) -> bool:
    """Whether some episode of random play ends before its time limit."""
    game = make_game(environment)
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, max(limit - 1, 1)).dones["__all__"].any()))
    return bool(played(jax.random.split(jax.random.key(0), 64)).any())


@functools.cache
def _units_of_play(environment: str) -> list[float]:
    """The standard deviation of each entry of an observation in random play; 1 where it does not change."""
    deviations = observations_of_play(make_game(environment)).std(0)
    return _rounded(deviations)


@functools.cache
def _units_of_goals(environment: str) -> list[float]:
    """The standard deviation of each entry of a goal."""
    game = GoalConditioned(make_game(environment))
    goals = jax.vmap(lambda key: game.reset(key)[1].goal)(jax.random.split(jax.random.key(0), 1024))
    return _rounded(np.asarray(goals).std(0))


def _rounded(units: np.ndarray) -> list[float]:
    return [float(f"{x:.2g}") if x > 0 else 1.0 for x in units]
