"""The battle of the sexes with sampled types: a Bayesian game, repeated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks, random_bits
from games.core.game import Actions, Game, Observations, Scalar, Step
from games.core.spaces import Box, Discrete
from games.toolbox.drawing import LINE, PLAYERS, Canvas


@struct.dataclass
class BattleState:
    """Types and the last round."""

    loves: jax.Array  # `[2]`, bool: whether the player wants to meet the other
    places: jax.Array  # `[2]`, where each went last; without meaning before the first round
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class BayesianBattleOfTheSexes(Game):
    """Two choose between a concert of Bach and one of Stravinsky, without seeing whether the other wants to meet.

    agent_0 likes Bach better, agent_1 Stravinsky. A player of the type that loves the other wants to be where the
    other is, one of the type that hates it wants to be where the other is not. A player whose wish comes true is
    paid `favourite` at the concert it likes better and `other` at the other one; any other player is paid nothing. The
    types are drawn at the reset, each is known to its player only, and stay for the episode, in which they may come to
    light.

    Actions: 0 is Bach, 1 is Stravinsky. The observation, `[7]`, is one's own type in one-hot form (loves, hates), and
    the last joint action, own first, in one-hot form (none yet, BB, BS, SB, SS). The tastes distinguish the seats: a
    swap of the seats along with the names of the concerts changes nothing else.

    Infos: `loves`, whether the agent wants to meet; `met`, whether both went to one place; `content`, whether the
    agent had its wish.

    Attributes:
      love_probability: that a player loves the other, or one for each player, `[2]`. Osborne's example has 2/3 for
        the first player and 1/2 for the second.
      favourite: the payoff for having one's wish at the concert one likes better.
      other: the payoff for having it at the other.
      episode_length: rounds until the time limit.

    Source: Osborne, An Introduction to Game Theory (2004), section 9.1.1, examples 273.1 and 276.2.
    """

    love_probability: Scalar = 0.5
    favourite: Scalar = 2.0
    other: Scalar = 1.0
    episode_length: Scalar = 16

    def __post_init__(self) -> None:
        if checks.known(self.love_probability) and np.shape(self.love_probability)[-1:] not in ((), (2,)):
            raise ValueError(f"love_probability: got {self.love_probability!r}; one for each of 2 players is needed")
        object.__setattr__(self, "love_probability", checks.table("love_probability", self.love_probability, 0, 1))
        checks.number("favourite", self.favourite)
        checks.number("other", self.other)
        checks.whole("episode_length", self.episode_length, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, BattleState]:
        loves = random_bits.uniform(random_bits.array(key, 2)) < self.love_probability
        state = BattleState(loves, jnp.zeros(2, jnp.int32), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: BattleState, actions: Actions) -> Step[BattleState]:
        places = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        met = places[0] == places[1]
        content = state.loves == met
        rewards = jnp.where(places == jnp.arange(2), self.favourite, self.other) * content.astype(jnp.float32)
        state = BattleState(state.loves, places, state.time + 1)
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos |= {
            "loves": state.loves.astype(jnp.float32),
            "met": jnp.broadcast_to(met.astype(jnp.float32), (2,)),
            "content": content.astype(jnp.float32),
        }
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def get_obs(self, state: BattleState) -> Observations:
        joint = jnp.where(state.time > 0, 1 + 2 * state.places + state.places[::-1], 0)
        types = jnp.stack([state.loves, ~state.loves], -1)
        views = jnp.concatenate([types, joint[:, None] == jnp.arange(5)], -1)
        return self._by_agent(views.astype(jnp.float32))

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (7,))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2)

    def render(self, state: Any) -> np.ndarray:
        canvas = Canvas(4, 6, cell=40, grid=False)
        canvas.text(0, 2.5, f"Battle of the sexes, round {int(state.time)}", size=0.4)
        for place, name in enumerate(("Bach", "Stravinsky")):
            canvas.square(2, 1 + 3 * place, LINE, 2.8, height=2.8)
            canvas.text(1, 1 + 3 * place, name, PLAYERS[place], 0.45)
        for i, (loves, place) in enumerate(zip(np.asarray(state.loves), np.asarray(state.places), strict=True)):
            column = (0.4 + 3 * place if state.time else 1.9) + 1.2 * i  # in the middle before the first round
            canvas.disc(2, column, PLAYERS[i], 0.8, outline=True)
            canvas.text(2.8, column, "loves" if loves else "hates", size=0.35)
        return canvas.image()
