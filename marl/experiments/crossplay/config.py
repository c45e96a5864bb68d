"""The config of `python -m marl.crossplay`."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import configs
from marl.experiments.crossplay.participants import ALL, ALL_SAMPLED, split_agents
from marl.experiments.game_config import EXACT_FIELDS, AnyGameConfig
from marl.experiments.shaping.initialisation import make_start
from marl.experiments.shaping.sampled_pairs import Lengths
from meta import Evolution
from meta.runs.provenance import differences


@dataclasses.dataclass(frozen=True)
class CrossplayConfig(AnyGameConfig):
    """A table of all pairs of agents in a game of two players.

    An exact game has game, row_payoffs, column_payoffs, discount, evaluation_trials and hidden_units; a sampled one
    has environment, last_meta_steps, episode_length and num_envs.
    """

    agents: str = "naive,lola,mfos"
    """Agents, with commas between them; all for 24 learners, strategies and shapers of exact games, or 15
    learners and strategies of sampled ones."""
    evaluation_trials: int = 4096
    """Pairs of initial draws for each ordered pair of agents, at least 2."""
    sampled_evaluation_trials: int = 64
    """The same in a sampled game, where each pair is a training of both from scratch, and where one of the two learns
    from sampled episodes, which takes fifty times as long and more."""
    meta_steps: int = 100
    """Learning steps of both agents that are scored; in an exact game one more comes first."""
    last_meta_steps: int = 0
    """How many of them count, the last ones: what learning comes to; 0 for all, what it is worth on the way."""
    episode_length: int = 100
    """Steps of the game in an episode."""
    num_envs: int = 2
    """Environments in which an agent learns at once."""
    seed: int = 0
    """What is drawn in training and in play depends on it alone."""
    hidden_units: int = 32
    """Width of the networks of the shapers that are trained."""
    trials: int = 8
    """Trials per candidate and generation of their evolution."""
    start: str = "auto"
    """Where their evolution begins, as of python -m marl.mfos: auto, random or screened."""
    evolution: Evolution = field(default_factory=Evolution)

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = dict.fromkeys(("meta_steps", "episode_length", "num_envs", "trials", "hidden_units"), 1)
        configs.check_least(self, evaluation_trials=2, sampled_evaluation_trials=2, last_meta_steps=0, **lengths)
        if self.last_meta_steps > self.meta_steps:
            got = f"last_meta_steps: got {configs.shown(self.last_meta_steps)}"
            raise ValueError(f"{got}; at most meta_steps, {self.meta_steps}, are needed")
        configs.check_product(self, "num_envs", "episode_length")
        configs.check_seed(self.seed)
        if self.start != "auto":  # it may not be needed yet, but the table keeps it
            make_start(self.start, sampled=bool(self.environment))
        split_agents(self.agents)

    def of_other_kind(self) -> tuple[str, ...]:
        of_formula = (*EXACT_FIELDS, "evaluation_trials", "hidden_units")
        return of_formula if self.environment else ("last_meta_steps", "episode_length", "num_envs")

    def check_adds_to(self, before: CrossplayConfig) -> None:
        """Raises ValueError if a table of this config would lose rows of one before, or mix them with others."""
        kinds = ALL_SAMPLED if self.environment else ALL
        there = split_agents(before.agents, kinds)
        if missing := [name for name in there if name not in split_agents(self.agents, kinds)]:
            has = f"the table there has {', '.join(there)}"
            raise ValueError(f"agents: got {self.agents!r}, without {', '.join(missing)}; {has}, and keeps all of them")
        for name, (was, value) in differences(configs.plain(before), configs.plain(self)).items():
            rises = name in self.may_rise
            if name != "agents" and not (rises and value > was):
                needed = f"{'at least ' if rises else ''}{was!r}, as in the table that is there,"
                raise ValueError(f"{name}: got {value!r}; {needed} is needed, or another directory")

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The fields of the numbers of pairs; nothing else depends on them."""
        return {
            name: [] for name in ("evaluation_trials", "sampled_evaluation_trials") if name not in self.of_other_kind()
        }

    @property
    def lengths(self) -> Lengths:
        """Lengths of a trial in a sampled game."""
        return Lengths(self.meta_steps, self.episode_length, self.num_envs)
