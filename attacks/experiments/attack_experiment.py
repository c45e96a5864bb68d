"""Steps that attacks of every goal share: the header, the search, and the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from attacks import control
from attacks.experiments import figures
from attacks.experiments.attack import ADVERSARY_FILE, Attack, metadata_of, with_training
from attacks.experiments.config import EXPERT_TRAININGS, EXPERTS
from attacks.experiments.distillation import EXPERT, make_start
from attacks.experiments.evaluation import MEASURES
from attacks.experiments.search import (
    CHOOSING,
    EVOLUTION,
    WARM_UP,
    AttackBranch,
    ControllerStage,
    Search,
    SearchResult,
    SearchStage,
    run_search,
)
from configs import short
from meta import RunDirectory
from meta.runs.evaluation_cache import EvaluationCache
from meta.runs.experiment import Context, Experiment
from meta.runs.formatting import amount, many, say
from meta.statistics import with_error

TITLES = {
    "explored_return": "with exploration",
    "muted_return": "in silence afterwards",
    "last_update": "by the paper's metric",
    "training_return": "return in training",
}
ROWS = ("evolved", "silent", "random", "expert", "start")  # messages that fresh victims hear


class Evaluated(NamedTuple):
    """Result of an evaluation on fresh victims."""

    summary: dict[str, Any]
    groups: dict[str, Any]  # that are drawn


class AttackExperiment(Experiment[SearchResult, Evaluated]):
    """An attack that is evolved, chosen and tried on fresh victims.

    Args:
      attack: what to evolve, and how.
      fresh: training runs of each fresh victim, by the stages of the evaluation.
      controllers: for control, what is evolved before the search, as of `Search`.
    """

    agent_file = ADVERSARY_FILE
    first_name = "warm_up"  # of what the last evolution goes on from
    value = ("victim_return", "return of the victims")  # metric of the evolutions that is drawn, and its label
    titles = ("short training runs", "whole training runs")  # of the evolutions

    def __init__(
        self,
        attack: Attack,
        fresh: dict[str, int],
        controllers: Callable[[Any], list[ControllerStage]] = lambda start: [],
    ):
        self.attack, self.config, self.fresh = attack, attack.config, fresh
        config, stages = attack.config, []
        for evolution, updates in config.stages:
            whole = updates == config.num_updates and evolution is config.evolution
            name, victims = (EVOLUTION, "victims") if whole else (WARM_UP, f"{config.goal} victims")
            words = f"{name}, {victims} that learn for {many(updates, 'update')}"
            steps = evolution.population_size * config.victims_each * updates * config.steps_per_update
            trial = with_training(attack, num_updates=updates).trial
            folder = "" if whole else "warm_up"
            stages.append(SearchStage(name, words, evolution, trial, steps * config.num_envs, folder))
        self.search = Search(
            controllers=controllers,
            start_name=config.start_name,
            find_start=make_start(attack),
            init=attack.init,
            first_name=self.first_name,
            stages=stages,
            trial=attack.trial,
            num_trials=config.victims_each,
            num_judges=config.num_judges,
            at_once=config.at_once,
            metadata=metadata_of(attack),
            config=config,
        )

    def print_header(self, console: Console) -> None:
        config = self.config
        say(console, f"{config.environment}: {config.goal} {config.victim}")
        say(console, f"message: {short(self.attack.kind.spec)}")
        if self.attack.controller_kind:
            shapers, spec = many(config.shapers, "random shaper"), self.attack.controller_kind.spec
            say(console, f"controller: {short(spec)}; others for the victims of {shapers}")
        for evolution, updates in config.stages:
            victims = evolution.generations * evolution.population_size * config.victims_each
            steps = updates * config.steps_per_update * config.num_envs
            generations = f"{many(evolution.generations, 'generation')} of {many(victims, 'victim')} in all"
            say(console, f"{generations}, {many(steps, 'step')} each")
        limit = self.attack.game.time_limit
        if limit is not None and limit > config.evaluation_steps + 1:  # gymnax ends an episode a step later
            episodes = f"episodes are cut after evaluation_steps {config.evaluation_steps:,}"
            say(console, f"final returns: {episodes}, and the game's end after {int(limit):,}")
        total = amount(config.trained * config.steps_of_a_training)
        say(console, f"{total} environment steps, then {many(config.evaluation_trials, 'fresh victim')} of each kind")

    def work(self) -> dict[str, float]:
        search, whole = self.search, self.config.steps_of_a_training

        def steps(stages: list[SearchStage]) -> dict[str, float]:
            return {stage.name: stage.evolution.generations * stage.steps for stage in stages}

        experts = 1 + bool(self.attack.controller)  # one of the game, and one of the game with a goal
        expert = {EXPERT: experts * EXPERTS * EXPERT_TRAININGS * whole} if self.config.begin == "expert" else {}
        has_start = bool(self.config.start_name or self.attack.controller)
        choice = {CHOOSING: (has_start + len(search.stages)) * search.num_judges * whole} if search.is_choice else {}
        fresh = {f"fresh {name}": number * self.config.evaluation_trials * whole for name, number in self.fresh.items()}
        return expert | steps([one.stage for one in search.controllers(None)]) | steps(search.stages) | choice | fresh

    def train(self, context: Context) -> SearchResult:
        context.run.check_reads(self.config.reads)
        return run_search(self.search, jax.random.key(self.config.seed), context)

    def evaluation_key(self) -> jax.Array:
        """The key of all fresh victims."""
        return jax.random.fold_in(jax.random.key(self.config.seed), AttackBranch.EVALUATION)

    def clean_up(self, run: RunDirectory) -> None:
        EvaluationCache(run.path, self.config).clear()

    def draw(self, folder: Path, trained: SearchResult, found: Evaluated) -> list[Path]:
        config = self.config
        shown = zip(self.titles[-len(trained.stages) :], trained.stages, strict=True)
        stages = {title: one.metrics for title, one in shown}
        return [figures.draw_evolution(folder, stages, *self.value, config.goal)]

    def summarize(self, trained: SearchResult, found: Evaluated) -> dict[str, Any]:
        config, evolved = self.config, trained.stages[-1]
        done = config.evolution.generations - evolved.first_generation
        steps = config.evolution.population_size * config.victims_each * done
        steps *= config.steps_of_a_training
        return {
            "environment": config.environment,
            "goal": config.goal,
            "victim": config.victim,
            "message": self.attack.kind.spec,
            "num_trials": config.evaluation_trials,
            **found.summary,
            **({"begin": trained.explained} if trained.explained else {}),
            "seed": config.seed,
            "reads": config.reads,
            "num_victims_trained": config.victims_trained,
            "chosen": trained.chosen,
            "judged": trained.judged,
            "environment_steps_per_second": steps / evolved.seconds_to_run if done else None,
            "seconds_to_compile": evolved.seconds_to_compile,
        }

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        number = summary["num_trials"]
        for title, groups in (("final return", summary), *((TITLES[name], summary.get(name)) for name in MEASURES)):
            if not groups:
                continue
            ended = groups.get("num_trials", number)
            title += f", of {ended:,}" if ended < number else ""
            table = Table("messages", title, "difference from silence", "from random messages", box=None)
            for name in (name for name in ROWS if name in groups):
                found = groups[name]
                differences = (found.get(f"difference_from_{other}") for other in ("silent", "random"))
                table.add_row(name, with_error(found, 1), *(with_error(one, 1) if one else "" for one in differences))
            console.print(table)
        if rewards := summary.get("goal_reward"):
            table = Table("shaper and controller", "goal reward", box=None)
            for name in control.ROWS:
                table.add_row(name.replace("_", " "), with_error(rewards[name]))
            console.print(table)
            say(console, f"evolved over {rewards['best_baseline']}, the best baseline: {rewards['ratio']:.2f}")
            over, shapers = rewards["ratio_to_best_random_shaper"], many(self.config.shapers, "random shaper")
            say(console, f"evolved over the best of {shapers} and its controller: {over:.2f}")
        say(console, f"{many(number, 'fresh victim')} of each kind, the same ones; ± one standard error")
