"""Advantage alignment: policy gradients that raise the probability of what is good for both."""

from __future__ import annotations

from typing import Any, Literal, get_args

import optax

from games import Game
from games.core import checks
from games.core.arguments import factory
from games.core.game import Scalar
from marl.blocks.advantages import generalized_advantages, group_relative
from marl.blocks.objectives import Aligned, Objective, clipped_surrogate, policy_gradient
from marl.core.learner import Learner
from marl.learners.sampled.ppo import ONE_STEP, OneStepDetails, one_step, ppo, refuse_own

Baseline = Literal["value", "group"]


@factory
def advantage_alignment(
    game: Game,
    seat: int = 0,
    *,
    alignment: Scalar = 3.0,
    baseline: Baseline = "value",
    learning_rate: Scalar | optax.Schedule = 1e-3,
    discount: Scalar = 0.96,
    gae_lambda: Scalar = 0.0,
    entropy_coefficient: Scalar = 0.05,
    details: OneStepDetails = {},
    **settings: Any,
) -> Learner:
    """The policy gradient, and with it what one's own return gains through the answers of the co-player.

        loss = - mean A*_t log pi(a_t | s_t) + value_coefficient L_V - entropy_coefficient H,
        A*_t = A_t + alignment (sum_{k < t} discount^(t - k) A_k) B_t

    with the generalised advantages A of one's own rewards and B of the co-player's, and k of the same episode. Let the
    co-player choose b with a probability that grows as exp(alignment Q(s, b)), Q being its action value. The second
    term is the gradient of one's own return through Q: at k what the co-player did was worth A_k to oneself, and how
    its Q depends on what one does later is the policy gradient of its return, with the advantages B_t.

    It is `a2c` with these advantages. The co-player's rewards are in the trajectory; a second network of the same kind
    learns their value from one's own observations, which are taken to show the whole state. Of several
    co-players the rewards are added up, and with them the advantages. With `normalize_advantages`, the default, A and B
    have mean 0 and deviation 1 in a batch before they are multiplied, and A* has so in the loss; otherwise the right
    `alignment` depends on the scale of rewards.

    With the baseline "group" there is no critic: A and B are the returns to go less the mean of those of the other
    environments at the same step, which suits games whose environments begin and end their episodes together. Then
    `gae_lambda` and `value_coefficient` have no effect.

    With a `gae_lambda` above 0, A_k is made of rewards that a_t had a part in: with 0.95 two such learners mostly
    defect in the prisoner's dilemma where with 0, as in LOQA, they cooperate (docs/notes/learners.md).

    Args:
      game: of two players or more.
      seat: its number among the game's agents.
      alignment: how sharply co-players are taken to answer, the paper's beta; 0 is `a2c` but for the second critic,
        with which it shares `value_coefficient` (the loss is the mean over both) and `max_gradient_norm`. A further
        factor of `discount` in front of the sum, as some write it, is part of it.
      baseline: "value", which critics learn, or "group", of two environments at least.
      learning_rate: a number, or a schedule of optax over the updates.
      discount: of rewards.
      gae_lambda: 0 trusts the values, 1 the returns.
      entropy_coefficient: weight of the policy's entropy.
      details: as of `ppo`, but without `value_clip`.
      **settings: of `ppo`, but for those in `ONE_STEP`.

    Raises:
      ValueError: for a game of one player, another baseline, and as `ppo`.

    Source: Duque et al., Advantage Alignment Algorithms (2024), arXiv:2406.14662; step size and discount, and that
    advantages are normalised first: its public code, where the value of the co-player's rewards is its own, lambda is
    0.95, and the weight is 0.05 to 1, the latter with a mean in place of the discounted sum. The baseline of a group:
    Piche et al. (2025), arXiv:2511.19405.
    """
    refuse_own(settings, *ONE_STEP)
    own = {"learning_rate": learning_rate, "gae_lambda": gae_lambda, "entropy_coefficient": entropy_coefficient}
    objective, settings = _aligned(alignment, policy_gradient, baseline, settings)
    made = one_step(game, seat, objective, details, discount=discount, **own, **settings)
    return made._replace(compares_rows=baseline == "group")


@factory
def proximal_advantage_alignment(
    game: Game,
    seat: int = 0,
    *,
    alignment: Scalar = 3.0,
    baseline: Baseline = "value",
    clip: Scalar = 0.1,
    learning_rate: Scalar | optax.Schedule = 1e-3,
    epochs: int = 2,
    discount: Scalar = 0.96,
    gae_lambda: Scalar = 0.0,
    entropy_coefficient: Scalar = 0.05,
    **settings: Any,
) -> Learner:
    """`ppo` with the advantages of `advantage_alignment`: several steps up a clipped surrogate of the same batch.

        loss = - mean min(rho_t A*_t, clip(rho_t, 1 - clip, 1 + clip) A*_t)
               + value_coefficient L_V - entropy_coefficient H

    with rho_t the ratio of new and old probability, and A* normalised in each minibatch.

    Args:
      game: of two players or more.
      seat: its number among the game's agents.
      alignment: as of `advantage_alignment`.
      baseline: as of `advantage_alignment`.
      clip: how far the ratio counts.
      learning_rate: a number, or a schedule of optax over the steps of the optimiser.
      epochs: over the same batch.
      discount: of rewards.
      gae_lambda: as of `advantage_alignment`.
      entropy_coefficient: weight of the policy's entropy.
      **settings: of `ppo`, but for `objective`.

    Raises:
      ValueError: for a game of one player, and as `ppo`.

    Source: the proximal form of the same paper; clip and epochs are those of its code's Commons Harvest.
    """
    refuse_own(settings, "objective")
    own = {"learning_rate": learning_rate, "gae_lambda": gae_lambda, "entropy_coefficient": entropy_coefficient}
    objective, settings = _aligned(alignment, clipped_surrogate(clip=clip), baseline, settings)
    made = ppo(game, seat, objective=objective, epochs=epochs, discount=discount, **own, **settings)
    return made._replace(compares_rows=baseline == "group")


def _aligned(
    alignment: Scalar, objective: Objective, baseline: Baseline, settings: dict[str, Any]
) -> tuple[Aligned, dict[str, Any]]:
    """The objective, and the settings of `ppo` with it."""
    checks.choice("baseline", baseline, get_args(Baseline))
    if baseline == "value":
        return Aligned(alignment, objective, generalized_advantages), settings
    return Aligned(alignment, objective, group_relative), settings | {"value_coefficient": 0.0}
