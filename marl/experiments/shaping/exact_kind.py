"""Shapers in games that are formulas: policies, zero-determinant fits and bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from configs.specs import read
from games import InfinitelyRepeated
from games.exact.zd import IN_A_ROW, MAX_RESIDUAL, fit, is_dilemma, least_chi, longest_extortion
from marl.core.learner import Learner
from marl.experiments.bound import KnownBound, known_bound
from marl.experiments.shaping import figures
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.evaluation_result import ALONE, EvaluationResult
from marl.experiments.shaping.initialisation import make_start
from marl.experiments.shaping.memory_check import check_results, check_training
from marl.learners.registry import FORMULA, terms
from marl.shapers import self_play
from marl.shapers.ppo import meta_ppo
from marl.shapers.trial import play_trial, shaping_trial
from meta import Evolved, Outcome, evolve
from meta.loop import Report, Store
from meta.runs.formatting import many
from meta.statistics import mean_and_error, with_error

# (what is in the opponent's name, seconds for a meta-step, seconds to compile), in those of a naive learner in a
# repeated game, on two cores of a processor; for guessing how long things will take.
COSTS = (("self_play", 1.2, 1.8), ("lola", 2.2, 2.4), ("mmaml", 1.1, 1.3), ("naive", 1.0, 1.0))
# And of those that sample, with 32 episodes of 50 rounds.
SAMPLING = {"reinforce": 60.0, "tabular_ppo": 80.0, "q_learning": 220.0}
PLAYED_ONCE = 0.25
AT_ONCE = 32_768  # fresh trials, so that many of them need no more memory
PPO = 25.0

# The settings of Lu et al. (2022).
PAPER = {
    "meta-steps": "100",
    "discount": "0.96",
    "opponent": "gradient ascent, step size 1",
    "policy": "256 tanh units",
    "meta-learner": "PPO, 1024 iterations of 4096 trials",
}


class ExactKind:
    """`GameKind` of an `InfinitelyRepeated` game; its methods are described there."""

    unit = "meta-steps"
    seconds_to_draw = 3.0

    def __init__(self, config: ShapingConfig):
        self.config, self.pairs = config, config.is_self_play
        self.steps = config.meta_steps * (2 if self.pairs else 1)
        self.at_once = min(config.evaluation_trials, AT_ONCE)
        # A population is none of them.
        known = (row for row in COSTS if row[0] in config.opponent and "+" not in config.opponent)
        name, cost, compiling = next(known, ("", 1.0, 1.0))
        specs = dict.fromkeys((config.opponent, *config.unseen))
        # Those of the controls come last: the opponent's own kind in the shaper's place, and an untrained shaper.
        costs = [*map(_cost, specs), *[_cost(config.opponent)] * (1 if self.pairs else 2)]
        self.fresh = sum(costs) / (costs[-1] / self._drawn_from)
        self.measured = "games that are formulas" if name else f"games that are formulas, with {config.opponent}"
        by_ppo = PPO if config.meta_learner == "ppo" else 1.0
        self.costs = cost * (1.0 if config.discount else PLAYED_ONCE) * by_ppo, compiling

    @property
    def _drawn_from(self) -> int:
        """How many learners a training draws from of which only the one that was drawn is computed.

        Which needs that candidates share the draw. On other backends a generation is one batch, for a trial of all
        candidates is too little work for those.
        """
        shared = self.config.meta_learner == "evolution" and self.config.evolution.shared_trials == "generation"
        return len(terms(self.config.opponent)) if shared and jax.default_backend() == "cpu" else 1

    @cached_property
    def game(self) -> InfinitelyRepeated:
        """What is played."""
        return self.config.make_game()

    @cached_property
    def shaper(self) -> Any:
        """What is trained."""
        return self.config.make_shaper()

    def check(self) -> None:
        assert self.shaper
        assert self.config.evolving
        make_start(self.config.starting, sampled=False)
        for spec in (*([] if self.pairs else [self.config.opponent]), *self.config.unseen):
            self.config.make_opponent(spec)
        config, steps = self.config, self.config.meta_steps
        check_training(config, self.shaper.init, 4 * steps)
        check_results(config, 2 + len(config.unseen), 4 * steps * (2 + self.game.num_logits))

    def train(
        self,
        keys: jax.Array,
        *,
        store: Store | None = None,
        report: Report | None = None,
        screening: Report | None = None,
    ) -> Evolved:
        config, game, shaper, num_runs = self.config, self.game, self.shaper, len(keys)
        if config.meta_learner == "ppo":  # both act by samples while they learn, whatever plays in the end
            sampling = dataclasses.replace(config.meta_ppo, evaluation="sample")
            shaper = dataclasses.replace(config, meta_ppo=sampling).make_shaper()
        context, opponent, alone = None, None, self._drawn_from > 1
        if config.annealing is None:
            opponent = config.make_opponent()
        else:
            context = self_play.rivals(game, config.annealing, config.generations)
            keys = self_play.pair_keys(keys)
        tell = report
        if report and context:

            def tell(generation: int, metrics: dict[str, np.ndarray], seconds: float) -> None:
                report(generation, metrics | self_play.by_seat(metrics), seconds)

        def meet(*context: self_play.Rival) -> tuple[InfinitelyRepeated, Learner]:
            return (game, opponent) if opponent else self_play.seat_rival(game, shaper, *context)

        def trial(parameters: Any, key: jax.Array, *context: self_play.Rival) -> Outcome:
            seen, other = meet(*context)
            return shaping_trial(seen, shaper, other, meta_steps=config.meta_steps)(parameters, key)

        def trial_alone(parameters: Any, key: jax.Array) -> Outcome:
            other = config.make_opponent(alone=True)
            return shaping_trial(game, shaper, other, meta_steps=config.meta_steps)(parameters, key)

        key = keys if len(keys) > 1 else keys[0]
        kept: dict[str, Any] = {"store": store, "report": tell, "context": context}
        if config.meta_learner == "ppo":
            kept |= {"meta_steps": config.meta_steps, "observe": config.observe}
            found = meta_ppo(meet, game.num_logits, key, config.meta_ppo, **kept)
        else:
            kept |= {"start": config.make_start(trial, shaper.init, screening)}
            kept |= {"together": "trial" if alone else "all", "num_trials": config.trials}
            found = evolve(trial_alone if alone else trial, shaper.init, key, config.evolving, **kept)  # type: ignore[arg-type]
        seats = (num_runs,) if opponent else (num_runs, 2)
        batched = key.ndim

        def by_run(x: jax.Array) -> jax.Array:
            return x.reshape(*seats, *x.shape[batched:])

        # Of pairs the returns by seat; each was trained as the row player of the game as it looks from its seat.
        metrics = found.metrics if opponent else self_play.by_seat(found.metrics)
        return found._replace(parameters=jax.tree.map(by_run, found.parameters), metrics=metrics)

    def init(self, key: jax.Array) -> Any:
        return jax.vmap(self.shaper.init)(jax.random.split(key)) if self.pairs else self.shaper.init(key)

    def groups(self) -> dict[str, Callable[[jax.Array, Any], EvaluationResult]]:
        def against(spec: str) -> Callable[[jax.Array, Any], EvaluationResult]:
            pair = self.pairs and spec == self.config.opponent
            learner = None if pair else self.config.make_opponent(spec)

            def trial(key: jax.Array, parameters: Any) -> EvaluationResult:
                row, column = (
                    (jax.tree.map(lambda x, i=i: x[i], parameters) for i in (0, 1))
                    if self.pairs
                    else (parameters, None)
                )
                other = learner or self.shaper.learner(column)
                found = play_trial(key, self.game, self.shaper.learner(row), other, meta_steps=self.config.meta_steps)
                return EvaluationResult(found.shaper_payoffs, found.opponent_payoffs, found.shaper_policies)

            return trial

        def alone(key: jax.Array, parameters: Any) -> EvaluationResult:
            del parameters
            row, column = (self.config.make_opponent(seat=seat) for seat in (0, 1))
            found = play_trial(key, self.game, row, column, meta_steps=self.config.meta_steps)
            return EvaluationResult(found.shaper_payoffs, found.opponent_payoffs, found.shaper_policies)

        controls = {} if self.pairs else {ALONE: alone}
        return {spec: against(spec) for spec in dict.fromkeys((self.config.opponent, *self.config.unseen))} | controls

    def analyse(self, played: EvaluationResult) -> dict[str, Any]:
        del played
        return {}

    def find(self, groups: dict[str, EvaluationResult], number: int = 0) -> dict[str, Any]:
        policies = groups[self.config.opponent].more  # `[trials, meta_steps, logits]`
        mean, last = policies.mean(0), policies.shape[1] - 1
        moments = {"start": 0, "middle": (last + 1) // 2, "end": last}
        return {
            "zd": zero_determinant(self.game, policies, self.config.seed + number),
            "policy": {name: [round(float(p), 4) for p in mean[step]] for name, step in moments.items()},
        }

    def summarize(self, found: dict[str, Any]) -> dict[str, Any]:
        sides = found["against"][self.config.opponent]
        means = {f"{side}_return": sides[side]["mean"] for side in ("shaper", "opponent")}
        means |= {f"{side}_standard_error": sides[side]["standard_error"] for side in ("shaper", "opponent")}
        return means | {"bound": fraction_of_bound(self.config, self.game, means["shaper_return"])}

    def about(self) -> dict[str, Any]:
        return {"game": self.config.game}

    def agents(self, parameters: Any) -> dict[str, tuple[ShapingConfig, Any]]:
        if not self.pairs:
            return {"": (self.config, parameters)}
        row, column = (jax.tree.map(lambda x, i=i: np.take(x, i, 1), parameters) for i in (0, 1))
        own, other = self.game.payoffs.seen_by(1)  # whoever sits there takes itself for the row
        turned = dataclasses.replace(self.config, row_payoffs=tuple(own), column_payoffs=tuple(other))
        return {"": (self.config, row), "column_": (turned, column)}

    def draw(self, folder: Path, groups: dict[str, EvaluationResult], first: dict[str, Any]) -> list[Path]:
        played = groups[self.config.opponent]
        least = first["zd"] and first["zd"]["least_chi"]
        return [
            figures.draw_polygon(folder, self.game, played.shaper, played.opponent, least),
            figures.draw_policy(folder, played.more),
        ]

    def animate(self, parameters: Any, path: Path) -> list[Path]:
        del parameters, path
        return []

    def header(self) -> dict[str, str]:
        config = self.config
        rounds = f"repeated with discount {config.discount}" if config.discount else "played once"
        return {
            "game": f"{config.game}, {rounds}",
            "trial": f"{many(config.meta_steps, 'learning step')} of the opponent",
        }

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        config = self.config
        if found := summary["bound"]:
            bound = f"{found['bound']:.3f} ± {found['bound_standard_error']:.3f}"
            table = Table("", "shaper", title="the most that there is to gain", title_justify="left")
            table.add_row("a naive learner in the shaper's place", f"{found['naive_return']:.3f}")
            table.add_row("bound: ascent through the whole learning, in hindsight", bound)
            known = KnownBound(*(found[name] for name in KnownBound._fields))
            if found["fraction"] is not None:
                table.add_row("its way from the one to the other", f"{found['fraction']:.1%}")
            elif not known.is_level:
                table.add_row(
                    "what the second half of the ascent's starts added: more may follow", f"{found['gain']:.3f}"
                )
            else:
                table.add_row("its way from the one to the other: none, for it is not between them", "")
            console.print(table)
        if self._is_reference_setting():
            _print_settings(console, config)
        if not config.discount:
            words = ", ".join(f"{moment} {policy[0]:.3f}" for moment, policy in summary["policy"].items())
            console.print(f"the shaper's probability of the first action: {words}", highlight=False)
            return
        title = "the shaper's policy, mean of the trials: probability of the first action"
        title += f", seed {config.seed}" if config.seeds > 1 else ""
        table = Table("", "start", "CC", "CD", "DC", "DD", title=title, title_justify="left")
        for moment, policy in summary["policy"].items():
            table.add_row(moment, *(f"{p:.3f}" for p in policy))
        console.print(table)
        if summary["zd"] is None:
            console.print("zero-determinant extortion is defined for prisoner's dilemmas only", highlight=False)
        else:
            _print_verdict(console, summary["zd"])

    def shortened(self, generations: int) -> ShapingConfig:
        return dataclasses.replace(
            self.config,
            start="random",
            evolution=dataclasses.replace(self.config.evolution, generations=generations),
            meta_ppo=dataclasses.replace(self.config.meta_ppo, iterations=generations),
        )

    def _is_reference_setting(self) -> bool:
        default = ShapingConfig()
        names = ("game", "row_payoffs", "column_payoffs", "discount", "opponent", "shaper", "meta_steps")
        return all(getattr(self.config, name) == getattr(default, name) for name in names)


def _cost(opponent: str) -> float:
    """Of a meta-step against it, or against all members of a population, in those of a naive learner, roughly."""

    def of(spec: str) -> float:
        if not spec.startswith(tuple(SAMPLING)):
            return next((cost for one, cost, _ in COSTS if one in spec), 1.0)
        name, given = read("opponent", spec, "naive")
        if name not in SAMPLING:  # which `check` will say
            return 1.0
        settings = {x: setting.default for x, setting in FORMULA.settings(name).items()} | given
        episodes, rounds = (settings.get(x, usual) for x, usual in (("episodes", 32), ("rounds", 50)))
        return SAMPLING[name] * episodes / 32 * rounds / 50

    return sum(of(term.strip()) for term in terms(opponent))


def zero_determinant(game: InfinitelyRepeated, policies: np.ndarray, seed: int = 0) -> dict[str, Any] | None:
    """In which share of trials a shaper's policies `[trials, meta_steps, 5]` are zero-determinant extortion.

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

    kept, redrawn = generator.uniform(size=policies[:, :1].shape), generator.uniform(size=policies.shape)
    least, each = least_chi(payoffs, discount=discount), fit(payoffs, policies, discount=discount).extortionate
    return {
        "trials": share(policies),
        "chance": {"kept": share(np.broadcast_to(kept, policies.shape)), "redrawn": share(redrawn)},
        "meta_steps": mean_and_error(each.mean(1)),
        "in_a_row": IN_A_ROW,
        "max_residual": MAX_RESIDUAL,
        "least_chi": least if np.isfinite(least) else None,
    }


