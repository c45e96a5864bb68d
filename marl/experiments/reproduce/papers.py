"""The experiments of a paper: their configs, what is run for each, and the report with the verdicts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

import configs
from marl.experiments.reproduce import coin_game as reproduce_coin_game
from marl.experiments.reproduce import discovery as reproduce_discovery
from marl.experiments.reproduce import generalists as reproduce_generalists
from marl.experiments.reproduce import mfos as reproduce_mfos
from marl.experiments.reproduce import rlx2 as reproduce_rlx2
from marl.experiments.reproduce import shaper as reproduce_shaper
from marl.experiments.reproduce import sparse as reproduce_sparse
from marl.experiments.reproduce import zd as reproduce_zd
from marl.experiments.shaping.agents import load_shaper
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.experiments.shaping.jobs import shaping_jobs
from marl.experiments.shaping.sampled import SampledShaping
from meta import RunDirectory
from meta.runs.formatting import duration, say
from meta.runs.jobs import Job, compiled_once, finished, run_jobs
from meta.runs.reports.claims import Section, write_claims
from meta.runs.reports.ending import print_report
from meta.statistics import mean_and_error

SECONDS_OF_A_TABLE = 20.0  # to compile, play and draw a game's head-to-head table
SECONDS_OF_ANALYSIS = 15.0
SECONDS_OF_CONTROLS = 360.0  # most of them to compile three programs for each of seventeen learners
NO_EVOLUTION = "where nothing is evolved"
SECONDS_OF_MEETINGS = 120.0  # of trained players of the coin game, most of them to compile


@dataclasses.dataclass(frozen=True)
class MfosConfig(configs.CommandConfig):
    """The matrix games of Lu et al. (2022)."""

    seeds: int = 10
    """Independent trainings of each setting, all in one program."""
    seed: int = 0
    """The first of them."""
    ppo: bool = False
    """Train by the paper's own PPO as well, one seed against each of three learners, a quarter of an hour each."""
    fast: bool = False
    """A smoke run: tiny, and fewer settings."""

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= 1000:  # beyond them the longer runs have theirs
            raise ValueError(f"seeds: got {self.seeds}; a whole number from 1 to 1000 is needed")
        configs.check_seed(self.seed, 31)


@dataclasses.dataclass(frozen=True)
class ZdConfig(configs.CommandConfig):
    """The extortion analysis of a shaper in the prisoner's dilemma."""

    agent: str = ""
    """File or run directory of a trained shaper; the default one is trained against a naive learner if empty."""
    seeds: int = 3
    """Independent trainings, all in one program."""
    seed: int = 0
    """The first of them; of the trials, the random policies and the random co-players."""
    fast: bool = False
    """A smoke run: a tiny training."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=1)
        configs.check_seed(self.seed, 31)

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are."""
        idle = ("fast", "seeds", "cluster")
        return dict.fromkeys(idle, "with an agent that is trained already") if self.agent else {}


@dataclasses.dataclass(frozen=True)
class ShaperConfig(configs.CommandConfig):
    """Shapers of learners that sample."""

    games: tuple[str, ...] = reproduce_shaper.GAMES
    """Presets of `marl.mfos` with an environment."""
    shapers: tuple[str, ...] = ()
    """With settings in brackets; if none are given all three kinds, in ipd_sampled with their ablations."""
    opponents: tuple[str, ...] = ()
    """Learners that every shaper is trained against, one each, and tried on the others; each game's own if none."""
    seeds: int = 3
    """Independent trainings of each shaper; errors are between them if there are several."""
    seed: int = 0
    """The first of them."""
    fast: bool = False
    """A smoke run: tiny."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=1)
        for field in ("shapers", "opponents"):
            given = getattr(self, field)
            slugs = list(map(reproduce_shaper.slug, given))
            if twice := next((spec for i, spec in enumerate(given) if slugs[i] in slugs[:i]), None):
                raise ValueError(f"{field}: got {configs.shown(twice)} twice; once is needed")
        for name in self.games:
            if name not in reproduce_shaper.GAMES:
                raise ValueError(f"games: got {name!r}; {configs.one_of(name, reproduce_shaper.GAMES)}")
        if not self.games:
            raise ValueError(f"games: got none; some of {', '.join(reproduce_shaper.GAMES)} are needed")
        configs.check_seed(self.seed, 31, seeds=self.seeds)

    def parts(self) -> dict[str, SampledShapingConfig]:
        """The trainings, by name."""
        sizes: dict[str, Any] = {"seeds": self.seeds, "seed": self.seed, "fast": self.fast}
        return reproduce_shaper.make_configs(games=self.games, shapers=self.shapers, opponents=self.opponents, **sizes)


@dataclasses.dataclass(frozen=True)
class _SeveralTrainings(configs.CommandConfig):
    """Trainings of which each is done several times, so that errors are between them."""

    seeds: int = 10
    """Independent trainings of each kind, all in one program."""
    seed: int = 0
    """The first of them."""
    fast: bool = False
    """A smoke run: tiny, and fewer kinds."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=2)
        configs.check_seed(self.seed, 31, seeds=self.seeds)


