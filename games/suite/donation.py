"""The donation game with reputations: help that its receiver cannot return, because partners change."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.random_bits import uniform
from games.core.spaces import Box, Discrete
from games.toolbox import boards
from games.toolbox.drawing import PLAYERS, bars

# The probability that a player is seen as good after it [gave, kept] to one that was [good, bad].
NORMS = {
    "image_scoring": ((1.0, 1.0), (0.0, 0.0)),
    "simple_standing": ((1.0, 1.0), (0.0, 1.0)),
    "stern_judging": ((1.0, 0.0), (0.0, 1.0)),
    "shunning": ((1.0, 0.0), (0.0, 0.0)),
}
MATCH, REMATCH, SLIP, JUDGE = (i << 20 for i in range(1, 5))  # labels of the random words of a step


@struct.dataclass
class DonationState:
    """The pairs, and what is thought of each player."""

    partner: jax.Array  # `[n]`
    good: jax.Array  # `[n]`, whether a player is seen as good
    same: jax.Array  # `[n]`, whether the partner is that of the last round
    gave: jax.Array  # `[n]`, in the last round; without meaning before the first
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Donation(Game):
    """Players in random pairs may pay a `cost` so that the partner gets a `benefit`, and have a reputation.

    In a round both of a pair choose at once whether to give. Keeping dominates, as in the prisoner's dilemma, but all
    are better off if all give. After the round the pairs are drawn again with probability `rematch`: 1 leaves no way to
    return help, so that only a reputation can make it pay (indirect reciprocity), 0 is the repeated game with one
    partner (direct reciprocity).

    A player is seen as good or bad, the same by all. After every round it is judged by the social norm: the probability
    that it is seen as good follows from what it did and from how its partner was seen. `image_scoring` calls all good
    that gave; `simple_standing` also those that kept from a bad one; `stern_judging` those that gave to a good or kept
    from a bad one; `shunning` those alone that gave to a good one. With probability `execution_error` one that wants to
    give fails to; with `assessment_error` the judgement is exchanged. All are good at the reset.

    Actions: 0 is give, 1 is keep. The observation, `[6]`, is whether one is seen as good; whether the partner is;
    whether the partner is that of the last round; what oneself did in the last round (1 gave) and what that partner
    did to one (0 where pairs are new); and whether there was a last round. Seats are alike: permuting the players in
    the state and the actions permutes their observations and rewards.

    Infos: `cooperation`, whether a player wanted to give; `good`, whether it is seen as good after the round;
    `rematched`, whether it has a new partner.

    Attributes:
      num_agents: the number of players; even.
      benefit: of the receiver.
      cost: of the giver.
      rematch: probability of new pairs after a round.
      norm: the name of one of the four, or a table `[2, 2]` of probabilities to be seen as good, `[gave, kept]` by
        `[partner good, partner bad]`.
      execution_error: probability of failing to give.
      assessment_error: probability of a wrong judgement.
      episode_length: rounds until the time limit.

    Source: Nowak and Sigmund, Evolution of indirect reciprocity by image scoring (1998); the norms: Ohtsuki and Iwasa,
    How should we define goodness? (2004), and Santos, Santos and Pacheco, Social norm complexity and past reputations
    in the evolution of cooperation (2018).
    """

    num_agents: int = static(6)
    benefit: Scalar = 5.0
    cost: Scalar = 1.0
    rematch: Scalar = 1.0
    norm: Any = "stern_judging"
    execution_error: Scalar = 0.0
    assessment_error: Scalar = 0.0
    episode_length: Scalar = 50

    def __post_init__(self) -> None:
        checks.size("num_agents", self.num_agents, 2, 64)
        if self.num_agents % 2:
            raise ValueError(f"num_agents: got {self.num_agents}; an even number is needed")
        if isinstance(self.norm, str):
            checks.choice("norm", self.norm, tuple(NORMS))
            object.__setattr__(self, "norm", NORMS[self.norm])
        object.__setattr__(self, "norm", checks.table("norm", self.norm, 0, 1))
        if checks.known(self.norm) and np.shape(self.norm)[-2:] != (2, 2):
            raise ValueError(f"norm: got shape {np.shape(self.norm)}; a table [2, 2] or a name is needed")
        checks.number("benefit", self.benefit)
        checks.number("cost", self.cost)
        for name in ("rematch", "execution_error", "assessment_error"):
            checks.number(name, getattr(self, name), 0, 1)
        checks.whole("episode_length", self.episode_length, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, DonationState]:
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        everyone = jnp.ones(self.num_agents, bool)
        state = DonationState(
            partner=self._pairs(seed),
            good=everyone,
            same=~everyone,
            gave=~everyone,
            time=jnp.zeros((), jnp.int32),
        )
        return self.get_obs(state), state

    def _pairs(self, seed: Any) -> jax.Array:
        """The partner of each player in random pairs, `[n]`."""
        n = self.num_agents
        if n == 2:
            return jnp.array([1, 0], jnp.int32)
        order = jnp.stack(boards.distinct(seed, MATCH, n, n))
        place = (order[None] == jnp.arange(n)[:, None]).argmax(1)
        return order[place ^ 1].astype(jnp.int32)

    def step_env(self, key: jax.Array, state: DonationState, actions: Actions) -> Step[DonationState]:
        n = self.num_agents
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        wants = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents]) == 0
        slips, judge = (uniform(boards.spread(seed, label + jnp.arange(n))) for label in (SLIP, JUDGE))
        gives = wants & (slips >= self.execution_error)
        rewards = self.benefit * gives[state.partner].astype(jnp.float32) - self.cost * gives.astype(jnp.float32)

        partner_good = state.good[state.partner]
        norm = jnp.asarray(self.norm)
        chance = jnp.where(
            gives, jnp.where(partner_good, norm[0, 0], norm[0, 1]), jnp.where(partner_good, norm[1, 0], norm[1, 1])
        )
        chance = chance + self.assessment_error * (1 - 2 * chance)
        good = judge < chance
        again = uniform(boards.spread(seed, jnp.array([REMATCH]))[0]) < self.rematch
        partner = jnp.where(again, self._pairs(seed), state.partner)
        same = partner == state.partner
        state = DonationState(
            partner=partner,
            good=good,
            same=same,
            gave=gives,
            time=state.time + 1,
        )
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = {"cooperation": wants, "good": good, "rematched": ~same}
        infos = ending | {name: count.astype(jnp.float32) for name, count in infos.items()}
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def get_obs(self, state: DonationState) -> Observations:
        begun, n = state.time > 0, self.num_agents
        seen = [
            state.good,
            state.good[state.partner],
            state.same,
            state.gave & begun,
            state.gave[state.partner] & state.same,
            jnp.broadcast_to(begun, (n,)),
        ]
        return self._by_agent(jnp.stack(seen, 1).astype(jnp.float32))

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (6,))

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2)

    def render(self, state: Any) -> np.ndarray:
        entries = []
        for i in range(self.num_agents):
            did = ("gave, " if state.gave[i] else "kept, ") if int(state.time) else ""
            words = f"{did}meets {int(state.partner[i])}"
            name = f"agent {i}: {'good' if state.good[i] else 'bad'}"
            entries.append((name, float(state.good[i]), words, PLAYERS[i % len(PLAYERS)]))
        return bars(f"Donation, round {int(state.time)}", entries)
