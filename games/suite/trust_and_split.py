"""Trust-and-Split: two that know half of the truth each talk, and then split coins."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.random_bits import draw_integer, words
from games.core.spaces import Box, MultiDiscrete
from games.toolbox.drawing import PLAYERS, bars

HANDS = ("rock", "paper", "scissors")  # each beats the one before it


@struct.dataclass
class TrustAndSplitState:
    """The hands, what was said in this round, and the last round."""

    hands: jax.Array  # `[2]`
    messages: jax.Array  # `[2]`, the last of each in this round; -1 for none
    starter: jax.Array  # `[]`, the player that speaks first in the first round
    last_hands: jax.Array  # `[2]`; this and the next without meaning before the second round
    last_claims: jax.Array  # `[2]`, coins that each wanted
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class TrustAndSplit(Game):
    """Each round deals two different hands of rock, paper and scissors: coins are worth more to the winning one.

    A player sees its own hand alone, and coins are worth `high_value` each to the one with the winning hand and
    `low_value` to the other. They talk, `talks` messages each out of `num_messages` that mean nothing by themselves,
    and then both say at once how many of `num_coins` they keep. If that is more than there is, the coins are split in
    proportion. In one round it pays to claim all; in the long run both get most if the loser names its hand and leaves
    the coins to the winner. Hands and claims of a round are open in the next.

    A round has a step for each message, in which the other waits, and one for the claims; with `speakers="both"` both
    speak in the same step. The first speaker alternates, from a random start. In a step the part of an action that is
    not asked for has no effect. The seats are alike: exchanging the players in the state and the actions exchanges
    their observations and rewards.

    Actions: `[2]`, the message, 0 to `num_messages - 1`, and the coins to keep, 0 to `num_coins`. The observation,
    `[15 + 2 num_messages]`, is the kind of step (one speaks, the other does, both claim; both of the first two where
    both speak); one's own hand in one-hot form; one's own last message of the round, and the other's (0 for none); of
    the last round one's own hand, the other's, and the shares of the coins that each claimed (0 in the first round);
    and whether there was one.

    Infos: `claim`, the share of the coins that one claims; `efficiency`, what both got over the worth of all coins at
    the higher value, alike for both; `truth`, whether one named its hand, for messages that are numbers of hands. They
    are 0 in steps without claim or message; `claiming` and `speaking` count those with one.

    Attributes:
      num_messages: kinds of messages.
      num_coins: to split in a round.
      talks: messages of each player in a round; 0 for none.
      speakers: `alternating` or `both` at once.
      high_value: of a coin to the player with the winning hand.
      low_value: of a coin to the other.
      episode_length: steps until the time limit; ten rounds by default.

    Source: Piche et al., Learning Robust Social Strategies with Large Language Models (2025), arXiv:2511.19405, with
    messages out of a finite set in place of English.
    """

    num_messages: int = static(3)
    num_coins: int = static(10)
    talks: int = static(1)
    speakers: str = static("alternating")
    high_value: Scalar = 10.0
    low_value: Scalar = 1.0
    episode_length: Scalar = 30

    def __post_init__(self) -> None:
        checks.size("num_messages", self.num_messages, 1, 1000)
        checks.size("num_coins", self.num_coins, 1, 1000)
        checks.size("talks", self.talks, 0, 100)
        checks.choice("speakers", self.speakers, ("alternating", "both"))
        checks.number("high_value", self.high_value, 0, brackets="(]")
        checks.number("low_value", self.low_value, 0)
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def steps(self) -> int:
        """Steps of a round."""
        return self.talks * (2 if self.speakers == "alternating" else 1) + 1

    def reset(self, key: jax.Array) -> tuple[Observations, TrustAndSplitState]:
        hands, word = self._deal(words(key, 1)[0])
        none, zeros = jnp.full(2, -1, jnp.int32), jnp.zeros(2, jnp.int32)
        starter = draw_integer(word, 2)[0]
        state = TrustAndSplitState(hands, none, starter, zeros, zeros, jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    @staticmethod
    def _deal(word: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Two different hands `[2]`, and the word that is left."""
        first, word = draw_integer(word, 3)
        apart, word = draw_integer(word, 2)
        return jnp.stack([first, (first + 1 + apart) % 3]).astype(jnp.int32), word

    def _phase(self, state: TrustAndSplitState) -> tuple[jax.Array, jax.Array]:
        """(whether each player speaks, `[2]`, whether both claim, `[]`) in the step to come."""
        turn, number = state.time % self.steps, state.time // self.steps
        claims = turn == self.steps - 1
        if self.speakers == "both":
            return jnp.broadcast_to(~claims, (2,)), claims
        speaker = (state.starter + number + turn) % 2
        return (jnp.arange(2) == speaker) & ~claims, claims

    def step_env(self, key: jax.Array, state: TrustAndSplitState, actions: Actions) -> Step[TrustAndSplitState]:
        acts = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        said, wanted = acts[:, 0], acts[:, 1]
        speaks, claims = self._phase(state)
        wins = (state.hands - state.hands[::-1]) % 3 == 1
        coins = wanted * (self.num_coins / jnp.maximum(wanted.sum(), self.num_coins))
        worth = coins * jnp.where(wins, self.high_value, self.low_value)
        rewards = jnp.where(claims, worth, 0.0).astype(jnp.float32)
        efficiency = rewards.sum() / (self.num_coins * jnp.maximum(self.high_value, self.low_value))
        infos = {
            "claim": jnp.where(claims, wanted / self.num_coins, 0.0),
            "efficiency": jnp.broadcast_to(efficiency, (2,)),
            "truth": speaks & (said == state.hands),
            "claiming": jnp.broadcast_to(claims, (2,)),
            "speaking": speaks,
        }
        hands, _ = self._deal(words(key, 1)[0])
        messages = jnp.where(speaks, said, state.messages)
        state = TrustAndSplitState(
            hands=jnp.where(claims, hands, state.hands),
            messages=jnp.where(claims, -1, messages),
            starter=state.starter,
            last_hands=jnp.where(claims, state.hands, state.last_hands),
            last_claims=jnp.where(claims, wanted, state.last_claims),
            time=state.time + 1,
        )
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = ending | {name: count.astype(jnp.float32) for name, count in infos.items()}
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def get_obs(self, state: TrustAndSplitState) -> Observations:
        speaks, claims = self._phase(state)
        begun = state.time >= self.steps
        kind = jnp.stack([speaks, speaks[::-1], jnp.broadcast_to(claims, (2,))], 1)
        hands = state.hands[:, None] == jnp.arange(3)
        said = state.messages[:, None] == jnp.arange(self.num_messages)
        last = (state.last_hands[:, None] == jnp.arange(3)) & begun
        claimed = jnp.where(begun, state.last_claims, 0)[:, None] / self.num_coins
        seen = [kind, hands, said, said[::-1], last, last[::-1], claimed, claimed[::-1], jnp.full((2, 1), begun)]
        return self._by_agent(jnp.concatenate([part.astype(jnp.float32) for part in seen], 1))

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (15 + 2 * self.num_messages,))

    def action_space(self, agent: str) -> MultiDiscrete:
        return MultiDiscrete((self.num_messages, self.num_coins + 1))

    def render(self, state: Any) -> np.ndarray:
        entries = []
        for i in range(2):
            said, hand = int(state.messages[i]), int(state.hands[i])
            wins = (hand - int(state.hands[1 - i])) % 3 == 1
            value = self.high_value if wins else self.low_value
            entries.append((f"agent {i}: {HANDS[hand]}", 0.0, f"coins worth {float(value):g}", PLAYERS[i]))
            entries.append(("says", 0.0, "nothing yet" if said < 0 else f"message {said}", PLAYERS[i]))
            claim = int(state.last_claims[i])
            words_of = f"{claim} of {self.num_coins}" if int(state.time) >= self.steps else ""
            entries.append(("claimed last", claim / self.num_coins if words_of else 0.0, words_of, PLAYERS[i]))
        return bars(f"Trust and split, round {int(state.time) // self.steps}", entries)
