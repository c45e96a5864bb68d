"""Fixed memory-one strategies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import shown
from games.core.arguments import factory
from marl.core.learner import Learner, keep_state
from marl.learners.exact.naive import PolicyState, one_policy

MAX_LOGIT = 20.0  # a certainty: 2e-9 away from 0 or 1, and still a number that a network can read


def logits_of(probabilities: Any) -> np.ndarray:
    """Logits of probabilities, of the same shape, at most `MAX_LOGIT` in size."""
    p = np.asarray(probabilities, float)
    with np.errstate(divide="ignore"):
        return np.clip(np.log(p) - np.log1p(-p), -MAX_LOGIT, MAX_LOGIT).astype(np.float32)


@factory
def memory_one(probabilities: Sequence[float]) -> Learner:
    """A fixed memory-one policy in the infinitely repeated game.

    Args:
      probabilities: of action 0 at the start and after CC, CD, DC, DD, own action first; or the first alone, in a game
        that is played once.

    Raises:
      ValueError: if they are not one or five numbers in [0, 1].
    """
    logits = logits_of(checked_probabilities("memory_one", probabilities, (1, 5)))

    def init(key: jax.Array) -> PolicyState:
        del key
        return PolicyState(jnp.asarray(logits))

    return one_policy(init, keep_state)


def checked_probabilities(name: str, probabilities: Sequence[float], lengths: Sequence[int]) -> np.ndarray:
    """Probabilities as an array; raises ValueError for other numbers, or another length."""
    try:
        p = np.asarray(probabilities, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: got {shown(probabilities)}; five probabilities in [0, 1] are needed") from None
    if p.ndim != 1 or len(p) not in lengths or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"{name}: got {shown(probabilities)}; five probabilities in [0, 1] are needed")
    return p
