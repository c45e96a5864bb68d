"""A whole attack: evolved as a config says, tried on fresh victims, and kept in a run directory."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from attacks import control, figures
from attacks.config import ADVERSARY_FILE, AttackConfig, observations_of_play
from attacks.defences import DEFENCES
from attacks.evaluation import MEASURES, VictimTrainings, compare, controlled, make_trainings
from attacks.search import AttackBranch, search, stages_of_search
from games import Game, animate
from games.wrappers.cheap_talk import observation_shape
from meta import RunDirectory
from meta.batched_trials import compile_trials, play_trials
from meta.runs import array_files
from meta.runs.atomic_files import save_whole
from meta.runs.command import STARTED
from meta.runs.environment import devices, versions
from meta.runs.formatting import amount, many
from meta.runs.jobs import say
from meta.runs.progress import Line, Stages
from meta.runs.statistics import mean_and_error, with_error

VICTIMS_FILE = "victims.npz"
CART_POLE = ["x", "velocity", "angle", "angular velocity"]
TITLES = {
    "explored_return": "with exploration",
    "muted_return": "in silence afterwards",
    "last_update": "by the paper's metric",
    "training_return": "return in training",
}
NUM_GOALS = 4  # in the GIF of a victim that is steered
ROWS = ("evolved", "silent", "random", "expert", "start")  # who talks to fresh victims


def attack(
    config: AttackConfig, run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Evolves, or goes on with an evolution that was stopped, and writes summary, parameters and figures.

    Args:
      config: what to evolve, and how.
      run: where to; a warm-up is kept in its folder `warm_up`, and for control those of controllers for other
        shapers in `silent_shaper` and `random_shaper`.
      console: shows progress, and nothing else.
      started: the `time.perf_counter()` from which `wall_seconds` counts; now if None.

    Returns:
      (what is in `summary.json`, the figures' files).

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite fitness.
    """
    started = time.perf_counter() if started is None else started
    key, steered = jax.random.key(config.seed), config.goal == "control"
    # With the goal control every victim learns beside four shapers, and twice for an oracle.
    fresh = (
        {"all": 6} if steered else dict.fromkeys(filter(None, ["evolved", "silent", "random", config.start_name]), 1)
    )
    steps = config.num_victims * config.steps_of_a_training
    work = stages_of_search(config) | {f"fresh {name}": number * steps for name, number in fresh.items()}
    stages = Stages(console, work)
    found = search(config, key, run, stages)
    kept = dataclasses.replace(config, message=config.message_spec)
    if steered:
        kept = dataclasses.replace(kept, controller=config.controller_spec)
    array_files.replace(
        run.path / ADVERSARY_FILE, found.parameters, {"method": "attack", "config": configs.plain(kept)}
    )
    evaluation_key = jax.random.fold_in(key, AttackBranch.EVALUATION)
    if steered:
        everybody = {"evolved": found.parameters, **found.others}
        result, files = _evaluate_control(config, evaluation_key, everybody, run.figures, stages)
    else:
        result, files = _evaluate_talk(config, evaluation_key, found.parameters, found.start, run.figures, stages)
    evolved = found.stages[-1]
    done = config.evolution.generations - evolved.first_generation
    of_a_training = config.steps_of_a_training + config.judged_steps
    steps = config.evolution.population_size * config.victims_each * of_a_training * done
    summary = {
        "environment": config.environment,
        "goal": config.goal,
        "victim": config.victim,
        "message": config.message_spec,
        "num_victims": config.num_victims,
        **result,
        **({"begin": found.told} if found.told else {}),
        "seed": config.seed,
        "num_victims_trained": config.victims_trained,
        "chosen": found.chosen,
        "judged": found.judged,
        "environment_steps_per_second": steps / evolved.seconds_to_run if done else None,
        "seconds_to_compile": evolved.seconds_to_compile,
        "wall_seconds": time.perf_counter() - started,
        "versions": versions(),
        "devices": devices(),
    }
    run.write_summary(summary)
    value = ("fitness", "goal reward") if config.goal == "control" else ("victim_return", "victim's return")
    titles = ("controller alone", "with its shaper") if steered else ("short lives", "whole lives")
    shown = {titles[i]: found.stages[i].metrics for i in range(-len(found.stages), 0)}
    return summary, [figures.draw_evolution(run.figures, shown, *value), *files]


