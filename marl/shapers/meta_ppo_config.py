"""The settings of a shaper's training by proximal policy optimisation, in each kind of game."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Literal

import configs
from configs import LARGEST, MOST


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetaPPO(configs.Part):
    """Settings that both kinds of game have; each kind has its own defaults of some of them."""

    iterations: int = 1024
    """How often to play a batch and learn from it."""
    batch_size: int
    """Trials in a batch, each with opponents of its own."""
    learning_rate: float
    """Step size of Adam."""
    discount: float
    epochs: int
    """Over each batch."""
    clip: float = 0.2
    """How far from 1 a ratio of probabilities counts."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the critic's squared error."""
    advantages: Literal["critic", "coala"] = "critic"
    checkpoint_seconds: float = 15.0
    """Save a checkpoint when the last one is this old; 0 saves after every call to the device."""

    def __post_init__(self) -> None:
        self._check(f"a whole number from 1 to {MOST}", lambda x: 1 <= x <= MOST, "iterations", "epochs", "batch_size")
        self._check("a number above 0", lambda x: 0 < x <= LARGEST, "learning_rate", "clip")
        weights = "entropy_coefficient", "value_coefficient", "checkpoint_seconds"
        self._check("a number of at least 0", lambda x: 0 <= x <= LARGEST, *weights)
        self._check("a number from 0 to 1", lambda x: 0 <= x <= 1, "discount")
        if self.batch_size == 1 and self._compares_trials:
            raise ValueError(f"meta_ppo.batch_size: got 1; a whole number from 2 to {MOST} is needed")

    @property
    def _check(self) -> partial[None]:
        return partial(configs.check, self, prefix="meta_ppo.")

    @property
    def _compares_trials(self) -> bool:
        """True if a return counts by its distance from those of other trials in the batch."""
        return self.advantages == "coala"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactMetaPPO(MetaPPO):
    """PPO in exact games; the defaults are the settings of Lu et al. (2022) in its matrix games."""

    batch_size: int = 4096
    hidden_units: int = 256
    """Width of the actor and of the critic."""
    learning_rate: float = 0.002
    """Step size of Adam; 0.0002 in the paper's self-play."""
    discount: float = 0.99
    """Of rewards, from meta-step to meta-step."""
    epochs: int = 4
    advantages: Literal["critic", "coala"] = "critic"
    """critic, which is normalised discounted returns less the critic's value, as in M-FOS; or coala, which is
    undiscounted returns, normalised at each meta-step over the batch, as COALA-PG comes out in this game."""
    evaluation: Literal["sample", "mean"] = "sample"
    """Policy of the evaluation: samples of the Gaussian, as in all figures of the paper, or its mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(f"a whole number from 1 to {MOST}", lambda x: 1 <= x <= MOST, "hidden_units")

    @property
    def _compares_trials(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledMetaPPO(MetaPPO):
    """PPO in sampled games.

    The default learning rate, discount and epochs are those of the coin game of Lu et al. (2022), the others are usual
    ones; all of that game's are in the preset `coin_game_mfos_paper`.
    """

    batch_size: int = 512
    minibatches: int = 1
    """Parts of the batch, of whole trials, for a gradient step each."""
    learning_rate: float = 0.0002
    discount: float = 0.995
    """Of rewards, from step to step and across the ends of episodes."""
    gae_lambda: float = 0.95
    """0 trusts the value, 1 the return."""
    epochs: int = 16
    value_coefficient: float = 0.5
    """Weight of half the critic's squared error."""
    max_gradient_norm: float = 0.5
    """Longer gradients are cut to it."""
    later_episodes: Literal["environment", "mean"] = "environment"
    """The return of later episodes that an action is credited with: that of its own environment, or the mean over the
    environments, in all of which the same opponents learned, as in M-FOS's public code."""
    advantages: Literal["critic", "coala"] = "critic"
    """critic, generalised advantages of an environment's own rewards to come; or coala, COALA-PG, which credits an
    action with later rewards of all environments, because the others learn from all of them; undiscounted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(f"a whole number from 1 to {MOST}", lambda x: 1 <= x <= MOST, "minibatches")
        self._check("a number above 0", lambda x: 0 < x <= LARGEST, "max_gradient_norm")
        self._check("a number from 0 to 1", lambda x: 0 <= x <= 1, "gae_lambda")
        if self.batch_size % self.minibatches:
            raise ValueError(
                f"meta_ppo.minibatches: got {self.minibatches}; a divisor of the {self.batch_size} trials is needed"
            )
