"""The experiments of a paper: what is run for each, and the report with the verdicts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

import configs
from marl.experiments.reproduce import coin_game as reproduce_coin_game
from marl.experiments.reproduce import discovery as reproduce_discovery
from marl.experiments.reproduce import distillation as reproduce_distillation
from marl.experiments.reproduce import extortion, extortion_report, in_context_report
from marl.experiments.reproduce import generalists as reproduce_generalists
from marl.experiments.reproduce import in_context as reproduce_in_context
from marl.experiments.reproduce import mfos as reproduce_mfos
from marl.experiments.reproduce import rlx2 as reproduce_rlx2
from marl.experiments.reproduce import shaper as reproduce_shaper
from marl.experiments.reproduce import social as reproduce_social
from marl.experiments.reproduce import sparse as reproduce_sparse
from marl.experiments.reproduce import zd as reproduce_zd
from marl.experiments.reproduce.config import (
    CoinGameConfig,
    Config,
    DiscoveryClaimsConfig,
    DistillationConfig,
    GeneralistsConfig,
    InContextConfig,
    MfosConfig,
    Rlx2Config,
    ShaperConfig,
    SocialConfig,
    SparseConfig,
    ZdConfig,
)
from marl.experiments.shaping.agents import load_shaper
from marl.experiments.shaping.config import ExactShapingConfig, ShapingConfig
from marl.experiments.shaping.jobs import shaping_jobs
from meta import RunDirectory
from meta.runs.formatting import duration, say
from meta.runs.jobs import Job, compiled_once, finished, run_jobs
from meta.runs.reports.claims import Section, write_claims
from meta.runs.reports.ending import print_report
from meta.statistics import mean_and_error

SECONDS_OF_A_TABLE = 20.0  # to compile, play and draw a game's head-to-head table
SECONDS_OF_ANALYSIS = 15.0
SHAPERS_OF_ZD = 3  # trainings of the shaper that may change its policy
SECONDS_OF_CONTROLS = 360.0  # most of them to compile three programs for each of seventeen learners
SECONDS_OF_CONTEXT = 120.0  # of play after the trainings of the in-context experiment
SECONDS_OF_MEETINGS = 120.0  # of trained players of the coin game, most of them to compile


def reproduce(config: Config, run: RunDirectory, console: Console) -> None:
    """Runs what has not been run yet, and writes the report."""
    if config.fast:  # programs that run for a blink take a third of the time to compile without
        jax.config.update("jax_disable_most_optimizations", True)
    with compiled_once():
        _RUNS[type(config)](config, run, console)


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
        path, parts, studies = Path(config.agent), {}, {}
    else:
        preset = configs.load(ExactShapingConfig, "mfos", "ipd")
        shaping = dataclasses.replace(preset, seeds=min(config.seeds, SHAPERS_OF_ZD), seed=config.seed)
        path = run.path / "shaper"
        parts = {path: shaping.small() if config.fast else shaping}
        studies = extortion.make_studies(seeds=config.seeds, seed=config.seed, fast=config.fast)
    jobs = extortion.make_jobs(run.path / "studies", studies, console, fast=config.fast)
    left = sum(job.seconds for job in jobs if not finished(job.path, job.config))
    run_jobs(_say_how_long(parts, SECONDS_OF_ANALYSIS + left, console), console)
    results = run_jobs(jobs, console)
    agent = load_shaper(path)
    assert isinstance(agent.config, ExactShapingConfig)
    found, played = reproduce_zd.analyse(agent, seed=config.seed, num_trials=agent.config.evaluation_trials)
    sections = reproduce_zd.sections(found, played, agent.config, run, config.seed)
    data = {"config": configs.plain(config), "agent": configs.plain(agent.config), "zd": found}
    if studies:
        sections += extortion_report.sections(run, studies, results, played, agent.config.make_game(), config.seed)
        data["studies"] = results
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
    jobs = reproduce_coin_game.make_jobs(run.path / "trainings", config.parts(), console)
    left = [job for job in jobs.values() if not finished(job.path, job.config)]
    if not config.fast:
        left = [reproduce_coin_game.measured(job, console) for job in left]
        _announce(left, console, SECONDS_OF_MEETINGS)
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
    _announce(jobs, console, where="on two cores")
    results = run_jobs(jobs, console)
    data = {"config": configs.plain(config), "searches": results}
    sections = reproduce_discovery.sections(parts, results)
    _report(run, "Objectives that are evolved", config.fast, sections, data, console)


def _rlx2(config: Rlx2Config, run: RunDirectory, console: Console) -> None:
    parts = reproduce_rlx2.make_configs(seeds=config.seeds, seed=config.seed, fast=config.fast)
    jobs = reproduce_rlx2.make_jobs(run.path, parts, console, fast=config.fast)
    _announce(jobs, console)
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


def _social(config: SocialConfig, run: RunDirectory, console: Console) -> None:
    parts = config.parts()
    jobs = reproduce_social.make_jobs(run.path / "trainings", parts, console, fast=config.fast)
    _announce(jobs, console)
    results = run_jobs(jobs, console)
    data = {"config": configs.plain(config), "trainings": results}
    sections = reproduce_social.sections(run.figures, parts, results)
    title = "Sequential social dilemmas: learners with one network for all players"
    _report(run, title, config.fast, sections, data, console)


def _distillation(config: DistillationConfig, run: RunDirectory, console: Console) -> None:
    parts = reproduce_distillation.make_configs(seeds=config.seeds, seed=config.seed, fast=config.fast)
    jobs = reproduce_distillation.make_jobs(run.path / "trainings", parts, console)
    _announce(jobs, console, where="on two cores")
    results = run_jobs(jobs, console)
    fits = {kind: reproduce_distillation.distilled(kind) for kind in reproduce_distillation.KINDS}
    data = {"config": configs.plain(config), "trainings": results}
    data["fits"] = {kind: {"formula": fit.formula, "explained": fit.explained} for kind, fit in fits.items()}
    sections = reproduce_distillation.sections(run.figures, parts, results)
    _report(run, "Evolved objectives, distilled", config.fast, sections, data, console)


def _in_context(config: InContextConfig, run: RunDirectory, console: Console) -> None:
    parts = config.parts()
    jobs = reproduce_in_context.make_jobs(run.path / "trainings", parts, console, fast=config.fast)
    _announce(list(jobs.values()), console, 0.0 if config.fast else SECONDS_OF_CONTEXT)
    results = run_jobs(list(jobs.values()), console)
    found = in_context_report.measure(jobs, console, seed=config.seed)
    data = {"config": configs.plain(config), "trainings": results, "measured": in_context_report.as_data(found)}
    sections = in_context_report.sections(run.figures, found, parts)
    _report(run, "In-context co-player inference", config.fast, sections, data, console)


def _say_how_long(trainings: Mapping[Path, ShapingConfig], beside: float, console: Console) -> list[Job]:
    """Jobs of the trainings; prints the time that they will take here, with `beside` seconds for the rest."""
    jobs = shaping_jobs(trainings, console)
    _announce(jobs, console, beside)
    return jobs


def _announce(jobs: Sequence[Job], console: Console, beside: float = 0.0, where: str = "on this machine") -> None:
    """Prints the time that jobs which are not finished will take, with `beside` seconds for the rest."""
    if seconds := sum(job.seconds for job in jobs if not finished(job.path, job.config)) + beside:
        say(console, f"this will take about {duration(seconds)} {where}")


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


_RUNS: dict[type, Callable[[Any, RunDirectory, Console], None]] = {
    MfosConfig: _mfos,
    ZdConfig: _zd,
    GeneralistsConfig: _generalists,
    ShaperConfig: _shaper,
    CoinGameConfig: _coin_game,
    DiscoveryClaimsConfig: _discovery,
    DistillationConfig: _distillation,
    Rlx2Config: _rlx2,
    SparseConfig: _sparse,
    SocialConfig: _social,
    InContextConfig: _in_context,
}
