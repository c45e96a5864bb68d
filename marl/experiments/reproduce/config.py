"""The configs of the experiments of papers."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import configs
from marl.experiments.learner_training import TrainConfig
from marl.experiments.reproduce import coin_game as reproduce_coin_game
from marl.experiments.reproduce import in_context as reproduce_in_context
from marl.experiments.reproduce import shaper as reproduce_shaper
from marl.experiments.reproduce import social as reproduce_social
from marl.experiments.reproduce import zd as reproduce_zd
from marl.experiments.shaping.agents import load_shaper
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.sampled import SampledShaping
from marl.experiments.team import make_experiment

NO_EVOLUTION = "where nothing is evolved"


@dataclasses.dataclass(frozen=True)
class MfosConfig(configs.CommandConfig):
    """The matrix games of Lu et al. (2022)."""

    seeds: int = 10
    """Independent trainings of each setting, all in one program."""
    seed: int = 0
    """The first of them."""
    ppo: bool = False
    """Train by the paper's own PPO as well, one seed against each of three learners, a quarter of an hour each."""
    fast: bool = False
    """A smoke run: tiny, and fewer settings."""

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= 1000:  # beyond them the longer runs have theirs
            raise ValueError(f"seeds: got {self.seeds}; a whole number from 1 to 1000 is needed")
        configs.check_seed(self.seed, 31)


@dataclasses.dataclass(frozen=True)
class ZdConfig(configs.CommandConfig):
    """Extortion in the prisoner's dilemma: of one shaper, or over games, learners and lengths of learning."""

    agent: str = ""
    """File or run directory of a trained shaper, which alone is judged; if empty, all shapers are trained."""
    seeds: int = 10
    """Independent trainings of each shaper that keeps one policy, all in one program; of the others three."""
    seed: int = 0
    """The first of them; of the trials, the random policies and the random co-players."""
    fast: bool = False
    """A smoke run: tiny trainings of a few kinds."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=2)  # errors are between trainings
        configs.check_seed(self.seed, 31)

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are."""
        idle = ("fast", "seeds", "cluster")
        return dict.fromkeys(idle, "with an agent that is trained already") if self.agent else {}


@dataclasses.dataclass(frozen=True)
class ShaperConfig(configs.CommandConfig):
    """Shapers of learners that sample."""

    games: tuple[str, ...] = reproduce_shaper.GAMES
    """Presets of `marl.mfos` with an environment."""
    shapers: tuple[str, ...] = ()
    """With settings in brackets; if none are given all three kinds, in ipd_sampled with their ablations."""
    opponents: tuple[str, ...] = ()
    """Learners that every shaper is trained against, one each, and tried on the others; each game's own if none."""
    seeds: int = 3
    """Independent trainings of each shaper; errors are between them if there are several."""
    seed: int = 0
    """The first of them."""
    fast: bool = False
    """A smoke run: tiny."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=1)
        for field in ("shapers", "opponents"):
            given = getattr(self, field)
            slugs = list(map(reproduce_shaper.slug, given))
            if twice := next((spec for i, spec in enumerate(given) if slugs[i] in slugs[:i]), None):
                raise ValueError(f"{field}: got {configs.shown(twice)} twice; once is needed")
        for name in self.games:
            if name not in reproduce_shaper.GAMES:
                raise ValueError(f"games: got {name!r}; {configs.one_of(name, reproduce_shaper.GAMES)}")
        if not self.games:
            raise ValueError(f"games: got none; some of {', '.join(reproduce_shaper.GAMES)} are needed")
        configs.check_seed(self.seed, 31, seeds=self.seeds)

    def parts(self) -> dict[str, SampledShapingConfig]:
        """The trainings, by name."""
        sizes: dict[str, Any] = {"seeds": self.seeds, "seed": self.seed, "fast": self.fast}
        return reproduce_shaper.make_configs(games=self.games, shapers=self.shapers, opponents=self.opponents, **sizes)


@dataclasses.dataclass(frozen=True)
class _SeveralTrainings(configs.CommandConfig):
    """Trainings of which each is done several times, so that errors are between them."""

    seeds: int = 10
    """Independent trainings of each kind, all in one program."""
    seed: int = 0
    """The first of them."""
    fast: bool = False
    """A smoke run: tiny, and fewer kinds."""

    def __post_init__(self) -> None:
        configs.check_least(self, seeds=2)
        configs.check_seed(self.seed, 31, seeds=self.seeds)


@dataclasses.dataclass(frozen=True)
class _Learners(_SeveralTrainings):
    """Trainings in which nothing is evolved."""

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing."""
        return {"cluster": NO_EVOLUTION}


@dataclasses.dataclass(frozen=True)
class GeneralistsConfig(_SeveralTrainings):
    """Shapers of one learner and of many in the prisoner's dilemma, against learners seen in training and others."""


