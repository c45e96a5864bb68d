"""An attack as a search and its evaluation take it: made once of its config, and checked before anything is written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import configs
from attacks.config import AttackConfig
from attacks.control import Puppet, first_parameters
from attacks.defences import DEFENCES
from attacks.messages import MESSAGES, MOST_ENTRIES, Message
from attacks.random_play import ends_early, units_of_goals, units_of_play
from attacks.victim_training import Defence, MakeVictim, TrainingSchedule
from configs import short
from configs.specs import first_line, naming, write
from games import Game
from games.registry import make_game
from games.wrappers.cheap_talk import CheapTalk, observation_shape
from games.wrappers.goals import GoalConditioned
from marl.core.learn import check_update
from marl.core.learner import Learner
from marl.learners.registry import make_learner
from meta.runs import array_files
from meta.xla.memory import bytes_of, check_bytes

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
    init: Callable[[jax.Array], Any]


def prepare(config: AttackConfig, *, begun: bool = False) -> Attack:
    """The attack of a config, of which the victim and what is evolved are known to fit the game.

    Args:
      config: of the attack.
      begun: whether the search goes on, which keeps where it began.

    Raises:
      ValueError: if they do not, or for what no memory can hold.
    """
    game = make_game(config.environment)
    victim, carry = _check_victim(config, game)  # first: a message may need random play, which takes seconds
    if config.goal == "control":
        Puppet(game, None, victim)  # refuses games without goals, and victims with memory
    attack = resolve(config, game)
    _check_begin(attack, victim, begun)
    if config.defence != "none":
        check_defence(attack, config.defence)
    _check_memory(attack, carry)
    _check_fitness(attack)
    return attack


def resolve(config: AttackConfig, game: Game | None = None) -> Attack:
    """The attack of a config, without the checks of `prepare`.

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
    path: Path, field: str = "directory", needed: str = "that of a finished run of python -m attacks.act"
) -> tuple[Attack, Any]:
    """The attack and the parameters of its message from the directory of a finished run.

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
    arrays, metadata = array_files.load_arrays(file)
    config = configs.build(AttackConfig, metadata.get("config"), str(file))
    if config.goal == "control":
        raise ValueError(f"{field}: {path} is a run with the goal control; one that harms or helps is needed")
    attack = resolve(config)
    return attack, array_files.as_tree(arrays, jax.eval_shape(attack.message.init, jax.random.key(0)), str(file))


def save_adversary(path: Path, attack: Attack, parameters: Any) -> None:
    """Writes what was evolved into the directory of a run, and beside it the config with auto in full."""
    config = dataclasses.replace(attack.config, message=attack.kind.spec)
    if attack.controller_kind:
        config = dataclasses.replace(config, controller=attack.controller_kind.spec)
    metadata = {"method": "attack", "config": configs.plain(config)}
    array_files.replace_arrays(path / ADVERSARY_FILE, parameters, metadata)


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
    message, controller = kind.make(observation_shape(game), config.message_size), None
    init = message.init
    if controller_kind:
        controller = controller_kind.make(observation_shape(GoalConditioned(game)), config.message_size, "controller")
        if controller.remember is not None:
            raise ValueError(f"controller: got {config.controller!r}; a message without memory is needed")
        init = first_parameters(message, controller)
    return Attack(
        config=config,
        game=game,
        kind=kind,
        message=message,
        controller_kind=controller_kind,
        controller=controller,
        make_victim=_victims(config),
        schedule=config.schedule,
        fitness=_fitness(config, game),
        defence=DEFENCES[config.defence],
        init=(lambda key: jax.tree.map(jnp.zeros_like, init(key))) if config.begin == "zero" else init,
    )


def _victims(config: AttackConfig) -> MakeVictim:
    """`(game with cheap talk) -> learner`."""
    num_updates = config.schedule.num_updates
    return lambda game: make_learner(config.victim, game, num_updates=num_updates, field="victim")


def _fitness(config: AttackConfig, game: Game) -> str:
    """The measure of a victim, with auto in full; a training run in which no episode need end has no mean return."""
    if config.fitness != "auto":
        return config.fitness
    ends = game.time_limit is not None and config.shortest_learned_steps >= game.time_limit
    return "training" if config.goal == "help" and ends else "end"


def _talk(game: Game, size: int) -> CheapTalk:
    """The game with some message, whatever it says."""
    return CheapTalk(game, None, lambda parameters, obs: jnp.zeros(size), size)


def _check_victim(config: AttackConfig, game: Game) -> tuple[Learner, Any]:
    """The victim, and the shapes of what its training run carries from one update to the next."""
    size, schedule = config.message_size, config.schedule
    check_bytes("message_size", size, 4.0 * config.num_envs * size)
    talk = _talk(game, size)
    victim = _victims(config)(talk)
    steps, envs = schedule.steps_per_update, schedule.num_envs
    try:
        return victim, check_update(talk, [victim], steps_per_update=steps, num_envs=envs)
    except ValueError as error:
        raise ValueError(f"victim: {config.victim}: {first_line(error)}") from None


def _check_begin(attack: Attack, victim: Learner, begun: bool) -> None:
    """Raises ValueError for an expert or a run with which this search cannot begin."""
    config, kind, size = attack.config, attack.kind, attack.config.message_size
    if config.begin == "expert":
        if attack.message.remember is not None and kind.name != "turn":
            raise ValueError(
                f"begin: got 'expert' with the message {kind.name!r}; one without memory, or turn, is needed"
            )
        if victim.reset_memory is not None:
            raise ValueError(f"begin: got 'expert' with {config.victim}; a victim without memory is needed")
    elif config.start_name and not begun:
        if config.goal == "control":
            raise ValueError(f"begin: got {short(config.begin)!r}; with the goal control random or expert is needed")
        needed = "random, zero, expert or the directory of a finished run"
        other, _ = load_adversary(Path(config.begin), "begin", needed)
        remembers = other.message.remember is not None or attack.message.remember is not None
        theirs, ours = observation_shape(other.game), observation_shape(attack.game)
        if theirs != ours:
            raise ValueError(f"begin: {config.begin} reads observations {theirs}; {ours} are needed")
        if other.config.message_size != size or (remembers and other.kind.spec != kind.spec):
            given = f"begin: {config.begin} has the message {other.kind.spec}, of {other.config.message_size} entries"
            without = "" if remembers else ", or another without memory,"
            raise ValueError(f"{given}; {kind.spec}{without} of {size} is needed")


def check_defence(attack: Attack, defence: str) -> None:
    """Raises ValueError where victims of this kind cannot defend themselves so."""
    size, defend = attack.config.message_size, DEFENCES[defence]
    talk = _talk(attack.game, size)
    try:
        jax.eval_shape(lambda key: defend(key, talk, attack.make_victim, attack.schedule, size), jax.random.key(0))
    except (AssertionError, AttributeError):
        got = f"defence: got {defence!r} for {attack.config.victim}"
        raise ValueError(f"{got}; a victim with networks, that can play its best, is needed") from None
    except ValueError as error:
        raise ValueError(f"defence: {defence}: {first_line(error)}") from None


def _check_memory(attack: Attack, carry: Any) -> None:
    """Raises ValueError for what no memory can hold."""
    config, size = attack.config, bytes_of(jax.eval_shape(attack.message.init, jax.random.key(0)))
    check_bytes("message", config.message, size * max(one.population_size for one, _ in config.stages))
    for evolution, _ in config.stages:
        at_once = (evolution.chunk_size or evolution.population_size) * config.victims_each
        check_bytes("victim", config.victim, at_once * bytes_of(carry.states))
        check_bytes("num_envs", config.num_envs, at_once * bytes_of(carry))
        check_bytes("evaluation_episodes", config.evaluation_episodes, at_once * 16 * config.judged_steps)  # keys
    if config.goal == "control":  # all candidates of a generation at once, for each of the shapers
        trainings = config.shapers * config.victims_each
        check_bytes("shapers", config.shapers, trainings * bytes_of(carry))
        judged = 16 * config.judged_steps * trainings * config.warm_up.population_size
        check_bytes("warm_up.population_size", config.warm_up.population_size, judged)
    check_bytes("num_victims", config.num_victims, 12.0 * config.num_victims * (attack.schedule.num_updates + 5))


def _check_fitness(attack: Attack) -> None:
    """Raises ValueError where episodes need not end in what a victim is judged by."""
    config, limit = attack.config, attack.game.time_limit
    if limit is None:
        return
    halves, steps = {"training": 1, "second_half": 2}.get(config.fitness, 0), config.shortest_learned_steps
    if halves and steps < halves * limit:
        raise ValueError(
            f"fitness: got {config.fitness!r}, of lives of {steps} steps; of at least {halves * limit} are needed"
        )
    if config.fitness == "last_update" and config.goal != "control":
        envs, steps = attack.schedule.num_envs, attack.schedule.steps_per_update
        got = f"fitness: got 'last_update', of {envs} x {steps} steps"
        if envs * steps < limit:
            raise ValueError(f"{got}; an update of at least an episode's {limit} is needed")
        if steps < limit and not ends_early(attack.game, limit):
            needed = f"an update of at least an episode's {limit} steps of each environment is needed"
            raise ValueError(f"{got}; {needed}, for no episode ends sooner in random play")
