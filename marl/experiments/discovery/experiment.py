"""A whole discovery: tuned, searched, tried on fresh trainings, and kept in a run directory."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Column, Table

import configs
from configs.specs import change, read
from marl.experiments.discovery import figures
from marl.experiments.discovery.config import DiscoveryConfig
from marl.experiments.discovery.trial import (
    CONTROLS,
    SCALES,
    Arena,
    Lived,
    Settings,
    discovery_trial,
    evolved,
    first_scales,
    known,
    live,
    plain,
    scaled,
    tuned,
    unused,
)
from marl.learners.sampled.objective_registry import FILE, Kind, save
from meta import Evolution, Evolved, RunDirectory, evolve
from meta.batched_trials import compile_trials, play_trials, with_nan, without_nan
from meta.run_keys import RunBranch, of_seeds
from meta.runs.command import STARTED
from meta.runs.formatting import amount, duration, many, say
from meta.runs.progress import Progress, Stages
from meta.runs.provenance import devices, versions
from meta.statistics import mean_and_error, with_error

PLAIN_SEEDS = 64  # by which the units of several environments are known, and how long all will take
MEASURED_STEPS = 2_000_000  # of all of them, at most, where there is one environment, which has no unit
AT_ONCE = 16  # fresh trainings on a device
UNITS = "units.json"
STILL = -10.0  # of the scale of a learning rate: nobody learns


@enum.unique
class DiscoveryBranch(enum.IntEnum):
    """Branches of a discovery's key, which is a run's."""

    EVALUATION = RunBranch.EVALUATION
    LATER = 2**32 - 2  # the second evolution, after the warm-up
    UNIT = 2**32 - 3  # the trainings of which the units of its games are made


def discover(
    config: DiscoveryConfig, run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Tunes and searches, or goes on where it was stopped, and writes summary, objectives and figures.

    Args:
      config: what to search, and how.
      run: where to; what is tuned is kept in its folders `tuning` and `tuned`.
      console: shows progress, and nothing else.
      started: the `time.perf_counter()` from which `wall_seconds` counts; now if None.

    Returns:
      (what is in `summary.json`, the figures' files).

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite fitness.
    """
    started = time.perf_counter() if started is None else started
    kind, spec, form = config.kind, config.learner, config.form
    arenas, keys = [config.arena(one) for one in config.environments], of_seeds(config.seed, config.searches)
    units = _units(config, arenas, run, console)
    of_tuning = config.steps_of_a_generation / config.evolution.population_size * config.tuning.population_size
    search = config.evolution.generations * config.steps_of_a_generation
    of_a_training = config.total_steps * len(config.environments)
    fresh = (config.lives - config.searched) * of_a_training
    work = {"tuning": config.tuning.generations * of_tuning, "tuned": search, "search": search, "fresh": fresh}
    stages = Stages(console, work)

    def stage(name: str, evolution: Evolution, settings: Settings, start: Callable[[jax.Array], Any]) -> Evolved:
        words = {"tuning": "tuning of PPO", "tuned": "tuning of PPO for as long again", "": f"search for a {kind}"}
        stages.begin(name or "search", words[name])
        store = run.part(name, lambda words: say(console, words)) if name else run
        own = keys if name == "tuning" else jax.vmap(lambda key: jax.random.fold_in(key, DiscoveryBranch.LATER))(keys)
        steps = config.steps_of_a_generation // config.evolution.population_size * evolution.population_size
        one, alone = (lambda key: jax.tree.map(lambda x: x[0], start(key[None]))), config.searches == 1
        with Progress(console, evolution.generations, steps, "environment steps", _describe, stages=stages) as progress:
            found = evolve(
                discovery_trial(arenas, spec, settings, units),
                one,
                own[0] if alone else own,  # an axis of one costs time
                evolution,
                num_trials=config.trials,
                store=store,
                report=progress,
                start=one if alone else start,
            )
        return found._replace(parameters=jax.tree.map(lambda x: x[None], found.parameters)) if alone else found

    def from_tuned(with_objective: bool) -> Callable[[jax.Array], Any]:
        def start(keys: jax.Array) -> Any:
            scales = jnp.asarray(first.parameters["scales"][: len(keys)])
            drawn = {"objective": jax.vmap(form.network().init)(keys)} if with_objective else {}
            return {"scales": scales} | drawn

        return start

    def begin(keys: jax.Array) -> Any:
        return jax.tree.map(lambda x: jnp.stack([x] * len(keys)), first_scales(kind))

    first = stage("tuning", config.tuning, tuned(kind, spec), begin)
    baseline = stage("tuned", config.evolution, tuned(kind, spec), from_tuned(False))
    found = stage("", config.evolution, evolved(form, spec), from_tuned(True))
    each = _each(jax.tree.map(np.asarray, found.parameters))
    idle = unused(form)
    numbers = [{k: float(x) for k, x in scaled(kind, spec, one).items() if k != idle} for one in each]
    paths = [run.path / (FILE if i == 0 else FILE.replace(".", f"_{i}.")) for i in range(len(each))]
    for path, one, its in zip(paths, each, numbers, strict=True):
        clip = its.get("clip", 0.2)
        save(path, form, one["objective"], clip, learner=spec, settings=its, config=configs.plain(config))
    others, tuning = known(kind, spec), tuned(kind, spec)
    # Of a value's distance PPO as it is has the program of another arm.
    as_it_is, nothing = others.get("clipped_l2", plain), begin(keys)
    own = {"scales": jnp.asarray(found.parameters["scales"])}
    if idle:
        column = SCALES[kind].index(idle)
        own = {"scales": own["scales"].at[:, column].set(jnp.asarray(baseline.parameters["scales"])[:, column])}
    of_arms = {
        "plain": (as_it_is, nothing),
        "begun": (tuning, nothing),  # PPO with Huber's loss, and nothing tuned
        "still": (tuning, _still(kind, nothing)),  # what a fitness has to be above before anything was learned
        "tuned": (tuning, baseline.parameters),
        "without": (tuning, own),  # what is evolved, its numbers alone
        **{name: (settings, baseline.parameters) for name, settings in others.items()},
        "evolved": (evolved(form, spec), found.parameters),
    }
    stages.begin("fresh", "fresh trainings")
    result, lives = _evaluate(config, of_arms, units, console)
    done = config.evolution.generations - found.first_generation
    summary = {
        "environment": " + ".join(config.environments),
        "kind": kind,
        "learner": spec,
        "start": form.start,
        **result,
        "scales": {name: [one[name] for one in numbers] for name in numbers[0]},
        "learners": [_learner(config, path, one) for path, one in zip(paths, numbers, strict=True)],
        "seed": config.seed,
        "searches": config.searches,
        "num_seeds": config.num_seeds,
        "environment_steps_per_second": config.steps_of_a_generation * done / found.seconds_to_run if done else None,
        "seconds_to_compile": found.seconds_to_compile,
        "wall_seconds": time.perf_counter() - started,
        "versions": versions(),
        "devices": devices(),
    }
    if kind == "value_loss":
        summary["shape"] = [figures.shape_of(form, one["objective"]) for one in each]
    run.write_summary(summary)
    steps = config.num_envs * config.steps_per_update
    shown = {"tuning": first.metrics, "tuned": baseline.metrics, "evolved": found.metrics}
    files = [
        figures.draw_search(run.figures, shown),
        figures.draw_objective(run.figures, form, [one["objective"] for one in each], numbers[0]),
        figures.draw_curves(run.figures, lives, steps),
    ]
    return summary, files


