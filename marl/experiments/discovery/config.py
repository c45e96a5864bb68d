"""The config of `python -m marl.discover`."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import field
from itertools import pairwise
from typing import Any, Literal

import configs
from games.registry import make_game, names
from marl.experiments.discovery.trial import CONTROLS, Arena, known
from marl.learners.layer_specs import hidden_layers, with_hidden
from marl.learners.registry import SAMPLED
from marl.learners.sampled.objective_registry import Form, Kind
from meta import Evolution

KINDS: tuple[Kind, ...] = ("drift", "value_loss")
# Candidates have trainings of their own, a pair the same: what is found for one seed's luck is of no use to others.
SEARCH: dict[str, Any] = {
    "population_size": 64,
    "chunk_size": 16,
    "sigma": 0.06,
    "learning_rate": 0.03,
    "learning_rate_end": 0.1,
    "shared_trials": "pair",
    "fitness_shaping": "standardize",
}


@dataclasses.dataclass(frozen=True)
class DiscoveryConfig(configs.CommandConfig):
    """An objective, evolved over whole training runs of learners that use it."""

    kind: Kind = "drift"
    """drift: what holds a policy back from the one that gathered the data; value_loss: how far a value is from its
    target."""
    environments: tuple[str, ...] = ("CartPole-v1",)
    """Games by their names, with parameters in brackets. All players of a game have the same objective, and several
    count by what they get together."""
    unseen: tuple[str, ...] = ("Acrobot-v1",)
    """Games that the search does not see, of the evaluation."""
    learner: str = "ppo(learning_rate=0.001)"
    """A ppo with settings in brackets, from which the search begins; of several players each."""
    total_steps: int = 20_480
    """Environment steps of a training."""
    lengths: tuple[int, ...] = (1,)
    """Lengths of the search's trainings, in total_steps, rising from 1: a game with each of them is a task, so that a
    drift that sees the time can learn to scale with the length."""
    num_envs: int = 4
    """Environments that a learner plays at once."""
    steps_per_update: int = 128
    """Steps of each environment between two updates."""
    start: Literal["auto", "ppo", "zero", "l2"] = "auto"
    """What an objective is where nothing has been evolved: a drift is that of ppo, or zero; a value's distance that of
    l2, or zero: a random one that owes nothing to it. auto is ppo or l2."""
    hidden: int = 16
    """tanh units of the objective; 128 in the paper."""
    timed: bool = False
    """Whether a drift depends on how much of the training is over."""
    trials: int = 1
    """Trainings of each candidate in each generation."""
    searches: int = 1
    """Independent searches, all in one program; the errors of a result are between them if there are several."""
    evaluation_trials: int = 256
    """Fresh trainings of the result in each environment, at least 2."""
    longer: int = 4
    """The evaluation also has trainings that are so many times as long; 1 for none."""
    wider: int = 2
    """And learners whose hidden layers are so many times as wide; 1 for none."""
    seed: int = 0
    """Seed of all draws of the run."""
    tuning: Evolution = field(default_factory=lambda: Evolution(generations=30, **SEARCH))
    """Of learning rate, gradient clip, value coefficient, the width of Huber's loss of values and, for a drift, the
    clip of the policy, without any objective; this is where the search begins."""
    evolution: Evolution = field(default_factory=lambda: Evolution(generations=60, **SEARCH))
    """Of the objective with these numbers; and of these alone once more, which is the tuned baseline."""

    def __post_init__(self) -> None:
        configs.check_least(
            self, num_envs=1, steps_per_update=1, hidden=1, trials=1, searches=1, evaluation_trials=2, longer=1
        )
        configs.check_least(self, wider=1)
        configs.check_product(self, "num_envs", "steps_per_update")
        configs.check_seed(self.seed, seeds=self.searches)
        configs.check(self, "a number up to 4,096", lambda x: x <= 4096, "hidden")
        least = self.num_envs * self.steps_per_update
        words = f"at least num_envs times steps_per_update, {least}, and at most {configs.MOST} times,"
        fits = lambda x: 1 <= x // least <= configs.MOST // self.longer  # noqa: E731
        configs.check(self, words, fits, "total_steps")
        most = configs.MOST // self.num_updates
        rising = lambda x: x[:1] == (1,) and all(a < b for a, b in pairwise(x)) and x[-1] <= most  # noqa: E731
        configs.check(self, f"whole numbers that rise from 1 to at most {most:,}", rising, "lengths")
        if not self.environments or len({*self.environments}) < len(self.environments):
            got = configs.shown(self.environments) if self.environments else "none"
            raise ValueError(f"environments: got {got}; at least one game, each once, is needed")
        starts = ("auto", "ppo", "zero") if self.kind == "drift" else ("auto", "l2", "zero")
        if self.start not in starts:
            raise ValueError(f"start: got {self.start!r} of a {self.kind}; {configs.one_of(self.start, starts)}")
        if self.timed and self.kind != "drift":
            raise ValueError("timed: got True of a value_loss; it is for a drift")
        name, given = SAMPLED.read("learner", self.learner)
        if name != "ppo":
            raise ValueError(f"learner: got {configs.shown(name)}; ppo, with settings in brackets, is needed")
        for setting in ("objective", "value_loss", "value_clip"):
            if setting in given:
                raise ValueError(f"learner: {setting}: got {configs.shown(given[setting])}; the search has its own")
        for setting in ("learning_rate", "max_gradient_norm", "value_coefficient", "clip"):
            if not given.get(setting, 1.0):
                raise ValueError(f"learner: {setting}: got {given[setting]}; a number above 0, to be scaled, is needed")

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """The field of the search's length, and the fields that fall over it."""
        return {"evolution.generations": self.evolution.falling}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("evaluation_trials", "unseen", "longer", "wider")

    @property
    def wider_learner(self) -> str:
        """The learner with layers that are so many times as wide."""
        return with_hidden(self.learner, [self.wider * units for units in hidden_layers(self.learner)])

    @property
    def num_updates(self) -> int:
        """Number of updates of a learner."""
        return self.total_steps // (self.num_envs * self.steps_per_update)

    @property
    def steps_of_a_generation(self) -> int:
        """Environment steps of all candidates of all searches."""
        own = self.evolution.population_size * self.trials * self.searches * len(self.environments)
        return own * sum(self.lengths) * self.num_updates * self.num_envs * self.steps_per_update

    @property
    def searched(self) -> int:
        """Trainings of all candidates of all searches, the tuned ones too, in each game."""
        stages = (self.tuning, self.evolution, self.evolution)
        return self.searches * self.trials * sum(one.generations * one.population_size for one in stages)

    @property
    def unseen_length(self) -> int:
        """`longer`, or 0 if the evaluation has no such trainings beside those of the search."""
        return 0 if self.longer in self.lengths else self.longer

    @property
    def num_trainings(self) -> float:
        """Trainings in each game that a run takes in all, by their length; unseen games count as those seen."""
        seeds = self.searches * self.evaluation_trials
        arms = 3 + len(known(self.kind, self.learner))
        wider = self.wider**2 if self.wider > 1 else 0  # of large layers; of small ones it is less
        elsewhere = self.unseen_length + wider + len(self.unseen) / len(self.environments)
        return sum(self.lengths) * (self.searched + seeds * (arms + len(CONTROLS))) + seeds * arms * elsewhere

    @property
    def programs(self) -> float:
        """Programs that are compiled for each game: three stages, and four for each kind of fresh training."""
        elsewhere = (self.unseen_length > 0) + (self.wider > 1) + len(self.unseen) / len(self.environments)
        return 3 + 4 * (len(self.lengths) + elsewhere)

    @property
    def form(self) -> Form:
        """The objective without its parameters."""
        first: Any = "ppo" if self.kind == "drift" else "l2"
        return Form(self.kind, first if self.start == "auto" else self.start, self.hidden, self.timed)

    def in_chunks(self) -> DiscoveryConfig:
        """The config for a cluster."""
        return dataclasses.replace(self, tuning=self.tuning.in_chunks(), evolution=self.evolution.in_chunks())

    def arena(self, spec: str, length: int = 1) -> Arena:
        """A game by its name, and the length of a training in `total_steps`."""
        name = spec if length == 1 else f"{spec}, {length} times as long"
        return Arena(name, make_game(spec), length * self.num_updates, self.steps_per_update, self.num_envs)


def config_of(first: str) -> DiscoveryConfig:
    """The config of `KIND ENVIRONMENT`: a preset, a YAML file, or a game by its name; presets come first."""
    kind, _, rest = first.partition(" ")
    if kind not in KINDS:
        raise configs.ConfigError(f"kind: got {configs.shown(kind)}; {configs.one_of(kind, KINDS)}")
    presets = configs.presets("discover")
    if rest in presets or rest.endswith((".yaml", ".yml")) or os.path.isfile(rest):
        found = configs.load(DiscoveryConfig, "discover", rest)
        return configs.build(DiscoveryConfig, {**configs.plain(found), "kind": kind}, "kind")
    if not rest:
        raise configs.ConfigError(f"environment: none given; a game's name, or one of {', '.join(presets)}, is needed")
    if rest.partition("(")[0] not in names():
        meant = configs.one_of(rest, sorted({*presets, *names()}))
        raise configs.ConfigError(f"environment: got {configs.shown(rest)}; {meant}")
    unseen = [x for x in ("Acrobot-v1", "CartPole-v1") if x != rest][:1] if make_game(rest).num_agents == 1 else []
    return configs.build(DiscoveryConfig, {"kind": kind, "environments": [rest], "unseen": unseen}, "environment")
