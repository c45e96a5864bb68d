"""Shaping learners that sample: every shaper in every sampled game, and what of it Khan et al. (2023) would expect."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import configs
from marl.experiments.reproduce import figures
from marl.experiments.shaping.config import SampledShapingConfig
from meta import RunDirectory
from meta.runs.formatting import many
from meta.runs.gpu_defaults import with_gpu_defaults
from meta.runs.reports.claims import Claim, Section, number, table
from meta.statistics import rounded, with_error

GAMES = ("ipd_sampled", "imp_sampled", "coin_game", "ipd_in_the_matrix", "three_player_ipd")
SHAPERS = ("shaper", "good_shepherd", "mfos")
ABLATIONS = {  # in the first game
    "no-context": "shaper(memory='episode')",
    "no-averaging": "shaper(averaging=False)",
}
TWO_SHAPERS_SIGMA = 0.5  # with less they cooperate with each other, and the learner defects against both
EXTORTION = -0.75  # in the prisoner's dilemma, where cooperation is -1
MARGIN = 3.0  # standard errors
TAUGHT = "ipd_in_the_matrix"  # the game in which a shaper is to make the learner cooperate more
SEATS = ("shaper", "opponent")
FIGURES = (  # those that a game has
    "trial_payoffs.png",
    "own_coins.png",
    "states.png",
    "cooperation.png",
    "opponents.png",
    "learning_curve.png",
    "episodes.gif",
)


def make_configs(
    *,
    games: Sequence[str],
    shapers: Sequence[str] = (),
    opponents: Sequence[str] = (),
    seeds: int,
    seed: int,
    fast: bool,
) -> dict[str, SampledShapingConfig]:
    """The trainings by name, in order.

    Args:
      games: presets.
      shapers: specs; if there are none all shapers in all games, ablations in the first, two shapers of three.
      opponents: specs, each of which every shaper plays in training, and the others afterwards; the preset's if none.
      seeds: trainings of each.
      seed: the first.
      fast: a smoke run.
    """
    found = {}
    for game in games:
        preset = dataclasses.replace(
            with_gpu_defaults(configs.load(SampledShapingConfig, "mfos", game)), seed=seed, seeds=seeds
        )
        kinds: dict[str, dict[str, Any]] = {slug(spec): {"shaper": spec} for spec in shapers or SHAPERS}
        if game == GAMES[0] and not shapers:
            kinds |= {name: {"shaper": spec} for name, spec in ABLATIONS.items()}
        if preset.make_game().num_agents > 2 and not shapers:
            wide = dataclasses.replace(preset.evolution, sigma=TWO_SHAPERS_SIGMA)
            kinds["two-shapers"] = {"num_shapers": 2, "evolution": wide}
        for opponent in opponents or [preset.opponent]:
            others = tuple(other for other in opponents if other != opponent) or preset.unseen
            for name, changes in kinds.items():
                config = dataclasses.replace(preset, opponent=opponent, unseen=others, **changes)
                of_whom = f"-of-{slug(opponent)}" if opponents else ""
                found[f"{game}-{name}{of_whom}"] = config.small() if fast else config
    return found


def slug(spec: str) -> str:
    """A spec as part of a directory's name."""
    return re.sub(r"[^\w.=]+", "-", spec).strip("-")


def sections(run: RunDirectory, trained: dict[str, SampledShapingConfig], results: dict[str, Any]) -> list[Section]:
    """The report: payoffs in each game, and a section for each training, from its directory in the run's."""
    games = dict.fromkeys(name.partition("-")[0] for name in trained)
    together = [
        _overview(run, game, {name: one for name, one in trained.items() if name.startswith(f"{game}-")}, results)
        for game in games
    ]
    return [*together, *(_section(run.path, name, config, results[name]) for name, config in trained.items())]