@dataclasses.dataclass(frozen=True)
class GeneralistsConfig(_SeveralTrainings):
    """Shapers of one learner and of many in the prisoner's dilemma, against learners seen in training and others."""


@dataclasses.dataclass(frozen=True)
class CoinGameConfig(configs.CommandConfig):
    """The coin game: learners trained with their kind, then all against all, and against two that learn nothing."""

    seeds: int = 4
    """Independent trainings of each learner, all in one program."""
    seed: int = 0
    """The first of them."""
    updates: int = 4000
    """Of each training, one after each episode of all environments."""
    num_envs: int = 128
    """Environments in which a learner plays at once."""
    paper: bool = False
    """The size of LOQA's public code, ten trainings of 6,000 updates from 8,192 episodes of 50 steps: for a GPU."""
    fast: bool = False
    """A smoke run: tiny, and fewer learners."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=2, updates=1, num_envs=2)
        configs.check(self, "an even number", lambda x: x % 2 == 0, "num_envs")  # of which there are two minibatches
        configs.check_seed(self.seed, 31, seeds=self.seeds)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of a training."""
        if self.fast:
            return {"updates": 4, "num_envs": 4, "seeds": 2, "episode_length": 16}
        if self.paper:
            return {"updates": 6000, "num_envs": 8192, "seeds": 10, "episode_length": 50}
        return {"updates": self.updates, "num_envs": self.num_envs, "seeds": self.seeds, "episode_length": 16}

    def parts(self) -> dict[str, reproduce_coin_game.SelfPlay]:
        """The trainings, by name."""
        return reproduce_coin_game.make_configs(fast=self.fast, seed=self.seed, **self.sizes)

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are."""
        size = "fast" if self.fast else "paper" if self.paper else ""
        idle = ("seeds", "updates", "num_envs", *(("paper",) if self.fast else ()))
        found = dict.fromkeys(idle, f"with --{size}, which has its own") if size else {}
        return found | {"cluster": NO_EVOLUTION}


@dataclasses.dataclass(frozen=True)
class DiscoveryClaimsConfig(configs.CommandConfig):
    """Drifts and distances of values, evolved in two games at once, and a drift for two players."""

    searches: int = 3
    """Independent searches of each kind, all in one program."""
    seed: int = 0
    """The first of them."""
    fast: bool = False
    """A smoke run: tiny, and one kind."""

    def __post_init__(self) -> None:
        configs.check_least(self, searches=1)
        configs.check_seed(self.seed, 31, seeds=self.searches)


@dataclasses.dataclass(frozen=True)
class Rlx2Config(_SeveralTrainings):
    """TD3 and SAC with few weights, on a small task each: from the first step on, and in the ways of several papers."""

    seeds: int = 16
    """Independent trainings of each row, all in one program."""

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing."""
        return {"cluster": NO_EVOLUTION}


@dataclasses.dataclass(frozen=True)
class SparseConfig(_SeveralTrainings):
    """Shapers of learners with all and with a fifth of their weights."""

    seeds: int = 3
    """Independent trainings of each shaper, all in one program."""


OfSamples = ShaperConfig | CoinGameConfig | DiscoveryClaimsConfig | Rlx2Config | SparseConfig
Config = MfosConfig | ZdConfig | GeneralistsConfig | OfSamples


def checked(config: Config) -> Config:
    """The config, of which what it names is known to fit.

    Raises:
      ValueError: for an agent of which extortion is not defined, or one that there is not; for a shaper or an opponent
        that there is not, or that cannot play the game; for more environments than the memory holds.
    """
    if isinstance(config, ShaperConfig) and (config.shapers or config.opponents):
        for part in config.parts().values():
            SampledShaping(part)
    if isinstance(config, CoinGameConfig):
        reproduce_coin_game.check(config.parts())
    if isinstance(config, ZdConfig) and config.agent:
        agent = load_shaper(config.agent).config
        assert agent is not None
        reproduce_zd.check(agent)
    return config


