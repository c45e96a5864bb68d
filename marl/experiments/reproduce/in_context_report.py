"""The report on in-context co-player inference: cooperation, best responses in context, and extortion."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import games
from games.exact.zd import fit
from marl.experiments.reproduce import in_context as training
from marl.experiments.reproduce.in_context import Training
from marl.experiments.reproduce.in_context_games import COINS, FIXED, IDENTIFIED, LEARNERS, MIXED
from marl.experiments.reproduce.in_context_play import Meetings, Play, exact_payoff
from meta.run_keys import RunBranch
from meta.runs.formatting import say
from meta.runs.jobs import Job, open_run
from meta.runs.plotting import (
    BOUND,
    CONTROL,
    colors_of,
    draw_line,
    draw_mean_and_error,
    new_axes,
    new_curves,
    save_figure,
)
from meta.runs.reports.claims import Claim, Section, table
from meta.statistics import finite, mean_and_error, rounded, standard_error, with_error

COOPERATES, DEFECTS = 0.7, 0.3  # shares of cooperation between learners: above, or below
OWN_COINS, OTHERS_COINS = 0.8, 0.6  # the same in the coin game, where half of the coins are one's own
TAKERS = {"takes all": False, "leaves the other's": True}
OF_GAIN = 0.5  # of the way from always defecting to the best response
POLICIES = (MIXED, FIXED)  # pools with unknown policies
OF_PAIRS = ("cooperation", "late cooperation", "payoff")  # numbers of `Meetings.between_trainings`
Numbers = dict[str, np.ndarray]  # `[S]` each, of the trainings


@dataclasses.dataclass(frozen=True)
class Found:
    """Measurements of the trainings of one learner in one pool, of which there are S."""

    curves: Numbers  # shares of cooperation over the updates, `[updates, S]`: together and apart
    between: Play  # `[S, T, 2]`, of one training's learner with that of the next
    numbers: Numbers
    payoffs: np.ndarray  # of each round with fresh policies, `[S, T]`


def measure(jobs: Mapping[str, Job], console: Console, *, seed: int) -> dict[str, Found]:
    """Lets the learners play after their trainings, all of which are done.

    Args:
      jobs: as of `marl.experiments.reproduce.in_context.make_jobs`.
      console: says what is played.
      seed: of the draws.
    """
    key, found = jax.random.fold_in(jax.random.key(seed), RunBranch.EVALUATION), {}
    meetings: dict[str, Meetings] = {}
    for i, (name, job) in enumerate(jobs.items()):
        say(console, f"play after the training: {name}")
        config: Training = job.config
        if config.kind not in meetings:
            meetings[config.kind] = Meetings(config)
        found[name] = _measured(jax.random.fold_in(key, i), job, meetings[config.kind], console)
    return found


def _measured(key: jax.Array, job: Job, meetings: Meetings, console: Console) -> Found:
    config: Training = job.config
    trained = training.train_pair(config, store=open_run(job.path, config, console))
    states, game = trained.state.states, _leaves(config.game)
    if config.kind == training.PPI:  # the buffer is not needed to play
        states = tuple(state._replace(buffer=(), optimizer=(), stored=()) for state in states)
    keys = jax.random.split(key, 3)
    between = meetings.between_trainings(keys[0], game, states)
    late = config.rounds // 2
    numbers = {
        "cooperation": between.cooperation.mean((1, 2)),
        "late cooperation": between.cooperation[:, late:].mean((1, 2)),
    }
    numbers |= {"payoff": between.payoff.mean((1, 2))}
    play, policies = meetings.with_fresh_policies(keys[1], game, states)
    paid = play.payoff.mean(-1)
    numbers |= {"with policies": paid.mean(1), "late with policies": paid[:, late:].mean(1)}
    numbers |= {"cooperation with policies": play.cooperation.mean((1, 2))}
    if config.game_name == COINS:
        numbers |= {name: meetings.of_takers(keys[1], game, leaves) for name, leaves in TAKERS.items()}
    else:
        numbers |= {"best response": exact_payoff(policies, config.rounds).mean((1, 2))}
        numbers |= {"always defects": exact_payoff(policies, config.rounds, actions=(1,)).mean((1, 2))}
        payoffs, best = meetings.with_extortioners(keys[2], game, states[0])
        extorts = fit(games.prisoners_dilemma, best, discount=1.0).extortionate.astype(float)
        numbers |= {"extorted": payoffs[:, 0], "extortioner": payoffs[:, 1], "extorts": extorts}
    curves = {kind: trained.metrics["late"].mean(2)[..., i] for i, kind in enumerate(("apart", "together"))}
    return Found(curves, between, numbers, paid)


def _leaves(game: Any) -> Any:
    """The game with arrays for numbers, so that all pools have one program."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), game)


