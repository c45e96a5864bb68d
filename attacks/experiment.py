"""A whole attack: evolved, tried on fresh victims, and kept in a run directory."""

from __future__ import annotations

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
from attacks.attack import ADVERSARY_FILE, Attack, save_adversary
from attacks.evaluation import MEASURES, VictimTrainings, compare, controlled, make_trainings
from attacks.random_play import observations_of_play
from attacks.search import AttackBranch, search, stages_of_search
from games import Game, animate
from meta import RunDirectory
from meta.batched_trials import compile_trials, play_trials
from meta.runs.atomic_files import save_whole
from meta.runs.command import STARTED
from meta.runs.formatting import amount, many, say
from meta.runs.progress import Line, Stages
from meta.runs.provenance import devices, versions
from meta.statistics import mean_and_error, with_error

VICTIMS_FILE = "victims.npz"
CART_POLE = ["x", "velocity", "angle", "angular velocity"]
TITLES = {
    "explored_return": "with exploration",
    "muted_return": "in silence afterwards",
    "last_update": "by the paper's metric",
    "training_return": "return in training",
}
NUM_GOALS = 4  # in the GIF of a victim that is steered
ROWS = ("evolved", "silent", "random", "expert", "start")  # messages that fresh victims hear


def run_attack(
    attack: Attack, run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Evolves, or goes on with an evolution that was stopped, and writes summary, parameters and figures.

    Args:
      attack: what to evolve, and how.
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
    config = attack.config
    key, steered = jax.random.key(config.seed), config.goal == "control"
    # With the goal control every victim learns beside four shapers, and twice for an oracle.
    fresh = (
        {"all": 6} if steered else dict.fromkeys(filter(None, ["evolved", "silent", "random", config.start_name]), 1)
    )
    steps = config.num_victims * config.steps_of_a_training
    work = stages_of_search(attack) | {f"fresh {name}": number * steps for name, number in fresh.items()}
    stages = Stages(console, work)
    found = search(attack, key, run, stages)
    save_adversary(run.path, attack, found.parameters)
    evaluation_key = jax.random.fold_in(key, AttackBranch.EVALUATION)
    if steered:
        everybody = {"evolved": found.parameters, **found.others}
        result, files = _evaluate_control(attack, evaluation_key, everybody, run.figures, stages)
    else:
        result, files = _evaluate_talk(attack, evaluation_key, found.parameters, found.start, run.figures, stages)
    evolved = found.stages[-1]
    done = config.evolution.generations - evolved.first_generation
    of_a_training = config.steps_of_a_training + config.judged_steps
    steps = config.evolution.population_size * config.victims_each * of_a_training * done
    summary = {
        "environment": config.environment,
        "goal": config.goal,
        "victim": config.victim,
        "message": attack.kind.spec,
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
    value = ("fitness", "goal reward") if steered else ("victim_return", "victim's return")
    titles = ("controller alone", "with its shaper") if steered else ("short lives", "whole lives")
    shown = {titles[i]: found.stages[i].metrics for i in range(-len(found.stages), 0)}
    return summary, [figures.draw_evolution(run.figures, shown, *value), *files]


def _evaluate_talk(
    attack: Attack, key: jax.Array, parameters: Any, start: Any, folder: Path, stages: Stages
) -> tuple[dict[str, Any], list[Path]]:
    game, message, schedule, config = attack.game, attack.message, attack.schedule, attack.config
    play = observations_of_play(game)
    spoken, speakers = controlled(message, parameters, play, schedule.steps)
    if start is not None and start is not parameters:
        speakers[config.start_name] = start, np.float32(1)
    run_trainings = make_trainings(
        game,
        spoken,
        attack.make_victim,
        schedule,
        size=config.message_size,
        num_victims=config.num_victims,
        at_once=config.at_once,
        defence=attack.defence,
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
        figures.draw_curves(folder, groups, schedule.steps_per_update * schedule.num_envs),
        figures.draw_final_returns(folder, groups),
    ]
    drawn = None
    if play.ndim == 2:  # observations whose entries are the axes of maps
        drawn = figures.draw_message(folder, message, parameters, play, schedule.steps, _names(game))
    result = {**compared, "difference_from_silent": compared["evolved"]["difference_from_silent"]}
    return result, [*files, *([drawn] if drawn else [])]


def fresh_victims(attack: Attack, key: jax.Array, parameters: Any, stages: Stages) -> control.Comparison:
    """The value of control on fresh victims, `[num_victims]` each; which these are depends on the key alone."""
    assert attack.controller
    config, message, controller = attack.config, attack.message, attack.controller
    keys = jax.random.split(key, config.num_victims)

    def compared(key: jax.Array, parameters: Any) -> control.Comparison:
        return control.compare(
            key,
            attack.game,
            message,
            controller,
            parameters,
            attack.make_victim,
            attack.schedule,
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
    attack: Attack, key: jax.Array, parameters: Any, folder: Path, stages: Stages
) -> tuple[dict[str, Any], list[Path]]:
    assert attack.controller
    number, speaker = attack.config.num_victims, control.speaker(attack.controller)
    stages.begin("fresh all", f"{many(number, 'fresh victim')}, each under four shapers and two oracles")
    found = fresh_victims(attack, key, parameters, stages)
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
            attack.game,
            attack.message,
            parameters["shaper"],
            attack.make_victim,
            attack.schedule,
            size=attack.config.message_size,
        )
        goals = jax.vmap(puppet.reset)(jax.random.split(goal_key, NUM_GOALS))[1].goal
        return control.steer(play_key, puppet, speaker, parameters["controller"], goals)

    played = steered(key, parameters["evolved"])
    gif = save_whole(folder / "steered.gif", partial(animate, played, frames_per_second=20.0))
    return result, [figures.draw_goal_rewards(folder, rewards), gif]


def _names(game: Game) -> list[str] | None:
    return CART_POLE if game.name == "CartPole-v1" else None


def attack_and_show(attack: Attack, run: RunDirectory, console: Console) -> None:
    """Says what is going to happen, lets it happen, and shows what came of it."""
    print_header(console, attack)
    summary, files = run_attack(attack, run, console, started=STARTED)
    print_result(console, summary, run.path, files)


def print_header(console: Console, attack: Attack) -> None:
    """What is going to happen, and how much of it."""
    config = attack.config
    console.print(f"{config.environment}: {config.goal} {config.victim}", highlight=False, markup=False, soft_wrap=True)
    say(console, f"message: {configs.short(attack.kind.spec)}")
    if attack.controller_kind:
        shapers = many(config.shapers, "random shaper")
        say(console, f"controller: {configs.short(attack.controller_kind.spec)}; others for the victims of {shapers}")
    for evolution, num_updates in config.stages:
        victims = evolution.generations * evolution.population_size * config.victims_each
        steps = num_updates * config.steps_per_update * config.num_envs
        generations = f"{many(evolution.generations, 'generation')} of {many(victims, 'victim')} in all"
        say(console, f"{generations}, {many(steps, 'step')} each")
    total = amount(config.trained * config.steps_of_a_training)
    say(console, f"{total} environment steps, then {many(config.num_victims, 'fresh victim')} of each kind")


def print_result(console: Console, summary: dict[str, Any], path: Path, files: list[Path]) -> None:
    """The table of the result, and where everything is."""
    number = summary["num_victims"]
    for title, groups in (("final return", summary), *((TITLES[name], summary.get(name)) for name in MEASURES)):
        if not groups:
            continue
        ended = groups.get("num_victims", number)
        title += f", of {ended:,}" if ended < number else ""
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
    say(console, f"{many(number, 'fresh victim')} of each kind, the same ones; ± one standard error")
    if speed := summary["environment_steps_per_second"]:
        say(console, f"{amount(speed)} environment steps a second; {summary['wall_seconds']:.0f} s in all")
    say(console, f"written to {path}: summary.json, {ADVERSARY_FILE}, {', '.join(file.name for file in files)}")
