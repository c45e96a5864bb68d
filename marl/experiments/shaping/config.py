"""The config of `python -m marl.mfos`: a shaper, whom it meets, in which game, and how it is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import configs
from configs.specs import read
from marl.experiments.game_config import OF_FORMULA, AnyGameConfig
from marl.experiments.shaping import initialisation as starts
from marl.shapers import meta_ppo as of_ppo
from meta import Evolution

if TYPE_CHECKING:
    from marl.core.learner import Learner
    from meta.loop import Report

OF_KIND: Any = None  # stands for a default that depends on the kind of game, until the config is made

FORMULA = {"opponent": "naive", "shaper": "mfos", "trials": 8, "evaluation_trials": 4096}
SAMPLED = {"opponent": "tabular_ppo", "shaper": "shaper", "trials": 4, "evaluation_trials": 256}


@dataclasses.dataclass(frozen=True)
class ShapingConfig(AnyGameConfig):
    """A shaper trained against learners: in a game that is a formula, or in one that is sampled step by step.

    Of a formula are game, row_payoffs, column_payoffs, discount, meta_steps and hidden_units; of sampled games
    environment, num_shapers, episodes, episode_length and num_envs.
    """

    environment: str = ""
    """A sampled game of two players or more in place of the formula, by its name, with parameters in brackets;
    `python -m games` lists them."""
    opponent: str = OF_KIND
    """Who is shaped: naive by default, and in sampled games tabular_ppo. Of a formula naive, lookahead, lola,
    exact_lola, hola2, hola, sos, sga, cgd, cola, pola, mmaml, reinforce, tabular_ppo, q_learning, best_response; all_c,
    all_d, tft, wsls, grim, gtft, random, zd, or five probabilities such as 0.9,1,0,1,0; in sampled games ppo, a2c, dqn,
    impala, a3c, ape_x, r2d2, tabular_ppo, reinforce, naive_dice, lola_dice, pola_dice, advantage_alignment,
    proximal_advantage_alignment, loqa, reciprocator, always_cooperate, always_defect or random. With settings in
    brackets: "naive(learning_rate=0.5)", "zd(chi=3, phi=0.1)"; "axelrod(name='Bully')" is any memory-one strategy of
    the Axelrod library. Of a formula also a population, of which each trial draws one: "naive + lola"; a range that
    each trial draws from: "naive(learning_rate=[0.1, 3])". With self_play, or "self_play(annealing=0.5)", two shapers
    are trained against each other, one in each seat; annealing is the fraction of the training over which the
    probability of meeting a naive learner instead falls from 1 to 0."""
    unseen: tuple[str, ...] = ()
    """Further opponents that the shaper meets in its evaluation alone."""
    shaper: str = OF_KIND
    """mfos (the default of a formula; there a policy from both players' last policies), good_shepherd (one policy for
    all episodes) or shaper (recurrent; the default of sampled games); with settings such as "mfos(hidden_units=64)",
    "mfos(observe='before')", who sees of the opponent what it played, as in the public code, and not yet what it has
    learned from it, or, in sampled games, "shaper(hidden_units=32, memory='episode')"."""
    num_shapers: int = 1
    """How many of the players are shapers, the first ones: all with the same parameters, each with its own memory."""
    meta_steps: int = 100
    """Learning steps of the opponent in a trial of a formula."""
    episodes: int = 100
    """Learning steps of an opponent in a trial of a sampled game, one after each."""
    episode_length: int = 100
    """Steps of the game between two of them."""
    num_envs: int = 2
    """Environments in which an opponent learns at once."""
    hidden_units: int = 32
    """Width of the network of a formula's shaper in an evolution, if its settings do not say it."""
    trials: int = OF_KIND
    """Trials per candidate and generation of an evolution, the same for all candidates: 8 by default, and 4 in sampled
    games."""
    evaluation_trials: int = OF_KIND
    """Fresh trials for the result, at least 2: 4096 by default, and 256 in sampled games."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    seeds: int = 1
    """Independent trainings in one program, with the seeds seed, seed + 1, ..."""
    start: str = "auto"
    """Where an evolution begins: random, or screened, which is the best of many random shapers, judged by the trials in
    which they do best: of 65,536 in 8 trials each, the best 128 of them in 128 more; in sampled games, where a trial
    takes thousands of times as long, of 4,096 in one, the best 32 in 8 more. With settings: "screened(candidates=1024,
    trials=2, finalists=16, final_trials=8, loudest=20)". auto is screened for mfos against plain lola in the prisoner's
    dilemma as a formula, and random elsewhere. Where a start in a formula is screened, open_es has a sigma of 0.1 and
    the fitness_shaping standardize unless other values than the defaults are given."""
    meta_learner: Literal["evolution", "ppo"] = "evolution"
    """How the shaper is trained: evolution, with the settings under evolution, or ppo, with those under meta_ppo."""
    evolution: Evolution = field(default_factory=Evolution)
    meta_ppo: of_ppo.MetaPPO = field(default_factory=of_ppo.MetaPPO)

    def __post_init__(self) -> None:
        super().__post_init__()
        of_kind = {
            **(SAMPLED if self.environment else FORMULA),
            "meta_ppo": self.meta_ppo.of(sampled=bool(self.environment)),
        }
        for name, value in of_kind.items():
            if getattr(self, name) is None or name == "meta_ppo":
                object.__setattr__(self, name, value)
        assert self.annealing is None or self.is_self_play  # raises ValueError for what is no setting of self_play
        of_trials = ("meta_steps", "episodes", "episode_length", "num_envs", "trials")
        counts = dict.fromkeys(("num_shapers", *of_trials, "hidden_units", "seeds"), 1)
        configs.check_least(self, **counts, evaluation_trials=2)
        configs.check_product(self, "num_envs", "episode_length")
        configs.check_seed(self.seed, seeds=self.seeds)
        if self.is_self_play and self.screening:
            raise ValueError(f"start: got {self.start!r}; random is needed with {self.opponent}")

    def check_preset(self, preset: ShapingConfig) -> None:
        """Raises ValueError for a game of the other kind than the preset's, whose sizes are for its own kind."""
        if bool(self.environment) != bool(preset.environment):
            kinds = "sampled" if self.environment else "a formula", "a formula" if self.environment else "sampled"
            got = f"environment: got {configs.shown(self.environment)}, a game that is {kinds[0]}"
            raise ValueError(f"{got}, with a preset of one that is {kinds[1]}; a preset of its kind is needed")

    @property
    def reads(self) -> str:
        """Digests of the files that the opponents read: what was learned before, or an objective that was evolved."""
        from marl.experiments.spec_dependencies import digests

        return "".join(x for spec in dict.fromkeys((self.opponent, *self.unseen)) for x in digests(spec))

    @property
    def starting(self) -> str:
        """Where an evolution begins, with auto resolved."""
        if self.meta_learner == "ppo":
            return "random"
        if self.start != "auto":
            return self.start
        if self.environment:
            return "random"
        game = self.game if self.discount else ""
        return starts.auto(self.opponent, game, self.shaper, self.evolution.strategy)

    @property
    def screening(self) -> starts.Screening | None:
        """Where it begins at the best of many random parameters, how many; None elsewhere."""
        return starts.read_screening(self.starting, sampled=bool(self.environment))

    def in_chunks(self) -> ShapingConfig:
        """For a cluster."""
        return dataclasses.replace(self, evolution=self.evolution.in_chunks())

    @property
    def evolving(self) -> Evolution:
        """The evolution, where what its start has found is not lost by settings that are for random ones.

        In sampled games the presets' are for both.
        """
        kept, default = self.evolution, Evolution()
        changes: dict[str, Any] = {k: x for k, x in starts.SCREENED.items() if getattr(kept, k) == getattr(default, k)}
        loses = bool(self.screening) and kept.strategy == "open_es" and not self.environment
        return dataclasses.replace(kept, **changes) if loses else kept

    @property
    def is_self_play(self) -> bool:
        """Whether two shapers are trained against each other."""
        return self.annealing is not None

    @property
    def annealing(self) -> float | None:
        """Of self-play; None where the opponent is a learner."""
        if self.environment or "self_play" not in self.opponent:
            return None
        from marl.shapers.self_play import annealing

        return annealing(self.opponent)

    @property
    def generations(self) -> int:
        """How often the shaper is improved: generations of an evolution, iterations of PPO."""
        return self.meta_ppo.iterations if self.meta_learner == "ppo" else self.evolution.generations

    @property
    def trials_per_generation(self) -> int:
        """Trials that are played in each, for one training."""
        return self.meta_ppo.batch_size if self.meta_learner == "ppo" else self.evolution.population_size * self.trials

    @property
    def training_trials(self) -> int:
        """Trials of one training, those of its start included."""
        before = self.screening.num_trials if self.screening else 0
        return before + self.generations * self.trials_per_generation

    def make_shaper(self) -> Any:
        """What is trained: a `Shaper`, or the `Policy` of one in a sampled game."""
        from marl.shapers.ppo import gaussian_mfos
        from marl.shapers.registry import make_shaper

        game = self.make_game()
        if self.environment:
            return make_shaper(self.shaper, game)
        if self.meta_learner == "ppo":
            sample, units = self.meta_ppo.evaluation == "sample", self.meta_ppo.hidden_units
            return gaussian_mfos(game.num_logits, hidden_units=units, sample=sample, observe=self.observe)
        return make_shaper(self.shaper, game, hidden_units=self.hidden_units)

    def make_opponent(self, spec: str | None = None, seat: int = 1, *, alone: bool = False) -> Learner:
        """A learner from its spec, that of `opponent` if none is given, for any seat; alone as of `population`."""
        from marl.learners.registry import make_learner

        updates = self.episodes if self.environment else None
        spec = self.opponent if spec is None else spec
        return make_learner(spec, self.make_game(), seat, num_updates=updates, alone=alone, field="opponent")

    def make_start(
        self, trial: Callable[..., Any], init: Callable[[Any], Any], report: Report | None = None
    ) -> Callable[[Any], Any] | None:
        """The `start` of `evolve`, for a trial and an init of its own; None where it begins at random parameters."""
        start, sigma = starts.make_start(self.starting, sampled=bool(self.environment)), self.evolving.sigma
        return start and (lambda key: start(trial, init, key, sigma=sigma, report=report).parameters)

    @property
    def observe(self) -> Any:
        """Of PPO in a formula: what its M-FOS sees of the opponent's policy, as of `marl.shapers.exact.mfos`."""
        from marl.shapers.registry import FORMULA as SHAPERS

        name, given = SHAPERS.read("shaper", self.shaper)
        if name != "mfos" or not set(given) <= {"observe"}:
            raise ValueError(
                f"shaper: got {self.shaper!r}; meta_learner ppo trains mfos, or \"mfos(observe='before')\""
            )
        return given.get("observe", "after")

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """How long the training is, and what falls over it."""
        falling = ["opponent"] if self.annealing else []
        if self.meta_learner == "ppo":
            return {"meta_ppo.iterations": falling}
        return {"evolution.generations": self.evolution.falling + falling}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_trials",)

    @property
    def without_effect(self) -> dict[str, str]:
        found = super().without_effect
        of_other = ("trials", "hidden_units", "start", "evolution") if self.meta_learner == "ppo" else ("meta_ppo",)
        found |= dict.fromkeys(of_other, f"with meta_learner {self.meta_learner}")
        if self.meta_learner == "ppo":
            found["cluster"] = "with meta_learner ppo, whose trials are all here"
        if not self.environment and self.meta_learner != "ppo" and not self._takes_hidden_units:
            found["hidden_units"] = f"with shaper {self.shaper}"
        if self.environment and self.meta_learner == "ppo" and self.meta_ppo.advantages == "coala":
            of_critic = (f"meta_ppo.{name}" for name in ("discount", "gae_lambda", "later_episodes"))
            found |= dict.fromkeys(of_critic, "with meta_ppo.advantages coala")
        return found

    @property
    def _takes_hidden_units(self) -> bool:
        """Whether the shaper has that setting, and its spec does not give it."""
        from marl.shapers.registry import FORMULA as SHAPERS

        name, given = read("shaper", self.shaper, "mfos")
        return name not in SHAPERS or ("hidden_units" in SHAPERS.settings(name) and "hidden_units" not in given)

    def of_other_kind(self) -> tuple[str, ...]:
        if self.environment:
            return (
                *OF_FORMULA,
                "meta_steps",
                "hidden_units",
                *(f"meta_ppo.{name}" for name in of_ppo.OF_FORMULA),
            )
        of_sampled = ("num_shapers", "episodes", "episode_length", "num_envs")
        return (*of_sampled, *(f"meta_ppo.{name}" for name in of_ppo.OF_SAMPLED))


def small(config: ShapingConfig) -> ShapingConfig:
    """The same in a size that shows only that it runs."""
    by_ppo = config.meta_learner == "ppo"
    settings: dict[str, Any] = {"iterations": 2, "batch_size": 8} | (
        {"epochs": 1} if config.environment else {"hidden_units": 4}
    )
    meta_ppo = dataclasses.replace(config.meta_ppo, **(settings if by_ppo else {}))
    if config.environment:
        evolution = dataclasses.replace(config.evolution, population_size=4, generations=1, chunk_size=0)
        sizes: dict[str, Any] = {"unseen": (), "episodes": 2, "episode_length": 4, "num_envs": 2}
        sizes |= {"trials": 1, "evaluation_trials": 2, "start": "random"}
    else:
        evolution = dataclasses.replace(config.evolution, population_size=8, generations=4, chunk_size=0)
        sizes = {"meta_steps": 5, "hidden_units": 4, "trials": 2, "evaluation_trials": 16, "start": "random"}
    return dataclasses.replace(config, **sizes, evolution=evolution, meta_ppo=meta_ppo)
