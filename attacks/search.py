"""The search for an adversary: where it begins, what is evolved one after the other, and what of it is chosen."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attacks import control
from attacks.attack import Attack, load_adversary, with_training
from attacks.config import Goal
from attacks.distillation import EXPERT_TRAININGS, EXPERTS, distil, refit
from attacks.messages import SPEAKER
from attacks.victim_training import train_time_trial
from meta import Evolved, Outcome, RunDirectory, evolve
from meta.batched_trials import compile_trials, play_trials
from meta.run_keys import RunBranch
from meta.runs import array_files
from meta.runs.formatting import many, say
from meta.runs.progress import Progress, Stages
from meta.statistics import mean_and_error, with_error

START_FILE = "start.safetensors"
NUM_JUDGES = 128  # victims by which the parameters are chosen, at most


@enum.unique
class AttackBranch(enum.IntEnum):
    """Branches of an attack's key, which is a run's."""

    EVALUATION = RunBranch.EVALUATION
    LATER = 2**32 - 2  # the second evolution, after the warm-up
    BESIDE = 2**32 - 3  # controllers that are evolved for shapers that are not
    CHOICE = 2**32 - 4  # the victims by which parameters are chosen
    EXPERT = 2**32 - 5  # the expert whose message is where a search begins


class SearchResult(NamedTuple):
    """What a search has found."""

    parameters: Any  # of the message; for control of shaper and controller
    chosen: str  # what they come from: expert or start, warm_up or controllers, evolution
    judged: dict[str, dict[str, Any]]  # the fitness of each of these, by which they were chosen; empty without a choice
    start: Any  # where it began, with an expert or a run; else None
    told: dict[str, dict[str, Any]] | None  # what each message tells of the expert
    others: dict[str, Any]  # for control: by `control.FIXED`, shapers that are not evolved and their controllers
    stages: list[Evolved]  # one after the other


EXPERT_STAGE, WARM_UP, EVOLUTION, CHOOSING = "expert", "warm-up", "evolution", "choice"


def stages_of_search(attack: Attack) -> dict[str, float]:
    """Stages of a search by their names, and the environment steps of each."""
    found: dict[str, float] = {}
    config = attack.config
    steered, whole = config.goal == "control", config.steps_of_a_training
    for name in control.FIXED if steered else ():
        shared = config.warm_up.generations * config.victims_each * (config.shapers if name == "random_shaper" else 1)
        found[name] = shared * (whole + config.judged_steps * config.warm_up.population_size)
    if config.begin == "expert":
        found[EXPERT_STAGE] = EXPERTS * EXPERT_TRAININGS * whole
    for name, (evolution, updates) in zip((WARM_UP, EVOLUTION)[-len(config.stages) :], config.stages, strict=True):
        victims = evolution.generations * evolution.population_size * config.victims_each
        found[name] = victims * whole * updates / config.num_updates
    if len(config.stages) > 1 or steered or config.start_name:
        found[CHOOSING] = 2 * min(NUM_JUDGES, config.num_victims) * whole
    return found


def search(attack: Attack, key: jax.Array, run: RunDirectory, stages: Stages) -> SearchResult:
    """Evolves an adversary, or goes on where that was stopped.

    Args:
      attack: what to evolve, and how.
      key: of everything.
      run: keeps checkpoints; a warm-up's in its folder `warm_up`, and for control those of controllers for other
        shapers in `silent_shaper` and `random_shaper`.
      stages: shows progress, and nothing else; those of `stages_of_search` are among them.

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite fitness.
    """
    steered, start_name = attack.config.goal == "control", attack.config.start_name
    drawn = {name: _evolve_controllers(attack, name, key, run, stages) for name in control.FIXED if steered}
    start, told = _start(attack, key, run, stages) if start_name else (None, None)
    init = attack.init if start is None else _always(start)
    first = _best_of(drawn["random_shaper"]) if steered and start is None else None
    all_evolved = _evolve(attack, init, key, run, stages, first)
    names = ("controllers" if steered else "warm_up", "evolution")[-len(all_evolved) :]
    found = {} if start is None else {start_name: start}
    found |= {name: jax.tree.map(np.asarray, one.parameters) for name, one in zip(names, all_evolved, strict=True)}
    chosen, judged = _best(attack, jax.random.fold_in(key, AttackBranch.CHOICE), found, stages)
    others = {name: one.parameters for name, one in drawn.items()}
    return SearchResult(found[chosen], chosen, judged, start, told, others, all_evolved)


def _start(
    attack: Attack, key: jax.Array, run: RunDirectory, stages: Stages
) -> tuple[Any, dict[str, dict[str, Any]] | None]:
    """Where the search begins with an expert or a run, and what the summary says of it; kept for a run that goes on."""
    file, console = run.path / START_FILE, stages.console
    if os.path.isfile(file):
        arrays, metadata = array_files.load(file)
        return array_files.as_tree(arrays, jax.eval_shape(attack.init, key), str(file)), metadata["told"]
    expert_key = jax.random.fold_in(key, AttackBranch.EXPERT)
    if attack.config.begin != "expert":
        other, start = load_adversary(Path(attack.config.begin), "begin")
        told: dict[str, dict[str, Any]] | None = None
        if other.kind.spec != attack.kind.spec:
            start, share = refit(expert_key, attack.game, attack.message, other.message, start)
            say(console, f"{attack.kind.spec} tells {share:.0%} of what was said by {other.kind.spec}")
            told = {"message": {"share_told": share}}
        array_files.replace(file, start, {"told": told})
        return start, told
    stages.begin(EXPERT_STAGE, f"{EXPERTS} experts learn in silence, {EXPERT_TRAININGS} times as long as a victim")
    start, found = distil(attack, expert_key)
    for name, one in found.items():
        say(
            console,
            f"the best has a return of {one.expert_return:.4g}; the {name} tells {one.share:.0%} of what it does",
        )
    told = {name: {"expert_return": one.expert_return, "share_told": one.share} for name, one in found.items()}
    array_files.replace(file, start, {"told": told})
    return start, told


def _evolve(
    attack: Attack,
    init: Callable[[jax.Array], Any],
    key: jax.Array,
    run: RunDirectory,
    stages: Stages,
    first: Evolved | None,
) -> list[Evolved]:
    """The warm-up, if there is one, and what counts; for control it goes on from the best pair of a first search."""
    config, done = attack.config, [first] if first else []
    for evolution, num_updates in config.stages:
        whole = bool(done) or len(config.stages) == 1
        name, victims = (EVOLUTION, "victims") if whole else (WARM_UP, f"{config.goal} victims")
        stages.begin(name, f"{name}, {victims} that learn for {many(num_updates, 'update')}")
        store = run if whole else run.part("warm_up", lambda text: say(stages.console, text))
        if done:
            key = jax.random.fold_in(key, AttackBranch.LATER)
            init = _always(jax.tree.map(np.asarray, done[0].parameters))
        trial, number = make_trial(with_training(attack, num_updates=num_updates)), config.victims_each
        steps = evolution.population_size * number * num_updates * config.steps_per_update * config.num_envs
        describe = partial(_describe, config.goal)
        with Progress(stages.console, evolution.generations, steps, "steps", describe, stages=stages) as progress:
            done += [evolve(trial, init, key, evolution, num_trials=number, store=store, report=progress)]
    return done


def _always(parameters: Any) -> Callable[[jax.Array], Any]:
    """An `init` of `evolve` that begins there whatever the key."""
    return lambda key: jax.tree.map(jnp.asarray, parameters)


def _evolve_controllers(attack: Attack, name: str, key: jax.Array, run: RunDirectory, stages: Stages) -> Evolved:
    """Controllers for the victims of shapers that are not evolved, with these shapers; one of `control.FIXED`.

    Whole training runs: all candidates of a generation control the same victims, so that these cost nearly nothing.
    """
    assert attack.controller
    config = attack.config
    number = config.shapers if name == "random_shaper" else 1
    stages.begin(name, f"controllers for the victims of {many(number, name.replace('_', ' '))}")
    keys = jax.random.split(
        jax.random.fold_in(jax.random.fold_in(key, AttackBranch.BESIDE), control.FIXED.index(name)), number
    )

    def drawn(keys: jax.Array) -> Any:
        parameters = jax.vmap(lambda key: attack.message.init(jax.random.fold_in(key, SPEAKER)))(keys)
        return jax.tree.map(jnp.zeros_like, parameters) if name == "silent_shaper" else parameters

    both = make_trial(attack)
    store = run.part(name, lambda text: say(stages.console, text))
    steps = (
        number
        * config.victims_each
        * (config.steps_of_a_training + config.judged_steps * config.warm_up.population_size)
    )
    describe = partial(_describe, config.goal)
    with Progress(stages.console, config.warm_up.generations, steps, "steps", describe, stages=stages) as progress:
        evolved = evolve(
            lambda controller, key, shaper: both({"shaper": shaper, "controller": controller}, key),
            attack.controller.init,
            keys,
            # Chunks would each repeat the same training runs, and pairs would have others.
            dataclasses.replace(config.warm_up, chunk_size=0, shared_trials="generation"),
            num_trials=config.victims_each,
            store=store,
            report=progress,
            context=lambda keys, generation, means: drawn(keys),
        )
    both_of_them = {"shaper": jax.jit(drawn)(keys), "controller": evolved.parameters}
    return evolved._replace(parameters=jax.tree.map(np.asarray, both_of_them))


def _best_of(several: Evolved) -> Evolved:
    """Of independent runs the one with the best mean fitness in its last quarter."""
    late = several.metrics["fitness"][-max(len(several.metrics["fitness"]) // 4, 1) :]
    i = int(np.argmax(late.mean(0)))
    parameters = jax.tree.map(lambda x: x[i], several.parameters)
    return several._replace(parameters=parameters, metrics={k: x[:, i] for k, x in several.metrics.items()})


def _describe(goal: Goal, metrics: dict[str, Any]) -> str:
    """The last generation in a few words; of several runs their mean, and the best goal reward."""
    text = f"victim's return {np.mean(metrics['victim_return']):.1f}"
    text += f"  goal reward {np.max(metrics['fitness']):.3f}" if goal == "control" else ""
    failed = int(np.sum(metrics["non_finite"]))
    return text + (f"  {failed} not finite" if failed else "")


def _best(
    attack: Attack, key: jax.Array, found: dict[str, Any], stages: Stages
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Which parameters do best to whole training runs of fresh victims, which are others than those of the result.

    What whole training runs add to a warm-up is small beside the noise of a short search, and may as well be a loss.

    Returns:
      (their name, the fitness of each; nothing where there is no choice).
    """
    *before, last = found
    if not before:
        return last, {}
    stages.begin(CHOOSING, f"{CHOOSING} between {' and '.join(found).replace('_', ' ')}")
    trial, at_once = make_trial(attack), attack.config.at_once
    keys = jax.random.split(key, min(NUM_JUDGES, attack.config.num_victims))
    program = compile_trials(lambda key, parameters: trial(parameters, key).fitness, found[last], len(keys), at_once)
    values = {name: play_trials(program, keys, parameters, at_once) for name, parameters in found.items()}
    for name in before:
        added = with_error(mean_and_error(values[last] - values[name]))
        say(
            stages.console,
            f"{many(len(keys), 'fresh victim')} to choose by: {last} {added} over {name}".replace("_", " "),
        )
    best = max(found, key=lambda name: np.nan_to_num(values[name].mean(), nan=-np.inf))
    return best, {name: mean_and_error(x) for name, x in values.items()}


def make_trial(attack: Attack) -> Callable[[Any, jax.Array], Outcome]:
    """The trial of `evolve`."""
    game, message, make_victim, schedule = attack.game, attack.message, attack.make_victim, attack.schedule
    size = attack.config.message_size
    if attack.controller:
        return control.control_trial(game, message, attack.controller, make_victim, schedule, size=size)
    return train_time_trial(
        game,
        message,
        make_victim,
        schedule,
        help=attack.config.goal == "help",
        size=size,
        fitness=attack.fitness,
        defence=attack.defence,
    )
