"""Self-play against what one was."""

from __future__ import annotations

from typing import Any

import numpy as np

from games.core import checks

RATE = 0.01  # by which the quality of one that was beaten falls, eta
MOST = 64  # that are kept


class PastSelves:
    """Opponents for self-play: mostly the latest policy, and for a share of the rollouts one of the past.

    A past self is drawn with a probability in proportion to exp(quality). It begins with the highest quality of all,
    and each time that it is beaten its quality falls by RATE / (number of past selves * its probability): whoever is
    still hard to beat is met more often.

    Args:
      share: of the rollouts that are played against the past.
      every: so many updates a policy is kept.
      seed: of what is drawn, with the rollout's number.

    Raises:
      ValueError: for a share outside [0, 1].

    Source: OpenAI et al., Dota 2 with Large Scale Deep Reinforcement Learning (2019), arXiv:1912.06680, appendix N.
    """

    def __init__(self, share: float = 0.2, every: int = 10, seed: int = 0):
        checks.number("past_selves", share, 0, 1)
        checks.size("every", every, 1)
        self.share, self._every, self._seed = share, every, seed
        self._policies: dict[int, Any] = {}  # by the version
        self.quality: dict[int, float] = {}
        self._met: dict[int, int] = {}  # rollout -> version

    def keep(self, version: int, policy: Any) -> None:
        """There is a new policy, which may be one to be met later."""
        if version % self._every == 0:
            self.quality[version] = max(self.quality.values(), default=0.0)
            self._policies[version] = policy
            if len(self._policies) > MOST:
                worst = min(self.quality, key=lambda version: self.quality[version])
                del self._policies[worst], self.quality[worst]

    def opponent(self, number: int) -> Any | None:
        """Who is met in a rollout; None for the latest."""
        rng = np.random.default_rng([self._seed, number])
        if not self._policies or rng.random() >= self.share:
            return None
        versions = list(self._policies)
        self._met[number] = versions[rng.choice(len(versions), p=self._probabilities())]
        return self._policies[self._met[number]]

    def heard(self, number: int, won: bool) -> None:
        """How a rollout ended for the latest policy."""
        version = self._met.pop(number, None)
        if won and version in self.quality:
            probability = self._probabilities()[list(self._policies).index(version)]
            self.quality[version] -= RATE / (len(self._policies) * probability)

    def _probabilities(self) -> np.ndarray:
        quality = np.array([self.quality[version] for version in self._policies])
        weights = np.exp(quality - quality.max())
        return weights / weights.sum()
