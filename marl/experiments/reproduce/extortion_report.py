"""The part of the report on zero-determinant extortion that says when it is learned."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from games import InfinitelyRepeated
from games.exact.zd import MAX_RESIDUAL
from marl.experiments.reproduce import figures
from marl.experiments.reproduce.extortion import (
    CHANGING,
    DILEMMA,
    DISCOUNT,
    FIXED,
    MAX_ERROR,
    MOST_CHI,
    RANDOM_POLICIES,
    ROUNDS,
    Study,
    from_play,
)
from marl.shapers.trial import Trials
from meta import RunDirectory
from meta.runs.reports.claims import Claim, Section, number, table
from meta.statistics import mean_and_error, with_error


def sections(
    folder: RunDirectory,
    studies: dict[str, Study],
    results: dict[str, dict[str, Any]],
    played: dict[str, Trials],
    game: InfinitelyRepeated,
    seed: int,
) -> list[Section]:
    """The parts of the report about shapers that keep one policy, about time, and about histories of play.

    Args:
      folder: of the report, for the figure.
      studies: as of `make_studies`.
      results: their summaries, by name.
      played: trials of players in the shaper's place, by name, in `game`.
      game: of these trials.
      seed: of the histories of play.
    """
    kept = {name: results[name] for name, study in studies.items() if study.searches}
    return [
        _kept_section(studies, kept),
        _time_section(folder, studies, results),
        _play_section(kept, played, game, seed),
    ]


def _over_runs(runs: Sequence[dict[str, Any]], *path: str) -> dict[str, Any]:
    values = []
    for run in runs:
        value: Any = run
        for name in path:
            value = value[name]
        values.append(value)
    return mean_and_error(np.array(values, float))


def _middle(runs: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return float(np.median(values)) if values else None


def _kept_section(studies: dict[str, Study], kept: dict[str, dict[str, Any]]) -> Section:
    rows, policies = [], []
    for name, found in kept.items():
        runs, family, gradient = found["runs"], found["family"], found["gradient"]
        own, other = (_over_runs(runs, side, "mean") for side in ("shaper", "opponent"))
        share = _over_runs(runs, "trials", "mean")["mean"]
        cells = [with_error(own, 3), number(other["mean"]), number(gradient and gradient["shaper"]["mean"])]
        cells += [number(family["shaper"]["mean"]), number(family["chi"], 1), f"{share:.0%}"]
        rows.append([_words(name, studies[name]), *cells])
        best = max(runs, key=lambda run: run["shaper"]["mean"])
        shown = [*(f"{p:.2f}" for p in best["policy"]), number(_middle(runs, "chi"), 1)]
        policies.append([_words(name, studies[name]), *shown, number(_middle(runs, "residual"))])
    naive = kept["naive"]
    share, own = _over_runs(naive["runs"], "trials", "mean"), _over_runs(naive["runs"], "shaper", "mean")
    best = naive["family"]["shaper"]
    beyond = naive["gradient"]["shaper"]["mean"] - best["mean"]
    claims = [
        Claim("naive: share of trainings that extort", share["mean"], share["standard_error"], least=0.9),
        Claim("naive: payoff", own["mean"], own["standard_error"], least=best["mean"], comment="the best extortioner"),
        Claim("naive: by gradient, less the best extortioner", beyond, None, comment="0 if the optimum extorts"),
    ]
    chi = number(_middle(naive["runs"], "chi"), 1)
    answer = (
        f"Of the fixed policies that evolve against a naive learner {share['mean']:.0%} are zero-determinant extortion"
        f"{f' (chi {chi})' if chi else ''}; they get {with_error(own, 3)} per round, the best "
        f"extortioner {number(best['mean'])}, and the best fixed policy by gradient "
        f"{number(naive['gradient']['shaper']['mean'])}."
    )
    text = (
        "A shaper with one policy for the whole trial (`good_shepherd`), evolved against each learner. *By gradient*: "
        "ascent through the whole learning of the opponent, where it is differentiable. *Best extortioner*: the best "
        f"strategy of the family over chi, up to {MOST_CHI:g}, and phi. Payoffs per round over fresh trials; ± is a "
        "standard error between trainings. Discounts change no step of the learner along its payoff per round. In a "
        "donation game a benefit of so many times its cost is given; all payoffs have the same range."
    )
    first = ["", "evolved", "opponent's", "by gradient", "best extortioner", "its chi", "trainings that extort"]
    second = ["the best training", "start", "CC", "CD", "DC", "DD", "chi, median", "residual, median"]
    return Section(
        "One policy that is kept", text, claims, [table(first, rows), table(second, policies)], answer=answer
    )


def _words(name: str, study: Study) -> str:
    if study.payoffs != DILEMMA:
        return f"naive, {name.replace('-', ' game, ratio ')}" if name != "axelrod" else "naive, payoffs of Axelrod"
    return f"naive, discount {study.discount:g}" if study.discount != DISCOUNT else f"`{study.opponent}`"


def _time_section(folder: RunDirectory, studies: dict[str, Study], results: dict[str, dict[str, Any]]) -> Section:
    horizons = sorted({study.meta_steps for study in studies.values() if not study.searches})
    rates = next(study for study in studies.values() if not study.searches).rates
    rows, grids = [], {name: np.full((len(horizons), len(rates)), np.nan) for name in ("kept", "changing", "gain")}
    begun = []
    for (i, horizon), (j, rate) in itertools.product(enumerate(horizons), enumerate(rates)):
        both = [results[_name_of(studies, shaper, horizon)]["runs"] for shaper in (FIXED, CHANGING)]
        kept, changing = ([run for run in runs if run["learning_rate"] == rate] for runs in both)
        pays = [_over_runs(runs, "shaper", "mean") for runs in (kept, changing)]
        shares = [_over_runs(runs, "meta_steps", "mean")["mean"] for runs in (kept, changing)]
        begun.append(_over_runs(changing, "trials", "mean")["mean"])
        best = max(run["shaper"]["mean"] for run in kept)
        for grid, value in zip(grids.values(), (*shares, pays[1]["mean"] - best), strict=True):
            grid[i, j] = value
        cells = [f"{rate:g}", with_error(pays[0]), number(best), with_error(pays[1])]
        rows.append([f"{horizon:,}", *cells, *(f"{share:.1%}" for share in shares)])
    picture = figures.draw_extortion(folder.figures, horizons, rates, grids)
    gain = grids["gain"]
    more = gain[gain > 0]
    by = f", by {more.min():.2f} to {more.max():.2f}" if more.size else ""
    answer = (
        f"A shaper that may change its policy gets more than the best that keeps it in {more.size} of "
        f"{gain.size} settings{by}; its policy is "
        f"extortion in {np.nanmin(grids['changing']):.1%} to {np.nanmax(grids['changing']):.1%} of the meta-steps."
    )
    text = (
        "Shapers of a naive learner over the number of its learning steps and their size: `good_shepherd`, which keeps "
        "one policy, and `mfos`, which may change it after each step. ± is a standard error between trainings. "
        f"Searches for a kept policy begin at the best of {RANDOM_POLICIES:,} random ones, because most lie where "
        f"nothing is gained. Of the trials of `mfos` {np.min(begun):.0%} to {np.max(begun):.0%} are "
        "extortion at some time, in five meta-steps in a row, which are those of the beginning."
    )
    columns = ["learning steps", "step size", "kept policy", "the best", "changing", "kept: extortion"]
    seen = "Share of meta-steps that are extortion, and what changing the policy is worth"
    tables, pictures = [table([*columns, "changing: extortion"], rows)], [(seen, f"figures/{picture.name}")]
    return Section("Longer learning, larger steps", text, (), tables, pictures, answer)


def _name_of(studies: dict[str, Study], shaper: str, horizon: int) -> str:
    over_time = {name: study for name, study in studies.items() if not study.searches}
    return next(name for name, study in over_time.items() if (study.shaper, study.meta_steps) == (shaper, horizon))


def _play_section(kept: dict[str, Any], played: dict[str, Trials], game: InfinitelyRepeated, seed: int) -> Section:
    rows = []
    found = {"kept policies, naive": [run["play"] for run in kept["naive"]["runs"]]}
    for name, trials in played.items():
        few = jax.tree.map(lambda x: x[: Study.evaluation_trials], trials._replace(counts={}))
        found[name] = [from_play(game, few, np.random.default_rng(seed))]
    for name, plays in found.items():
        error, chi, share, rising = (
            float(np.mean([play[key] for play in plays])) for key in ("error", "chi", "share", "rising")
        )
        rows.append([name, number(error), number(chi, 2), f"{rising:.0%}", f"{share:.0%}"])
    text = (
        "The test of Knight, Harper, Glynatsi and Gillard (2024): the policy is estimated from a history of play, here "
        f"of all meta-steps of a trial with {ROUNDS} rounds each; the nearest zero-determinant strategy of the "
        "undiscounted game is fitted by least squares; a small sum of squared errors (SSE) and chi > 1 raise the "
        f"suspicion of extortion. The paper names no threshold; {MAX_ERROR:g} is that of this report, a residual of "
        f"{MAX_RESIDUAL:g}. Medians over trials."
    )
    mine = found["kept policies, naive"]
    shaper = next(iter(played))
    answer = (
        f"From play alone {np.mean([play['share'] for play in mine]):.0%} of the trials of kept policies are "
        f"extortion, and {found[shaper][0]['share']:.0%} of those of {shaper}."
    )
    columns = ["", "SSE", "chi", "chi > 1", f"and SSE ≤ {MAX_ERROR:g}"]
    return Section("Detected from play", text, (), [table(columns, rows)], answer=answer)
