"""Random co-players: a game of two learners that also meet new memory-one policies in every episode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from games.core import checks, random_bits
from games.core.arguments import check_game
from games.core.game import Actions, Game, Observations, Scalar, Step
from games.core.spaces import Box, Discrete
from games.suite.rounds import RepeatedGame


@struct.dataclass
class PoolState:
    """The state of a game with random co-players."""

    seen: jax.Array  # `[2]`, what each agent saw last: 0 at the start, then 1 + CC, CD, DC, DD, own action first
    policies: jax.Array  # `[2, 5]`, of the memory-one policy that plays each agent, in that policy's view
    apart: jax.Array  # `[]`, whether the agents play these, and not each other
    time: jax.Array  # `[]`, rounds since the reset


@struct.dataclass(eq=False)
class RandomCoPlayers(Game):
    """A repeated game in which the two agents play each other, or each a memory-one policy of its own.

    Which of the two is drawn for every episode, and so are the policies: probabilities of action 0 at the start and
    after CC, CD, DC, DD, each u^k / (u^k + (1 - u)^k) of a number u that is uniform in [0, 1].

    Observations: as of the bare game, where nothing says which co-player it is. With `identified` six numbers are
    behind, times that factor: 1 and the probabilities of a memory-one policy in its own view, or else zeros.

    Infos: `cooperation` of each agent, and `apart`.

    Attributes:
      game: the bare game of two players with two actions each and a memory of one round.
      share: probability of an episode with memory-one policies, in [0, 1].
      identified: factor of those six numbers; None leaves them out.
      sharpness: the exponent k; with 1 the probabilities are uniform, as in the paper, and for large ones 0 or 1.

    Raises:
      TypeError: for what is no game.
      ValueError: for another kind of game, a share or a factor outside [0, 1], or an exponent that is not above 0.

    Example:
      >>> import games, jax
      >>> game = games.RandomCoPlayers(games.make("ipd"), share=1.0, identified=1.0)
      >>> observations, state = game.reset(jax.random.key(0))
      >>> observations["agent_0"].shape, bool(state.apart)
      ((11,), True)

    Source: the mixed pool of Weis et al., Multi-agent cooperation through in-context co-player inference (2026),
    arXiv:2602.16301, section 2, where policies are identified by log-probabilities.
    """

    game: RepeatedGame
    share: Scalar = 0.5
    identified: Scalar | None = None
    sharpness: Scalar = 1.0

    def __post_init__(self) -> None:
        check_game(self.game)
        bare = self.game
        if not (isinstance(bare, RepeatedGame) and bare.num_actions == (2, 2) and bare.memory == 1):
            raise ValueError(
                f"game: got {bare.name}; a repeated game of two players with two actions and a memory of 1 is needed"
            )
        if bare.discount is not None:
            raise ValueError(f"discount: got {bare.discount}; a game with a fixed number of rounds is needed")
        checks.number("share", self.share, 0, 1)
        checks.number("identified", 1 if self.identified is None else self.identified, 0, 1)
        checks.number("sharpness", self.sharpness, 0, brackets="()")

    def reset(self, key: jax.Array) -> tuple[Observations, PoolState]:
        drawn = random_bits.uniform(random_bits.array(key, 11))
        policies = drawn_probabilities(drawn[:10], self.sharpness).reshape(2, 5)
        state = PoolState(jnp.zeros(2, jnp.int32), policies, drawn[10] < self.share, jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: PoolState, actions: Actions) -> Step[PoolState]:
        own = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        # The policy's own CD is the agent's DC.
        view = jnp.where(state.seen == 2, 3, jnp.where(state.seen == 3, 2, state.seen))
        chance = jnp.where(view[:, None] == jnp.arange(5), state.policies, 0.0).sum(-1)
        drawn = random_bits.uniform(random_bits.array(key, 2))
        others = jnp.where(state.apart, (drawn >= chance).astype(jnp.int32), own[::-1])
        state = PoolState(1 + 2 * own + others, state.policies, state.apart, state.time + 1)
        payoffs = jnp.asarray(self.game.payoffs, jnp.float32)
        mine = jnp.stack([payoffs[..., 0], payoffs[..., 1].T]).reshape(2, 4)  # by own and other action
        rewards = jnp.where(state.seen[:, None] - 1 == jnp.arange(4), mine, 0.0).sum(-1)
        limit: Any = self.time_limit
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= limit)
        infos |= {
            "cooperation": (own == 0).astype(jnp.float32),
            "apart": jnp.broadcast_to(state.apart, (2,)).astype(jnp.float32),
        }
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def get_obs(self, state: PoolState) -> Observations:
        seen = (state.seen[:, None] == jnp.arange(5)).astype(jnp.float32)
        if self.identified is not None:
            known = jnp.concatenate([jnp.ones((2, 1)), state.policies], 1)
            seen = jnp.concatenate([seen, jnp.where(state.apart, self.identified * known, 0.0)], 1)
        return self._by_agent(seen)

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (5 if self.identified is None else 11,))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2)

    @property
    def time_limit(self) -> Scalar | None:
        return self.game.time_limit

    @property
    def name(self) -> str:
        return f"RandomCoPlayers({self.game.name})"


def drawn_probabilities(drawn: jax.Array, sharpness: Scalar) -> jax.Array:
    """u^k / (u^k + (1 - u)^k) of uniform numbers u and a sharpness k."""
    first, second = drawn**sharpness, (1 - drawn) ** sharpness
    both = first + second  # 0 where a large exponent leaves neither
    return jnp.where(both > 0, first / jnp.where(both > 0, both, 1.0), drawn > 0.5)
