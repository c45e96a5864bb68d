"""Negotiation over a pool of items, with private values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.random_bits import array, draw_integer
from games.core.spaces import Box, MultiDiscrete
from games.toolbox.drawing import PLAYERS, bars


@struct.dataclass
class NegotiationState:
    """The pool, what it is worth to each, and what each wanted last."""

    quantities: jax.Array  # `[num_items]`, how many of each kind there are
    values: jax.Array  # `[2, num_items]`, of one item to each player
    proposals: jax.Array  # `[2, num_items]`, of the last round; 0 before the first
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Negotiation(Game):
    """Two divide a pool of items of several kinds, round after round; each sees what they are worth to itself.

    In every round both say at once how many items of each kind they want. What they want of a kind, if there are
    that many, they get, and the rest is lost. If there are not, then with `split="proportional"` the items of this
    kind are divided in proportion to what was asked for, so that asking for all is never worse in the round; with
    `split="nothing"` no player gets anything of any kind: there was no agreement. Both gain by asking modestly for the
    kinds that are worth more to the other.

    Quantities are drawn from 1 to `max_quantity` and values from 1 to `max_value`, for each kind and player alike.

    Actions: for each kind the number of items wanted, 0 to `max_quantity`. The observation, `[4 num_items]`, is the
    quantities, one's own values, one's own last proposal, and the other's (0 before the first round), over the
    largest possible; `[5 num_items]`, with the other's values after one's own, unless values are private. The seats
    are alike: a swap of the values and the actions swaps observations and rewards.

    Infos: `efficiency`, the worth of what both got over that of the best division, alike for both; `agreement`,
    whether there was enough of every kind, alike for both; `wanted`, the share of the pool's worth asked for.

    Attributes:
      num_items: kinds of items.
      max_quantity: of one kind.
      max_value: of one item.
      split: what happens if more is wanted than there is, `proportional` or `nothing`.
      redraw: whether pool and values are drawn in every `episode` or every `round`.
      private_values: whether the other's values stay hidden.
      normalize: whether rewards are shares of what the whole pool is worth to the player.
      episode_length: rounds until the time limit.

    Source: the task is that of Cao et al., Emergent Communication through Negotiation (2018), arXiv:1804.03980,
    without words and turns; simultaneous proposals: the exchange game of the public code of Duque et al., Advantage
    Alignment Algorithms (2024), arXiv:2406.14662.
    """

    num_items: int = static(3)
    max_quantity: int = static(5)
    max_value: int = static(5)
    split: str = static("proportional")
    redraw: str = static("episode")
    private_values: bool = static(True)
    normalize: bool = static(False)
    episode_length: Scalar = 16

    def __post_init__(self) -> None:
        checks.size("num_items", self.num_items, 1, 128)
        checks.size("max_quantity", self.max_quantity, 1, 256)
        checks.size("max_value", self.max_value, 1, 256)
        checks.choice("split", self.split, ("proportional", "nothing"))
        checks.choice("redraw", self.redraw, ("episode", "round"))
        for name in ("private_values", "normalize"):
            checks.choice(name, getattr(self, name), (True, False))
        checks.whole("episode_length", self.episode_length, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, NegotiationState]:
        quantities, values = self._draw(key)
        state = NegotiationState(quantities, values, jnp.zeros_like(values), jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def _draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Quantities `[num_items]` and values `[2, num_items]`."""
        quantities, words = draw_integer(array(key, self.num_items), self.max_quantity)
        first, words = draw_integer(words, self.max_value)
        second, _ = draw_integer(words, self.max_value)
        return quantities + 1, jnp.stack([first, second]) + 1

    def step_env(self, key: jax.Array, state: NegotiationState, actions: Actions) -> Step[NegotiationState]:
        proposals = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        asked = proposals.sum(0)
        enough = (asked <= state.quantities).all()
        if self.split == "proportional":
            got = proposals * (state.quantities / jnp.maximum(asked, state.quantities))
        else:
            got = proposals * enough.astype(jnp.float32)
        worth = (got * state.values).sum(-1)
        most = (state.quantities * state.values).sum(-1)  # what the whole pool is worth to each
        best = (state.quantities * state.values.max(0)).sum()  # to the player that values each kind the more
        dones, infos = self._ending(jnp.zeros((), bool), state.time + 1 >= self.episode_length)
        infos |= {
            "efficiency": jnp.broadcast_to(worth.sum() / best, (2,)),
            "agreement": jnp.broadcast_to(enough.astype(jnp.float32), (2,)),
            "wanted": (jnp.minimum(proposals, state.quantities) * state.values).sum(-1) / most,
        }
        quantities, values = (state.quantities, state.values) if self.redraw == "episode" else self._draw(key)
        state = NegotiationState(quantities, values, proposals, state.time + 1)
        rewards = worth / most if self.normalize else worth
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def get_obs(self, state: NegotiationState) -> Observations:
        pool = jnp.broadcast_to(state.quantities / self.max_quantity, (2, self.num_items))
        values, proposals = state.values / self.max_value, state.proposals / self.max_quantity
        seen = [pool, values, *([] if self.private_values else [values[::-1]]), proposals, proposals[::-1]]
        return self._by_agent(jnp.concatenate(seen, -1))

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, ((4 if self.private_values else 5) * self.num_items,))

    def action_space(self, agent: str) -> MultiDiscrete:
        return MultiDiscrete((self.max_quantity + 1,) * self.num_items)

    def render(self, state: Any) -> np.ndarray:
        entries = []
        for kind in range(self.num_items):
            there = int(state.quantities[kind])
            entries.append((f"kind {kind}", there / self.max_quantity, f"{there} there", "#999999"))
            for i in range(2):
                wanted, value = int(state.proposals[i, kind]), int(state.values[i, kind])
                of_last = " of the last" if self.redraw == "round" else ""  # pool, which is not there any more
                words = f"wanted {wanted}{of_last}" if state.time else ""
                entries.append((f"agent {i}: worth {value}", wanted / self.max_quantity, words, PLAYERS[i]))
        return bars(f"Negotiation, round {int(state.time)}", entries)
