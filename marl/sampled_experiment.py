"""A whole experiment in a sampled game: a shaper trained, tried on fresh opponents of several kinds, and kept."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from games import Game
from games.drawing import save_gif
from marl import report, sampled_figures, tensors
from marl.learn import History
from marl.parts import duration, say
from marl.sampled import play_sampled, sampled_trial
from marl.sampled_config import SampledConfig
from marl.sampled_ppo import sampled_ppo
from marl.sampled_shapers import Parameters, Policy
from meta import Evolved, RunDirectory, evolve
from meta.devices import spread
from meta.loop import Report, Store, compiler_options
from meta.progress import Progress

SHAPER_FILE = "shaper.safetensors"
AT_ONCE = 32  # trials of an evaluation that are played together on a device
LONG = 2e9  # environment steps of a run that is measured beforehand, for its first generation may take an hour
MEASURED_GENERATIONS = 3
MEASURED_STEPS = 2.5e6  # of a generation, or a little more
SECONDS_TO_DRAW = 10.0
MOMENTS = ("early", "middle", "late")  # episodes in the GIF


class Played(NamedTuple):
    """Fresh trials of one kind, `[trials, episodes]` each, rewards in a step."""

    shaper: Any  # of those who sit in the shapers' seats, on average
    opponent: Any
    counts: dict[str, Any]  # what the game counts, `[trials, episodes, num_agents]`


def train(config: SampledConfig, *, store: Store | None = None, report: Report | None = None) -> Evolved:
    """Trains a shaper as a config says.

    Args:
      config: what to train, and how.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(generations so far, their last metrics, seconds of running)` by the host.

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite return.
    """
    game, key = config.make_game(), jax.random.key(config.seed)
    policy, opponents = config.make_shaper(game), config.make_opponents(game)
    if config.meta_learner == "ppo":

        def play(key: jax.Array, parameters: Parameters) -> History:
            return play_sampled(key, game, policy, parameters, opponents, keep_trajectories=True, **config.lengths)

        number = config.num_shapers
        return sampled_ppo(play, policy, key, config.meta_ppo, num_shapers=number, store=store, report=report)
    trial = sampled_trial(game, policy, opponents, **config.lengths)
    return evolve(trial, policy.init, key, config.evolution, num_trials=config.trials, store=store, report=report)


class Speed(NamedTuple):
    """How fast this machine is with a config."""

    steps_per_second: float  # of the environments
    seconds_to_compile: float

    def seconds(self, config: SampledConfig) -> float:
        """How long a config like that which was measured will take, with its evaluation, roughly."""
        played = config.generations * config.trials_per_generation
        judged = config.evaluation_trials * (2 + len(config.unseen))
        running = (played + judged) * config.steps_of_a_trial / self.steps_per_second
        return running + (3 + len(config.unseen)) * self.seconds_to_compile + SECONDS_TO_DRAW


def measure(config: SampledConfig) -> Speed:
    """From some generations of short trials, of as many candidates as are played at once."""
    evolution = config.evolution
    at_once = (evolution.chunk_size or evolution.population_size) * len(jax.local_devices())
    at_once = min(evolution.population_size, at_once + at_once % 2)  # candidates may come in pairs
    episode = at_once * config.trials * config.episode_length * config.num_envs
    short = dataclasses.replace(
        config,
        unseen=(),
        episodes=min(config.episodes, math.ceil(MEASURED_STEPS / episode)),
        evolution=dataclasses.replace(evolution, generations=MEASURED_GENERATIONS, population_size=at_once),
        meta_ppo=dataclasses.replace(config.meta_ppo, iterations=MEASURED_GENERATIONS),
    )
    found = train(short)
    steps = MEASURED_GENERATIONS * short.trials_per_generation * short.steps_of_a_trial
    return Speed(steps / found.seconds_to_run, found.seconds_to_compile)


def train_and_evaluate(
    config: SampledConfig, run: RunDirectory, console: Console, *, started: float | None = None
) -> tuple[dict[str, Any], list[Path]]:
    """Trains, or goes on with a training that was stopped, and writes summary, parameters and figures.

    Args:
      config: what to train, and how.
      run: where to.
      console: shows progress, and nothing else.
      started: the `time.perf_counter()` from which `wall_seconds` counts; now if None.

    Returns:
      (what is in `summary.json`, the figures' files).

    Raises:
      NonFiniteFitness: if nothing that was tried in a generation had a finite return.
    """
    started = time.perf_counter() if started is None else started

    def describe(metrics: dict[str, np.ndarray]) -> str:
        words = "  ".join(f"{name} {metrics[f'{name}_return']:.3f}" for name in ("shaper", "opponent"))
        failed = int(metrics["non_finite"])
        return words + (f"  {failed} not finite" if failed else "")

    steps = config.trials_per_generation * config.steps_of_a_trial
    with Progress(console, config.generations, steps, "steps", describe, quiet=console.quiet) as progress:
        trained = train(config, store=run, report=progress)
    parameters = jax.tree.map(np.asarray, trained.parameters)
    tensors.replace(run.path / SHAPER_FILE, parameters, {"method": "sampled", "config": configs.plain(config)})
    groups = evaluate(config, parameters, console)
    files = [
        sampled_figures.draw_learning(run.figures, groups, config.opponent),
        sampled_figures.draw_opponents(run.figures, groups),
        sampled_figures.draw_evolution(run.figures, trained.metrics),
        *sampled_figures.draw_counts(run.figures, groups, config.opponent, config.num_shapers),
    ]
    game = config.make_game()
    if type(game).render is not Game.render:
        files.append(animate_trial(config, parameters, run.figures / "episodes.gif"))
    done = config.generations - trained.first_generation
    summary = {
        "environment": config.environment,
        "opponent": config.opponent,
        "shaper": config.shaper,
        "num_shapers": config.num_shapers,
        "meta_learner": config.meta_learner,
        **analyse(groups, config),
        "num_trials": config.evaluation_trials,
        "seed": config.seed,
        "generations": config.generations,
        "num_environment_steps": steps * config.generations,
        "environment_steps_per_second": steps * done / trained.seconds_to_run if done else None,
        "seconds_to_compile": trained.seconds_to_compile,
        "wall_seconds": time.perf_counter() - started,
        "versions": report.versions(),
        "devices": report.devices(),
    }
    run.write("summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    return summary, files


def evaluate(config: SampledConfig, parameters: Parameters, console: Console) -> dict[str, Played]:
    """Fresh trials against the opponent and those not seen in training, and of learners among themselves.

    Args:
      config: whom to meet.
      parameters: of the shaper.
      console: says what is going on.

    Returns:
      By the spec of the opponent; and `naive`, where the opponent's learner sits in all seats.
    """
    game = config.make_game()
    policy = config.make_shaper(game)
    # A key that no generation drew from: `evolve` splits its own.
    keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 2**32 - 1), config.evaluation_trials)
    found = {}
    for name in dict.fromkeys((config.opponent, *config.unseen, "naive")):
        say(console, f"{config.evaluation_trials} fresh trials: {'learners alone' if name == 'naive' else name}")
        if name == "naive":
            learners = [config.make_learner(game, seat) for seat in range(game.num_agents)]
        else:
            learners = config.make_opponents(game, name)
        play = partial(play_sampled, game=game, policy=policy, opponents=learners, **config.lengths)
        found[name] = _run(play, keys, parameters, config.num_shapers)
    return found


def _run(play: Callable[..., History], keys: jax.Array, parameters: Parameters, num_shapers: int) -> Played:
    number = len(jax.local_devices())
    at_once = min(AT_ONCE, -(-len(keys) // number))

    def some(keys: jax.Array, parameters: Parameters) -> Played:
        history = jax.vmap(lambda key: play(key, parameters=parameters))(keys)
        seats = jnp.stack(history.rewards)
        return Played(seats[:num_shapers].mean(0), seats[num_shapers:].mean(0), history.infos)

    program = jax.jit(spread(some, number), compiler_options=compiler_options())
    everywhere = jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), parameters)
    groups = math.ceil(len(keys) / (number * at_once))
    padded = keys[jnp.arange(groups * number * at_once) % len(keys)].reshape(groups, number, at_once)
    parts = [jax.tree.map(np.asarray, program(one, everywhere)) for one in padded]
    return jax.tree.map(lambda *x: np.concatenate([one.reshape(-1, *one.shape[2:]) for one in x])[: len(keys)], *parts)


def analyse(groups: dict[str, Played], config: SampledConfig) -> dict[str, Any]:
    """The result: means over fresh trials with their standard errors, rewards in a step over the whole trial."""
    naive = groups["naive"]
    against = {name: _returns(played) for name, played in groups.items() if name != "naive"}
    # Trial k of all kinds has one key, from which much of the same is drawn: the samples are paired.
    gain = _mean_and_error(groups[config.opponent].shaper.mean(1) - naive.shaper.mean(1))
    return {
        "shaper_return": against[config.opponent]["shaper"],
        "opponent_return": against[config.opponent]["opponent"],
        "against": against,
        "naive": _returns(naive),
        "gain_over_naive": gain,
    }


def _returns(played: Played) -> dict[str, Any]:
    found: dict[str, Any] = {
        "shaper": _mean_and_error(played.shaper.mean(1)),
        "opponent": _mean_and_error(played.opponent.mean(1)),
        "shaper_last_episode": _mean_and_error(played.shaper[:, -1]),
        "opponent_last_episode": _mean_and_error(played.opponent[:, -1]),
    }
    if "own_coin" in played.counts:
        found["own_coin_share"] = [_mean_and_error(share) for share in own_coin_share(played.counts).T]
    return found


def own_coin_share(counts: dict[str, np.ndarray]) -> np.ndarray:
    """How much of what each player took over a trial was its own, `[trials, num_agents]`; a half of nothing."""
    own, other = (counts[name].mean(1) for name in ("own_coin", "other_coin"))
    return np.where(own + other > 0, own / np.where(own + other > 0, own + other, 1), 0.5)


def _mean_and_error(values: np.ndarray) -> dict[str, float | None]:
    """None stands for what is not finite, where a learner's numbers have run away: JSON has no other word for it."""
    found = {"mean": float(values.mean()), "standard_error": float(values.std(ddof=1) / len(values) ** 0.5)}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def animate_trial(config: SampledConfig, parameters: Parameters, path: Path) -> Path:
    """Writes an early, a middle and a late episode of one fresh trial, beside each other, as a GIF.

    Args:
      config: what is played.
      parameters: of the shaper.
      path: where to.
    """
    game = config.make_game()
    policy, opponents = config.make_shaper(game), config.make_opponents(game)

    @jax.jit
    def states(key: jax.Array, parameters: Parameters) -> Any:
        history = play_sampled(key, game, policy, parameters, opponents, keep_trajectories=True, **config.lengths)
        chosen = jnp.array([0, (config.episodes - 1) // 2, config.episodes - 1])
        return jax.tree.map(lambda x: x[chosen, :, 0], history.game_states)

    # A key that neither training nor evaluation draws from.
    played = states(jax.random.fold_in(jax.random.key(config.seed), 2**32 - 2), parameters)
    films = [game.frames(jax.tree.map(lambda x, i=i: np.asarray(x[i]), played)) for i in range(len(MOMENTS))]
    height, width = films[0][0].shape[:2]
    along = int(width < 4 * height)  # next to each other, or strips one above the other
    gap = np.full((height, 12, 3) if along else (12, width, 3), 255, np.uint8)
    frames = [np.concatenate([a, gap, b, gap, c], along) for a, b, c in zip(*films, strict=True)]
    save_gif(frames, path, frames_per_second=4.0)
    return path


def load_shaper(path: Path) -> tuple[SampledConfig, Policy, Parameters]:
    """The config, the policy and its parameters from the directory of a finished run.

    Raises:
      ValueError: if there is none, or if its file is damaged; one line.
    """
    file = path / SHAPER_FILE
    if not file.is_file():
        raise ValueError(f"directory: got {str(path)!r}; that of a finished run in a sampled game is needed")
    arrays, metadata = tensors.load(file)
    config = configs.build(SampledConfig, metadata.get("config"), str(file))
    policy = config.make_shaper(config.make_game())
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    tensors.same_shapes(arrays, {name: leaf.shape for name, leaf in shapes.items()}, str(file))
    return config, policy, {name: jnp.asarray(array) for name, array in arrays.items()}


def print_header(console: Console, config: SampledConfig) -> None:
    """What is going to happen, and how much of it."""
    say(console, f"{config.environment}: {config.shaper} against {config.opponent}, by {config.meta_learner}")
    steps = config.steps_of_a_trial
    say(
        console,
        f"{config.generations} generations of {config.trials_per_generation} trials; a trial is {config.episodes} "
        f"episodes of {config.episode_length} steps in {config.num_envs} environments: {steps:,} steps",
    )
    total = config.generations * config.trials_per_generation * steps
    evaluation = config.evaluation_trials * (2 + len(config.unseen)) * steps
    say(console, f"{total / 1e6:,.0f} M environment steps, then {evaluation / 1e6:,.0f} M in fresh trials")
    if total > LONG and not console.quiet:
        say(console, "measuring the speed of this machine")
        speed = measure(config)
        pace = f"{speed.steps_per_second / 1e6:.2f} M steps/s"
        say(console, f"{pace}: the whole run takes about {duration(speed.seconds(config))} on this machine")


def print_result(
    console: Console, config: SampledConfig, summary: dict[str, Any], path: Path, files: list[Path]
) -> None:
    """The table of the result, and where everything is."""
    coins = "own_coin_share" in summary["naive"]
    table = Table("against", "shaper", "opponent", *(["own coins", "opponent's"] if coins else []), box=None)
    for name, found in {**summary["against"], "learners alone": summary["naive"]}.items():
        row = [textwrap.fill(name, 26), _words(found["shaper"]), _words(found["opponent"])]
        if coins:
            row += [_words(found["own_coin_share"][0]), _words(found["own_coin_share"][-1])]
        table.add_row(*row)
    console.print(table)
    say(console, f"rewards in a step over {summary['num_trials']} fresh trials each; ± one standard error")
    gain = summary["gain_over_naive"]
    apart = f", {gain['mean'] / gain['standard_error']:.1f} standard errors" if gain["standard_error"] else ""
    say(console, f"gain over learners alone: {_words(gain)}{apart}")
    if speed := summary["environment_steps_per_second"]:
        say(console, f"{speed:,.0f} environment steps a second; {summary['wall_seconds']:.0f} s in all")
    say(console, f"written to {path}: summary.json, {SHAPER_FILE}, {', '.join(file.name for file in files)}")


def _words(value: dict[str, float | None]) -> str:
    if value["mean"] is None or value["standard_error"] is None:
        return "not finite"
    digits = max(3, -math.floor(math.log10(value["standard_error"] or 1)))  # one of the error at least
    return f"{value['mean']:.{digits}f} ± {value['standard_error']:.{digits}f}"
