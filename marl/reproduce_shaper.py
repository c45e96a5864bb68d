"""Shaping learners that sample: every shaper in every sampled game, and what of it Khan et al. (2023) would expect."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

import configs
from marl.claims import Claim, Section, number, table
from marl.parts import Job, duration, open_run, say
from marl.sampled_config import SampledConfig
from marl.sampled_experiment import measure, train_and_evaluate
from marl.sampled_ppo import SampledPPO
from meta import Evolution

GAMES = ("ipd_sampled", "imp_sampled", "coin_game", "ipd_in_the_matrix", "three_player_ipd")
SHAPERS = ("shaper", "good_shepherd", "mfos")
ABLATIONS = {  # in the first game
    "no-context": "shaper(memory='episode')",
    "no-averaging": "shaper(averaging=False)",
}
TWO_SHAPERS_SIGMA = 0.5  # with less they cooperate with each other, and the learner defects against both
EXTORTION = -0.75  # in the prisoner's dilemma, where cooperation is -1
MARGIN = 3.0  # standard errors
SEATS = ("shaper", "opponent")
FIGURES = (  # those that a game has
    "learning.png",
    "own_coins.png",
    "states.png",
    "cooperation.png",
    "opponents.png",
    "evolution.png",
    "episodes.gif",
)


class Part(NamedTuple):
    """One training and where it is kept."""

    game: str
    config: SampledConfig
    path: Path


def make_parts(folder: Path, *, games: Sequence[str], seed: int, fast: bool) -> list[Part]:
    """The trainings, in their order: every shaper in every game, ablations in the first, two shapers of three."""
    parts = []
    for game in games:
        preset = dataclasses.replace(configs.load(SampledConfig, "mfos", game), seed=seed)
        kinds: dict[str, dict[str, Any]] = {name: {"shaper": name} for name in SHAPERS}
        if game == GAMES[0]:
            kinds |= {name: {"shaper": spec} for name, spec in ABLATIONS.items()}
        if preset.make_game().num_agents > 2:
            wide = dataclasses.replace(preset.evolution, sigma=TWO_SHAPERS_SIGMA)
            kinds["two-shapers"] = {"num_shapers": 2, "evolution": wide}
        for name, changes in kinds.items():
            config = dataclasses.replace(preset, **changes)
            parts.append(Part(game, small(config) if fast else config, folder / f"{game}-{name}"))
    return parts


def small(config: SampledConfig) -> SampledConfig:
    """The same in a size that shows only that it runs."""
    return dataclasses.replace(
        config,
        unseen=(),
        episodes=2,
        episode_length=4,
        num_envs=2,
        trials=1,
        evaluation_trials=2,
        evolution=Evolution(population_size=4, generations=1),
        meta_ppo=SampledPPO(iterations=1, batch_size=2, epochs=1),
    )


def make_jobs(parts: Sequence[Part], console: Console) -> list[Job]:
    """What is to be run, with the time that it will take on this machine."""
    left = [part for part in parts if not (part.path / "summary.json").is_file()]
    games = {part.game: part.config for part in reversed(left)}  # the first of each
    if games:
        say(console, "measuring the speed of this machine, half a minute for each game")
    speeds = {game: measure(config) for game, config in games.items()}

    def seconds(part: Part) -> float:
        return speeds[part.game].seconds(part.config) if part in left else 0.0

    jobs = [Job(part.path, seconds(part), lambda part=part: _run(part, console)) for part in parts]  # type: ignore[misc]
    if left:
        say(console, f"this will take about {duration(sum(job.seconds for job in jobs))} on this machine")
        for job in jobs:
            say(console, f"  {job.path.name}: {duration(job.seconds)}")
    return jobs


def _run(part: Part, console: Console) -> None:
    train_and_evaluate(part.config, open_run(part.path, part.config, console), console)


def sections(parts: Sequence[Part]) -> list[Section]:
    """The report: a section for each training."""
    return [_section(part, json.loads((part.path / "summary.json").read_text())) for part in parts]


def _section(part: Part, found: dict[str, Any]) -> Section:
    name, naive, gain = part.path.name, found["naive"], found["gain_over_naive"]
    above = gain["mean"] / gain["standard_error"] if gain["standard_error"] else None
    claims = [Claim("gain over learners alone, in standard errors", above, None, least=MARGIN)]
    own = found["shaper_return"]
    # A Good Shepherd and the ablations are there to be compared; of the dilemma's figure only the whole shaper is sure.
    target = EXTORTION if name == "ipd_sampled-shaper" else None
    claims.append(Claim("shaper", own["mean"], own["standard_error"], least=target))
    claims.append(Claim("opponent", found["opponent_return"]["mean"], found["opponent_return"]["standard_error"]))
    claims += [Claim(f"learners alone, {seat}", naive[seat]["mean"], naive[seat]["standard_error"]) for seat in SEATS]
    if "own_coin_share" in naive:
        ours, alone = found["against"][part.config.opponent]["own_coin_share"][0], naive["own_coin_share"][0]
        error = (ours["standard_error"] ** 2 + alone["standard_error"] ** 2) ** 0.5
        apart = (ours["mean"] - alone["mean"]) / error if error else 0.0
        claims.append(Claim("own coins, above learners alone, in standard errors", apart, None, least=MARGIN))
        claims.append(Claim("own coins", ours["mean"], ours["standard_error"]))
        claims.append(Claim("own coins, learners alone", alone["mean"], alone["standard_error"]))
    rows = [
        [opponent, *(number(played[seat][key]) for seat in SEATS for key in ("mean", "standard_error"))]
        for opponent, played in found["against"].items()
    ]
    others = table(["against", "shaper", "s.e.", "opponent", "s.e."], rows)
    files = [part.path / "figures" / file for file in FIGURES if (part.path / "figures" / file).is_file()]
    pictures = [(file.stem.replace("_", " "), f"{name}/figures/{file.name}") for file in files]
    config = part.config
    text = f"`{config.shaper}` against `{config.opponent}` in `{config.environment}`; {found['num_trials']} trials."
    return Section(name.replace("-", ": ", 1), text, claims, [others], pictures)