def _describe(metrics: dict[str, np.ndarray]) -> str:
    failed = int(np.sum(metrics["non_finite"]))
    return f"fitness {np.mean(metrics['fitness']):.3f}" + (f"  {failed} not finite" if failed else "")


def _units(
    config: DiscoveryConfig, arenas: list[Arena], run: RunDirectory, console: Console
) -> list[tuple[float, float]]:
    """For each game what counts as 0 and as 1 more, if there are several: what PPO as it is gets, and how it varies.

    1 more is the standard deviation between its trainings; of several players it is, if that is more, what learning is
    worth, or costs them together: without it a game in which all trainings end alike would decide alone. They are kept:
    on another machine a search goes on with those with which it began. Says how long all will take.
    """
    path = run.path / UNITS
    if not path.is_file():
        alone = len(arenas) == 1
        words = f"{many(PLAIN_SEEDS, 'training')} of PPO as it is, in each of {many(len(arenas), 'game')}"
        say(console, "measuring the speed of this machine" if alone else words)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), DiscoveryBranch.UNIT), PLAIN_SEEDS)
        start, found, seconds = first_scales(config.kind), [], 0.0
        for arena in arenas:
            most = MEASURED_STEPS // (PLAIN_SEEDS * arena.steps_per_update * arena.num_envs)
            lived_for = min(arena.num_updates, max(most, 1)) if alone else arena.num_updates
            short = arena._replace(num_updates=lived_for)
            (lived,), compiling, playing = _lives([keys], short, config.learner, plain, [start])
            zero, unit = float(np.nanmean(lived.score)), float(np.nanstd(lived.score)) or 1.0
            if not alone and arena.game.num_agents > 1:
                nobody = tuned(config.kind, config.learner)
                (still,), _, _ = _lives([keys], arena, config.learner, nobody, [_still(config.kind, start)])
                unit = max(unit, abs(zero - float(still.score.mean())))
            found.append((zero, unit))
            whole = playing * arena.num_updates / lived_for
            seconds += config.programs * compiling + config.lives / PLAIN_SEEDS * whole
        say(console, f"this will take about {duration(seconds)} on this machine")
        values = [(0.0, 1.0)] if alone else found
        run.write(UNITS, json.dumps(dict(zip(config.environments, values, strict=True))) + "\n")
    read: dict[str, tuple[float, float]] = json.loads(path.read_text(encoding="utf-8"))
    return [read[name] for name in config.environments]


