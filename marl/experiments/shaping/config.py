"""The configs of `python -m marl.mfos`: a shaper, its opponent, the game, and the training, in each kind of game."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Self

import configs
from configs.specs import read
from marl.experiments.game_config import GameConfig, SampledGameConfig
from marl.experiments.shaping import initialisation as starts
from marl.shapers.meta_ppo_config import ExactMetaPPO, MetaPPO, SampledMetaPPO
from meta import Evolution

if TYPE_CHECKING:
    from games import Game, InfinitelyRepeated
    from marl.core.learner import Learner
    from marl.shapers.imitation import Imitation

MEASURED_STEPS = 2.5e6  # of a generation whose speed is measured, or a little more


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapingConfig(configs.CommandConfig):
    """A shaper trained against learners; the fields that both kinds of game have."""

    opponent: str
    unseen: tuple[str, ...] = ()
    """Further opponents, of the evaluation alone."""
    shaper: str
    meta_steps: int
    trials: int
    """Trials per candidate and generation of an evolution, the same for all candidates."""
    evaluation_trials: int
    """Fresh trials for the result, at least 2."""
    seed: int = 0
    """Seed of all draws of the run."""
    seeds: int = 1
    """Independent trainings in one program, with the seeds seed, seed + 1, ..."""
    start: str = "auto"
    meta_learner: Literal["evolution", "ppo"] = "evolution"
    """How the shaper is trained: evolution, with the settings under evolution, or ppo, with those under meta_ppo."""
    evolution: Evolution = field(default_factory=Evolution)
    meta_ppo: MetaPPO

    @classmethod
    def class_of(cls, values: Mapping[str, Any]) -> type[configs.CommandConfig]:
        if "environment" not in values:
            return ExactShapingConfig
        if "game" in values:  # both are in every config of an earlier version
            got = f"game: got {configs.shown(values['game'])}, with environment {configs.shown(values['environment'])}"
            raise ValueError(f"{got}; one of the two is needed; runs of earlier versions have both, and cannot go on")
        return SampledShapingConfig

    def __post_init__(self) -> None:
        configs.check_least(self, trials=1, seeds=1, evaluation_trials=2)
        configs.check_seed(self.seed, seeds=self.seeds)

    @property
    def reads(self) -> str:
        """Digests of the files that the opponents read: what was learned before, or an objective that was evolved."""
        from marl.learners.spec_dependencies import digests

        return "".join(x for spec in dict.fromkeys((self.opponent, *self.unseen)) for x in digests(spec))

    @property
    def starting(self) -> str:
        """The start of an evolution, with auto resolved."""
        if self.meta_learner == "ppo":
            return "random"
        return self._auto_start if self.start == "auto" else self.start

    @property
    def _auto_start(self) -> str:
        return "random"

    def make_start(self) -> starts.Start:
        """The first parameters of an evolution; raises ValueError for a start that does not exist."""
        return starts.make_start(self.starting, sampled=self.is_sampled)

    @property
    def preparation(self) -> starts.Screening | Imitation | None:
        """The sizes of what comes before the first generation; None for a start at random parameters."""
        return self.make_start().preparation

    @property
    def is_sampled(self) -> bool:
        """True if the game is sampled step by step."""
        return isinstance(self, SampledShapingConfig)

    def in_chunks(self) -> Self:
        """The config for a cluster."""
        return dataclasses.replace(self, evolution=self.evolution.in_chunks())

    @property
    def evolving(self) -> Evolution:
        """The settings of the evolution as it is run."""
        return self.evolution

    @property
    def annealing(self) -> float | None:
        """The annealing of self-play; None where the opponent is a learner."""
        return None

    @property
    def is_self_play(self) -> bool:
        """True if two shapers are trained against each other."""
        return self.annealing is not None

    @property
    def generations(self) -> int:
        """Generations of an evolution, or iterations of PPO."""
        return self.meta_ppo.iterations if self.meta_learner == "ppo" else self.evolution.generations

    @property
    def trials_per_generation(self) -> int:
        """Trials that are played in each, for one training."""
        return self.meta_ppo.batch_size if self.meta_learner == "ppo" else self.evolution.population_size * self.trials

    @property
    def training_trials(self) -> int:
        """Trials of one training, those of its start included."""
        before = self.preparation.num_trials if self.preparation else 0
        return before + self.generations * self.trials_per_generation

    @property
    def steps_of_a_trial(self) -> int:
        """Steps that one shaper or pair takes in a trial: meta-steps, in sampled games environment steps."""
        raise NotImplementedError

    @property
    def steps_of_a_generation(self) -> int:
        """The same of all trainings and candidates in a generation."""
        return self.trials_per_generation * self.steps_of_a_trial * self.seeds

    @property
    def training_steps(self) -> int:
        """The same of all trainings."""
        return self.training_trials * self.steps_of_a_trial * self.seeds

    def make_game(self) -> Any:
        """The game that is played."""
        raise NotImplementedError

    def make_shaper(self) -> Any:
        """The shaper: a `Shaper`, or in a sampled game a `Policy`."""
        raise NotImplementedError

    def make_opponent(self, spec: str | None = None, seat: int = 1, **settings: Any) -> Learner:
        """A learner from its spec, that of `opponent` if none is given, for any seat; settings as of `make_learner`."""
        from marl.learners.registry import make_learner

        spec = self.opponent if spec is None else spec
        return make_learner(spec, self.make_game(), seat, field="opponent", **settings)

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the training's length, and the fields that fall over it."""
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
        if self.meta_learner == "evolution":
            return {"meta_ppo": "with meta_learner evolution"}
        found = dict.fromkeys(("trials", "start", "evolution"), "with meta_learner ppo")
        return found | {"cluster": "with meta_learner ppo, whose trials are all here"}

    def small(self) -> Self:
        """The same in a size that shows only that it runs."""
        raise NotImplementedError

    def shortened(self) -> Self:
        """The same in so few generations, from random parameters, that its speed is measured in seconds."""
        raise NotImplementedError

    def _resized(self, evolution: dict[str, int], meta_ppo: dict[str, int], **sizes: Any) -> Self:
        """The same with other sizes, from random parameters."""
        evolving = dataclasses.replace(self.evolution, **evolution)  # type: ignore[arg-type]
        ppo = dataclasses.replace(self.meta_ppo, **meta_ppo)  # type: ignore[arg-type]
        return dataclasses.replace(self, start="random", evolution=evolving, meta_ppo=ppo, **sizes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactShapingConfig(ShapingConfig, GameConfig):
    """A shaper trained against learners in an exact game."""

    opponent: str = "naive"
    """The learner that is shaped: naive, lookahead, lola, exact_lola, hola2, hola, sos, sga, cgd, cola, pola, meva,
    mmaml, reinforce, tabular_ppo, q_learning, best_response, best_response_shaping; all_c, all_d, tft, wsls, grim,
    gtft, random, zd, or five probabilities such as 0.9,1,0,1,0. With settings in brackets:
    "naive(learning_rate=0.5)", "zd(chi=3, phi=0.1)"; "axelrod(name='Bully')" is any memory-one strategy of the Axelrod
    library. Also a population, of which each trial draws one: "naive + lola"; a range that each trial draws from:
    "naive(learning_rate=[0.1, 3])". With self_play, or "self_play(annealing=0.5)", two shapers are trained against each
    other, one in each seat; annealing is the fraction of the training over which the probability of meeting a naive
    learner instead falls from 1 to 0."""
    shaper: str = "mfos"
    """mfos (a policy from both players' last policies), good_shepherd (one policy for all episodes), shaper (recurrent)
    or counts (a policy from the shares of all joint actions so far); with settings such as "mfos(hidden_units=64)", or
    "mfos(observe='before')", which sees the opponent's policy before its last step of learning, as in the public
    code."""
    meta_steps: int = 100
    """Learning steps of the opponent in a trial."""
    hidden_units: int = 32
    """Width of the shaper's network in an evolution, if its settings do not say it."""
    trials: int = 8
    evaluation_trials: int = 4096
    start: str = "auto"
    """First parameters of an evolution: random, or screened, which is the best of many random shapers, judged by the
    trials in which they do best: of 65,536 in 8 trials each, the best 128 of them in 128 more. With settings:
    "screened(candidates=1024, trials=2, finalists=16, final_trials=8, largest_factor=20)", or judged_by='mean' of
    their trials. auto is screened for mfos against plain lola in the prisoner's dilemma, and random elsewhere. With
    screened, open_es has a sigma of 0.1 and the fitness_shaping standardize unless other values than the defaults are
    given."""
    meta_ppo: ExactMetaPPO = field(default_factory=ExactMetaPPO)

    def __post_init__(self) -> None:
        GameConfig.__post_init__(self)
        assert self.annealing is None or self.is_self_play  # raises ValueError for what is no setting of self_play
        configs.check_least(self, meta_steps=1, hidden_units=1)
        ShapingConfig.__post_init__(self)
        if self.is_self_play and self.preparation:
            raise ValueError(f"start: got {self.start!r}; random is needed with {self.opponent}")

    @property
    def _auto_start(self) -> str:
        return starts.auto(self.opponent, self.game if self.discount else "", self.shaper, self.evolution.strategy)

    @property
    def evolving(self) -> Evolution:
        """The evolution, with the settings that keep the parameters that its start has found."""
        given, default = self.evolution, Evolution()
        if not self.preparation or given.strategy != "open_es":
            return given
        unset = {name: x for name, x in starts.SCREENED.items() if getattr(given, name) == getattr(default, name)}
        return dataclasses.replace(given, **unset)  # type: ignore[arg-type]

    @property
    def annealing(self) -> float | None:
        if "self_play" not in self.opponent:
            return None
        from marl.shapers.self_play import annealing

        return annealing(self.opponent)

    @property
    def steps_of_a_trial(self) -> int:
        return self.meta_steps * (2 if self.is_self_play else 1)

    def make_game(self) -> InfinitelyRepeated:
        return GameConfig.make_game(self)

    def make_shaper(self) -> Any:
        from marl.shapers.exact_ppo import gaussian_mfos
        from marl.shapers.registry import make_shaper

        game, ppo = self.make_game(), self.meta_ppo
        if self.meta_learner == "evolution":
            return make_shaper(self.shaper, game, hidden_units=self.hidden_units)
        sample = ppo.evaluation == "sample"
        return gaussian_mfos(game.num_logits, hidden_units=ppo.hidden_units, sample=sample, observe=self.observe)

    @property
    def observe(self) -> Any:
        """The policy of the opponent that PPO's M-FOS sees, as of `marl.shapers.exact_policies.mfos`."""
        from marl.shapers.registry import FORMULA as SHAPERS

        name, given = SHAPERS.read("shaper", self.shaper)
        if name != "mfos" or not set(given) <= {"observe"}:
            raise ValueError(
                f"shaper: got {self.shaper!r}; meta_learner ppo trains mfos, or \"mfos(observe='before')\""
            )
        return given.get("observe", "after")

    @property
    def without_effect(self) -> dict[str, str]:
        from marl.shapers.registry import FORMULA as SHAPERS

        found = super().without_effect
        if self.meta_learner == "ppo":
            if self.meta_ppo.advantages == "coala":
                of_critic = ("meta_ppo.discount", "meta_ppo.value_coefficient")
                found |= dict.fromkeys(of_critic, "with meta_ppo.advantages coala")
            return found | {"hidden_units": "with meta_learner ppo"}
        name, given = read("shaper", self.shaper, "mfos")
        has_units = name not in SHAPERS or ("hidden_units" in SHAPERS.settings(name) and "hidden_units" not in given)
        return found if has_units else found | {"hidden_units": f"with shaper {self.shaper}"}

    def small(self) -> Self:
        sizes = {"meta_steps": 5, "hidden_units": 4, "trials": 2, "evaluation_trials": 16}
        ppo = {"iterations": 2, "batch_size": 8, "hidden_units": 4} if self.meta_learner == "ppo" else {}
        return self._resized({"population_size": 8, "generations": 4, "chunk_size": 0}, ppo, **sizes)

    def shortened(self) -> Self:
        generations = min(12, self.generations)
        return self._resized({"generations": generations}, {"iterations": generations})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledShapingConfig(ShapingConfig, SampledGameConfig):
    """A shaper trained against learners in a game that is sampled step by step."""

    opponent: str = "tabular_ppo"
    """The learner that is shaped: ppo, a2c, dqn, impala, a3c, ape_x, r2d2, tabular_ppo, reinforce, naive_dice,
    lola_dice, pola_dice, advantage_alignment, proximal_advantage_alignment, loqa, reciprocator, always_cooperate,
    always_defect or random, with settings in brackets: "ppo(hidden=[16])"."""
    shaper: str = "shaper"
    """shaper (recurrent), mfos, good_shepherd or counts, with settings such as "shaper(hidden_units=32,
    memory='episode')"."""
    num_shapers: int = 1
    """How many of the players are shapers, the first ones: all with the same parameters, each with its own memory."""
    meta_steps: int = 100
    """Learning steps of an opponent in a trial."""
    episode_length: int = 100
    """Steps of the game before each of them."""
    num_envs: int = 2
    """Environments in which an opponent learns at once."""
    scored_from: int = 0
    """First of the meta_steps that counts for the fitness of an evolution and of its start: half of them leave out
    what a shaper gains from opponents that have not learned yet."""
    trials: int = 4
    evaluation_trials: int = 256
    start: str = "auto"
    """First parameters of an evolution: random, which is auto; screened, which is the best of many random shapers,
    judged by the trials in which they do best: of 4,096 in one trial each, the best 32 of them in 8 more; or imitation,
    which fits a shaper to the actions of the opponent's own kind in its place, at the end of their learning. With
    settings: "screened(candidates=1024, trials=2, finalists=16, final_trials=8, largest_factor=20)", or
    judged_by='mean' of their trials; "imitation(trials=32, episodes=10, steps=400, batch=4, learning_rate=0.003)"."""
    meta_ppo: SampledMetaPPO = field(default_factory=SampledMetaPPO)

    def __post_init__(self) -> None:
        SampledGameConfig.__post_init__(self)
        configs.check_least(self, num_shapers=1, meta_steps=1, episode_length=1, num_envs=1)
        ShapingConfig.__post_init__(self)
        configs.check_product(self, "num_envs", "episode_length")
        if not 0 <= self.scored_from < self.meta_steps:
            raise ValueError(f"scored_from: got {self.scored_from}; 0 to {self.meta_steps - 1} is needed")

    @property
    def steps_of_a_trial(self) -> int:
        return self.meta_steps * self.episode_length * self.num_envs

    def make_game(self) -> Game:
        return SampledGameConfig.make_game(self)

    def make_shaper(self) -> Any:
        from marl.shapers.registry import make_shaper

        return make_shaper(self.shaper, self.make_game())

    def make_opponent(self, spec: str | None = None, seat: int = 1, **settings: Any) -> Learner:
        return super().make_opponent(spec, seat, num_updates=self.meta_steps, **settings)

    @property
    def without_effect(self) -> dict[str, str]:
        found = super().without_effect
        if self.meta_learner != "ppo":
            return found
        found |= {"scored_from": "with meta_learner ppo"}
        if self.meta_ppo.advantages == "coala":
            of_critic = (f"meta_ppo.{name}" for name in ("discount", "gae_lambda", "later_episodes"))
            found |= dict.fromkeys(of_critic, "with meta_ppo.advantages coala")
        return found

    def small(self) -> Self:
        sizes = {"meta_steps": 2, "episode_length": 4, "num_envs": 2, "trials": 1, "evaluation_trials": 2}
        sizes |= {"scored_from": min(self.scored_from, 1)}
        ppo = {"iterations": 2, "batch_size": 8, "epochs": 1} if self.meta_learner == "ppo" else {}
        return self._resized({"population_size": 4, "generations": 1, "chunk_size": 0}, ppo, unseen=(), **sizes)

    def shortened(self) -> Self:
        """As many candidates as are played at once, in trials of so many meta-steps as fill `MEASURED_STEPS`."""
        from meta.xla.backend import local_devices

        evolution, generations = self.evolution, min(3, self.generations)
        at_once = (evolution.chunk_size or evolution.population_size) * len(local_devices())
        at_once = min(evolution.population_size, at_once + at_once % 2)  # candidates may come in pairs
        trials = self.trials_per_generation if self.meta_learner == "ppo" else at_once * self.trials
        meta_steps = math.ceil(MEASURED_STEPS / (trials * self.episode_length * self.num_envs))
        meta_steps = min(self.meta_steps, meta_steps)
        sizes: dict[str, Any] = {"unseen": (), "seeds": 1, "meta_steps": meta_steps}
        sizes |= {"scored_from": min(self.scored_from, meta_steps - 1)}
        evolving = {"generations": generations, "population_size": at_once}
        return self._resized(evolving, {"iterations": generations}, **sizes)
