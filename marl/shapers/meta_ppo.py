"""The settings of a training by proximal policy optimisation."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Literal

import configs
from configs import LARGEST, MOST

OF_KIND: Any = None  # stands for a default that depends on the kind of game

OF_FORMULA = ("hidden_units", "evaluation")  # what PPO in sampled games does not read
OF_SAMPLED = ("minibatches", "gae_lambda", "max_gradient_norm", "later_episodes")  # and what PPO over formulas does not


@dataclasses.dataclass(frozen=True)
class MetaPPO(configs.Part):
    """Settings of the training of a shaper by reinforcement learning.

    The defaults for games that are formulas are the settings of Lu et al. (2022) in its matrix games. For sampled ones
    the learning rate, the discount and the epochs are those of its coin game, and the rest what is usual; all of that
    game's are in the preset `coin_game_mfos_paper`.
    """

    iterations: int = 1024
    """How often to play a batch and learn from it."""
    batch_size: int = OF_KIND
    """Trials in a batch, each with opponents of its own: 4096 by default, and 512 in sampled games."""
    minibatches: int = 1
    """In sampled games, parts of the batch, of whole trials, for a gradient step each."""
    hidden_units: int = 256
    """Of a formula, width of the actor and of the critic."""
    learning_rate: float = OF_KIND
    """Step size of Adam: 0.002 by default (0.0002 in the paper's self-play), and 0.0002 in sampled games."""
    discount: float = OF_KIND
    """Of rewards: 0.99 by default, from meta-step to meta-step; and 0.995 in sampled games, from step to step and
    across the ends of episodes."""
    gae_lambda: float = 0.95
    """In sampled games, 0 trusts the value, 1 the return."""
    epochs: int = OF_KIND
    """Over each batch: 4 by default, and 16 in sampled games."""
    clip: float = 0.2
    """How far from 1 a ratio of probabilities counts."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the critic's squared error, in sampled games of half of it."""
    max_gradient_norm: float = 0.5
    """In sampled games, longer gradients are cut to it."""
    later_episodes: Literal["environment", "mean"] = "environment"
    """In sampled games, what an action is credited with of the episodes that come after its own: what its environment
    pays, or the mean over the environments, in all of which the same opponents learned, as in M-FOS's public code."""
    advantages: Literal["critic", "coala"] = "critic"
    """Of a formula: critic, which is normalised discounted returns less the critic's value, as in M-FOS; or coala,
    which is undiscounted returns, normalised at each meta-step over the batch, as COALA-PG comes out in this game. In
    sampled games: critic, generalised advantages of an environment's own rewards to come; or coala, COALA-PG, which
    credits an action with what all environments get later, for the others learn from all of them; undiscounted."""
    evaluation: Literal["sample", "mean"] = "sample"
    """Of a formula, what plays in the end: samples of the Gaussian, as in all figures of the paper, or its mean."""
    checkpoint_seconds: float = 15.0
    """Save a checkpoint when the last one is this old; 0 saves after every call to the device."""

    def __post_init__(self) -> None:
        check = partial(configs.check, self, prefix="meta_ppo.")
        sizes = "iterations", "minibatches", "hidden_units", "epochs"
        check(f"a whole number from 1 to {MOST}", lambda x: 1 <= x <= MOST, *sizes)
        check(f"a whole number from 1 to {MOST}", lambda x: 1 <= x <= MOST, "batch_size")
        check("a number above 0", lambda x: 0 < x <= LARGEST, "learning_rate", "clip", "max_gradient_norm")
        weights = "entropy_coefficient", "value_coefficient", "checkpoint_seconds"
        check("a number of at least 0", lambda x: 0 <= x <= LARGEST, *weights)
        check("a number from 0 to 1", lambda x: 0 <= x <= 1, "discount", "gae_lambda")
        if (self.batch_size or 0) % self.minibatches:
            raise ValueError(
                f"meta_ppo.minibatches: got {self.minibatches}; a divisor of the {self.batch_size} trials is needed"
            )

    def of(self, *, sampled: bool) -> MetaPPO:
        """The same, with the defaults of a kind of game where nothing is set."""
        defaults = {"batch_size": 4096, "learning_rate": 0.002, "discount": 0.99, "epochs": 4}
        if sampled:
            defaults = {"batch_size": 512, "learning_rate": 0.0002, "discount": 0.995, "epochs": 16}
        if self.batch_size == 1 and not (sampled and self.advantages == "critic"):  # returns are compared in the batch
            raise ValueError(f"meta_ppo.batch_size: got 1; a whole number from 2 to {MOST} is needed")
        unset = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **unset)  # type: ignore[arg-type]
