"""Estimates of a shaping run's time on this machine: costs of learners, relative to a speed that is measured."""

from __future__ import annotations

from typing import Any, NamedTuple

from configs.specs import read
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.learners.registry import FORMULA, terms
from meta.xla.backend import platform

# (part of the opponent's name, seconds for a meta-step, seconds to compile), in those of a naive learner in a repeated
# game, on two cores of a processor.
COSTS = (("self_play", 1.2, 1.8), ("lola", 2.2, 2.4), ("mmaml", 1.1, 1.3), ("naive", 1.0, 1.0))
# And of those that sample, with 32 episodes of 50 rounds.
SAMPLING = {"reinforce": 60.0, "tabular_ppo": 80.0, "q_learning": 220.0}
PLAYED_ONCE = 0.25
PPO = 25.0


class Cost(NamedTuple):
    """Costs of a run, relative to the speed that its measurement finds."""

    measured_in: str  # game and learners of the measurement; configs that agree in it share the speed
    step: float
    compiling: float
    evaluation: float  # of the whole evaluation, in those of its trials against the opponent
    seconds_to_draw: float


def cost_of(config: ShapingConfig) -> Cost:
    """The costs of a run, roughly."""
    if isinstance(config, SampledShapingConfig):
        # Both controls; the costs of other learners are not known.
        measured_in = f"{config.environment}, with {config.opponent}"
        return Cost(measured_in, 1.0, 1.0, 3.0 + len(config.unseen), seconds_to_draw=10.0)
    assert isinstance(config, ExactShapingConfig)
    # A population is none of them.
    known = (row for row in COSTS if row[0] in config.opponent and "+" not in config.opponent)
    name, step, compiling = next(known, ("", 1.0, 1.0))
    # Those of the controls come last: the opponent's own kind in the shaper's place, and an untrained shaper.
    controls = [config.opponent] * (1 if config.is_self_play else 2)
    costs = [*map(_meta_step, dict.fromkeys((config.opponent, *config.unseen))), *map(_meta_step, controls)]
    step *= (1.0 if config.discount else PLAYED_ONCE) * (PPO if config.meta_learner == "ppo" else 1.0)
    measured_in = "games that are formulas" if name else f"games that are formulas, with {config.opponent}"
    return Cost(measured_in, step, compiling, sum(costs) / (costs[-1] / num_drawn_from(config)), seconds_to_draw=3.0)


def num_drawn_from(config: ExactShapingConfig) -> int:
    """The number of learners that a training draws from, if it computes only the one that was drawn.

    That needs candidates that share the draw. On other backends than a CPU a generation is one batch, because a trial
    of all candidates is too little work for those.
    """
    shared = config.meta_learner == "evolution" and config.evolution.shared_trials == "generation"
    return len(terms(config.opponent)) if shared and platform() == "cpu" else 1


def _meta_step(opponent: str) -> float:
    """The cost of a meta-step against an opponent, or against all members of a population."""

    def of_member(spec: str) -> float:
        if not spec.startswith(tuple(SAMPLING)):
            return next((cost for one, cost, _ in COSTS if one in spec), 1.0)
        name, given = read("opponent", spec, "naive")
        if name not in SAMPLING:  # an unknown name, which `ExactShaping` refuses
            return 1.0
        settings: dict[str, Any] = {x: setting.default for x, setting in FORMULA.settings(name).items()} | given
        episodes, rounds = (settings.get(x, usual) for x, usual in (("episodes", 32), ("rounds", 50)))
        return SAMPLING[name] * episodes / 32 * rounds / 50

    return sum(of_member(term.strip()) for term in terms(opponent))


class Speed(NamedTuple):
    """The speed of this machine in the game and with the learners of `Cost.measured_in`."""

    steps_per_second: float
    seconds_to_compile: float

    def seconds(self, config: ShapingConfig, done: int = 0) -> float:
        """An estimate of a config's time, with its evaluation.

        Args:
          config: in the game that was measured, or in another formula if that was one.
          done: generations that are there already.
        """
        cost, groups = cost_of(config), 1 + len(config.unseen) + (not config.is_self_play)
        trials = float(max(0, config.generations - done) * config.trials_per_generation)
        trials += config.evaluation_trials * cost.evaluation
        trials += 0.0 if done else config.make_start().trials(config.meta_steps)
        running = trials * config.steps_of_a_trial * config.seeds * cost.step / self.steps_per_second
        # The training and each group of the evaluation is a program, all of about the same size.
        return running + (1 + groups) * cost.compiling * self.seconds_to_compile + cost.seconds_to_draw
