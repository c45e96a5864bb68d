"""A whole discovery: tuned, searched, tried on fresh trainings, and kept in a run directory."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Column, Table

import configs
from configs.specs import change, first_line, read
from marl.core.learn import check_update
from marl.experiments.discovery import figures
from marl.experiments.discovery.config import DiscoveryConfig
from marl.experiments.discovery.evaluation import compare, compare_seats, fresh_trainings
from marl.experiments.discovery.trial import (
    CONTROLS,
    SCALES,
    Arena,
    FreshTrial,
    TrainingResult,
    discovery_trial,
    evolved,
    first_scales,
    fresh_trial,
    known,
    plain,
    scaled,
    tuned,
    unused,
)
from marl.learners.registry import make_learner
from marl.learners.sampled.objective_registry import FILE, save_objective
from meta import Evolution, Evolved, Outcome, evolve
from meta.run_keys import RunBranch, of_seeds
from meta.runs.experiment import Context, Experiment
from meta.runs.formatting import duration, many, say
from meta.runs.progress import Progress
from meta.statistics import rounded, with_error
from meta.xla.memory import bytes_of, check_bytes

PLAIN_SEEDS = 64  # by which the units of several environments are known, and how long all will take
MEASURED_STEPS = 2_000_000  # of all of them, at most, where there is one environment, which has no unit
UNITS = "units.json"
STILL = -10.0  # of the scale of a learning rate: no learning
TUNING, TUNED, SEARCH, FRESH = "tuning", "tuned", "search", "fresh"


@enum.unique
class DiscoveryBranch(enum.IntEnum):
    """Branches of a discovery's key, which is a run's."""

    EVALUATION = RunBranch.EVALUATION
    LATER = 2**32 - 2  # the second evolution, after the warm-up
    UNIT = 2**32 - 3  # the trainings of which the units of its games are made


class Trained(NamedTuple):
    """Results of the three evolutions; the first axis of all parameters is that of the searches."""

    units: list[tuple[float, float]]  # as of `discovery_trial`
    tuning: Evolved
    tuned: Evolved
    search: Evolved
    numbers: list[dict[str, float]]  # of each search, the settings that its objective goes with
    learners: list[str]  # their specs


class Found(NamedTuple):
    """Result of the evaluation."""

    summary: dict[str, Any]
    trainings: dict[str, dict[str, TrainingResult]]  # by place and objective, those of the first search


class Discovery(Experiment[Trained, Found]):
    """An objective that is evolved, and PPO that is tuned as long without one.

    PPO's results are kept in the folders `tuning` and `tuned` of the run.

    Args:
      config: the experiment's settings.

    Raises:
      ValueError: if the learner does not fit a game, or for what no memory can hold.
    """

    agent_file = FILE

    def __init__(self, config: DiscoveryConfig):
        self.config, self.form = config, config.form
        arenas = {spec: config.arena(spec) for spec in (*config.environments, *config.unseen)}
        _check(config, arenas)
        self.keys = of_seeds(config.seed, config.searches)
        seen = [config.arena(name, length) for name in config.environments for length in config.lengths]
        spec, shortest = config.learner, [arenas[name] for name in config.environments]
        self.known, tuning, found = known(config.kind, spec), tuned(config.kind, spec), evolved(self.form, spec)
        self.make_tuning = partial(discovery_trial, seen, spec, tuning)
        self.make_search = partial(discovery_trial, seen, spec, found)
        self.numbers, self.spec_of = partial(scaled, config.kind, spec), partial(_learner, config)
        as_it_is = self.known.get("clipped_l2", plain)  # of a value's distance it has the program of another arm
        settings = {"plain": as_it_is, **dict.fromkeys(("begun", "still", "tuned", "without"), tuning)}
        settings |= {**self.known, "evolved": found}

        def arms(arena: Arena, learner: str, names: Sequence[str]) -> dict[str, FreshTrial]:
            trials = {own: fresh_trial(arena, learner, own) for own in (settings[name] for name in names)}
            return {name: trials[settings[name]] for name in names}

        usual = [name for name in settings if name not in CONTROLS]
        self.places = {arena.name: arms(arena, spec, list(settings)) for arena in seen}
        if length := config.unseen_length:
            longer = [config.arena(name, length) for name in config.environments]
            self.places |= {arena.name: arms(arena, spec, usual) for arena in longer}
        if config.wider > 1:
            for arena in shortest:
                wide = arms(arena, config.wider_learner, usual)
                self.places[f"{arena.name}, {config.wider} times as wide"] = wide
        unseen = (arena for name, arena in arenas.items() if name not in config.environments)
        self.places |= {arena.name: arms(arena, spec, usual) for arena in unseen}
        first, second = (lambda both, name=name: settings[name](both[name]) for name in ("evolved", "tuned"))
        pairs = (arena for arena in seen if arena.game.num_agents == 2)
        self.beside = {arena.name: fresh_trial(arena, spec, first, second) for arena in pairs}
        # PPO as it is, for units and for the duration of the whole run: this share of a training.
        most = MEASURED_STEPS // (PLAIN_SEEDS * config.num_envs * config.steps_per_update)
        updates = min(config.num_updates, max(most, 1))
        self.measured_share = updates / config.num_updates if len(seen) == 1 else 1.0  # units are of whole trainings
        timed = [seen[0]._replace(num_updates=updates)] if len(seen) == 1 else seen
        self.measured = {arena.name: fresh_trial(arena, spec, plain) for arena in timed}
        self.are_several = {arena.name: arena.game.num_agents > 1 for arena in seen}

    def print_header(self, console: Console) -> None:
        config = self.config
        several = f", {config.searches} independent runs" if config.searches > 1 else ""
        steps = " and ".join(f"{length * config.total_steps:,}" for length in config.lengths)
        say(
            console,
            f"{config.kind} in {' and '.join(config.environments)}, for {config.learner}{several}\n"
            f"{config.tuning.generations} generations of tuning, {config.evolution.generations} more, and as many with "
            f"an objective\n{many(config.searched, 'training')} of {steps} environment steps in "
            f"{many(len(config.environments), 'game')}, then "
            f"{many(config.evaluation_trials, 'fresh one')} of each kind",
        )

    def work(self) -> dict[str, float]:
        config = self.config
        tuning = config.steps_of_a_generation / config.evolution.population_size * config.tuning.population_size
        search = config.evolution.generations * config.steps_of_a_generation
        fresh = config.num_trainings - sum(config.lengths) * config.searched
        fresh *= config.total_steps * len(config.environments)
        return {TUNING: config.tuning.generations * tuning, TUNED: search, SEARCH: search, FRESH: fresh}

    def train(self, context: Context) -> Trained:
        config, form = self.config, self.form
        units = self._units(context)

        def from_tuned(with_objective: bool) -> Callable[[jax.Array], Any]:
            def start(keys: jax.Array) -> Any:
                scales = jnp.asarray(tuning.parameters["scales"][: len(keys)])
                drawn = {"objective": jax.vmap(form.network().init)(keys)} if with_objective else {}
                return {"scales": scales} | drawn

            return start

        tune = self.make_tuning(units)
        tuning = self._evolve(context, TUNING, config.tuning, tune, self._begin)
        baseline = self._evolve(context, TUNED, config.evolution, tune, from_tuned(False))
        search = self._evolve(context, SEARCH, config.evolution, self.make_search(units), from_tuned(True))
        numbers, learners, idle = [], [], unused(form)
        for i, one in enumerate(_each(search.parameters)):
            own = {k: float(x) for k, x in self.numbers(one).items() if k != idle}
            path, clip = context.run.path / (FILE if i == 0 else FILE.replace(".", f"_{i}.")), own.get("clip", 0.2)
            written = configs.plain(config)
            save_objective(path, form, one["objective"], clip, learner=config.learner, settings=own, config=written)
            numbers.append(own)
            learners.append(self.spec_of(path, own))
        return Trained(units, tuning, baseline, search, numbers, learners)

    def _begin(self, keys: jax.Array) -> Any:
        """Scales with which nothing has been tuned, for each of the keys."""
        return jax.tree.map(lambda x: jnp.stack([x] * len(keys)), first_scales(self.config.kind))

    def _evolve(
        self,
        context: Context,
        name: str,
        evolution: Evolution,
        trial: Callable[[Any, jax.Array], Outcome],
        start: Callable[[jax.Array], Any],
    ) -> Evolved:
        config, stages = self.config, context.stages
        searched = {TUNING: "tuning of PPO", TUNED: "tuning of PPO for as long again"}
        stages.begin(name, searched.get(name, f"search for a {config.kind}"))
        store = context.run if name == SEARCH else context.run.part(name, lambda words: say(stages.console, words))
        later = jax.vmap(lambda key: jax.random.fold_in(key, DiscoveryBranch.LATER))
        own = self.keys if name == TUNING else later(self.keys)
        steps = config.steps_of_a_generation // config.evolution.population_size * evolution.population_size
        one, alone = (lambda key: jax.tree.map(lambda x: x[0], start(key[None]))), config.searches == 1
        unit = "environment steps"
        with Progress(stages.console, evolution.generations, steps, unit, _describe, stages=stages) as progress:
            found = evolve(
                trial,
                one,
                own[0] if alone else own,  # an axis of one costs time
                evolution,
                num_trials=config.trials,
                store=store,
                report=progress,
                start=one if alone else start,
            )
        return found._replace(parameters=jax.tree.map(lambda x: x[None], found.parameters)) if alone else found

    def _units(self, context: Context) -> list[tuple[float, float]]:
        """The return that counts as 0, and the unit, of each game if there are several: PPO's mean and its variation.

        1 more is the standard deviation between its trainings; with several players it is, if that is more, what
        learning is worth, or costs them together: without it a game in which all trainings end alike would decide
        alone. They are kept, so that on another machine a search goes on with those with which it began. Says how long
        all will take.
        """
        config, path, console = self.config, context.run.path / UNITS, context.console
        if not path.is_file():
            alone = len(self.measured) == 1
            words = f"{many(PLAIN_SEEDS, 'training')} of PPO as it is, in each of {many(len(self.measured), 'task')}"
            say(console, "measuring the speed of this machine" if alone else words)
            keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), DiscoveryBranch.UNIT), PLAIN_SEEDS)
            start, found, seconds = first_scales(config.kind), [], 0.0
            for name, trial in self.measured.items():
                (result,), compiling, playing = fresh_trainings([keys], trial, [start])
                zero, unit = float(np.nanmean(result.score)), float(np.nanstd(result.score)) or 1.0
                if not alone and self.are_several[name]:
                    (still,), _, _ = fresh_trainings([keys], self.places[name]["still"], [self._still(start)])
                    unit = max(unit, abs(zero - float(still.score.mean())))
                found.append((zero, unit))
                if name in config.environments:  # the shortest length, in which the work is counted
                    trainings = config.num_trainings / PLAIN_SEEDS
                    seconds += config.programs * compiling + trainings * playing / self.measured_share
            say(console, f"this will take about {duration(seconds)} on this machine")
            values = [(0.0, 1.0)] if alone else found
            context.run.write(UNITS, json.dumps(dict(zip(self.measured, values, strict=True))) + "\n")
        read: dict[str, tuple[float, float]] = json.loads(path.read_text(encoding="utf-8"))
        return [read[name] for name in self.measured]

    def _still(self, scales: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Scales without learning."""
        return {"scales": scales["scales"].at[..., SCALES[self.config.kind].index("learning_rate")].set(STILL)}

    def _parameters(self, trained: Trained) -> dict[str, Any]:
        """Parameters of all searches for each objective that fresh trainings compare."""
        nothing, baseline = self._begin(self.keys), trained.tuned.parameters
        own = jnp.asarray(trained.search.parameters["scales"])
        if idle := unused(self.form):
            column = SCALES[self.config.kind].index(idle)
            own = own.at[:, column].set(jnp.asarray(baseline["scales"])[:, column])
        return {
            "plain": nothing,
            "begun": nothing,  # PPO with Huber's loss, and nothing tuned
            "still": self._still(nothing),  # what a fitness has to be above before anything was learned
            "tuned": baseline,
            "without": {"scales": own},  # what is evolved, its numbers alone
            **dict.fromkeys(self.known, baseline),
            "evolved": trained.search.parameters,
        }

    def evaluate(self, context: Context, trained: Trained) -> Found:
        """Compares the objectives on fresh seeds: in each game of the search, longer, wider, and in unseen ones.

        Each search has seeds of its own, and on these all objectives, so that differences are between the same
        trainings. `CONTROLS` are tried in the games of the search alone.
        """
        config, console, parameters = self.config, context.console, self._parameters(trained)
        context.stages.begin(FRESH, "fresh trainings")
        keys = [
            jax.random.split(jax.random.fold_in(key, DiscoveryBranch.EVALUATION), config.evaluation_trials)
            for key in self.keys
        ]
        fresh = many(config.evaluation_trials, "fresh training")
        trainings: dict[str, dict[str, list[TrainingResult]]] = {}
        for name, trials in self.places.items():
            played: dict[str, list[TrainingResult]] = {}
            for trial in dict.fromkeys(trials.values()):
                own = {arm: _each(parameters[arm]) for arm, one in trials.items() if one is trial}
                say(console, f"{fresh} in {name}: {', '.join(own)}")
                several = [one for each in own.values() for one in each]
                found = iter(fresh_trainings(keys * len(own), trial, several)[0])
                played |= {arm: [next(found) for _ in each] for arm, each in own.items()}
            trainings[name] = {arm: played[arm] for arm in trials}
        both, beside = _each({arm: parameters[arm] for arm in ("evolved", "tuned")}), {}
        summary = compare(trainings, list(self.measured), trained.units)
        for name, trial in self.beside.items():
            say(console, f"{fresh} in {name}: evolved beside tuned PPO")
            beside[name] = compare_seats(fresh_trainings(keys, trial, both)[0])
        summary |= {"beside_tuned": beside} if beside else {}
        if config.searches > 1:  # the means of each
            summary["runs"] = [
                {"seed": config.seed + i, **compare(_of_search(trainings, i), list(self.measured), trained.units)}
                for i in range(config.searches)
            ]
        first = {name: {arm: one[0] for arm, one in of_arms.items()} for name, of_arms in trainings.items()}
        return Found(summary, first)

    def draw(self, folder: Path, trained: Trained, found: Found) -> list[Path]:
        metrics = {"tuning": trained.tuning.metrics, "tuned": trained.tuned.metrics, "evolved": trained.search.metrics}
        objectives = [one["objective"] for one in _each(trained.search.parameters)]
        return [
            figures.draw_search(folder, metrics),
            figures.draw_objective(folder, self.form, objectives, trained.numbers[0]),
            *figures.draw_curves(folder, found.trainings, self.config.num_envs * self.config.steps_per_update),
        ]

    def summarize(self, trained: Trained, found: Found) -> dict[str, Any]:
        config, search = self.config, trained.search
        done = config.evolution.generations - search.first_generation
        steps = config.steps_of_a_generation * done
        summary = {
            "environment": " + ".join(config.environments),
            "kind": config.kind,
            "learner": config.learner,
            "start": self.form.start,
            **found.summary,
            "scales": {name: [one[name] for one in trained.numbers] for name in trained.numbers[0]},
            "learners": trained.learners,
            "seed": config.seed,
            "searches": config.searches,
            "num_trials": config.evaluation_trials,
            "environment_steps_per_second": steps / search.seconds_to_run if done else None,
            "seconds_to_compile": search.seconds_to_compile,
        }
        if config.kind == "value_loss":
            summary["shape"] = [figures.shape_of(self.form, one["objective"]) for one in _each(search.parameters)]
        return summary

    def conclusion(self, summary: dict[str, Any]) -> str:
        name, found = next(iter(summary["environments"].items()))
        evolved, tuned, plain = (rounded(found[arm]["mean"], 1) for arm in ("evolved", "tuned", "plain"))
        kind = "drift" if self.config.kind == "drift" else "loss of values"
        return f"In {name} PPO gets {evolved} with the evolved {kind}, {tuned} if tuned as long, and {plain} untuned."

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        arms = ("plain", "tuned", *self.known, "evolved")  # all of them are in the summary
        names = (figures.NAMES[arm] for arm in arms)
        table = Table(Column(overflow="fold"), *names, "evolved less tuned", box=None)
        for name, found in (summary["environments"] | summary["transfer"]).items():
            table.add_row(
                name, *(with_error(found[arm], 1) for arm in arms), with_error(found["difference_from_tuned"], 1)
            )
        console.print(table)
        errors = "between searches" if self.config.searches > 1 else "between trainings, of one search"
        console.print(
            f"mean return over a training of {self.config.total_steps:,} steps, of several players what they get "
            f"together in a step of its second half; ± one standard error {errors}"
        )
        for spec, beside in summary.get("beside_tuned", {}).items():
            words = ", ".join(f"{name} {with_error(value)}" for name, value in beside.items())
            console.print(f"{spec}, one beside the other, reward in a step: {words}")
        say(console, f"use it as {summary['learners'][0]}")