def as_data(found: Mapping[str, Found]) -> dict[str, Any]:
    """The numbers for report.json."""
    return {name: {key: _with_error(one, key) for key in one.numbers} for name, one in found.items()}


def error_of_pairs(values: np.ndarray) -> float:
    """The standard error of the mean of pairs `[S]`, each of a training and the next one, the last with the first.

    A pair shares a training with either neighbour, so that their covariance counts twice, unless the error of
    independent pairs is the larger one. In expectation a variance and two covariances of S values about their own mean
    are (S - 3) / S of what they are about the true one.
    """
    number, off = len(values), values - values.mean()
    sums = [float((off * np.roll(off, shift)).mean()) for shift in (0, 1)]
    shared = (sums[0] + 2 * sums[1]) / (number - 3) if number > 3 else 0.0
    return float(np.sqrt(max(sums[0] / (number - 1), shared))) if number > 1 else np.nan


def _with_error(one: Found, key: str) -> dict[str, float | None]:
    values, error = one.numbers[key], error_of_pairs if key in OF_PAIRS else standard_error
    found: dict[str, float | None] = finite({"mean": values.mean(), "standard_error": error(values)})
    return found


def sections(folder: Path, found: Mapping[str, Found], parts: Mapping[str, Training]) -> list[Section]:
    """The report.

    Args:
      folder: of figures.
      found: as of `measure`.
      parts: the trainings.
    """
    begun = _cooperation(folder, found, parts)
    if next(iter(parts.values())).game_name == COINS:
        return [begun, _payoffs_in_coins(folder, found, parts)]
    return [begun, _responses(folder, found, parts), _extortion(found)]


def _cooperation(folder: Path, found: Mapping[str, Found], parts: Mapping[str, Training]) -> Section:
    claims, config = [], next(iter(parts.values()))
    least, most = (OWN_COINS, OTHERS_COINS) if config.game_name == COINS else (COOPERATES, DEFECTS)
    for name, one in found.items():
        pool = name.partition(", ")[2]
        bounds = {"least": least} if pool == MIXED else {"most": most}
        values = one.numbers["late cooperation"]
        claims.append(_claim(f"{name}: cooperation", values, error_of_pairs, **bounds))
    keys = ("cooperation", "late cooperation", "payoff", "cooperation with policies")
    rows = [[f"**{name}**", *(with_error(_with_error(one, key), 2) for key in keys)] for name, one in found.items()]
    if config.game_name == COINS:
        game, share = "The coin game", "own coins among those that a learner takes"
        paid = "Learners that take every coin get 0 together, and those that take only their own 0.33 each"
    else:
        game, share = "The prisoner's dilemma", "rounds in which a learner cooperates"
        paid = "Mutual defection pays -2 and mutual cooperation -1"
    text = (
        f"{game} of {config.rounds} rounds, {config.seeds} trainings of two learners in each pool, "
        f"from {config.num_envs} episodes an update. After the training the first learner of each plays the second "
        f"learner of the next training, which it has not met. Cooperation is the share of {share}, late that of the "
        f"second half of an episode. {paid}. Errors are between trainings. The drawn policies have a sharpness of "
        f"{config.sharpness:g}; uniform ones have 1."
    )
    draw_training(folder, found, parts)
    draw_within(folder, found, parts)
    pictures = [
        ("cooperation in training", "figures/in_context_training.png"),
        ("cooperation within an episode", "figures/in_context_rounds.png"),
    ]
    told = ", ".join(
        f"{rounded(float(one.numbers['late cooperation'].mean()))} of {name}" for name, one in found.items()
    )
    answer = f"The shares of cooperation between learners of different trainings: {told}."
    return Section("Cooperation", text, claims, [table(["", *keys], rows)], pictures, answer)


