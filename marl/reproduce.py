"""`python -m marl.reproduce mfos|zd|shaper [options]`: the experiments of a paper, and whether their figures are met.

mfos: the matrix games of Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447: learners head to head in
three games, shapers evolved against each of them, meta-self-play. zd: whether a shaper of the prisoner's dilemma plays
zero-determinant extortion. shaper: Khan et al., Scaling Opponent Shaping to High Dimensional Games (2023),
arXiv:2312.12568: shapers of learners that sample, in repeated games, the coin game and in the matrix. Each says
beforehand how long it will take, and writes report.md, report.json and figures. A stopped run goes on with --resume
DIR, and does nothing twice.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.errors import JaxRuntimeError
from rich.console import Console

import configs
from marl import reproduce_mfos, reproduce_shaper, reproduce_zd
from marl.agents import AGENT_FILE, load_agent
from marl.claims import Section, write_report
from marl.config import ShapingConfig
from marl.parts import Part, compiled_once, duration, measure, run_jobs, run_parts, say
from meta import NonFiniteFitness, RunDirectory
from meta.devices import use_all_cores
from meta.interrupt import stop_on_signals

PROGRAM = "python -m marl.reproduce"
SECONDS_OF_A_TABLE = 10.0  # to play and draw a game's head-to-head table, beside compiling
COMPILING_A_TABLE = 1.5  # in the time that a shaper's program takes
SECONDS_OF_ANALYSIS = 15.0
SMOKE = "**A smoke run, much too small to mean anything: no verdict below is to be trusted.** It shows that all runs."


@dataclasses.dataclass(frozen=True)
class MfosConfig:
    """The matrix games of Lu et al. (2022)."""

    seeds: int = 3
    """Independent runs of each setting, all in one program."""
    seed: int = 0
    """The first of them."""
    ppo: bool = False
    """Train by the paper's own PPO as well, one seed against each learner: hours, each takes about half of one."""
    fast: bool = False
    """A smoke run: tiny, and fewer settings."""

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= 1000:  # beyond them the longer runs have theirs
            raise ValueError(f"seeds: got {self.seeds}; a whole number from 1 to 1000 is needed")
        _check_seed(self.seed)


@dataclasses.dataclass(frozen=True)
class ZdConfig:
    """The extortion analysis of a shaper in the prisoner's dilemma."""

    agent: str = ""
    """File or run directory of a trained shaper; the default one is trained against a naive learner if empty."""
    seed: int = 0
    """Of the training, of the trials and of the random co-players."""
    fast: bool = False
    """A smoke run: a tiny training."""

    def __post_init__(self) -> None:
        _check_seed(self.seed)


@dataclasses.dataclass(frozen=True)
class ShaperConfig:
    """Shapers of learners that sample."""

    games: tuple[str, ...] = reproduce_shaper.GAMES
    """Presets of `marl.mfos` with an environment."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    fast: bool = False
    """A smoke run: tiny."""

    def __post_init__(self) -> None:
        for name in self.games:
            if name not in reproduce_shaper.GAMES:
                raise ValueError(f"games: got {name!r}; {configs.one_of(name, reproduce_shaper.GAMES)}")
        if not self.games:
            raise ValueError(f"games: got none; some of {', '.join(reproduce_shaper.GAMES)} are needed")
        _check_seed(self.seed)


@dataclasses.dataclass(frozen=True)
class ShaperOptions(ShaperConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show no progress."""


