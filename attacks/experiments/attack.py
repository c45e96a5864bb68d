"""An attack as a search and its evaluation take it: made once of its config."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import configs
from attacks.control import control_trial, first_parameters
from attacks.defences import DEFENCES
from attacks.experiments.config import EXPERT_TRAININGS, AttackConfig
from attacks.messages import MESSAGES, MOST_ENTRIES, Message
from attacks.random_play import units_of_goals, units_of_play
from attacks.victim_training import Defence, MakeVictim, TrainingSchedule, train_time_trial
from configs.specs import naming, write
from games import Game
from games.registry import make_game
from games.wrappers.cheap_talk import observation_shape
from games.wrappers.goals import GoalConditioned
from marl.learners.registry import make_learner
from marl.trained.catalogue import located
from meta import Outcome
from meta.runs import array_files
from meta.runs.directory import naming_imports

ADVERSARY_FILE = "adversary.safetensors"


class MessageKind(NamedTuple):
    """A kind of message function, of which another can be made with other settings."""

    name: str  # one of `MESSAGES`
    settings: dict[str, Any]  # those that were given
    spec: str  # both, as they are written

    @classmethod
    def read(cls, spec: str, field: str = "message") -> MessageKind:
        """The kind that a spec names, as in `make_message`."""
        return cls(*MESSAGES.read(field, spec), spec)

    @classmethod
    def of(cls, name: str, **settings: Any) -> MessageKind:
        """The kind of a name, with settings."""
        return cls(name, settings, write(name, settings))

    def with_settings(self, **settings: Any) -> MessageKind:
        """The same kind with other settings."""
        return self.of(self.name, **self.settings | settings)

    def make(self, obs_shape: Sequence[int], size: int, field: str = "message") -> Message:
        """The message function, as in `make_message`."""
        with naming(field, self.name):
            return MESSAGES.build(self.name, self.settings, obs_shape, size)


class Attack(NamedTuple):
    """An attack with all that its config leaves open resolved.

    Attributes:
      config: what was asked for; sizes, seeds and the evolutions, `config.stages`, are its
      game: the bare game
      kind: the kind of the message, with auto in full
      message: what is evolved
      controller_kind: for control, the kind of the controller; else None
      controller: for control, what is evolved beside the message, of [o, goal]; else None
      make_victim: `(game with cheap talk) -> learner`
      schedule: of a victim's training run
      fitness: what a victim's return is in the search, one of `victim_training.FITNESS`
      defence: what victims do against messages
      trial: of `evolve`, on whole training runs
      experts: where the search begins with an expert, what makes these and their schedule; else None
      init: `(key) -> parameters`, of the message, or of shaper and controller, where a search begins by itself
    """

    config: AttackConfig
    game: Game
    kind: MessageKind
    message: Message
    controller_kind: MessageKind | None
    controller: Message | None
    make_victim: MakeVictim
    schedule: TrainingSchedule
    fitness: str
    defence: Defence
    trial: Callable[[Any, jax.Array], Outcome]
    experts: tuple[MakeVictim, TrainingSchedule] | None
    init: Callable[[jax.Array], Any]


def resolve(config: AttackConfig, game: Game | None = None) -> Attack:
    """The attack of a config, without the checks of `preparation.prepare`.

    Random games are played at most once: where a message is in units of what is seen there.
    """
    game, steered = game or make_game(config.environment), config.goal == "control"
    units = units_of_play(game) if config.message == "auto" or (steered and config.controller == "auto") else []
    return _made(config, game, _message_kind(config, units), _controller_kind(config, units, game) if steered else None)


def with_training(attack: Attack, *, victim: str = "", num_updates: int = 0) -> Attack:
    """The same attack on another victim, or with training runs of another length, in learning steps of its config.

    A message that turns at some time of a training run turns at the same share of the other one.
    """
    config, kind = attack.config, attack.kind
    config = dataclasses.replace(config, victim=victim or config.victim, num_updates=num_updates or config.num_updates)
    if kind.name == "turn":
        scaled = kind.settings["steps"] * config.schedule.steps / attack.schedule.steps
        kind = kind.with_settings(steps=config.learned_steps if config.message == "auto" else scaled)
    return _made(config, attack.game, kind, attack.controller_kind)


def load_adversary(
    path: Path | str, field: str = "directory", needed: str = "that of a finished run of python -m attacks.act"
) -> tuple[Attack, Any]:
    """The attack and the parameters of its message from the directory of a finished run.

    Args:
      path: the directory, its file, or `hub:NAME` of an adversary that comes with the library.
      field: the setting that names it, in errors.
      needed: what else it may be, likewise.

    Raises:
      ValueError: if there is none, or if its file is damaged; one line.
    """
    attack, parameters = load_attack(path, field, needed)
    if attack.config.goal == "control":
        raise ValueError(f"{field}: {path} is a run with the goal control; one that harms or helps is needed")
    return attack, parameters


def load_attack(path: Path | str, field: str, needed: str) -> tuple[Attack, Any]:
    """As `load_adversary`, of an attack with any goal; for control the parameters of shaper and controller."""
    place = Path(located(path, field))
    file = place / ADVERSARY_FILE if place.is_dir() else place
    if not os.path.isfile(file):
        raise ValueError(f"{field}: got {str(path)!r}; {needed} is needed")
    arrays, metadata = array_files.load_arrays(file)
    if metadata.get("method") != "attack":
        raise ValueError(f"{field}: got {str(path)!r}, which is no attack; {needed} is needed")
    with naming_imports(place):
        attack = resolve(configs.build(AttackConfig, metadata.get("config"), str(file)))
    return attack, array_files.as_tree(arrays, jax.eval_shape(attack.init, jax.random.key(0)), str(file))


def metadata_of(attack: Attack) -> dict[str, Any]:
    """Metadata of the file of what was evolved: the config with auto in full."""
    config = dataclasses.replace(attack.config, message=attack.kind.spec)
    if attack.controller_kind:
        config = dataclasses.replace(config, controller=attack.controller_kind.spec)
    return {"method": "attack", "config": configs.plain(config)}


def _message_kind(config: AttackConfig, units: list[float]) -> MessageKind:
    """The kind of the message, with the steps in which a victim learns where it turns and none are given."""
    if config.message != "auto":
        kind = MessageKind.read(config.message)
        timed = kind.name != "turn" or "steps" in kind.settings
        return kind if timed else kind.with_settings(steps=config.learned_steps)
    kind = _function_of(config, units)
    if config.goal == "control":
        return kind.with_settings(volume=0.135) if kind.name == "linear" else kind
    return kind if config.goal == "help" else MessageKind.of("turn", steps=config.learned_steps, what=kind.spec)


def _controller_kind(config: AttackConfig, units: list[float], game: Game) -> MessageKind:
    """The kind of the controller, which sees goals too."""
    if config.controller != "auto":
        return MessageKind.read(config.controller, "controller")
    return _function_of(config, units + units_of_goals(game))


def _function_of(config: AttackConfig, units: list[float]) -> MessageKind:
    """The kind that auto means; what experts do is seldom linear."""
    if config.begin == "expert" and len(units) <= MOST_ENTRIES:
        return MessageKind.of("mlp", hidden=[32, 32], units=units)
    return MessageKind.of("linear", units=units)


def _made(config: AttackConfig, game: Game, kind: MessageKind, controller_kind: MessageKind | None) -> Attack:
    """The attack of these kinds of messages."""
    size, message, controller = config.message_size, kind.make(observation_shape(game), config.message_size), None
    init, make_victim, schedule, fitness = message.init, make_victims(config), config.schedule, _fitness(config, game)
    defence = DEFENCES[config.defence]
    if controller_kind:
        controller = controller_kind.make(observation_shape(GoalConditioned(game)), size, "controller")
        if controller.remember is not None:
            raise ValueError(f"controller: got {config.controller!r}; a message without memory is needed")
        init = first_parameters(message, controller)
        trial = control_trial(game, message, controller, make_victim, schedule, size=size)
    else:
        helps = config.goal == "help"
        trial = train_time_trial(
            game, message, make_victim, schedule, help=helps, size=size, fitness=fitness, defence=defence
        )
    experts = None
    if config.begin == "expert":
        longer = dataclasses.replace(config, num_updates=EXPERT_TRAININGS * config.num_updates)
        experts = make_victims(longer), longer.schedule
    return Attack(
        config=config,
        game=game,
        kind=kind,
        message=message,
        controller_kind=controller_kind,
        controller=controller,
        make_victim=make_victim,
        schedule=schedule,
        fitness=fitness,
        defence=defence,
        trial=trial,
        experts=experts,
        init=(lambda key: jax.tree.map(jnp.zeros_like, init(key))) if config.begin == "zero" else init,
    )


def make_victims(config: AttackConfig) -> MakeVictim:
    """`(game with cheap talk) -> learner`."""
    num_updates = config.schedule.num_updates
    return lambda game: make_learner(config.victim, game, num_updates=num_updates, field="victim")


def _fitness(config: AttackConfig, game: Game) -> str:
    """The measure of a victim, with auto in full; a training run in which no episode need end has no mean return."""
    if config.fitness != "auto":
        return config.fitness
    ends = game.time_limit is not None and config.shortest_learned_steps >= game.time_limit
    return "training" if config.goal == "help" and ends else "end"