def _evaluate_talk(
    config: AttackConfig, key: jax.Array, parameters: Any, start: Any, folder: Path, stages: Stages
) -> tuple[dict[str, Any], list[Path]]:
    game, message = config.make_game(), config.make_message()
    size, number = config.message_size, config.num_victims
    steps = config.schedule.num_updates * config.schedule.steps_per_update
    spoken, speakers = controlled(game, message, parameters, steps)
    if start is not None and start is not parameters:
        speakers[config.start_name] = start, np.float32(1)
    defence = DEFENCES[config.defence]
    run_trainings = make_trainings(
        game,
        spoken,
        config.make_victim,
        config.schedule,
        size=size,
        num_victims=number,
        at_once=config.at_once,
        defence=defence,
    )
    groups: dict[str, VictimTrainings] = {}
    for name, own in speakers.items():
        stages.begin(f"fresh {name}", f"{many(config.num_victims, 'fresh victim')} under {name} messages")
        groups[name] = run_trainings(key, own)
    if start is parameters and start is not None:  # the search has found nothing better
        groups[config.start_name] = groups["evolved"]
    arrays = {f"{name}_{k}": x for name, group in groups.items() for k, x in group._asdict().items()}
    scratch = folder.parent / f".{VICTIMS_FILE}"
    scratch.unlink(missing_ok=True)
    np.savez(scratch, **arrays)  # for figures that join several runs
    scratch.replace(folder.parent / VICTIMS_FILE)
    compared = compare(groups)
    files = [
        figures.draw_curves(folder, groups, config.schedule.steps_per_update * config.schedule.num_envs),
        figures.draw_final_returns(folder, groups),
    ]
    drawn = None
    if len(observation_shape(game)) == 1:  # whose entries are the axes of maps
        drawn = figures.draw_message(folder, message, parameters, observations_of_play(game), steps, _names(game))
    result = {**compared, "difference_from_silent": compared["evolved"]["difference_from_silent"]}
    return result, [*files, *([drawn] if drawn else [])]


def fresh_victims(config: AttackConfig, key: jax.Array, parameters: Any, stages: Stages) -> control.Comparison:
    """What control is worth on the victims of a config, `[num_victims]` each; who they are depends on the key alone."""
    game, shaper, controller = config.make_game(), config.make_message(), config.make_controller()
    keys = jax.random.split(key, config.num_victims)

    def compared(key: jax.Array, parameters: Any) -> control.Comparison:
        return control.compare(
            key,
            game,
            shaper,
            controller,
            parameters,
            config.make_victim,
            config.schedule,
            num_updates=config.oracle_updates,
            steps_per_update=config.steps_per_update,
            num_envs=config.num_envs,
            size=config.message_size,
        )

    line = Line(stages.console)

    def report(part: int, parts: int) -> None:
        line.show(part / parts, f"part {part} of {parts}")

    program = compile_trials(compared, parameters, config.num_victims, config.at_once)
    found: control.Comparison = play_trials(program, keys, parameters, config.at_once, report)
    line.end()
    return found