@dataclasses.dataclass(frozen=True)
class MfosOptions(MfosConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show no progress."""


@dataclasses.dataclass(frozen=True)
class ZdOptions(ZdConfig):
    """A config and what is said about this run alone."""

    out: str = ""
    """Directory to write to; a new one under runs/ if empty."""
    quiet: bool = False
    """Show no progress."""


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """What can be said about a run that goes on; its config is in its directory."""

    resume: str
    """Directory of the run."""
    quiet: bool = False
    """Show no progress."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    stop_on_signals()
    try:
        name, config, open_run, quiet = _begin(arguments)
        if isinstance(config, ShaperConfig):
            use_all_cores()
        if isinstance(config, ZdConfig) and config.agent:
            agent = load_agent(config.agent).config
            assert agent is not None
            reproduce_zd.check(agent)
        run = open_run()
    except (ValueError, FileExistsError) as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(f"out: cannot be written to: {error.filename}: {error.strerror}", 2)
    if config.fast:  # programs that run for a blink take a third of the time to compile without
        jax.config.update("jax_disable_most_optimizations", True)
    try:
        with compiled_once():
            return COMMANDS[name][2](config, run, Console(quiet=quiet))
    except KeyboardInterrupt:
        return _fail(f"stopped; go on with {PROGRAM} {name} --resume {run.path}", 130)
    except (NonFiniteFitness, ValueError) as error:
        return _fail(str(error), 1)
    except JaxRuntimeError as error:  # such as a device whose memory does not suffice
        return _fail(str(error).strip().split("\n")[0], 1)
    except OSError as error:
        again = f"{PROGRAM} {name} --resume {run.path}"
        return _fail(f"{run.path}: {error.strerror or error}; what was saved stays: {again}", 1)


def _fail(message: str, status: int) -> int:
    print(f"{PROGRAM}: {' '.join(message.split())}", file=sys.stderr)
    return status


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed: got {seed}; a whole number from 0 to 2**31 - 1 is needed")


def _begin(arguments: Sequence[str]) -> tuple[str, Any, Callable[[], RunDirectory], bool]:
    """What to do, its config, what opens its directory when all else is known to fit, and whether to be quiet."""
    description, choice = (__doc__ or "").strip(), configs.one_of("", list(COMMANDS))
    if not arguments:
        raise configs.ConfigError(f"experiment: none given; {choice}")
    name, *rest = arguments
    if name in ("-h", "--help"):
        configs.parse(MfosOptions(), ["--help"], f"{PROGRAM} mfos", description)
    if name not in COMMANDS:
        raise configs.ConfigError(f"experiment: got {name!r}; {choice}")
    cls, options_cls, _ = COMMANDS[name]
    if any(argument.split("=")[0] == "--resume" for argument in rest):
        resume = configs.parse(ResumeOptions(""), rest, f"{PROGRAM} {name}", "Goes on with a run that was stopped.")
        path = Path(resume.resume)
        if not (path / "config.yaml").is_file():
            raise configs.ConfigError(f"--resume: got {resume.resume!r}; the directory of a run is needed")
        config = configs.from_file(cls, path / "config.yaml")
        return name, config, functools.partial(RunDirectory, path), resume.quiet
    options = configs.parse(options_cls(), rest, f"{PROGRAM} {name}", description)
    config = cls(**{field.name: getattr(options, field.name) for field in dataclasses.fields(cls)})
    return name, config, functools.partial(_open, config, name, options.out), options.quiet


def _open(config: Any, name: str, out: str) -> RunDirectory:
    path, numbers = Path(out) if out else Path("runs") / f"reproduce-{name}", itertools.count(2)
    while not out and path.exists():
        path = path.with_name(f"reproduce-{name}-{next(numbers)}")
    return RunDirectory.create(path, configs.to_text(config))


def _mfos(config: MfosConfig, run: RunDirectory, console: Console) -> int:
    seeds, seed, ppo, fast = config.seeds, config.seed, config.ppo, config.fast
    parts = reproduce_mfos.make_parts(run.path, seeds=seeds, seed=seed, ppo=ppo, fast=fast)
    games = reproduce_mfos.games_head_to_head(config.fast)
    speed = _say_how_long(parts, len(games), 0.0, console)
    tables = {}
    for game in games:
        say(console, f"head to head: {game}")
        status, tables[game] = reproduce_mfos.head_to_head(run.path, game, seed=config.seed, fast=config.fast)
        if status == 130:
            raise KeyboardInterrupt
        if status:
            return status
    results = run_parts(parts, speed, console)
    sections = reproduce_mfos.sections(run, tables, parts, results)
    data = {"config": configs.plain(config), "head_to_head": tables, "shapers": results}
    return _report(run, "Model-Free Opponent Shaping: the matrix games", config.fast, sections, data, console)


def _zd(config: ZdConfig, run: RunDirectory, console: Console) -> int:
    if config.agent:
        path, parts = Path(config.agent), []
    else:
        shaping = dataclasses.replace(configs.load(ShapingConfig, "mfos", "ipd"), seed=config.seed)
        parts = [Part("ipd-naive", reproduce_mfos.small(shaping) if config.fast else shaping, run.path / "shaper")]
        path = parts[0].path / AGENT_FILE
    speed = _say_how_long(parts, 0, SECONDS_OF_ANALYSIS, console)
    run_parts(parts, speed, console)
    agent = load_agent(path)
    assert agent.config is not None
    found = reproduce_zd.analyse(agent, seed=config.seed, num_trials=agent.config.evaluation_trials)
    sections = reproduce_zd.sections(found, agent.config, run, config.seed)
    data = {"config": configs.plain(config), "agent": configs.plain(agent.config), "zd": found}
    title = "Zero-determinant extortion in the prisoner's dilemma"
    return _report(run, title, config.fast, sections, data, console)


def _shaper(config: ShaperConfig, run: RunDirectory, console: Console) -> int:
    parts = reproduce_shaper.make_parts(run.path, games=config.games, seed=config.seed, fast=config.fast)
    results = run_jobs(reproduce_shaper.make_jobs(parts, console), console)
    data = {"config": configs.plain(config), "shapers": results}
    title = "Shaping learners that sample"
    return _report(run, title, config.fast, reproduce_shaper.sections(parts), data, console)


def _say_how_long(parts: Sequence[Part], num_tables: int, beside: float, console: Console) -> Any:
    """Measures the speed of this machine, if anything is left to train, and says what that means."""
    left = [part for part in parts if not part.is_done]
    if not left:
        say(console, "all shapers are trained; about a minute for the rest")
        return None
    say(console, "measuring the speed of this machine, some seconds")
    speed = measure(left[0].config)
    tables = num_tables * (SECONDS_OF_A_TABLE + COMPILING_A_TABLE * speed.seconds_to_compile)
    seconds = sum(map(speed.seconds, left)) + tables + beside
    rate = f"{speed.meta_steps_per_second / 1e6:.2g} M meta-steps/s, {speed.seconds_to_compile:.0f} s to compile"
    say(console, f"this will take about {duration(seconds)} on this machine ({rate} against a naive learner)")
    return speed


def _report(
    run: RunDirectory, title: str, fast: bool, sections: Sequence[Section], data: dict[str, Any], console: Console
) -> int:
    notes = [SMOKE] if fast else []
    notes.append(
        "A figure passes if it reaches its target, or, where none is named, if it lies within three combined standard "
        "errors of its reference."
    )
    line = write_report(run, title, notes, sections, {"fast": fast, **data})
    say(console, f"{line[:-1]}{' (a smoke run: no verdict to be trusted)' if fast else ''}")
    say(console, f"written to {run.path}: report.md, report.json, figures ({time.strftime('%H:%M')})")
    return 0


COMMANDS: dict[str, tuple[Any, Any, Callable[[Any, RunDirectory, Console], int]]] = {
    "mfos": (MfosConfig, MfosOptions, _mfos),
    "zd": (ZdConfig, ZdOptions, _zd),
    "shaper": (ShaperConfig, ShaperOptions, _shaper),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
