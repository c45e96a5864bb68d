"""The ultimatum game, iterated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.random_bits import draw_integer, words
from games.core.spaces import Box, Discrete
from games.toolbox.drawing import PLAYERS, bars


@struct.dataclass
class UltimatumState:
    """The present proposer, and the last round."""

    proposer: jax.Array  # `[]`, of the round to come
    last_proposer: jax.Array  # `[]`; this and the next two without meaning before the first round
    offer: jax.Array  # `[]`, units
    accepted: jax.Array  # `[]`, bool
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Ultimatum(Game):
    """One proposes how to divide a pie; if the other accepts, it is divided so, and if not, both get nothing.

    The game is of simultaneous moves by the strategy method of experiments: while the proposer names its offer, the
    responder names the smallest offer that it would accept. The offer is accepted if it is at least that. As in the
    game of turns, both learn the offer and whether it was accepted, but the threshold stays hidden. A responder that
    looks to one round only accepts any offer above zero; in the repeated game it can teach its proposer to share.

    Actions: units from 0 to `num_units`: what the proposer gives away, or the least that the responder takes. The
    observation, `[7 + num_units]`, is the role to come (proposer, responder), and of the last round one's role
    (proposer, responder), the offer in one-hot form `[num_units + 1]`, and whether it was accepted or refused; of the
    last round all is 0 before the first. The seats are alike: a swap of the roles swaps observations and rewards.

    Infos, alike for both: `offer`, the share of the pie; `accepted`; and `proposer`, whether the agent was that.

    Attributes:
      num_units: into which the pie can be cut.
      roles: `fixed` (agent_0 proposes), `alternating` (from a random start), or `sampled` in every round.
      pie: what the whole is worth.
      episode_length: rounds until the time limit.

    Source: Güth, Schmittberger and Schwarze, An Experimental Analysis of Ultimatum Bargaining (1982); the strategy
    method: Mitzkewitz and Nagel, Experimental Results on Ultimatum Games with Incomplete Information (1993).
    """

    num_units: int = static(10)
    roles: str = static("alternating")
    pie: Scalar = 10.0
    episode_length: Scalar = 20

    def __post_init__(self) -> None:
        checks.size("num_units", self.num_units, 1, 10_000)
        checks.choice("roles", self.roles, ("fixed", "alternating", "sampled"))
        checks.number("pie", self.pie, 0, brackets="(]")
        checks.whole("episode_length", self.episode_length, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, UltimatumState]:
        zero = jnp.zeros((), jnp.int32)
        proposer = zero if self.roles == "fixed" else draw_integer(words(key, 1)[0], 2)[0]
        state = UltimatumState(proposer, zero, zero, jnp.zeros((), bool), zero)
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: UltimatumState, actions: Actions) -> Step[UltimatumState]:
        first, second = (jnp.asarray(actions[agent], jnp.int32) for agent in self.agents)
        offer = jnp.where(state.proposer == 0, first, second)
        accepted = offer >= jnp.where(state.proposer == 0, second, first)
        proposes = jnp.arange(2) == state.proposer
        units = jnp.where(proposes, self.num_units - offer, offer) * accepted.astype(jnp.float32)
        proposer = state.proposer
        if self.roles == "alternating":
            proposer = 1 - proposer
        elif self.roles == "sampled":
            proposer = draw_integer(words(key, 1)[0], 2)[0]
        state = UltimatumState(proposer, state.proposer, offer, accepted, state.time + 1)
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos |= {
            "offer": jnp.broadcast_to(offer / self.num_units, (2,)),
            "accepted": jnp.broadcast_to(accepted.astype(jnp.float32), (2,)),
            "proposer": proposes.astype(jnp.float32),
        }
        return self.get_obs(state), state, self._by_agent(units * (self.pie / self.num_units)), dones, infos

    def get_obs(self, state: UltimatumState) -> Observations:
        begun = state.time > 0
        roles = jnp.arange(2) == state.proposer
        last_roles = (jnp.arange(2) == state.last_proposer) & begun
        offer = (jnp.arange(self.num_units + 1) == state.offer) & begun
        reply = jnp.stack([state.accepted, ~state.accepted]) & begun
        own = [jnp.concatenate([roles[::s], last_roles[::s], offer, reply]) for s in (1, -1)]
        return self._by_agent([view.astype(jnp.float32) for view in own])

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (7 + self.num_units,))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(self.num_units + 1)

    def render(self, state: Any) -> np.ndarray:
        time, n = int(state.time), self.num_units
        title = f"Ultimatum, round {time}: " + ("accepted" if state.accepted else "refused")
        if time == 0:
            title, n = f"Ultimatum: agent {int(state.proposer)} proposes", 0
        entries = []
        for i in range(2):
            proposed = i == int(state.last_proposer)
            units = (n - int(state.offer) if proposed else int(state.offer)) if time else 0
            words = f"{'keeps' if proposed else 'is offered'} {units}" if time else ""
            entries.append((f"agent {i}", units / self.num_units, words, PLAYERS[i] if state.accepted else "#AAAAAA"))
        return bars(title, entries)
