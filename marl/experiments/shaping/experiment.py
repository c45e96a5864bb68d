"""A shaping experiment: the training, the evaluation and the report that both kinds of game share."""

from __future__ import annotations

import abc
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from marl.experiments.shaping import figures
from marl.experiments.shaping.agents import AGENT_FILE, save_agent
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.evaluation import (
    IN_PLACE,
    OWN_KIND,
    UNTRAINED,
    EvaluationResult,
    Trial,
    controls_of,
    mean_payoffs,
    pool_seeds,
)
from marl.experiments.shaping.initialisation import Start
from marl.experiments.shaping.runtime_estimate import Speed, cost_of
from meta import Evolved, Outcome, RunDirectory
from meta.batched_trials import compile_trials, run_trials
from meta.loop import Report, Store
from meta.process import check_stop
from meta.run_keys import RunBranch, of_seeds
from meta.runs.evaluation_cache import EvaluationCache
from meta.runs.experiment import Context, Experiment, Programs
from meta.runs.formatting import amount, many, say
from meta.runs.progress import Progress, Stages
from meta.runs.provenance import devices
from meta.statistics import with_error
from meta.xla.backend import local_devices
from meta.xla.memory import bytes_of, check_bytes

TRAINING = "training"


class Results(NamedTuple):
    """Results of the evaluation."""

    groups: dict[str, EvaluationResult]  # trials of all trainings, by opponent or control
    runs: list[dict[str, Any]]  # measurements of each training
    pooled: dict[str, Any]  # the same of all of them