def _still(kind: Kind, scales: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Scales with which nobody learns."""
    return {"scales": scales["scales"].at[..., SCALES[kind].index("learning_rate")].set(STILL)}


def _learner(config: DiscoveryConfig, path: Path, numbers: dict[str, float]) -> str:
    """The spec of who learns by what was found, with the numbers that belong to it."""
    given = read("learner", config.learner, "ppo")[1]
    own: dict[str, Any] = {name: float(f"{x:.4g}") for name, x in numbers.items() if name not in ("clip", "delta")}
    if config.kind == "drift":  # which stands in place of the clip
        given.pop("clip", None)
        own["value_loss"] = f"huber(delta={numbers['delta']:.4g})"
    return change("ppo", **{config.form.field: str(path)} | given | own)


def _lives(
    keys: Sequence[jax.Array],
    arena: Arena,
    spec: str,
    settings: Settings,
    several: Sequence[Any],
    *others: Settings,
) -> tuple[list[Lived], float, float]:
    """Fresh trainings of all players, or the last ones by others, and the seconds to compile and to live.

    Args:
      keys: of each of several parameters those of its trainings `[seeds]`.
      arena: what is lived.
      spec: of the learner.
      settings: of `discovery_trial`.
      several: parameters.
      *others: settings of the last players.
    """
    started = time.perf_counter()

    def trial(key: jax.Array, parameters: Any) -> Lived:
        own, number = settings(parameters), arena.game.num_agents
        each = [own] * (number - len(others)) + [other(parameters) for other in others]
        return without_nan(live(key, arena, spec, each))

    several = jax.tree.map(np.asarray, list(several))
    program = compile_trials(trial, several[0], len(keys[0]), AT_ONCE)
    compiled = time.perf_counter()
    lives = [
        with_nan(play_trials(program, own, parameters, AT_ONCE)) for own, parameters in zip(keys, several, strict=True)
    ]
    return lives, compiled - started, time.perf_counter() - compiled


def _evaluate(
    config: DiscoveryConfig, arms: dict[str, tuple[Settings, Any]], units: list[tuple[float, float]], console: Console
) -> tuple[dict[str, Any], dict[str, dict[str, Lived]]]:
    """Who gets what on fresh seeds: of the fitness, in each game of the search, longer, wider, and in unseen ones.

    Each search has seeds of its own, and on these all arms, so that differences are between the same trainings. What is
    there to say what a search has found, and not what it is worth, is tried where it was searched alone.
    """
    keys = [
        jax.random.split(jax.random.fold_in(key, DiscoveryBranch.EVALUATION), config.num_seeds)
        for key in of_seeds(config.seed, config.searches)
    ]
    usual = config.learner
    places = [(spec, spec, 1, usual) for spec in config.environments]
    if config.longer > 1:
        places += [(f"{one}, {config.longer} times as long", one, config.longer, usual) for one in config.environments]
    if config.wider > 1:
        wide = config.wider_learner
        places += [(f"{spec}, {config.wider} times as wide", spec, 1, wide) for spec in config.environments]
    places += [(spec, spec, 1, usual) for spec in config.unseen if spec not in config.environments]
    lives: dict[str, dict[str, list[Lived]]] = {}
    for name, spec, times, learner in places:
        lives[name], arena = {}, config.arena(spec, times)
        here = {arm: one for arm, one in arms.items() if name in config.environments or arm not in CONTROLS}
        for settings in dict.fromkeys(settings for settings, _ in here.values()):
            own = {arm: _each(parameters) for arm, (one, parameters) in here.items() if one is settings}
            say(console, f"{many(config.num_seeds, 'fresh training')} in {name}: {', '.join(own)}")
            several = [one for each in own.values() for one in each]
            found = iter(_lives(keys * len(own), arena, learner, settings, several)[0])
            lives[name] |= {arm: [next(found) for _ in each] for arm, each in own.items()}
        lives[name] = {arm: lives[name][arm] for arm in here}
    searched = [lives[spec] for spec in config.environments]
    fitness = {
        arm: [
            sum((one[arm][i].score - zero) / unit for one, (zero, unit) in zip(searched, units, strict=True))
            / len(units)
            for i in range(len(searched[0][arm]))
        ]
        for arm in arms
    }
    result: dict[str, Any] = {
        {"tuned": "tuned_baseline", "plain": "plain_baseline"}.get(arm, arm): _over(values)
        for arm, values in fitness.items()
    }
    result |= _differences(fitness)

    def of_place(name: str) -> dict[str, Any]:
        scores = {arm: [one.score for one in of_arm] for arm, of_arm in lives[name].items()}
        found: dict[str, Any] = {arm: _over(values) for arm, values in scores.items()}
        found |= _differences(scores)
        late = {arm: [one.late for one in of_arm] for arm, of_arm in lives[name].items()}
        return found | {"last_quarter": {arm: _over(values) for arm, values in late.items()}}

    result["environments"] = {name: of_place(name) for name in config.environments}
    result["transfer"] = {name: of_place(name) for name in lives if name not in config.environments}
    beside = {}
    for spec in config.environments:
        arena = config.arena(spec)
        if arena.game.num_agents == 2:
            say(console, f"{many(config.num_seeds, 'fresh training')} in {spec}: evolved beside tuned PPO")
            both = {name: arms[name][1] for name in ("evolved", "tuned")}
            first, second = (lambda both, name=name: arms[name][0](both[name]) for name in both)
            met = [x.rewards for x in _lives(keys, arena, config.learner, first, _each(both), second)[0]]
            one, other = ([x[:, seat] for x in met] for seat in range(2))
            beside[spec] = {"evolved": _over(one), "tuned": _over(other), "difference": _difference(one, other)}
    if beside:
        result["beside_tuned"] = beside
    return result, {name: {arm: one[0] for arm, one in of_arms.items()} for name, of_arms in lives.items()}


def _each(parameters: Any) -> list[Any]:
    """Of every search."""
    return [jax.tree.map(lambda x, i=i: x[i], parameters) for i in range(len(jax.tree.leaves(parameters)[0]))]


def _differences(of_arms: dict[str, list[Any]]) -> dict[str, Any]:
    """Of what is evolved from everybody else."""
    return {
        f"difference_from_{arm}": _difference(of_arms["evolved"], x) for arm, x in of_arms.items() if arm != "evolved"
    }


def _over(values: Sequence[Any]) -> dict[str, float | None]:
    """Mean and standard error: between searches if there are several, otherwise between seeds."""
    return mean_and_error(np.array([x.mean() for x in values]) if len(values) > 1 else values[0])


def _difference(own: Sequence[Any], other: Sequence[Any]) -> dict[str, Any]:
    """Of the same trainings, and `each` search's own, between its trainings."""
    apart = [x - y for x, y in zip(own, other, strict=True)]
    return _over(apart) | {"each": [mean_and_error(x) for x in apart]}


def discover_and_show(config: DiscoveryConfig, run: RunDirectory, console: Console) -> None:
    """Searches, and says what came of it."""
    console.print(_header(config), markup=False, soft_wrap=True)
    summary, files = discover(config, run, console, started=STARTED)
    arms = ("plain", "tuned", *known(config.kind, config.learner), "evolved")  # all of them are in the summary
    table = Table(Column(overflow="fold"), *(figures.NAMES[arm] for arm in arms), "evolved less tuned", box=None)
    for name, found in (summary["environments"] | summary["transfer"]).items():
        table.add_row(name, *(with_error(found[arm], 1) for arm in arms), with_error(found["difference_from_tuned"], 1))
    console.print(table)
    errors = "between searches" if config.searches > 1 else "between trainings, of one search"
    speed = summary["environment_steps_per_second"]
    console.print(
        f"mean return over a training of {config.total_steps:,} steps, of several players what they get together in a "
        f"step of its second half; ± one standard error {errors}"
    )
    for spec, beside in summary.get("beside_tuned", {}).items():
        words = ", ".join(f"{name} {with_error(value)}" for name, value in beside.items())
        console.print(f"{spec}, one beside the other, reward in a step: {words}")
    console.print(f"use it as {summary['learners'][0]}", markup=False, soft_wrap=True)
    words = f"{amount(speed)} environment steps/s; " if speed else ""
    console.print(f"{words}{summary['wall_seconds']:.0f} s in all")
    console.print(f"written to {run.path}: summary.json, {FILE}, metrics.jsonl, config.yaml", soft_wrap=True)
    for file in files:
        console.print(f"  {file}", soft_wrap=True)


def _header(config: DiscoveryConfig) -> str:
    tuning, searching = config.tuning, config.evolution
    several = f", {config.searches} independent runs" if config.searches > 1 else ""
    return (
        f"{config.kind} in {' and '.join(config.environments)}, for {config.learner}{several}\n"
        f"{tuning.generations} generations of tuning, {searching.generations} more, and as many with an objective\n"
        f"{many(config.searched, 'training')} of {config.total_steps:,} environment steps in "
        f"{many(len(config.environments), 'game')}, then {many(config.num_seeds, 'fresh one')} of each kind"
    )
