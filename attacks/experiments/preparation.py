"""The experiment of a config, after checks of all that can be known before anything is written."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from attacks.control import Puppet
from attacks.defences import DEFENCES
from attacks.experiments.attack import Attack, load_adversary, make_victims, resolve
from attacks.experiments.attack_experiment import AttackExperiment
from attacks.experiments.config import AttackConfig
from attacks.experiments.control_experiment import ControlExperiment
from attacks.experiments.distillation import entries_needed
from attacks.experiments.message_experiment import MessageExperiment
from attacks.random_play import ends_early
from configs import short
from configs.specs import first_line
from games import Game
from games.registry import make_game
from games.wrappers.cheap_talk import CheapTalk, observation_shape
from games.wrappers.goals import has_goals
from marl.core.learn import check_update
from marl.core.learner import Learner, learns
from marl.learners.registry import SAMPLED
from marl.shapers import registry as shapers
from meta.xla.memory import bytes_of, check_bytes


def prepare(config: AttackConfig, *, begun: bool = False) -> AttackExperiment:
    """The experiment of a config, of which the victim and what is evolved are known to fit the game.

    Args:
      config: of the attack.
      begun: whether the search goes on, which keeps where it began.

    Raises:
      ValueError: if they do not, or for what no memory can hold.
    """
    game = make_game(config.environment)
    if game.num_agents != 1:
        got = f"environment: got {short(config.environment)!r}, of {game.num_agents} players"
        raise ValueError(f"{got}; a game of one is needed")
    if config.goal == "control" and not has_goals(game):
        raise ValueError(f"goal: got 'control' in {short(config.environment)}, without goals; harm or help is needed")
    victim, carry = _check_victim(config, game)  # first: a message may need random play, which takes seconds
    if config.goal == "control":
        Puppet(game, None, victim)  # refuses victims with memory
    attack = resolve(config, game)
    if config.goal == "control" and not begun:
        for field, kind in (("message", attack.kind), ("controller", attack.controller_kind)):
            if kind and kind.settings.get("scale", 0) > Puppet.scale:
                needed = "at most 6.283, 2 pi, with goal control,"
                raise ValueError(f"{field}: scale: got {kind.settings['scale']}; {needed} is needed")
    _check_begin(attack, victim, begun)
    if config.defence != "none":
        check_defence(attack, config.defence)
    _check_memory(attack, carry)
    _check_fitness(attack)
    return make_experiment(attack)


def make_experiment(attack: Attack) -> AttackExperiment:
    """The experiment of an attack by its goal."""
    return ControlExperiment(attack) if attack.controller else MessageExperiment(attack)


def _talk(game: Game, size: int) -> CheapTalk:
    """The game with some message, whatever it says."""
    return CheapTalk(game, None, lambda parameters, obs: jnp.zeros(size), size)


def _check_victim(config: AttackConfig, game: Game) -> tuple[Learner, Any]:
    """The victim, and the shapes of what its training run carries from one update to the next."""
    size, schedule = config.message_size, config.schedule
    check_bytes("message_size", size, 4.0 * config.num_envs * size)
    talk = _talk(game, size)
    victim = make_victims(config)(talk)
    if not learns(victim) or SAMPLED.read("victim", config.victim)[0] in shapers.SAMPLED.names():
        raise ValueError(f"victim: got {short(config.victim)!r}, which does not learn; a learner such as ppo is needed")
    steps, envs = schedule.steps_per_update, schedule.num_envs
    try:
        return victim, check_update(talk, [victim], steps_per_update=steps, num_envs=envs)
    except ValueError as error:
        raise ValueError(f"victim: {config.victim}: {first_line(error)}") from None


def _check_begin(attack: Attack, victim: Learner, begun: bool) -> None:
    """Raises ValueError for an expert or a run with which this search cannot begin."""
    config, kind, size = attack.config, attack.kind, attack.config.message_size
    if config.begin == "expert":
        turns = kind.name == "turn" and config.goal != "control"
        if attack.message.remember is not None and not turns:
            needed = "one without memory" if config.goal == "control" else "one without memory, or turn,"
            raise ValueError(f"begin: got 'expert' with the message {kind.name!r}; {needed} is needed")
        if victim.reset_memory is not None:
            raise ValueError(f"begin: got 'expert' with {config.victim}; a victim without memory is needed")
        if size < (least := entries_needed(attack.game.action_space("agent_0"))):
            got = f"message_size: got {size}, with begin expert in {short(config.environment)}"
            raise ValueError(f"{got}; at least {least} is needed, to say what an expert would do")
    elif config.start_name and not begun:
        if config.goal == "control":
            raise ValueError(f"begin: got {short(config.begin)!r}; with the goal control random or expert is needed")
        needed = "random, zero, expert or the directory of a finished run"
        other, _ = load_adversary(config.begin, "begin", needed)
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
    defend, talk = DEFENCES[defence], _talk(attack.game, attack.config.message_size)
    try:
        jax.eval_shape(lambda key: defend(key, talk, attack.make_victim, attack.schedule), jax.random.key(0))
    except AttributeError:
        got = f"defence: got {defence!r} for {attack.config.victim}"
        raise ValueError(f"{got}; a victim with networks, that can play its best, is needed") from None
    except ValueError as error:
        raise ValueError(f"defence: {defence}: {first_line(error)}") from None


def _check_memory(attack: Attack, carry: Any) -> None:
    """Raises ValueError for what no memory can hold."""
    config, size = attack.config, bytes_of(jax.eval_shape(attack.message.init, jax.random.key(0)))
    populations = [one.population_size for one, _ in config.stages if one.noise == "full"]
    check_bytes("message", config.message, size * max(populations, default=1))
    for evolution, _ in config.stages:
        at_once = evolution.at_once * config.victims_each
        check_bytes("victim", config.victim, at_once * bytes_of(carry.states))
        check_bytes("num_envs", config.num_envs, at_once * bytes_of(carry))
        check_bytes("evaluation_episodes", config.evaluation_episodes, at_once * 16 * config.judged_steps)  # keys
    if config.goal == "control":  # all candidates of a generation at once, for each of the shapers
        trainings = config.shapers * config.victims_each
        check_bytes("shapers", config.shapers, trainings * bytes_of(carry))
        judged = 16 * config.judged_steps * trainings * config.warm_up.population_size
        check_bytes("warm_up.population_size", config.warm_up.population_size, judged)
    check_bytes(
        "evaluation_trials",
        config.evaluation_trials,
        12.0 * config.evaluation_trials * (attack.schedule.num_updates + 5),
    )


def _check_fitness(attack: Attack) -> None:
    """Raises ValueError where episodes need not end in what a victim is judged by."""
    config, limit = attack.config, attack.game.time_limit
    if limit is None or config.goal == "control":  # which is judged by goal rewards
        return
    halves, steps = {"training": 1, "second_half": 2}.get(config.fitness, 0), config.shortest_learned_steps
    if halves and steps < halves * limit:
        raise ValueError(
            f"fitness: got {config.fitness!r}, of training runs of {steps} steps; at least {halves * limit} are needed"
        )
    if config.fitness == "last_update":
        envs, steps = attack.schedule.num_envs, attack.schedule.steps_per_update
        got = f"fitness: got 'last_update', of {envs} x {steps} steps"
        if envs * steps < limit:
            raise ValueError(f"{got}; an update of at least an episode's {limit} is needed")
        if steps < limit and not ends_early(attack.game, limit):
            needed = f"an update of at least an episode's {limit} steps of each environment is needed"
            raise ValueError(f"{got}; {needed}, for no episode ends sooner in random play")