def _evaluate_control(
    config: AttackConfig, key: jax.Array, parameters: Any, folder: Path, stages: Stages
) -> tuple[dict[str, Any], list[Path]]:
    game, shaper, controller = config.make_game(), config.make_message(), config.make_controller()
    stages.begin("fresh all", f"{many(config.num_victims, 'fresh victim')}, each under four shapers and two oracles")
    found = fresh_victims(config, key, parameters, stages)
    # In their order, for a compiled function gives dicts back sorted.
    rewards = {name: np.asarray(found.goal_rewards[name]) for name in control.ROWS}
    returns = {name: np.asarray(found.victim_returns[name]) for name in control.SHAPERS}
    best = max(control.BASELINES, key=lambda name: rewards[name].mean())
    ratio = float(rewards["evolved"].mean() / rewards[best].mean())
    result: dict[str, Any] = {name: mean_and_error(values) for name, values in returns.items()}
    result["difference_from_silent"] = mean_and_error(returns["evolved"] - returns["silent"])
    result["goal_reward"] = {name: mean_and_error(values) for name, values in rewards.items()}
    result["goal_reward"] |= {"ratio": ratio, "best_baseline": best}

    @jax.jit
    def steered(key: jax.Array, parameters: Any) -> Any:
        training_key, goal_key, play_key = jax.random.split(key, 3)
        puppet, _ = control.train_puppet(
            training_key,
            game,
            shaper,
            parameters["shaper"],
            config.make_victim,
            config.schedule,
            size=config.message_size,
        )
        goals = jax.vmap(puppet.reset)(jax.random.split(goal_key, NUM_GOALS))[1].goal
        return control.steer(play_key, puppet, control.speaker(controller), parameters["controller"], goals)

    played = steered(key, parameters["evolved"])
    gif = save_whole(folder / "steered.gif", partial(animate, played, frames_per_second=20.0))
    return result, [figures.draw_goal_rewards(folder, rewards), gif]


def _names(game: Game) -> list[str] | None:
    return CART_POLE if game.name == "CartPole-v1" else None


def attack_and_show(config: AttackConfig, run: RunDirectory, console: Console) -> None:
    """Says what is going to happen, lets it happen, and shows what came of it."""
    print_header(console, config)
    summary, files = attack(config, run, console, started=STARTED)
    print_result(console, config, summary, run.path, files)


def print_header(console: Console, config: AttackConfig) -> None:
    """What is going to happen, and how much of it."""
    console.print(f"{config.environment}: {config.goal} {config.victim}", highlight=False, markup=False, soft_wrap=True)
    say(console, f"message: {configs.short(config.message_spec)}")
    if config.goal == "control":
        shapers = many(config.shapers, "random shaper")
        say(console, f"controller: {configs.short(config.controller_spec)}; others for the victims of {shapers}")
    for evolution, num_updates in config.stages:
        victims = evolution.generations * evolution.population_size * config.victims_each
        steps = num_updates * config.steps_per_update * config.num_envs
        generations = f"{many(evolution.generations, 'generation')} of {many(victims, 'victim')} in all"
        say(console, f"{generations}, {many(steps, 'step')} each")
    total = amount(config.trained * config.steps_of_a_training)
    say(console, f"{total} environment steps, then {many(config.num_victims, 'fresh victim')} of each kind")


def print_result(
    console: Console, config: AttackConfig, summary: dict[str, Any], path: Path, files: list[Path]
) -> None:
    """The table of the result, and where everything is."""
    for title, groups in (("final return", summary), *((TITLES[name], summary.get(name)) for name in MEASURES)):
        if not groups:
            continue
        ended = groups.get("num_victims", config.num_victims)
        title += f", of {ended:,}" if ended < config.num_victims else ""
        table = Table("messages", title, "difference from silence", "standard errors", box=None)
        for name in (name for name in ROWS if name in groups):
            row = [name, with_error(groups[name], 1)]
            if difference := groups[name].get("difference_from_silent"):
                mean, error = difference["mean"], difference["standard_error"]
                row += [with_error(difference, 1), f"{abs(mean) / error:.1f}" if error else "-"]
            table.add_row(*row)
        console.print(table)
    if rewards := summary.get("goal_reward"):
        table = Table("shaper and controller", "goal reward", box=None)
        for name in control.ROWS:
            table.add_row(name.replace("_", " "), with_error(rewards[name]))
        console.print(table)
        say(console, f"evolved over {rewards['best_baseline']}, the best baseline: {rewards['ratio']:.2f}")
    say(console, f"{many(summary['num_victims'], 'fresh victim')} of each kind, the same ones; ± one standard error")
    if speed := summary["environment_steps_per_second"]:
        say(console, f"{amount(speed)} environment steps a second; {summary['wall_seconds']:.0f} s in all")
    say(console, f"written to {path}: summary.json, {ADVERSARY_FILE}, {', '.join(file.name for file in files)}")