def _responses(folder: Path, found: Mapping[str, Found], parts: Mapping[str, Training]) -> Section:
    claims, rows, told = [], [], []
    for name, one in found.items():
        numbers, pool = one.numbers, name.partition(", ")[2]
        own, least, best = (numbers[key] for key in ("with policies", "always defects", "best response"))
        gain = (own - least).mean() / (best - least).mean()
        error = float(standard_error(own - least - gain * (best - least)) / (best - least).mean())
        if pool in POLICIES:
            claims.append(Claim(f"{name}: part of the gain", float(gain), error, least=OF_GAIN))
            told.append(f"{100 * gain:.0f} % of the way for {name}")
        keys = ("with policies", "late with policies", "always defects", "best response")
        rows.append([f"**{name}**", *(_cell(numbers[key]) for key in keys), rounded(float(gain))])
    text = (
        "Payoffs per round against new random policies, late in the second half of an episode. The best "
        "response to each policy is computed exactly, by backward induction over the rounds. Without a memory "
        "the best is to defect always. The gain is the way of the payoff from that to the best response, over all "
        "rounds."
    )
    draw_responses(folder, found, parts)
    header = ["", "payoff", "late payoff", "always defects", "best response", "part of the gain"]
    pictures = [("payoff within an episode", "figures/in_context_responses.png")]
    answer = f"From always defecting to the exact best response: {', '.join(told)}."
    return Section("Best responses in context", text, claims, [table(header, rows)], pictures, answer)


def _payoffs_in_coins(folder: Path, found: Mapping[str, Found], parts: Mapping[str, Training]) -> Section:
    claims = []
    for name, one in found.items():
        numbers = one.numbers
        best = max((numbers[key] for key in TAKERS), key=np.mean)
        if name.partition(", ")[2] in POLICIES:
            claims.append(_claim(f"{name}: payoff less that of taking all", numbers["with policies"] - best, least=0.0))
    keys = ("with policies", "late with policies", *TAKERS)
    rows = [[f"**{name}**", *(_cell(one.numbers[key]) for key in keys)] for name, one in found.items()]
    text = (
        "Payoffs per round against new random policies, late in the second half of an episode; and those of two "
        "players without a memory with the same policies, of which one takes every coin and the other only its own. "
        "A claim compares with the better of the two."
    )
    draw_responses(folder, found, parts, TAKERS)
    pictures = [("payoff within an episode", "figures/in_context_responses.png")]
    return Section("Responses in context", text, claims, [table(["", *keys], rows)], pictures)


def _extortion(found: Mapping[str, Found]) -> Section:
    claims, told = [], []
    for name, one in found.items():
        share = one.numbers["extortioner"] - one.numbers["extorted"]
        if name.endswith(FIXED):
            claims.append(_claim(f"{name}: extortioner's payoff less the learner's", share, least=0.1))
            told.append(f"{_cell(one.numbers['extortioner'])} from {name}, which gets {_cell(one.numbers['extorted'])}")
        if name.endswith(LEARNERS):
            claims.append(_claim(f"{name}: extortioner's payoff", one.numbers["extortioner"], most=-1.8))
    rows = [
        [f"**{name}**", *(_cell(one.numbers[key]) for key in ("extortioner", "extorted", "extorts"))]
        for name, one in found.items()
    ]
    text = (
        "The memory-one policy that gets most from a frozen learner, among zero-determinant extortioners of several "
        "factors and random policies: payoffs per round in fresh episodes of it, and the share of trainings in "
        "which it is an extortioner."
    )
    answer = f"The best policy gets {'; '.join(told)}." if told else ""
    return Section("Extortion", text, claims, [table(["", "best policy", "learner", "it extorts"], rows)], (), answer)