@dataclasses.dataclass(frozen=True)
class CoinGameConfig(_Learners):
    """The coin game: learners trained with their kind, then all against all, and against two that learn nothing."""

    seeds: int = 4
    """Independent trainings of each learner, all in one program."""
    updates: int = 4000
    """Updates of each training, one after each episode of all environments."""
    num_envs: int = 128
    """Environments in which a learner plays at once."""
    paper: bool = False
    """The size of LOQA's public code, ten trainings of 6,000 updates from 8,192 episodes of 50 steps: for a GPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        configs.check_least(self, updates=1, num_envs=2)
        configs.check(self, "an even number", lambda x: x % 2 == 0, "num_envs")  # of which there are two minibatches

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of a training."""
        if self.fast:
            return {"updates": 4, "num_envs": 4, "seeds": 2, "episode_length": 16}
        if self.paper:
            return {"updates": 6000, "num_envs": 8192, "seeds": 10, "episode_length": 50}
        return {"updates": self.updates, "num_envs": self.num_envs, "seeds": self.seeds, "episode_length": 16}

    def parts(self) -> dict[str, reproduce_coin_game.SelfPlay]:
        """The trainings, by name."""
        return reproduce_coin_game.make_configs(fast=self.fast, seed=self.seed, **self.sizes)

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are."""
        size = "fast" if self.fast else "paper" if self.paper else ""
        idle = ("seeds", "updates", "num_envs", *(("paper",) if self.fast else ()))
        found = dict.fromkeys(idle, f"with --{size}, which has its own") if size else {}
        return found | super().without_effect


@dataclasses.dataclass(frozen=True)
class DiscoveryClaimsConfig(configs.CommandConfig):
    """Drifts and distances of values, evolved in two games at once, and a drift for two players."""

    searches: int = 3
    """Independent searches of each kind, all in one program."""
    seed: int = 0
    """The first of them."""
    fast: bool = False
    """A smoke run: tiny, and one kind."""

    def __post_init__(self) -> None:
        configs.check_least(self, searches=1)
        configs.check_seed(self.seed, 31, seeds=self.searches)


@dataclasses.dataclass(frozen=True)
class DistillationConfig(_Learners):
    """The evolved objectives of the package, networks of one unit and formulas in their place, in six games."""

    seeds: int = 128
    """Fresh trainings of each objective in each game."""


@dataclasses.dataclass(frozen=True)
class Rlx2Config(_Learners):
    """TD3 and SAC with few weights, on three small tasks: from the first step on, and in the ways of several papers."""

    seeds: int = 16
    """Independent trainings of each row, all in one program."""


@dataclasses.dataclass(frozen=True)
class SparseConfig(_SeveralTrainings):
    """Shapers of learners with all and with a fifth of their weights."""

    seeds: int = 3
    """Independent trainings of each shaper, all in one program."""


@dataclasses.dataclass(frozen=True)
class SocialConfig(_Learners):
    """Sequential social dilemmas: collective returns of learners that share one network between all players."""

    games: tuple[str, ...] = reproduce_social.GAMES
    """Games of several players, with parameters in brackets."""
    total_steps: int = 200_000
    """Environment steps of each training."""
    seeds: int = 3
    """Independent trainings of each learner in each game, all in one program."""

    def parts(self) -> dict[str, dict[str, TrainConfig]]:
        """The trainings of each game, by learner."""
        if not self.games or len({reproduce_social.folder_of(game, "") for game in self.games}) < len(self.games):
            raise ValueError(f"games: got {configs.shown(list(self.games))}; some different games are needed")
        sizes = {"seeds": self.seeds, "seed": self.seed, "total_steps": self.total_steps}
        return reproduce_social.make_configs(games=self.games, fast=self.fast, **sizes)


@dataclasses.dataclass(frozen=True)
class InContextConfig(_Learners):
    """Learners with a memory in a pool of drawn policies and other learners, and in pools of one of these."""

    game: Literal["ipd", "coin_game"] = "ipd"
    """The prisoner's dilemma with memory-one policies, or the coin game with policies that leave coins or take them."""
    rounds: int = 50
    """Rounds of an episode."""
    updates: int = 40
    """Updates of each training of ppi; a2c takes five times as many."""
    sharpness: float = 3.0
    """Exponent that moves the probabilities of the drawn policies towards 0 and 1; with 1 they are uniform."""

    def __post_init__(self) -> None:
        super().__post_init__()
        configs.check_least(self, rounds=2, updates=1)
        configs.check(self, "a number above 0", lambda x: 0 < x < float("inf"), "sharpness")

    def parts(self) -> dict[str, reproduce_in_context.Training]:
        """The trainings, by name."""
        sizes: dict[str, Any] = {"seeds": self.seeds, "seed": self.seed, "rounds": self.rounds, "fast": self.fast}
        return reproduce_in_context.make_configs(
            game=self.game, updates=self.updates, sharpness=self.sharpness, **sizes
        )

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, as the others are."""
        idle = dict.fromkeys(("rounds", "updates"), "with --fast, which has its own") if self.fast else {}
        return idle | super().without_effect


OfSamples = (
    ShaperConfig
    | CoinGameConfig
    | DiscoveryClaimsConfig
    | DistillationConfig
    | Rlx2Config
    | SparseConfig
    | SocialConfig
    | InContextConfig
)
Config = MfosConfig | ZdConfig | GeneralistsConfig | OfSamples


def checked(config: Config) -> Config:
    """The config, of which what it names is known to fit.

    Raises:
      ValueError: for an agent of which extortion is not defined, or one that there is not; for a shaper or an opponent
        that there is not, or that cannot play the game; for more environments than the memory holds.
    """
    if isinstance(config, ShaperConfig) and (config.shapers or config.opponents):
        for part in config.parts().values():
            SampledShaping(part)
    if isinstance(config, CoinGameConfig):
        reproduce_coin_game.check(config.parts())
    if isinstance(config, SocialConfig):
        for row in config.parts().values():
            for training in row.values():
                make_experiment(training)
    if isinstance(config, ZdConfig) and config.agent:
        agent = load_shaper(config.agent).config
        assert agent is not None
        reproduce_zd.check(agent)
    return config