def _overview(
    run: RunDirectory, game: str, trained: dict[str, SampledShapingConfig], results: dict[str, Any]
) -> Section:
    """All shapers of a game, against all of their opponents."""
    rows, series = [], dict[str, dict[str, dict[str, float | None]]]()
    for name, config in trained.items():
        found = results[name]
        own, other = (found[f"{seat}_return"] for seat in SEATS)
        alone = (found["own_kind"][seat] for seat in SEATS)
        shaper = f"{config.num_shapers} of them" if config.num_shapers > 1 else config.shaper
        controls = found["untrained"]["shaper"], *alone
        rows.append([shaper, config.opponent, *map(with_error, (own, other, *controls, found["gain_over_own_kind"]))])
        series.setdefault(shaper, {})[config.opponent] = own
        if config.num_shapers == 1:  # with several it is their mean, and another number
            series.setdefault("learners alone", {})[config.opponent] = found["own_kind"]["shaper"]
    header = ["shaper", "of", "gets", "the learner", "untrained", "alone: in its place", "alone: the learner", "gain"]
    opponents = list(dict.fromkeys(config.opponent for config in trained.values()))
    values = {name: [of[opponent] for opponent in opponents] for name, of in series.items()}
    (seeds,) = {config.seeds for config in trained.values()}
    over = "between trainings" if seeds > 1 else "between fresh trials"
    title = f"Payoffs of shapers and of learners alone in {game}, against each learner"
    picture = figures.draw_payoffs(run.figures / f"{game}.png", opponents, values, over, title)
    text = f"Rewards in a step over a trial, {many(seeds, 'training')} each; ± {over}."
    text += "" if seeds > 1 else " Two trainings differ by more."
    pictures = [("rewards", f"figures/{picture.name}")]
    return Section(f"{game}: all", text, (), [table(header, rows)], pictures, _ranking(trained, results))


def _ranking(trained: dict[str, SampledShapingConfig], results: dict[str, Any]) -> str:
    """The largest and the smallest gain of the shapers of a game."""
    gains = {name: results[name]["gain_over_own_kind"] for name in trained}
    finite = [name for name in gains if gains[name]["mean"] is not None]
    if not finite:
        return "No shaper has a finite payoff."

    def of(name: str) -> str:
        config = trained[name]
        shaper = f"{config.num_shapers} shapers" if config.num_shapers > 1 else config.shaper
        return f"{shaper} of {config.opponent} ({with_error(gains[name])})"

    most, least = (end(finite, key=lambda name: gains[name]["mean"]) for end in (max, min))
    rest = f", and smallest for {of(least)}" if least != most else ""
    return f"The gain over learners alone in a step is largest for {of(most)}{rest}."


def _section(folder: Path, name: str, config: SampledShapingConfig, found: dict[str, Any]) -> Section:
    own_kind, gain = found["own_kind"], found["gain_over_own_kind"]
    above = gain["mean"] / gain["standard_error"] if gain["standard_error"] else None
    claims = [Claim("gain over learners alone, in standard errors", above, None, least=MARGIN)]
    own = found["shaper_return"]
    # A Good Shepherd and the ablations are there to be compared; of the dilemma's figure only the whole shaper is sure.
    target = EXTORTION if name == "ipd_sampled-shaper" else None  # of the game's own learner
    claims.append(Claim("shaper", own["mean"], own["standard_error"], least=target))
    claims.append(Claim("opponent", found["opponent_return"]["mean"], found["opponent_return"]["standard_error"]))
    claims += [
        Claim(f"learners alone, {seat}", own_kind[seat]["mean"], own_kind[seat]["standard_error"]) for seat in SEATS
    ]
    taught = MARGIN if name.startswith(TAUGHT) else None
    for share, seat, words, least in (  # the last player learns, in both
        ("own_coin_share", -1, "the learner's own coins", MARGIN),
        ("cooperation", -1, "the learner's cooperation (first action)", taught),
    ):
        if share in own_kind:
            claims += _beside_alone(words, found["against"][config.opponent][share][seat], own_kind[share][seat], least)
    rows = [
        [opponent, *(number(played[seat][key]) for seat in SEATS for key in ("mean", "standard_error"))]
        for opponent, played in found["against"].items()
    ]
    others = table(["against", "shaper", "s.e.", "opponent", "s.e."], rows)
    files = [folder / name / "figures" / file for file in FIGURES if (folder / name / "figures" / file).is_file()]
    pictures = [(file.stem.replace("_", " "), f"{name}/figures/{file.name}") for file in files]
    text = f"`{config.shaper}` against `{config.opponent}` in `{config.environment}`; {found['num_trials']} trials."
    shaped, alone = (
        " and ".join(rounded(of[seat]["mean"], 3) for seat in SEATS)
        for of in ({seat: found[f"{seat}_return"] for seat in SEATS}, own_kind)
    )
    answer = f"The shaper and its opponent get {shaped} in a step; learners alone get {alone}."
    return Section(name.replace("-", ": ", 1), text, claims, [others], pictures, answer)


def _beside_alone(name: str, ours: dict[str, Any], alone: dict[str, Any], least: float | None) -> list[Claim]:
    """Claims about a share beside that of learners without a shaper."""
    error = math.hypot(ours["standard_error"], alone["standard_error"])
    apart = (ours["mean"] - alone["mean"]) / error if error else 0.0
    return [
        Claim(f"{name}, above learners alone, in standard errors", apart, None, least=least),
        Claim(name, ours["mean"], ours["standard_error"]),
        Claim(f"{name}, learners alone", alone["mean"], alone["standard_error"]),
    ]
