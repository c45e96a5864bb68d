"""The search for an adversary: where it begins, what is evolved one after the other, and what of it is chosen."""

from __future__ import annotations

import enum
import functools
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attacks.control import BEST
from attacks.experiments.attack import ADVERSARY_FILE
from attacks.experiments.config import AttackConfig
from attacks.experiments.distillation import Explained, FindStart
from meta import Evolution, Evolved, Outcome, evolve
from meta.batched_trials import TrialsProgram, compile_trials, run_trials
from meta.run_keys import RunBranch
from meta.runs import array_files
from meta.runs.evaluation_cache import EvaluationCache
from meta.runs.experiment import Context
from meta.runs.formatting import many, say
from meta.runs.progress import Progress
from meta.statistics import mean_and_error, with_error

START_FILE = "start.safetensors"
WARM_UP, EVOLUTION, CHOOSING = "warm-up", "evolution", "choice"


@enum.unique
class AttackBranch(enum.IntEnum):
    """Branches of an attack's key, which is a run's."""

    EVALUATION = RunBranch.EVALUATION
    LATER = 2**32 - 2  # the second evolution, after the warm-up
    BESIDE = 2**32 - 3  # controllers that are evolved for shapers that are not
    CHOICE = 2**32 - 4  # the victims by which parameters are chosen
    EXPERT = 2**32 - 5  # the expert whose message is where a search begins


class SearchStage(NamedTuple):
    """An evolution of a search."""

    name: str
    words: str  # that announce it
    evolution: Evolution
    trial: Callable[..., Outcome]
    steps: int  # environment steps of a generation
    folder: str = ""  # of the run, in which it is kept; the run's own if empty


class ControllerStage(NamedTuple):
    """An evolution of controllers for the victims of shapers that are not evolved, the same for all candidates."""

    stage: SearchStage  # whose trial has a shaper as its third argument
    number: int  # of shapers
    init: Callable[[jax.Array], Any]  # of a controller
    draw: Callable[[jax.Array], Any]  # keys -> parameters of shapers


class Search(NamedTuple):
    """A search as data, made once of an attack.

    Attributes:
      controllers: `(start) -> stages`: for control, what is evolved before the search, which may begin at `start`
      start_name: name of an expert's or a run's parameters in the choice; empty without these
      find_start: finds them
      init: `(key) -> parameters` where the search begins without them
      first_name: name of what the last evolution goes on from
      stages: evolutions, one after the other
      trial: whole training runs, by which the parameters are chosen
      num_trials: victims of a candidate in a generation
      num_judges: victims of the choice
      at_once: of them on a device
      metadata: kept beside the parameters
      config: of the run, for which the victims of the choice are kept
    """

    controllers: Callable[[Any], list[ControllerStage]]
    start_name: str
    find_start: FindStart
    init: Callable[[jax.Array], Any]
    first_name: str
    stages: list[SearchStage]
    trial: Callable[[Any, jax.Array], Outcome]
    num_trials: int
    num_judges: int
    at_once: int
    metadata: dict[str, Any]
    config: AttackConfig

    @property
    def is_choice(self) -> bool:
        """True if there are several parameters to choose from."""
        return len(self.stages) > 1 or self.config.goal == "control" or bool(self.start_name)


class SearchResult(NamedTuple):
    """Result of a search."""

    parameters: Any  # of the message; for control of shaper and controller
    chosen: str  # what they come from: expert or start, warm_up or controllers, evolution
    judged: dict[str, dict[str, Any]]  # the fitness of each of these, by which they were chosen; empty without a choice
    start: Any  # where it began, with an expert or a run; else None
    explained: Explained | None  # the share of the expert that each message explains
    others: dict[str, Any]  # for control: pairs of `control.PLAIN` and `control.BEST`, in a leading axis
    stages: list[Evolved]  # one after the other


def run_search(search: Search, key: jax.Array, context: Context) -> SearchResult:
    """Evolves an adversary, or goes on where that was stopped, and keeps it.

    Args:
      search: what to evolve, and how.
      key: of everything.
      context: of the run, which keeps a warm-up in its folder `warm_up`, and for control controllers for other shapers
        in `silent_shaper` and `random_shaper`.

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite fitness.
    """
    start, explained = _start(search, key, context) if search.start_name else (None, None)
    beside_key = jax.random.fold_in(key, AttackBranch.BESIDE)
    others = {
        one.stage.name: _evolve_controllers(search, one, jax.random.fold_in(beside_key, i), context)
        for i, one in enumerate(search.controllers(start))
    }
    kept = {name: one.parameters for name, one in others.items()}
    init, evolution_key, evolved = (search.init if start is None else _always(start)), key, list[Evolved]()
    if others:
        best = _best_of(others["random_shaper"])
        kept[BEST] = jax.tree.map(lambda x: x[None], best.parameters)
        evolved = [best] if start is None else []
    for stage in search.stages:
        if evolved:
            evolution_key = jax.random.fold_in(key, AttackBranch.LATER)
            init = _always(jax.tree.map(np.asarray, evolved[0].parameters))
        evolved.append(_evolve(search, stage, init, evolution_key, context))
    names = (search.first_name, "evolution")[-len(evolved) :]
    found = {} if start is None else {search.start_name: start}
    found |= {name: jax.tree.map(np.asarray, one.parameters) for name, one in zip(names, evolved, strict=True)}
    chosen, judged = _choose(search, jax.random.fold_in(key, AttackBranch.CHOICE), found, context)
    array_files.replace_arrays(context.run.path / ADVERSARY_FILE, found[chosen], search.metadata)
    return SearchResult(found[chosen], chosen, judged, start, explained, kept, evolved)


