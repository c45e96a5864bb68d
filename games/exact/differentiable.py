"""Games whose actions are real parameters and whose payoffs are differentiable: test beds of gradient learners."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from games.core import checks
from games.core.game import Actions, Game, Observations, Step
from games.core.spaces import Box

Payoffs = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def tandem(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Payoffs of a tandem bicycle: V1 = 2x - (x + y)^2, V2 = 2y - (x + y)^2. Each point of x + y = 1 is a fixed point.

    All of them are stable. `Differentiable(tandem)` is the game.

    Args:
      x: the first player's parameters.
      y: the second player's parameters.

    Returns:
      (V1, V2), `[]` each.

    Source: Letcher et al., Stable Opponent Shaping in Differentiable Games (2019), arXiv:1811.08469, section 2.3.
    """
    together = (x + y).sum() ** 2
    return 2 * x.sum() - together, 2 * y.sum() - together


def hamiltonian(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """V1 = -x y, V2 = x y: gradients alone turn round the fixed point (0, 0) and away from it.

    Source: Balduzzi et al., The Mechanics of n-Player Differentiable Games (2018), arXiv:1802.05642.
    """
    return -(x * y).sum(), (x * y).sum()


def balduzzi(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """V1 = -x^2 / 2 - 10 x y, V2 = -y^2 / 2 + 10 x y: a weak pull to (0, 0) and a strong rotation.

    Source: Balduzzi et al. (2018), arXiv:1802.05642; a game of Willi et al., COLA (2022), arXiv:2203.04098.
    """
    return -(x**2).sum() / 2 - 10 * (x * y).sum(), -(y**2).sum() / 2 + 10 * (x * y).sum()


def ultimatum(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One splits ten, the other may refuse; x and y are logits of a fair split (5, 5) and of accepting (8, 2).

        V1 = 5 p + 8 (1 - p) q,        V2 = 5 p + 2 (1 - p) q,        p = sigmoid(x), q = sigmoid(y)

    Source: Hutter, Learning in Two-Player Games between Transparent Opponents (2021), arXiv:2012.02671.
    """
    p, q = jax.nn.sigmoid(x.sum()), jax.nn.sigmoid(y.sum())
    return 5 * p + 8 * (1 - p) * q, 5 * p + 2 * (1 - p) * q


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Differentiable(Game):
    """Two players choose a vector of reals each; a step of the game pays the payoffs, and it never ends.

    The observation is both last choices, one's own first.

    Attributes:
      payoffs: `(x, y) -> (V1, V2)`, of the first and of the second player's parameters.
      num_parameters: length of each player's vector.
      init_scale: standard deviation of the normal choices before the first.

    Raises:
      ValueError: for payoffs that are no function, or numbers that are none or out of range.
    """

    payoffs: Payoffs
    num_parameters: int = 1
    init_scale: float = 1.0

    def __post_init__(self) -> None:
        if not callable(self.payoffs):
            raise ValueError(f"payoffs: got {self.payoffs!r}; a function (x, y) -> (V1, V2) is needed")
        checks.size("num_parameters", self.num_parameters, 1)
        checks.number("init_scale", self.init_scale, 0)

    @property
    def num_logits(self) -> int:
        """Length of each player's vector, under the name that learners use."""
        return self.num_parameters

    def values(self, seat: int, own: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(own, other's) payoffs in the view of `seat` (0 or 1): what white-box learners differentiate."""
        return self.payoffs(own, other) if seat == 0 else self.payoffs(other, own)[::-1]

    def reset(self, key: jax.Array) -> tuple[Observations, jax.Array]:
        state = self.init_scale * jax.random.normal(key, (2, self.num_parameters))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: jax.Array, actions: Actions) -> Step[jax.Array]:
        del key, state
        chosen = actions[self.agents[0]], actions[self.agents[1]]
        rewards = dict(zip(self.agents, self.payoffs(*chosen), strict=True))
        never = jnp.zeros((), bool)
        state = jnp.stack(chosen)
        return self.get_obs(state), state, rewards, *self._ending(never, never)

    def get_obs(self, state: jax.Array) -> Observations:
        return {self.agents[0]: state.reshape(-1), self.agents[1]: state[::-1].reshape(-1)}

    def observation_space(self, agent: str) -> Box:
        return Box(-jnp.inf, jnp.inf, (2 * self.num_parameters,))

    def action_space(self, agent: str) -> Box:
        return Box(-jnp.inf, jnp.inf, (self.num_parameters,))