def reproduce(config: Config, run: RunDirectory, console: Console) -> None:
    """Runs what has not been run yet, and writes the report."""
    if config.fast:  # programs that run for a blink take a third of the time to compile without
        jax.config.update("jax_disable_most_optimizations", True)
    with compiled_once():
        if isinstance(config, MfosConfig):
            _mfos(config, run, console)
        elif isinstance(config, ZdConfig):
            _zd(config, run, console)
        elif isinstance(config, GeneralistsConfig):
            _generalists(config, run, console)
        elif isinstance(config, CoinGameConfig):
            _coin_game(config, run, console)
        elif isinstance(config, DiscoveryClaimsConfig):
            _discovery(config, run, console)
        elif isinstance(config, Rlx2Config):
            _rlx2(config, run, console)
        elif isinstance(config, SparseConfig):
            _sparse(config, run, console)
        else:
            _shaper(config, run, console)


def _mfos(config: MfosConfig, run: RunDirectory, console: Console) -> None:
    seeds, seed, ppo, fast = config.seeds, config.seed, config.ppo, config.fast
    parts = reproduce_mfos.make_configs(seeds=seeds, seed=seed, ppo=ppo, fast=fast)
    games, tables = reproduce_mfos.games_head_to_head(config.fast), {}
    beside = len(games) * SECONDS_OF_A_TABLE
    jobs = _say_how_long({run.path / "shapers" / name: part for name, part in parts.items()}, beside, console)
    for game in games:
        say(console, f"head to head: {game}")
        tables[game] = reproduce_mfos.head_to_head(run.path, game, seed=config.seed, fast=config.fast)
    results = run_jobs(jobs, console)
    sections = reproduce_mfos.sections(run, tables, parts, results)
    data = {"config": configs.plain(config), "head_to_head": tables, "shapers": results}
    _report(run, "Model-Free Opponent Shaping: the matrix games", config.fast, sections, data, console)


def _zd(config: ZdConfig, run: RunDirectory, console: Console) -> None:
    if config.agent:
        path, parts = Path(config.agent), {}
    else:
        preset = configs.load(ExactShapingConfig, "mfos", "ipd")
        shaping = dataclasses.replace(preset, seeds=config.seeds, seed=config.seed)
        path = run.path / "shaper"
        parts = {path: shaping.small() if config.fast else shaping}
    run_jobs(_say_how_long(parts, SECONDS_OF_ANALYSIS, console), console)
    agent = load_shaper(path)
    assert isinstance(agent.config, ExactShapingConfig)
    found, played = reproduce_zd.analyse(agent, seed=config.seed, num_trials=agent.config.evaluation_trials)
    sections = reproduce_zd.sections(found, played, agent.config, run, config.seed)
    data = {"config": configs.plain(config), "agent": configs.plain(agent.config), "zd": found}
    title = "Zero-determinant extortion in the prisoner's dilemma"
    _report(run, title, config.fast, sections, data, console)


def _shaper(config: ShaperConfig, run: RunDirectory, console: Console) -> None:
    parts = config.parts()
    results = run_jobs(_say_how_long({run.path / name: part for name, part in parts.items()}, 0.0, console), console)
    data = {"config": configs.plain(config), "shapers": results}
    title = "Shaping learners that sample"
    _report(run, title, config.fast, reproduce_shaper.sections(run, parts, results), data, console)


def _generalists(config: GeneralistsConfig, run: RunDirectory, console: Console) -> None:
    parts = reproduce_generalists.make_configs(seeds=config.seeds, seed=config.seed, fast=config.fast)
    folders = {run.path / "shapers" / name.replace(" ", "-"): part for name, part in parts.items()}
    results = run_jobs(_say_how_long(folders, SECONDS_OF_CONTROLS, console), console)
    results = dict(zip(parts, results.values(), strict=True))
    one, learners = next(iter(parts.values())), reproduce_generalists.columns(config.fast)
    untrained = reproduce_generalists.controls(one, console, learners=learners, seed=config.seed)
    sections = reproduce_generalists.sections(run.figures, results, untrained, config.fast)
    data = {"config": configs.plain(config), "shapers": results}
    data |= {"untrained": {row: {name: mean_and_error(x) for name, x in of.items()} for row, of in untrained.items()}}
    _report(run, "Shapers of one learner and of many", config.fast, sections, data, console)