class Shaping(Experiment[Evolved, Results]):
    """A shaper that is trained against an opponent and evaluated on fresh trials.

    Attributes:
      config: the experiment's settings.
      shaper: a `Shaper`, or the `Policy` of one in a sampled game.
      start: where an evolution begins.
      trials: one fresh trial of each group, by the name of an opponent or a control.
      payoff: name of the axis of payoffs.
      time: name of the axis of learning steps.
    """

    agent_file = AGENT_FILE
    at_once: int  # fresh trials that are played together on a device, at most
    config: ShapingConfig
    shaper: Any
    start: Start
    trials: dict[str, Trial]
    num_shapers = 1
    payoff = figures.PAYOFF
    time = figures.LEARNING_STEP

    @abc.abstractmethod
    def train_shapers(
        self,
        keys: jax.Array,
        *,
        store: Store | None = None,
        report: Report | None = None,
        before: Report | None = None,
        numbers: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Evolved:
        """Trains a shaper for each key `[K]`, all in one program.

        Args:
          keys: of as many independent trainings.
          store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
          report: called as `report(generations so far, their last metrics, seconds of running)` by the host.
          before: the same of what comes before the first generation, where `start` asks for it.
          numbers: settings of an evolution that differ between the trainings, as of `evolve`.
          settings: settings of the opponent that differ between the trainings of an evolution, `[K]` each.

        Returns:
          `Evolved`, with parameters `[K, ...]`, of pairs `[K, 2, ...]`, row seat first; with metrics
          `[generations, K]`, or `[generations]` where K is 1.

        Raises:
          NonFiniteFitness: if nothing that was tried in a generation had a finite return.
        """

    @abc.abstractmethod
    def trial_with(self, settings: Mapping[str, Any]) -> Callable[[Any, jax.Array], Outcome]:
        """The trial of the training against one opponent with other settings, which may be traced numbers."""

    @abc.abstractmethod
    def describe_game(self) -> dict[str, str]:
        """The game and the length of a trial, for the header."""

    @abc.abstractmethod
    def headline(self, found: dict[str, Any]) -> dict[str, Any]:
        """The first entries of the measurements of a training, or of all of them pooled."""

    def init(self, key: jax.Array) -> Any:
        """Parameters as `train_shapers` has them for one key, before any training."""
        return self.shaper.init(key)

    def agents(self, parameters: Any) -> dict[str, tuple[ShapingConfig, Any]]:
        """The config and the parameters `[K, ...]` of each shaper that is kept, by the prefix of its file."""
        return {"": (self.config, parameters)}

    @cached_property
    def keys(self) -> jax.Array:
        """Keys of the trainings."""
        return of_seeds(self.config.seed, self.config.seeds)

    @property
    def sides(self) -> tuple[str, str]:
        """Names of the two sides of a trial."""
        return ("row", "column") if self.config.is_self_play else ("shaper", "opponent")

    def check_memory(self, trial: float, result: float) -> None:
        """Raises TooLarge, before anything is compiled, for trainings or results that no memory can hold.

        Args:
          trial: bytes that one trial of a candidate needs at least.
          result: bytes of the result of a fresh trial.
        """
        config, parameters = self.config, bytes_of(jax.eval_shape(self.shaper.init, jax.random.key(0)))
        check_bytes("shaper", config.shaper, parameters)
        if config.meta_learner == "ppo":
            check_bytes("meta_ppo.batch_size", config.meta_ppo.batch_size, config.meta_ppo.batch_size * trial)
        else:
            size = config.evolution.population_size
            if config.evolution.noise == "full":
                check_bytes("evolution.population_size", size, config.seeds * size * parameters)
            together = min(config.evolution.at_once * len(local_devices()), size)
            check_bytes("trials", config.trials, together * config.trials * trial)
            if preparation := config.preparation:
                check_bytes("start", config.starting, preparation.at_once * trial)
        # Results are joined, so that all are there twice.
        results = 2.0 * len(self.trials) * config.seeds * config.evaluation_trials * result
        check_bytes("evaluation_trials", config.evaluation_trials, results)

    def print_header(self, console: Console) -> None:
        config, evolution = self.config, self.config.evolving
        shapes = jax.eval_shape(self.shaper.init, jax.random.key(0))
        shaper = f"{config.shaper}, {many(sum(int(np.prod(x.shape)) for x in jax.tree.leaves(shapes)), 'parameter')}"
        shaper += f", {self.num_shapers} of them" if self.num_shapers > 1 else ""
        times = f" x {config.seeds} seeds" if config.seeds > 1 else ""
        times += " x 2 seats" if config.is_self_play else ""
        if config.meta_learner == "ppo":
            training = f"ppo, {many(config.generations, 'iteration')} of "
            training += f"{many(config.trials_per_generation, 'trial')}{times}"
        else:
            training = f"{evolution.strategy}, {many(evolution.generations, 'generation')} of "
            training += f"{many(evolution.population_size, 'candidate')} x {many(config.trials, 'trial')}{times}"
            if config.preparation:
                shaping = "" if evolution.fitness_shaping == "default" else f", {evolution.fitness_shaping}"
                training += f", sigma {evolution.sigma:g}{shaping}; start: {config.starting}"
        trials = config.evaluation_trials * len(self.trials)
        evaluation = amount(trials * config.steps_of_a_trial * config.seeds)
        table = Table.grid(padding=(0, 2))
        for name, text in {
            **self.describe_game(),
            "shaper": shaper,
            "opponent": config.opponent,
            "training": training,
            "in all": f"{amount(config.training_steps)} {self.unit}, then {evaluation} in fresh trials",
            "devices": ", ".join(devices()),
        }.items():
            table.add_row(f"[bold]{name}", text)
        console.print(table)

    def work(self) -> dict[str, float]:
        config = self.config
        trials = config.evaluation_trials * cost_of(config).evaluation / len(self.trials)
        evaluation = dict.fromkeys(self.trials, trials * config.steps_of_a_trial * config.seeds)
        return self.work_of_training() | evaluation

    def work_of_training(self) -> dict[str, float]:
        """Steps of the training, and of what comes before it."""
        config = self.config
        work = {TRAINING: float(config.generations * config.steps_of_a_generation)}
        if self.start.preparation:
            before = self.start.trials(config.meta_steps) * config.steps_of_a_trial * config.seeds
            return {self.start.stage: before, **work}
        return work

    def compilers(self) -> dict[str, Callable[[], Any]]:
        return {name: partial(self._compile, trial) for name, trial in self.trials.items() if name != UNTRAINED}

    def _compile(self, trial: Trial) -> Any:
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        return compile_trials(trial, shapes, self.config.evaluation_trials, self.at_once)

    def progress(self, stages: Stages) -> Progress:
        """Shows how far a training is: the `report` of `train_shapers`."""
        config = self.config

        def describe(metrics: dict[str, np.ndarray]) -> str:
            values = (np.mean(metrics[f"{name}_return"]) for name in ("shaper", "opponent"))
            words = "  ".join(f"{name} {value:.3f}" for name, value in zip(self.sides, values, strict=True))
            failed = int(np.sum(metrics["non_finite"]))
            return words + (f"  {failed} not finite" if failed else "")

        steps = config.steps_of_a_generation
        return Progress(stages.console, config.generations, steps, self.unit, describe, stages=stages)

    def speed(self) -> Speed:
        """The speed of this machine in the whole training, which should be a short one."""
        trained, cost = self.train_shapers(self.keys), cost_of(self.config)
        steps = self.config.generations * self.config.steps_of_a_generation
        return Speed(steps * cost.step / trained.seconds_to_run, trained.seconds_to_compile / cost.compiling)

    def train(self, context: Context) -> Evolved:
        context.run.check_reads(self.config.reads)
        progress = self.progress(context.stages)

        def show(generation: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
            context.programs.begin()
            context.stages.begin(TRAINING)
            progress(generation, metrics, seconds)

        goes_on = any(context.run.path.glob("checkpoints/*"))
        context.stages.begin(TRAINING if goes_on else self.start.stage or TRAINING)
        with progress:
            before = progress.before(self.start.describe)
            return self.train_shapers(self.keys, store=context.run, report=show, before=before)

    def evaluate(self, context: Context, trained: Evolved) -> Results:
        """Evaluates the shapers on fresh trials, and keeps them; raises as `train` does."""
        config, run, seeds = self.config, context.run, range(self.config.seeds)
        # Through the host, because parameters that were trained on several devices lie on all of them.
        parameters = jax.tree.map(np.asarray, trained.parameters)
        for name, (own, theirs) in self.agents(parameters).items():
            saved = theirs if config.seeds > 1 else jax.tree.map(lambda x: x[0], theirs)
            save_agent(run.path / f"{name}{AGENT_FILE}", own, saved)
        each = [jax.tree.map(lambda x, i=i: x[i], parameters) for i in seeds]
        random = [jax.tree.map(np.asarray, self.init(jax.random.fold_in(k, RunBranch.RANDOM))) for k in self.keys]
        cache, groups = EvaluationCache(run.path, config), dict[str, list[EvaluationResult]]()
        parts = {name: [f"{number}-{i}" for i in seeds] for number, name in enumerate(self.trials)}
        missing = [name for name in self.trials if not all(cache.file(part).is_file() for part in parts[name])]
        context.programs.begin(dict.fromkeys(config.opponent if name == UNTRAINED else name for name in missing))
        for name in self.trials:
            context.stages.begin(name, f"{many(config.evaluation_trials, 'fresh trial')}: {name}")
            groups[name] = []
            for part, key, own in zip(parts[name], self.keys, random if name == UNTRAINED else each, strict=True):
                check_stop()
                play = partial(self._play, context.programs, name, key, own)
                like = partial(jax.eval_shape, self.trials[name], key, own)
                groups[name].append(cache.result(part, {name: own}, like, play))
        runs = [self.measure({name: played[i] for name, played in groups.items()}, i) for i in seeds]
        pooled = pool_seeds(runs)
        return Results(
            {name: jax.tree.map(lambda *x: np.concatenate(x), *played) for name, played in groups.items()},
            [
                {"seed": config.seed + i, **self.headline(one), "num_trials": config.evaluation_trials, **one}
                for i, one in enumerate(runs)
            ],
            {**self.headline(pooled), **pooled, "num_trials": config.evaluation_trials * config.seeds},
        )

    def _play(self, programs: Programs, group: str, key: jax.Array, parameters: Any) -> EvaluationResult:
        """Fresh trials of one training, with a key that no generation drew from: `evolve` splits its own."""
        program = programs.get(self.config.opponent if group == UNTRAINED else group)
        keys = jax.random.split(jax.random.fold_in(key, RunBranch.EVALUATION), self.config.evaluation_trials)
        played: EvaluationResult = run_trials(program, keys, parameters)
        return played

    def measure(self, groups: dict[str, EvaluationResult], number: int = 0) -> dict[str, Any]:
        """Measurements of one training: means over its fresh trials, with their standard errors."""
        del number
        each = {name: self.measure_group(played) for name, played in groups.items()}
        found: dict[str, Any] = {"untrained": each.pop(UNTRAINED)} if UNTRAINED in each else {}
        found |= {"own_kind": each.pop(OWN_KIND)} if OWN_KIND in each else {}
        return {"against": each, **found}

    def measure_group(self, played: EvaluationResult) -> dict[str, Any]:
        """Measurements of the trials against one opponent."""
        return mean_payoffs(played)

    def draw(self, folder: Path, trained: Evolved, found: Results) -> list[Path]:
        config, over = self.config, "trainings" if self.config.seeds > 1 else "fresh trials"
        many_of = (config.meta_ppo.batch_size, "trial", "iteration")
        if config.meta_learner != "ppo":
            many_of = (config.evolution.population_size, "candidate", "generation")
        number, one, time = many_of
        return [
            figures.draw_training(folder, trained.metrics, self.sides, many(number, one), time, self.payoff),
            figures.draw_trial(folder, found.groups, config.opponent, self.sides, self.payoff, self.time),
            *figures.draw_opponents(folder, found.pooled, over, self.payoff),
        ]

    def summarize(self, trained: Evolved, found: Results) -> dict[str, Any]:
        config = self.config
        done = config.generations - trained.first_generation
        speed = done * config.steps_of_a_generation / trained.seconds_to_run if done else None
        return {
            "opponent": config.opponent,
            "shaper": config.shaper,
            "meta_learner": config.meta_learner,
            "start": config.starting,
            **({"evolution": configs.plain(config.evolving)} if config.meta_learner == "evolution" else {}),
            **found.pooled,
            "reads": config.reads,
            "seed": config.seed,
            "seeds": config.seeds,
            "generations": config.generations,
            f"num_{self.counted}": config.training_steps,
            f"{self.counted}_per_second": speed,
            "seconds_to_compile": trained.seconds_to_compile,
            "runs": found.runs,
        }

    def clean_up(self, run: RunDirectory) -> None:
        EvaluationCache(run.path, self.config).clear()

    def print_returns(self, console: Console, summary: dict[str, Any]) -> None:
        """Prints the table of payoffs against all opponents and of the controls."""
        config = self.config
        sides = ("row shaper", "column shaper") if config.is_self_play else ("shaper", "opponent")
        span = "the trial" if config.is_self_play else "the opponent's learning"
        title = f"{self.payoff}, over {span}"
        table = Table("against", *sides, title=title, title_justify="left", box=None)

        def cells(found: dict[str, Any]) -> list[str]:
            return [with_error(found[side]) for side in ("shaper", "opponent")]

        for run in summary["runs"] if config.seeds > 1 else []:
            table.add_row(f"{config.opponent}, seed {run['seed']}", *cells(run["against"][config.opponent]))
        add_rows(table, summary, cells)
        console.print(table)
        over = "trainings, of one seed over its fresh trials" if config.seeds > 1 else "fresh trials"
        seeds = f"mean of {config.seeds} seeds, " if config.seeds > 1 else ""
        say(console, f"{seeds}{config.evaluation_trials:,} fresh trials each; ± one standard error over {over}")


def add_rows(
    table: Table, summary: dict[str, Any], cells: Callable[[dict[str, Any]], Iterable[str]], width: int = 40
) -> None:
    """Adds a row for each opponent, a heading, and a row for each control, with names in lines of `width` letters."""
    for name, found in summary["against"].items():
        table.add_row(textwrap.fill(name, width), *cells(found))
    table.add_row(f"[bold]{IN_PLACE}")
    for name, found in controls_of(summary).items():
        table.add_row(textwrap.fill(name, width), *cells(found))
