"""A run of the bench: a method trained and played against every opponent, and its result as JSON."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from marl.bench.methods import SPENDING, Method, digest_of_files, is_function, source_of
from marl.bench.protocol import TRAINED, TRAININGS, VERSION, Size
from marl.bench.scores import GROUPS, MEASURES, RESULT, missing, scores_of, shown, summary_of, trains_once
from marl.bench.table import draw_opponents
from marl.bench.tracks import Part, Track, TrackName, track_of
from meta import RunDirectory, process
from meta.runs import provenance
from meta.runs.formatting import amount, many, say
from meta.runs.jobs import Job, compiled_once, finished, open_run, run_jobs
from meta.runs.progress import Progress
from meta.runs.reports.ending import print_report
from meta.runs.reports.tables import keep_tables

PARTS = "opponents"  # directory of the parts
ALL_TASKS = "all-tasks"  # directory of trainings that are those of all parts
MOST_TRAININGS = 1000


@dataclasses.dataclass(frozen=True)
class BenchConfig(configs.CommandConfig):
    """A method, the track, and the size of its trainings."""

    method: str = "mfos"
    """A shaper such as mfos, which is trained; in the exact track also generalist(mfos), one for all tasks,
    screened(mfos), which begins at the best of random ones, ppo(mfos) and coala_pg(mfos), which are trained by policy
    gradients, best_zd, and meva, trained for each game; a learner such as lola, or a strategy such as tft; untrained;
    the run directory or the file of a trained shaper, or hub:NAME; or a function of yours, module:function."""
    track: TrackName = "exact"
    """Games and opponents: exact, of formulas; or sampled, of games that are played step by step."""
    size: Size = "small"
    """Trials of each training: small, standard or paper."""
    opponents: tuple[str, ...] = ()
    """Some of the opponents; all if none is named. A result without one of them has no place in a table."""
    seeds: int = TRAININGS
    """Independent trainings; 5 at least for a place in a table."""
    seed: int = 0
    """The first of them."""

    def __post_init__(self) -> None:
        known = list(track_of(self.track).opponents)
        for name in self.opponents:
            if name not in known:
                raise ValueError(f"opponents: got {name!r}; {configs.one_of(name, known)}")
        if len(set(self.opponents)) < len(self.opponents):
            raise ValueError(f"opponents: got {configs.shown(list(self.opponents))}; each once is needed")
        configs.check_least(self, seeds=1)
        configs.check(self, f"a whole number of at most {MOST_TRAININGS}", lambda x: x <= MOST_TRAININGS, "seeds")
        configs.check_seed(self.seed, seeds=self.seeds)


@dataclasses.dataclass(frozen=True)
class PartConfig(configs.CommandConfig):
    """A method against one opponent."""

    method: str
    track: TrackName
    part: str
    size: Size
    seeds: int
    seed: int
    bench: int = VERSION

    @property
    def reads(self) -> str:
        return digest_of_files(self.method)


class Bench(NamedTuple):
    """A config whose method is known to be there."""

    config: BenchConfig
    track: Track
    method: Method

    @property
    def parts(self) -> list[Part]:
        """The parts that are played."""
        chosen = self.config.opponents
        return [part for part in self.track.parts if part.opponent in chosen or not chosen]

    def trials(self, part: Part) -> int:
        """Trials of all trainings of a part."""
        if not self.method.spends:
            return 0
        if self.method.trials:
            found = self.method.trials(self.config.size, part.opponent, len(part.tasks)) * self.config.seeds
            if not self.method.trains_once:
                return found
            # The first part trains for all, with the trials of every opponent, whether it is played or not.
            return found * len(self.track.parts) if part == self.parts[0] else 0
        each = (self.track.budget(self.config.size, part.opponent, task).training_trials for task in part.tasks)
        return sum(each) * self.config.seeds


def config_of(first: str) -> BenchConfig:
    """The config from a preset, a YAML file, or a method.

    Args:
      first: argument of the command.
    """
    if first in configs.presets("bench") or first.endswith((".yaml", ".yml")):
        return configs.load(BenchConfig, "bench", first)
    return configs.build(BenchConfig, {"method": first}, "method")


def prepare(config: BenchConfig) -> Bench:
    """Resolves the method of a config; raises ValueError if there is none."""
    track = track_of(config.track)
    return Bench(config, track, track.make_method(config.method))


def run_bench(bench: Bench, run: RunDirectory, console: Console) -> None:
    """Plays the protocol, or goes on where a run was stopped; writes result.json, summary.json and the figures."""
    config, track, started = bench.config, bench.track, process.began()
    trials = sum(map(bench.trials, bench.parts))
    spent = f"{amount(trials)} trials in all" if bench.method.spends else "nothing is trained"
    if bench.method.preparation:
        spent = f"{bench.method.preparation.what} are trained from the payoffs alone"
    opponents = many(len({part.opponent for part in bench.parts}), "opponent")
    games = many(len({task for part in bench.parts for task in part.tasks}), "game")
    say(
        console,
        f"Shaping Bench {VERSION}, {track.name} track, {config.size}: {config.method} against {opponents} in "
        f"{games}, {many(config.seeds, 'training')} each; {spent}",
    )
    if is_function(config.method):
        say(console, "times below are those of an evolution; a function of your own may take longer")
    shared = run.part(ALL_TASKS, lambda words: say(console, words)) if bench.method.trains_once else None
    jobs = [_job(run.path / PARTS / part.name, part, bench, console, shared) for part in bench.parts]
    with compiled_once():
        found = run_jobs(jobs, console)
    result = make_result(bench, found, time.perf_counter() - started)
    run.write(RESULT, json.dumps(result, indent=1) + "\n")
    summary = {"conclusion": conclusion(result), "scores": result["scores"], "trials": result["trials"]}
    run.write_summary(summary | {"wall_seconds": time.perf_counter() - started, **provenance.environment()})
    draw_opponents(run.figures, result)
    say(console, summary["conclusion"])
    with keep_tables(console, run.path):
        print_scores(console, result)
    print_report(console, run.path)
    say(console, f"written to {run.path}: {RESULT}, summary.json, config.yaml, figures")


def _job(path: Path, part: Part, bench: Bench, console: Console, shared: RunDirectory | None) -> Job:
    """A part of the protocol; its trainings are in its own directory, or in the one that all parts share."""
    run, track, trials = bench.config, bench.track, bench.trials(part)
    config = PartConfig(run.method, run.track, part.name, run.size, run.seeds, run.seed)
    beside, each = track.seconds(part)
    prepared = bench.method.preparation
    if prepared:
        beside += prepared.seconds * run.seeds * len(track.tasks()) / len(bench.parts)
    expected = 0.0 if finished(path, config) else beside + each * trials

    def play() -> None:
        began = time.perf_counter()
        budget = track.budget(run.size, part.opponent, part.tasks[0])
        each_step = prepared.steps if prepared else budget.population * budget.trials * budget.meta_steps
        generations = prepared.iterations if prepared else bench.method.generations(budget)
        steps = each_step * run.seeds * len(track.tasks() if prepared else part.tasks)
        store = open_run(path, config, console)
        given: dict[str, Any] = {"seed": run.seed, "seeds": run.seeds, "store": shared or store}
        with Progress(console, generations, steps, "meta-steps", _describe) as progress:
            found = track.play(bench.method, part.opponent, part.tasks, budget, report=progress, **given)
        payoffs = {
            task: {form: [_numbers(side[form][i]) for side in found] for form in track.forms(task, part.opponent)}
            for i, task in enumerate(part.tasks)
        }
        found_here = {"payoffs": payoffs, "trials": trials, "reads": config.reads, "commit": _commit()}
        store.write_summary(found_here | {"seconds": time.perf_counter() - began})

    return Job(path, config, expected, play)


def _numbers(values: np.ndarray) -> list[float | None]:
    return [float(x) if np.isfinite(x) else None for x in values]


def _describe(metrics: dict[str, np.ndarray]) -> str:
    if "shaper_return" not in metrics:
        return "  ".join(f"{name.replace('_', ' ')} {np.mean(x):.3g}" for name, x in metrics.items())
    own, other = (np.mean(metrics[f"{side}_return"]) for side in ("shaper", "opponent"))
    return f"method {own:.3f}  opponent {other:.3f}"


def make_result(bench: Bench, found: dict[str, dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The result of all parts, with its scores.

    Args:
      bench: the run.
      found: summaries of the parts, by name.
      seconds: that the run took.
    """
    config = bench.config
    result: dict[str, Any] = {
        "bench": VERSION,
        "track": config.track,
        "method": config.method,
        "kind": bench.method.kind,
        "trains_once": bench.method.trains_once,
        "size": config.size,
        "trainings": config.seeds,
        "seed": config.seed,
        "commit": ", ".join(sorted({part["commit"] for part in found.values()})),
        **({"source": source_of(config.method)} if is_function(config.method) else {}),
        **provenance.environment(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "trials": sum(part["trials"] for part in found.values()),
        "seconds": sum(part["seconds"] for part in found.values()),
        "wall_seconds": seconds,
        "tasks": {
            task: {
                part.opponent: {"payoffs": found[part.name]["payoffs"][task]}
                for part in bench.parts
                if task in part.tasks
            }
            for task in bench.track.tasks()
        },
    }
    result["missing"] = missing(result)
    return result | {"scores": summary_of(result)}


def _commit() -> str:
    """The commit of a checkout; empty for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        line = ["git", "-C", str(root), "rev-parse", "HEAD"]
        return subprocess.run(line, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def conclusion(result: dict[str, Any]) -> str:
    """The four numbers of a result in one sentence."""
    if all(found["gain"]["value"] is None for found in result["scores"].values()):
        played = [np.array(x["payoffs"][TRAINED], float) for row in result["tasks"].values() for x in row.values()]
        broken = any(np.isnan(x).any() and not np.isnan(x).all() for x in played)  # all are missing of no training
        reason = "some payoffs are not finite" if broken else "none of its tasks has a scale yet"
        return f"{result['method']} has payoffs and no scores, because {reason}."
    training, held_out = (
        f"a gain of {shown(found['gain'])} and a welfare of {shown(found['welfare'])}"
        for found in (result["scores"][group] for group in GROUPS)
    )
    trained = result["kind"] in SPENDING or trains_once(result)
    over = many(result["trainings"], "training" if trained else "group") + ("" if trained else " of fresh trials")
    return (
        f"{result['method']} has {training} against the opponents of its training, and {held_out} against held-out "
        "forms of them (0 is the opponent's own kind in its place, 1 the most that is known; interquartile means with "
        f"95 % intervals over {over})."
    )


def print_scores(console: Console, result: dict[str, Any]) -> None:
    """Prints the aggregates, and the mean scores against each opponent."""
    table = Table(
        "forms of the opponents", *MEASURES, title="interquartile means, 95 % intervals", title_justify="left"
    )
    for group, found in result["scores"].items():
        table.add_row(group, *(shown(found[measure]) for measure in MEASURES))
    console.print(table)
    scores = scores_of(result)
    by_opponent = Table("opponent", "games", *(f"{m}, {g}" for g in GROUPS for m in MEASURES))
    for opponent in track_of(result["track"]).opponents:
        row = []
        for forms in GROUPS.values():
            for measure in MEASURES:
                some = {k: x for k, x in scores[measure].items() if k.split("/")[1] == opponent}
                values = [np.nanmean(x) for k, x in some.items() if k.rpartition("/")[2] in forms]
                row.append(f"{np.mean(values):.2f}" if values else "")
        games = {k.split("/")[0] for k in scores["gain"] if k.split("/")[1] == opponent}
        if games:
            by_opponent.add_row(opponent, str(len(games)), *row)
    console.print(by_opponent)
    if result["missing"]:
        lacking = f"{many(len(result['missing']), 'task')} not played, or with a payoff that is not finite"
        say(console, f"{lacking}: such a result has no place in a table")