def _start(search: Search, key: jax.Array, context: Context) -> tuple[Any, Explained | None]:
    """Parameters of an expert or a run, and what the summary says of them; kept for a run that goes on."""
    file = context.run.path / START_FILE
    if os.path.isfile(file):
        arrays, metadata = array_files.load_arrays(file)
        return array_files.as_tree(arrays, jax.eval_shape(search.init, key), str(file)), metadata["explained"]
    start, explained = search.find_start(jax.random.fold_in(key, AttackBranch.EXPERT), context.stages)
    array_files.replace_arrays(file, start, {"explained": explained})
    return start, explained


def _evolve(
    search: Search,
    stage: SearchStage,
    init: Callable[[jax.Array], Any],
    key: jax.Array,
    context: Context,
    draw: Callable[..., Any] | None = None,
) -> Evolved:
    console, generations, describe = context.console, stage.evolution.generations, partial(_describe, search)
    context.stages.begin(stage.name, stage.words)
    store = context.run.part(stage.folder, lambda text: say(console, text)) if stage.folder else context.run
    with Progress(console, generations, stage.steps, "steps", describe, stages=context.stages) as progress:
        number = search.num_trials
        return evolve(
            stage.trial, init, key, stage.evolution, num_trials=number, store=store, report=progress, context=draw
        )


def _evolve_controllers(search: Search, one: ControllerStage, key: jax.Array, context: Context) -> Evolved:
    """Controllers for the victims of shapers that are not evolved, with these shapers."""
    keys = jax.random.split(key, one.number)
    evolved = _evolve(search, one.stage, one.init, keys, context, lambda keys, generation, means: one.draw(keys))
    both = {"shaper": jax.jit(one.draw)(keys), "controller": evolved.parameters}
    return evolved._replace(parameters=jax.tree.map(np.asarray, both))


def _always(parameters: Any) -> Callable[[jax.Array], Any]:
    """An `init` of `evolve` that begins there whatever the key."""
    return lambda key: jax.tree.map(jnp.asarray, parameters)


def _best_of(several: Evolved) -> Evolved:
    """The independent run with the best mean fitness in its last quarter."""
    late = several.metrics["fitness"][-max(len(several.metrics["fitness"]) // 4, 1) :]
    i = int(np.argmax(late.mean(0)))
    parameters = jax.tree.map(lambda x: x[i], several.parameters)
    return several._replace(parameters=parameters, metrics={k: x[:, i] for k, x in several.metrics.items()})


def _describe(search: Search, metrics: dict[str, Any]) -> str:
    """The metrics of the last generation as text; of several runs their mean, and the best goal reward."""
    text = f"victim's return {np.mean(metrics['victim_return']):.1f}"
    text += f"  goal reward {np.max(metrics['fitness']):.3f}" if search.config.goal == "control" else ""
    failed = int(np.sum(metrics["non_finite"]))
    return text + (f"  {failed} not finite" if failed else "")


def _choose(
    search: Search, key: jax.Array, found: dict[str, Any], context: Context
) -> tuple[str, dict[str, dict[str, Any]]]:
    """The parameters that do best to whole training runs of fresh victims, others than those of the evaluation.

    What whole training runs add to a warm-up is small beside the noise of a short search, and may as well be a loss.

    Returns:
      (their name, the fitness of each; nothing where there is no choice).
    """
    *before, last = found
    if not before:
        return last, {}
    context.stages.begin(CHOOSING, f"{CHOOSING} between {' and '.join(found).replace('_', ' ')}")
    keys, trial = jax.random.split(key, search.num_judges), search.trial

    @functools.cache
    def program() -> TrialsProgram:
        def fitness(key: jax.Array, parameters: Any) -> jax.Array:
            return trial(parameters, key).fitness

        return compile_trials(fitness, found[last], len(keys), search.at_once)

    def fitness_of(parameters: Any) -> Any:
        return run_trials(program(), keys, parameters)

    cache = EvaluationCache(context.run.path, search.config)
    values = {name: cache.result(f"choice-{name}", own, int, partial(fitness_of, own)) for name, own in found.items()}
    for name in before:
        added = with_error(mean_and_error(values[last] - values[name]))
        victims = many(len(keys), "fresh victim")
        say(context.console, f"{victims} to choose by: {last} {added} over {name}".replace("_", " "))
    best = max(found, key=lambda name: np.nan_to_num(values[name].mean(), nan=-np.inf))
    return best, {name: mean_and_error(x) for name, x in values.items()}