def _claim(
    name: str, values: np.ndarray, error: Callable[[np.ndarray], float] = standard_error, **bounds: Any
) -> Claim:
    return Claim(name, float(values.mean()), float(error(values)), **bounds)


def _cell(values: np.ndarray) -> str:
    return with_error(mean_and_error(values), 2)


def draw_training(folder: Path, found: Mapping[str, Found], parts: Mapping[str, Training]) -> Path:
    """Cooperation over the updates, a panel for each learner."""
    kinds = list(dict.fromkeys(config.kind for config in parts.values()))
    figure, panels = new_curves(len(kinds))
    lines = _lines(parts)
    for axes, kind in zip(panels, kinds, strict=True):
        axes.set(xlabel=f"updates of {kind}", ylabel="share of cooperation", ylim=(-0.02, 1.02))
        for name, one in found.items():
            pool = parts[name].pool
            if parts[name].kind == kind:
                part = "apart" if pool == FIXED else "together"
                _draw(axes, one.curves[part].T, pool, lines[name][0], "-")
    title = "Cooperation of learners with each other late in an episode, during the training"
    note = f"bands: two standard errors between trainings; of the pool of {FIXED} it is cooperation with policies"
    return save_figure(figure, folder / "in_context_training.png", title, note)


def draw_within(folder: Path, found: Mapping[str, Found], parts: Mapping[str, Training]) -> Path:
    """Cooperation between learners of different trainings by round."""
    figure, axes = new_axes("round", "share of cooperation")
    lines = _lines(parts)
    for name, one in found.items():
        values = one.between.cooperation.mean(-1)
        errors = np.array([error_of_pairs(x) for x in values.T])
        draw_line(axes, 1 + np.arange(len(errors)), values.mean(0), 2 * errors, lines[name][0], name, lines[name][1])
    title = "Cooperation between learners of different trainings within an episode"
    return save_figure(figure, folder / "in_context_rounds.png", title, "bands: two standard errors between trainings")


def draw_responses(
    folder: Path,
    found: Mapping[str, Found],
    parts: Mapping[str, Training],
    beside: Iterable[str] = ("best response", "always defects"),
) -> Path:
    """Payoffs against fresh policies by round, beside the means of two others: the higher and the lower."""
    figure, axes = new_axes("round", "payoff of a round")
    lines = _lines(parts)
    for name, one in found.items():
        if not name.endswith(IDENTIFIED):
            _draw(axes, one.payoffs, name, *lines[name])
    numbers = next(iter(found.values())).numbers
    for key, color in zip(beside, (BOUND, CONTROL), strict=True):
        axes.axhline(numbers[key].mean(), color=color, linestyle=":", linewidth=1.2, label=f"{key}, mean of all rounds")
    title = "Payoff against new random policies"
    return save_figure(
        figure, folder / "in_context_responses.png", title, "bands: two standard errors between trainings"
    )


def _lines(parts: Mapping[str, Training]) -> dict[str, tuple[str, str]]:
    """(colour, style) of each part: a colour for each pool, and a style for each learner."""
    pools = colors_of(dict.fromkeys(config.pool for config in parts.values()))
    styles = itertools.cycle(("-", "--", ":"))
    kinds = {kind: next(styles) for kind in dict.fromkeys(config.kind for config in parts.values())}
    return {name: (pools[config.pool], kinds[config.kind]) for name, config in parts.items()}


def _draw(axes: Any, values: np.ndarray, label: str, color: str, style: str) -> None:
    """The mean of `[S, points]` with a band of two standard errors."""
    draw_mean_and_error(axes, 1 + np.arange(values.shape[1]), values, color, label, style)
