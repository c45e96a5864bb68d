"""Shapers in exact games: policies, zero-determinant extortion and the bound of a white-box ascent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from games import InfinitelyRepeated
from games.exact.matrix import action_names
from games.exact.zd import IN_A_ROW, MAX_RESIDUAL, fit, is_dilemma, least_chi, longest_extortion
from marl.core.learner import Learner
from marl.experiments.bound import KnownBound, known_bound
from marl.experiments.shaping import figures
from marl.experiments.shaping.config import ExactShapingConfig, ShapingConfig
from marl.experiments.shaping.evaluation import OWN_KIND, UNTRAINED, EvaluationResult, Trial
from marl.experiments.shaping.experiment import Results, Shaping
from marl.experiments.shaping.runtime_estimate import num_drawn_from
from marl.shapers import self_play
from marl.shapers.exact_ppo import gaussian_mfos, meta_ppo
from marl.shapers.trial import play_trial, shaping_trial
from meta import Evolved, Outcome, evolve
from meta.loop import Report, Store
from meta.runs.formatting import many
from meta.statistics import mean_and_error, rounded, with_error

AT_ONCE = 32_768  # fresh trials, so that many of them need no more memory

# The settings of Lu et al. (2022).
PAPER = {
    "meta-steps": "100",
    "discount": "0.96",
    "opponent": "gradient ascent, step size 1",
    "policy": "256 tanh units",
    "meta-learner": "PPO, 1024 iterations of 4096 trials",
}


class ExactShaping(Shaping):
    """A shaper in an `InfinitelyRepeated` game.

    Args:
      config: the experiment's settings.

    Raises:
      ValueError: for an opponent, shaper or start that does not exist or does not fit the game, or for sizes that no
        memory can hold.
    """

    unit, counted = "meta-steps", "meta_steps"
    config: ExactShapingConfig

    def __init__(self, config: ExactShapingConfig):
        self.config, self.game, self.shaper = config, config.make_game(), config.make_shaper()
        self.at_once, self.pairs = min(config.evaluation_trials, AT_ONCE), config.is_self_play
        assert config.evolving  # raises ValueError for a strategy that the start's settings do not fit
        self.start = config.make_start()
        names = action_names(np.stack([self.game.payoffs.row, self.game.payoffs.column], -1))
        self.cooperates = "cooperates" if is_dilemma(self.game.payoffs) else f"plays {names[0] if names else 'C'}"
        specs = dict.fromkeys((config.opponent, *config.unseen))
        learners = {spec: config.make_opponent(spec) for spec in specs if not self.pairs or spec != config.opponent}
        self.opponent = learners.get(config.opponent)  # None for pairs
        self.trials = {spec: self._against(learners.get(spec)) for spec in specs}
        if self.opponent:
            row = config.make_opponent(seat=0)
            self.trials[OWN_KIND] = lambda key, parameters: self._play_trial(key, row, self.opponent)
        self.trials[UNTRAINED] = self.trials[config.opponent]
        self.check_memory(4 * config.meta_steps, 4 * config.meta_steps * (2 + self.game.num_logits))

    def _against(self, opponent: Learner | None) -> Trial:
        """Trials against a learner, or of a pair."""

        def trial(key: jax.Array, parameters: Any) -> EvaluationResult:
            row, column = (_seat(parameters, seat) for seat in (0, 1)) if self.pairs else (parameters, None)
            return self._play_trial(key, self.shaper.learner(row), opponent or self.shaper.learner(column))

        return trial

    def _play_trial(self, key: jax.Array, row: Learner, column: Any) -> EvaluationResult:
        played = play_trial(key, self.game, row, column, meta_steps=self.config.meta_steps)
        more = {"policies": played.shaper_policies, "cooperation": played.cooperation}
        return EvaluationResult(played.shaper_payoffs, played.opponent_payoffs, more)

    def train_shapers(
        self,
        keys: jax.Array,
        *,
        store: Store | None = None,
        report: Report | None = None,
        before: Report | None = None,
        numbers: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Evolved:
        config, game, shaper, opponent, num_runs = self.config, self.game, self.shaper, self.opponent, len(keys)
        if config.meta_learner == "ppo":  # it learns from samples, whichever policy plays in the evaluation
            shaper = gaussian_mfos(game.num_logits, hidden_units=config.meta_ppo.hidden_units, observe=config.observe)
        rivals: Callable[..., Any] | None = (lambda *_: settings) if settings else None
        show = report
        if config.annealing is not None:
            rivals = self_play.rivals(game, config.annealing, config.generations)
            keys = self_play.pair_keys(keys)
            if report:

                def show(generation: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
                    report(generation, metrics | self_play.by_seat(metrics), seconds)

        def seated(*rival: self_play.Rival) -> tuple[InfinitelyRepeated, Learner]:
            return (game, opponent) if opponent else self_play.seat_rival(game, shaper, *rival)

        def trial(parameters: Any, key: jax.Array, *rival: Any) -> Outcome:
            if settings:  # those of this training
                return self.trial_with(*rival)(parameters, key)
            seen, other = seated(*rival)
            return shaping_trial(seen, shaper, other, meta_steps=config.meta_steps)(parameters, key)

        def trial_of_member(parameters: Any, key: jax.Array) -> Outcome:
            member = config.make_opponent(alone=True)
            return shaping_trial(game, shaper, member, meta_steps=config.meta_steps)(parameters, key)

        key = keys if len(keys) > 1 else keys[0]
        options: dict[str, Any] = {"store": store, "report": show, "context": rivals}
        if config.meta_learner == "ppo":
            options |= {"meta_steps": config.meta_steps, "observe": config.observe}
            trained = meta_ppo(seated, game.num_logits, key, config.meta_ppo, **options)
        else:
            of_member = num_drawn_from(config) > 1
            start = self.start.make(trial, shaper.init, sigma=config.evolving.sigma, report=before)
            options |= {"start": start, "num_trials": config.trials}
            options |= {"together": "trial" if of_member else "all", "numbers": numbers}
            trained = evolve(trial_of_member if of_member else trial, shaper.init, key, config.evolving, **options)  # type: ignore[arg-type]
        seats = (num_runs,) if opponent else (num_runs, 2)
        parameters = jax.tree.map(lambda x: x.reshape(*seats, *x.shape[key.ndim :]), trained.parameters)
        # Of pairs the returns by seat; each was trained as the row player of the game as it looks from its seat.
        metrics = trained.metrics if opponent else self_play.by_seat(trained.metrics)
        return trained._replace(parameters=parameters, metrics=metrics)

    def trial_with(self, settings: Mapping[str, Any]) -> Callable[[Any, jax.Array], Outcome]:
        opponent = self.config.make_opponent(traced=settings)
        return shaping_trial(self.game, self.shaper, opponent, meta_steps=self.config.meta_steps)

    def init(self, key: jax.Array) -> Any:
        return jax.vmap(self.shaper.init)(jax.random.split(key)) if self.pairs else self.shaper.init(key)

    def agents(self, parameters: Any) -> dict[str, tuple[ShapingConfig, Any]]:
        if not self.pairs:
            return super().agents(parameters)
        row, column = (jax.tree.map(lambda x, i=i: np.take(x, i, 1), parameters) for i in (0, 1))
        own, other = self.game.payoffs.seen_by(1)  # a shaper acts as the row player, in either seat
        turned = dataclasses.replace(self.config, row_payoffs=tuple(own), column_payoffs=tuple(other))
        return {"": (self.config, row), "column_": (turned, column)}

    def measure(self, groups: dict[str, EvaluationResult], number: int = 0) -> dict[str, Any]:
        more = groups[self.config.opponent].more
        policies, cooperation = more["policies"], more["cooperation"]  # `[trials, meta_steps, logits]`, and 2 players
        mean, last = policies.mean(0), policies.shape[1] - 1
        moments = {"start": 0, "middle": (last + 1) // 2, "end": last}
        return super().measure(groups, number) | {
            "zd": zero_determinant(self.game, policies, self.config.seed + number),
            "policy": {name: [round(float(p), 4) for p in mean[step]] for name, step in moments.items()},
            "cooperation": {
                side: {"trial": mean_and_error(share.mean(1)), "middle": mean_and_error(share[:, moments["middle"]])}
                for side, share in zip(("shaper", "opponent"), np.moveaxis(cooperation, -1, 0), strict=True)
            },
        }

    def headline(self, found: dict[str, Any]) -> dict[str, Any]:
        config, sides = self.config, found["against"][self.config.opponent]
        returns = {f"{side}_return": sides[side]["mean"] for side in ("shaper", "opponent")}
        errors = {f"{side}_standard_error": sides[side]["standard_error"] for side in ("shaper", "opponent")}
        known, own, bound = known_bound(self.game, config.opponent, config.meta_steps), returns["shaper_return"], None
        if known is not None and own is not None:
            # The fraction of the way from naive play to the white-box bound.
            bound = known._asdict() | {"fraction": known.way(own)}
        return returns | errors | {"bound": bound}

    def summarize(self, trained: Evolved, found: Results) -> dict[str, Any]:
        return {"game": self.config.game, **super().summarize(trained, found)}

    def draw(self, folder: Path, trained: Evolved, found: Results) -> list[Path]:
        played, zd = found.groups[self.config.opponent], found.runs[0]["zd"]
        return [
            *super().draw(folder, trained, found),
            figures.draw_polygon(folder, self.game, played.shaper, played.opponent, zd and zd["least_chi"]),
            figures.draw_policy(folder, played.more["policies"]),
            figures.draw_cooperation(folder, found.groups, self.config.opponent, self.sides, self.cooperates),
        ]

    def describe_game(self) -> dict[str, str]:
        config = self.config
        rounds = f"repeated with discount {config.discount}" if config.discount else "played once"
        return {
            "game": f"{config.game}, {rounds}",
            "trial": f"{many(config.meta_steps, 'learning step')} of the opponent",
        }

    def conclusion(self, summary: dict[str, Any]) -> str:
        own, other = (rounded(summary[f"{side}_return"]) for side in ("shaper", "opponent"))
        moment = "trial" if self.pairs else "middle"
        shares = (summary["cooperation"][side][moment]["mean"] for side in ("shaper", "opponent"))
        first, second = ("an unknown share" if share is None else f"{share:.0%}" for share in shares)
        if self.pairs:
            return (
                f"The row shaper {self.cooperates} in {first} of the rounds and gets {own} per round; the column "
                f"shaper {self.cooperates} in {second} and gets {other}."
            )
        beside = f"a learner of the opponent's kind in its place: {rounded(summary['own_kind']['shaper']['mean'])}"
        bound = f"; white-box bound: {rounded(summary['bound']['bound'])}" if summary["bound"] else ""
        return (
            f"The opponent gets {other} per round, and in the middle of its learning it {self.cooperates} in "
            f"{second} of the rounds. The shaper then {self.cooperates} in {first}, and gets {own} per round "
            f"({beside}{bound})."
        )

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        self.print_returns(console, summary)
        if summary["bound"]:
            _print_bound(console, summary["bound"])
        default, config = ExactShapingConfig(), self.config
        names = ("game", "row_payoffs", "column_payoffs", "discount", "opponent", "shaper", "meta_steps")
        if all(getattr(config, name) == getattr(default, name) for name in names):
            _print_settings(console, config)
        if config.discount:
            _print_policy(console, summary["policy"], f", seed {config.seed}" if config.seeds > 1 else "")
            _print_extortion(console, summary["zd"])
        else:
            words = ", ".join(f"{moment} {policy[0]:.3f}" for moment, policy in summary["policy"].items())
            console.print(f"the shaper's probability of the first action: {words}", highlight=False)


def _seat(parameters: Any, seat: int) -> Any:
    return jax.tree.map(lambda x: x[seat], parameters)


def zero_determinant(game: InfinitelyRepeated, policies: np.ndarray, seed: int = 0) -> dict[str, Any] | None:
    """The share of trials in which a shaper's policies `[trials, meta_steps, 5]` are zero-determinant extortion.

    Each trial is judged by its own policies: whether they are extortionate in `IN_A_ROW` meta-steps in a row. Chance is
    the share of as many trials of uniformly random policies, drawn by the seed, of which the same is true, where one is
    kept throughout a trial, and where one is drawn in each meta-step. None but in a repeated prisoner's dilemma, where
    alone extortion is defined.
    """
    if not (game.discount and is_dilemma(game.payoffs)):
        return None
    payoffs, discount, generator = game.payoffs, game.discount, np.random.default_rng(seed)

    def share(policies: np.ndarray) -> dict[str, float | None]:
        return mean_and_error(longest_extortion(payoffs, policies, discount=discount) >= IN_A_ROW)

    constant, redrawn = generator.uniform(size=policies[:, :1].shape), generator.uniform(size=policies.shape)
    least, each = least_chi(payoffs, discount=discount), fit(payoffs, policies, discount=discount).extortionate
    return {
        "trials": share(policies),
        "chance": {"kept": share(np.broadcast_to(constant, policies.shape)), "redrawn": share(redrawn)},
        "meta_steps": mean_and_error(each.mean(1)),
        "in_a_row": IN_A_ROW,
        "max_residual": MAX_RESIDUAL,
        "least_chi": least if np.isfinite(least) else None,
    }


def _print_bound(console: Console, bound: dict[str, Any]) -> None:
    table = Table("", "shaper", title="the most that there is to gain", title_justify="left")
    table.add_row("a naive learner in the shaper's place", f"{bound['naive_return']:.3f}")
    ascent = f"{bound['bound']:.3f} ± {bound['bound_standard_error']:.3f}"
    table.add_row("bound: ascent through the whole learning, in hindsight", ascent)
    if bound["fraction"] is not None:
        table.add_row("its way from the one to the other", f"{bound['fraction']:.1%}")
    elif not KnownBound(*(bound[name] for name in KnownBound._fields)).converged:
        table.add_row("what the second half of the ascent's starts added: more may follow", f"{bound['gain']:.3f}")
    else:
        table.add_row("its way from the one to the other: none, because it is not between them", "")
    console.print(table)


def _print_settings(console: Console, config: ExactShapingConfig) -> None:
    by_ppo, trials = config.meta_learner == "ppo", config.trials_per_generation
    meta_learner, unit = ("PPO", "iteration") if by_ppo else (config.evolution.strategy, "generation")
    here = {
        "meta-steps": f"{config.meta_steps}",
        "discount": f"{config.discount}",
        "opponent": "gradient ascent, step size 1",
        "policy": many(config.meta_ppo.hidden_units if by_ppo else config.hidden_units, "tanh unit"),
        "meta-learner": f"{meta_learner}, {many(config.generations, unit)} of {many(trials, 'trial')}",
    }
    table = Table("setting", "here", "paper (Lu et al., 2022)")
    for name, text in PAPER.items():
        table.add_row(name, here[name], text)
    console.print(table)


def _print_policy(console: Console, policies: dict[str, list[float]], seed: str) -> None:
    title = f"the shaper's policy, mean of the trials: probability of the first action{seed}"
    table = Table("", "start", "CC", "CD", "DC", "DD", title=title, title_justify="left")
    for moment, policy in policies.items():
        table.add_row(moment, *(f"{p:.3f}" for p in policy))
    console.print(table)


def _print_extortion(console: Console, zd: dict[str, Any] | None) -> None:
    if zd is None:
        console.print("zero-determinant extortion is defined for prisoner's dilemmas only", highlight=False)
        return
    least = "no chi is feasible" if zd["least_chi"] is None else f"chi at least {zd['least_chi']:.2f}"
    title = f"zero-determinant extortion: {least}, residual at most {zd['max_residual']:g},"
    title += f" in {zd['in_a_row']} meta-steps in a row"
    table = Table("", "share of trials", title=title, title_justify="left")
    for name, share in {
        "the shaper": zd["trials"],
        "chance: a random policy that is kept": zd["chance"]["kept"],
        "chance: a random policy in each meta-step": zd["chance"]["redrawn"],
    }.items():
        table.add_row(name, with_error(share))
    console.print(table)
