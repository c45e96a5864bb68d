"""Shaping learners that sample: every shaper in every sampled game, and what of it Khan et al. (2023) would expect."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import configs
from marl.experiments.shaping.config import ShapingConfig, small
from meta.runs.claims import Claim, Section, number, table

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
    "trial_payoffs.png",
    "own_coins.png",
    "states.png",
    "cooperation.png",
    "opponents.png",
    "learning_curve.png",
    "episodes.gif",
)


def make_configs(*, games: Sequence[str], seed: int, fast: bool) -> dict[str, ShapingConfig]:
    """The trainings by name, in order: all shapers in all games, ablations in the first, two shapers of three."""
    found = {}
    for game in games:
        preset = dataclasses.replace(configs.load(ShapingConfig, "mfos", game), seed=seed)
        kinds: dict[str, dict[str, Any]] = {name: {"shaper": name} for name in SHAPERS}
        if game == GAMES[0]:
            kinds |= {name: {"shaper": spec} for name, spec in ABLATIONS.items()}
        if preset.make_game().num_agents > 2:
            wide = dataclasses.replace(preset.evolution, sigma=TWO_SHAPERS_SIGMA)
            kinds["two-shapers"] = {"num_shapers": 2, "evolution": wide}
        for name, changes in kinds.items():
            config = dataclasses.replace(preset, **changes)
            found[f"{game}-{name}"] = small(config) if fast else config
    return found


def sections(folder: Path, trained: dict[str, ShapingConfig], results: dict[str, Any]) -> list[Section]:
    """The report: a section for each training, from its directory in `folder`."""
    return [_section(folder, name, config, results[name]) for name, config in trained.items()]


def _section(folder: Path, name: str, config: ShapingConfig, found: dict[str, Any]) -> Section:
    naive, gain = found["naive"], found["gain_over_naive"]
    above = gain["mean"] / gain["standard_error"] if gain["standard_error"] else None
    claims = [Claim("gain over learners alone, in standard errors", above, None, least=MARGIN)]
    own = found["shaper_return"]
    # A Good Shepherd and the ablations are there to be compared; of the dilemma's figure only the whole shaper is sure.
    target = EXTORTION if name == "ipd_sampled-shaper" else None
    claims.append(Claim("shaper", own["mean"], own["standard_error"], least=target))
    claims.append(Claim("opponent", found["opponent_return"]["mean"], found["opponent_return"]["standard_error"]))
    claims += [Claim(f"learners alone, {seat}", naive[seat]["mean"], naive[seat]["standard_error"]) for seat in SEATS]
    if "own_coin_share" in naive:
        ours, alone = found["against"][config.opponent]["own_coin_share"][0], naive["own_coin_share"][0]
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
    files = [folder / name / "figures" / file for file in FIGURES if (folder / name / "figures" / file).is_file()]
    pictures = [(file.stem.replace("_", " "), f"{name}/figures/{file.name}") for file in files]
    text = f"`{config.shaper}` against `{config.opponent}` in `{config.environment}`; {found['num_trials']} trials."
    return Section(name.replace("-", ": ", 1), text, claims, [others], pictures)
