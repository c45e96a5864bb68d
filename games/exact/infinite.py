"""The infinitely repeated game played by choosing whole policies: the exact game of the opponent-shaping papers."""

from __future__ import annotations

import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import shown
from games.core import checks
from games.core.game import Actions, Dones, Game, Observations, Step
from games.core.spaces import Box
from games.exact.matrix import MatrixGame, discounted_payoffs, matrix_games


@struct.dataclass
class RepeatedState:
    """The policies played last, as logits `[agents, logits]`."""

    logits: jax.Array


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class InfinitelyRepeated(Game):
    """A matrix game repeated for ever between two memory-one policies, of which one step is the whole repeated game.

    An action is a policy: logits of playing action 0 at the start and after CC, CD, DC, DD (own action first). The
    reward is the exact discounted return times `1 - discount`, the average payoff per round. The observation is both
    players' last policies as probabilities, one's own first. The game never ends. With a discount of 0 it is over
    after one round, and a policy is a single logit.

    Attributes:
      payoffs: the game that is repeated.
      discount: the probability of a further round, in [0, 1); 0.96 in Lu et al. (2022).

    Raises:
      ValueError: if the discount is outside [0, 1), or the payoffs are no `MatrixGame`.

    Example:
      >>> import games, jax.numpy as jnp
      >>> game = games.InfinitelyRepeated(games.prisoners_dilemma, discount=0.96)
      >>> defect = jnp.full(game.num_logits, -50.0)
      >>> round((1 - game.discount) * float(game.value(0, defect, defect)), 3)  # mutual defection, per round
      -2.0

    Source: Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447, section 4.1.
    """

    payoffs: MatrixGame
    discount: float = 0.96

    def __post_init__(self) -> None:
        if not isinstance(self.payoffs, MatrixGame):
            allowed = f"a MatrixGame is needed, such as games.matrix_games[...] of {', '.join(matrix_games)}"
            raise ValueError(f"payoffs: got {shown(self.payoffs)}; {allowed}")
        number = isinstance(self.discount, int | float | np.number) and not isinstance(self.discount, bool)
        if not number or not 0 <= self.discount < 1:
            raise ValueError(f"discount: got {shown(self.discount)}; a number in [0, 1) is needed")

    @property
    def num_logits(self) -> int:
        """Length of a policy: 5, or 1 where the discount is 0."""
        return 5 if self.discount else 1

    def value(self, seat: int, own: jax.Array, other: jax.Array) -> jax.Array:
        """Discounted return of `seat` (0 or 1) for its own logits and the other's; the function that it ascends.

        Not multiplied by `1 - discount`.
        """
        return self.values(seat, own, other)[0]

    def values(self, seat: int, own: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(own, other's) discounted returns in the view of `seat`: what white-box learners differentiate."""
        checks.choice("seat", operator.index(seat), (0, 1))
        if seat == 0:
            return discounted_payoffs(self.payoffs, own, other, self.discount)
        theirs, mine = discounted_payoffs(self.payoffs, other, own, self.discount)
        return mine, theirs

    def reset(self, key: jax.Array) -> tuple[Observations, RepeatedState]:
        """Both last policies are drawn with logits from N(0, 1)."""
        state = RepeatedState(jax.random.normal(key, (2, self.num_logits)))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: RepeatedState, actions: Actions) -> Step[RepeatedState]:
        del key, state  # nothing is drawn, and the returns depend on the new policies alone
        policies = actions[self.agents[0]], actions[self.agents[1]]
        returns = discounted_payoffs(self.payoffs, policies[0], policies[1], self.discount)
        state = RepeatedState(jnp.stack(policies))
        rewards = {agent: (1 - self.discount) * value for agent, value in zip(self.agents, returns, strict=True)}
        never = jnp.zeros((), bool)
        return self.get_obs(state), state, rewards, *self._ending(never, never)

    def auto_reset(
        self,
        key: jax.Array,
        observations: Observations,
        state: RepeatedState,
        dones: Dones,
        reset_state: RepeatedState | None = None,
    ) -> tuple[Observations, RepeatedState]:
        """The game never ends, and so there is nothing to draw for a new one."""
        return observations, state

    def get_obs(self, state: RepeatedState) -> Observations:
        first, second = jax.nn.sigmoid(state.logits[0]), jax.nn.sigmoid(state.logits[1])
        return {self.agents[0]: jnp.concatenate([first, second]), self.agents[1]: jnp.concatenate([second, first])}

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (2 * self.num_logits,))

    def action_space(self, agent: str) -> Box:
        return Box(-jnp.inf, jnp.inf, (self.num_logits,))