def _coin_game(config: CoinGameConfig, run: RunDirectory, console: Console) -> None:
    folder = run.path / "trainings"
    folder.mkdir(exist_ok=True)
    jobs = reproduce_coin_game.make_jobs(folder, config.parts(), console)
    left = [job for job in jobs.values() if not finished(job.path, job.config)]
    if left and not config.fast:
        left = [reproduce_coin_game.measured(job, console) for job in left]
        seconds = sum(job.seconds for job in left) + SECONDS_OF_MEETINGS
        say(console, f"this will take about {duration(seconds)} on this machine")
    timed = {job.path: job for job in left}
    results = run_jobs([timed.get(job.path, job) for job in jobs.values()], console)
    found, trained = reproduce_coin_game.head_to_head(jobs, console, seed=config.seed)
    sections = reproduce_coin_game.sections(run, found, trained, next(iter(jobs.values())).config)
    data = {"config": configs.plain(config), "trainings": results}
    data |= {"reward": {row: {name: one.reward.tolist() for name, one in of.items()} for row, of in found.items()}}
    _report(run, "The coin game: cooperation within and between learners", config.fast, sections, data, console)


def _discovery(config: DiscoveryClaimsConfig, run: RunDirectory, console: Console) -> None:
    parts = reproduce_discovery.make_configs(searches=config.searches, seed=config.seed, fast=config.fast)
    jobs = reproduce_discovery.make_jobs(run.path, parts, console)
    if seconds := sum(job.seconds for job in jobs if not finished(job.path, job.config)):
        say(console, f"this would take about {duration(seconds)} on two cores")
    results = run_jobs(jobs, console)
    data = {"config": configs.plain(config), "searches": results}
    sections = reproduce_discovery.sections(parts, results)
    _report(run, "Objectives that are evolved", config.fast, sections, data, console)


def _rlx2(config: Rlx2Config, run: RunDirectory, console: Console) -> None:
    parts = reproduce_rlx2.make_configs(seeds=config.seeds, seed=config.seed, fast=config.fast)
    jobs = reproduce_rlx2.make_jobs(run.path, parts, console, fast=config.fast)
    if seconds := sum(job.seconds for job in jobs if not finished(job.path, job.config)):
        say(console, f"this will take about {duration(seconds)} on this machine")
    run_jobs(jobs, console)
    results = {job.path: finished(job.path, job.config) or {} for job in jobs}
    sections = reproduce_rlx2.sections(run, parts, jobs, results)
    trainings = {str(path.relative_to(run.path)): found for path, found in results.items()}
    data = {"config": configs.plain(config), "trainings": trainings}
    _report(run, "Sparse from the first step to the last: RLx2", config.fast, sections, data, console)


def _sparse(config: SparseConfig, run: RunDirectory, console: Console) -> None:
    parts = reproduce_sparse.make_configs(seeds=config.seeds, seed=config.seed, fast=config.fast)
    jobs = _say_how_long({run.path / name: part for name, part in parts.items()}, SECONDS_OF_ANALYSIS, console)
    results = dict(zip(parts, run_jobs(jobs, console).values(), strict=True))
    data = {"config": configs.plain(config), "shapers": results}
    sections = reproduce_sparse.sections(run.figures, parts, results)
    _report(run, "Shaping learners with few weights", config.fast, sections, data, console)


def _say_how_long(trainings: Mapping[Path, ShapingConfig], beside: float, console: Console) -> list[Job]:
    """Jobs of the trainings; prints the time that they will take here, with `beside` seconds for the rest."""
    jobs = shaping_jobs(trainings, console)
    if seconds := sum(job.seconds for job in jobs):
        say(console, f"this will take about {duration(seconds + beside)} on this machine")
    else:
        say(console, "all shapers are trained; about a minute for the rest")
    return jobs


def _report(
    run: RunDirectory, title: str, fast: bool, sections: Sequence[Section], data: dict[str, Any], console: Console
) -> None:
    note = (
        "A figure passes if it reaches its target, or, where none is named, if it lies within three combined standard "
        "errors of its reference."
    )
    say(console, write_claims(run, title, note, sections, data, fast=fast))
    print_report(console, run.path)
    say(console, f"written to {run.path}: report.md, report.json, figures ({time.strftime('%H:%M')})")