def _check(config: DiscoveryConfig, arenas: dict[str, Arena]) -> None:
    """Raises ValueError where the learner does not fit a game, or for what no memory can hold."""
    for spec, arena in arenas.items():
        game, number, limit = arena.game, arena.game.num_agents, arena.game.time_limit
        if number == 1 and limit is not None and limit > arena.num_updates * arena.steps_per_update:
            enough = -(-limit // config.steps_per_update) * config.steps_per_update * config.num_envs
            raise ValueError(
                f"total_steps: got {config.total_steps}, in which no episode of {spec} need end; {enough} at least are "
                "needed"
            )
        for learner in (config.wider_learner, config.learner):
            players = [make_learner(learner, game, seat, num_updates=arena.num_updates) for seat in range(number)]
            try:
                carry = check_update(game, players, steps_per_update=config.steps_per_update, num_envs=config.num_envs)
            except ValueError as error:
                raise ValueError(f"learner: {learner}: {first_line(error)}") from None
        at_once = config.evolution.at_once * config.trials * config.searches
        check_bytes("num_envs", config.num_envs, at_once * bytes_of(carry))
    check_bytes(
        "evaluation_trials",
        config.evaluation_trials,
        8.0 * config.evaluation_trials * max(config.longer, *config.lengths) * config.num_updates,
    )


def _describe(metrics: dict[str, np.ndarray]) -> str:
    failed = int(np.sum(metrics["non_finite"]))
    return f"fitness {np.mean(metrics['fitness']):.3f}" + (f"  {failed} not finite" if failed else "")


def _of_search(trainings: Mapping[str, Mapping[str, Sequence[Any]]], number: int) -> dict[str, dict[str, list[Any]]]:
    """Trainings by place and objective, those of one search alone."""
    return {name: {arm: [one[number]] for arm, one in of_arms.items()} for name, of_arms in trainings.items()}


def _each(parameters: Any) -> list[Any]:
    """Parameters of every search, on the host."""
    parameters = jax.tree.map(np.asarray, parameters)
    return [jax.tree.map(lambda x, i=i: x[i], parameters) for i in range(len(jax.tree.leaves(parameters)[0]))]


def _learner(config: DiscoveryConfig, path: Path, numbers: dict[str, float]) -> str:
    """The spec of a learner with an objective that was found, and the numbers that belong to it."""
    given = read("learner", config.learner, "ppo")[1]
    own: dict[str, Any] = {name: float(f"{x:.4g}") for name, x in numbers.items() if name not in ("clip", "delta")}
    if config.kind == "drift":  # which stands in place of the clip
        given.pop("clip", None)
        own["value_loss"] = f"huber(delta={numbers['delta']:.4g})"
    return change("ppo", **{config.form.field: str(path)} | given | own)
