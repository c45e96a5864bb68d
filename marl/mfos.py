"""`python -m marl.mfos PRESET [options]`: train a shaper by evolution and see whom it shapes.

PRESET is one of the presets below or the path of a YAML file. A stopped run goes on with
`python -m marl.mfos --resume DIR`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

import jax  # noqa: E402 (the clock starts before the imports, which are part of what a user waits for)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402

import configs  # noqa: E402
from marl import figures, report  # noqa: E402
from marl.config import ShapingConfig  # noqa: E402
from marl.shapers import mfos  # noqa: E402
from marl.shaping import Trials, play_trials, shaping_trial  # noqa: E402
from meta import NonFiniteFitness, RunDirectory, evolve  # noqa: E402
from meta.progress import Progress  # noqa: E402

PROGRAM = "python -m marl.mfos"


@dataclasses.dataclass(frozen=True)
class Options(ShapingConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show neither progress nor tables."""


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """What can be said about a run that goes on; its config is in its directory."""

    resume: str
    """Directory of the run."""
    quiet: bool = False
    """Show neither progress nor tables."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill saves, as Ctrl-C does
    warn = partial(_say, "")
    try:
        config, run, quiet = _begin(arguments, warn)
    except (configs.ConfigError, FileExistsError) as error:
        return _say("", str(error), 2)
    except OSError as error:
        return _say("", f"out: cannot be written to: {_plain(error)}", 2)
    try:
        _train(config, run, Console(quiet=quiet))
    except KeyboardInterrupt:
        return _say("", f"stopped; go on with {PROGRAM} --resume {run.path}", 130)
    except NonFiniteFitness as error:
        return _say("", str(error), 1)
    except OSError as error:
        kept = f"what was saved stays usable: {PROGRAM} --resume {run.path}"
        return _say("", f"{_plain(error)}; {kept}", 1)
    return 0


def _say(_: str, message: str, status: int = 0) -> int:
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    return status


def _plain(error: OSError) -> str:
    return " ".join((f"{error.filename}: {error.strerror}" if error.strerror else str(error)).split())


def _begin(arguments: Sequence[str], warn: Any) -> tuple[ShapingConfig, RunDirectory, bool]:
    presets = configs.presets("mfos")
    if not arguments or arguments[0] in ("-h", "--help"):
        text = f"{__doc__.strip()}\n\nPresets: {', '.join(presets)}\n"
        if not arguments:
            raise configs.ConfigError(f"preset: none given; one of {', '.join(presets)}, or a YAML file, is needed")
        configs.parse(Options(), ["--help"], f"{PROGRAM} PRESET", text)
    if arguments[0].startswith("-"):
        resume = _resume_options(arguments)
        path = Path(resume.resume)
        if not (path / "config.yaml").is_file():
            raise configs.ConfigError(
                f"--resume: got {resume.resume!r}; the directory of a run (with config.yaml) is needed"
            )
        text = (path / "config.yaml").read_text()
        config = configs.from_text(ShapingConfig, text, str(path / "config.yaml"))
        return config, RunDirectory(path, warn), resume.quiet
    preset, *rest = arguments
    default = configs.load(Options, "mfos", preset)
    options = configs.parse(default, rest, f"{PROGRAM} {preset}", __doc__)
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(ShapingConfig)}
    config = ShapingConfig(**values)
    text = configs.to_text(config)
    if options.out:
        return config, RunDirectory.create(Path(options.out), text, warn), options.quiet
    name = re.sub(r"[^\w.=-]+", "-", f"{Path(preset).stem}-{config.opponent}-{config.seed}").strip("-")
    number = 1
    while True:
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            return config, RunDirectory.create(path, text, warn), options.quiet
        except FileExistsError:
            number += 1


def _resume_options(arguments: Sequence[str]) -> ResumeOptions:
    if not any(argument.split("=")[0] == "--resume" for argument in arguments):
        presets = ", ".join(configs.presets("mfos"))
        raise configs.ConfigError(
            f"preset: got {arguments[0]!r} first; one of {presets}, a YAML file or --resume is needed"
        )
    return configs.parse(ResumeOptions(""), arguments, PROGRAM, "Goes on with a run that was stopped.")


def _train(config: ShapingConfig, run: RunDirectory, console: Console) -> None:
    game, opponent = config.make_game(), config.make_opponent()
    shaper = mfos(game.num_logits, hidden_units=config.hidden_units)
    keys = jnp.stack([jax.random.key(config.seed + i) for i in range(config.seeds)])
    key = keys if config.seeds > 1 else keys[0]
    shapes = jax.eval_shape(shaper.init, keys[0])
    report.print_header(console, config, sum(int(np.prod(x.shape)) for x in jax.tree.leaves(shapes)))

    def describe(metrics: dict[str, np.ndarray]) -> str:
        words = f"shaper {np.mean(metrics['shaper_return']):.3f}  opponent {np.mean(metrics['opponent_return']):.3f}"
        failed = int(np.sum(metrics["non_finite"]))
        return words + (f"  {failed} not finite" if failed else "")

    evolution = config.evolution
    per_generation = report.num_meta_steps(config) // evolution.generations
    progress = Progress(console, evolution.generations, per_generation, "meta-steps", describe, quiet=console.quiet)
    with progress:
        evolved = evolve(
            shaping_trial(game, shaper, opponent, meta_steps=config.meta_steps),
            shaper.init,
            key,
            evolution,
            num_trials=config.trials,
            store=run,
            report=progress,
        )
    parameters = evolved.parameters if config.seeds > 1 else jax.tree.map(lambda x: x[None], evolved.parameters)
    trials = _evaluate(config, keys, parameters)
    runs = [
        {"seed": config.seed + i} | report.analyse(game, jax.tree.map(lambda x, i=i: x[i], trials))
        for i in range(config.seeds)
    ]
    result = report.pool(runs)
    first = jax.tree.map(lambda x: x[0], trials)
    files = figures.draw(
        run.figures,
        game,
        config.opponent,
        evolved.metrics,
        trials,
        report.scatter(game, first, result["zd"]),
        result["zd"],
    )
    done = len(evolved.metrics["fitness"]) - evolved.first_generation
    summary = {
        "game": config.game,
        "opponent": config.opponent,
        "shaper": "mfos",
        **result,
        "seed": config.seed,
        "generations": evolution.generations,
        "num_meta_steps": report.num_meta_steps(config),
        "wall_seconds": time.perf_counter() - STARTED,
        "seconds_to_compile": evolved.seconds_to_compile,
        "meta_steps_per_second": per_generation * done / evolved.seconds_to_run if done else 0.0,
        "versions": report.versions(),
        "devices": report.devices(),
        "runs": runs,
    }
    run.write("summary.json", json.dumps(summary, indent=2) + "\n")
    report.print_result(console, config, summary, run.path, files)


def _evaluate(config: ShapingConfig, keys: jax.Array, parameters: Any) -> Trials:
    """Fresh trials of every seed's shaper, `[K, trials, ...]`; their keys are none that evolution used."""
    game, opponent = config.make_game(), config.make_opponent()
    shaper = mfos(game.num_logits, hidden_units=config.hidden_units)

    @jax.jit
    @jax.vmap
    def evaluate(key: jax.Array, parameters: Any) -> Trials:
        key = jax.random.fold_in(key, 2**32 - 1)  # a generation's number never gets there
        return play_trials(
            key,
            game,
            shaper,
            parameters,
            opponent,
            meta_steps=config.meta_steps,
            num_trials=config.evaluation_trials,
        )

    return jax.tree.map(np.asarray, evaluate(keys, parameters))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