def fraction_of_bound(
    config: ShapingConfig, game: InfinitelyRepeated, shaper_return: float | None
) -> dict[str, float | None] | None:
    """How far a shaper got on the way from naive play to the white-box bound; None where no bound is known."""
    known = known_bound(game, config.opponent, config.meta_steps)
    if known is None or shaper_return is None:
        return None
    return known._asdict() | {"fraction": known.way(shaper_return)}


def _print_settings(console: Console, config: ShapingConfig) -> None:
    with_ppo, trials = config.meta_learner == "ppo", config.trials_per_generation
    ways = (
        f"PPO, {many(config.generations, 'iteration')}"
        if with_ppo
        else f"{config.evolution.strategy}, {many(config.generations, 'generation')}"
    )
    here = {
        "meta-steps": f"{config.meta_steps}",
        "discount": f"{config.discount}",
        "opponent": "gradient ascent, step size 1",
        "policy": many(config.meta_ppo.hidden_units if with_ppo else config.hidden_units, "tanh unit"),
        "meta-learner": f"{ways} of {many(trials, 'trial')}",
    }
    table = Table("setting", "here", "paper (Lu et al., 2022)")
    for name, text in PAPER.items():
        table.add_row(name, here[name], text)
    console.print(table)


def _print_verdict(console: Console, zd: dict[str, Any]) -> None:
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
