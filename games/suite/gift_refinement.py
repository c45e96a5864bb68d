"""Gift refinement: tokens that are worth more when they are given away."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Observations, Scalar, Step, static
from games.suite.gridworld import Gridworld, GridworldState
from games.toolbox import boards, grid

GIVE, CONSUME = grid.BEAM, grid.BEAM + 1
LEVELS = 3
GROWTH_LABELS = 1 << 20  # of the random words that decide where tokens appear
TOKEN, GIFT = "#7A5195", "#F3D9FF"
MARKET = (
    "TTTTTTTTTTT#TTTTTTTTTTT",
    "TTPTTTTPTTT#TTTPTTTTPTT",
    "TTTTTTTTTTT#TTTTTTTTTTT",
    "TTTTT##TTTTTTTTT##TTTTT",
    "TTPTT##TTTPTPTTT##TTPTT",
    "TTTTTTTTTTTTTTTTTTTTTTT",
    "###TTTTT###T###TTTTT###",
    "TTTTTTTTTTTTTTTTTTTTTTT",
    "TTPTT##TTTPTPTTT##TTPTT",
    "TTTTT##TTTTTTTTT##TTTTT",
    "TTTTTTTTTTT#TTTTTTTTTTT",
    "TTPTTTTPTTT#TTTPTTTTPTT",
    "TTTTTTTTTTT#TTTTTTTTTTT",
)


@struct.dataclass
class GiftState(GridworldState):
    """The tokens on the grid and in the players' hands."""

    tokens: jax.Array  # `[words]`
    held: jax.Array  # `[n, 3]`, of levels 1, 2 and 3


@struct.dataclass(eq=False)
class GiftRefinement(Gridworld):
    """Players collect tokens, and may eat them alone or give them to one another, which refines them.

    A player takes the token of level 1 on the cell that it walks onto, if it has room. Giving sends one token of the
    lowest level that the giver holds to the first player within `beam_length` cells straight ahead: it becomes
    `multiplier` tokens of the next level, or one of level 3 if it is of level 3 already. A player holds at most
    `capacity` tokens of a level; what is more is lost. Consuming turns all tokens that one holds into a reward of 1
    each. A token that is given and given back is worth `multiplier` squared: a trust game that goes on.

    A site without token and without player gets one with probability `growth`. There is none at the reset. All act at
    once: players move and take tokens, then all give out of what they hold, then all consume, then tokens appear. A
    random one gets a cell that several want. Seats are alike: exchanging two players in the state and the actions
    exchanges their observations and rewards, except for such draws between them.

    Actions: stay, forward, back, step left, step right, turn left, turn right, give, consume; in all but the turns one
    looks the same way as before. The observation `[view_size, view_size, 9]` is a window of the grid, turned with its
    player, which stands in the middle of the last row but one and looks up. Its channels: tokens; walls; other players
    that look the same way, to the right, towards one, to the left; then the same in all cells, the tokens of levels 1,
    2 and 3 that one holds, over the capacity.

    Infos: `tokens` taken from the grid, `gifts` given, tokens of levels 2 and 3 that were `received` (before what is
    more than the capacity is lost), and tokens `consumed`.

    Attributes:
      growth: probability of a token on a site in a step.
      multiplier: tokens of the next level that a gift becomes.
      capacity: most tokens of a level that a player holds.
      beam_length: cells ahead within which a player is given to.
      layout: one string for each row: `T` where tokens appear, `P` where they appear and players start, `#` a wall.
      num_agents, view_size, episode_length: as in `games.suite.gridworld.Gridworld`.

    Source: Melting Pot 2.0 (Agapiou et al., 2022), arXiv:2211.13746; the numbers of SocialJax (Guo et al., 2025),
    arXiv:2503.14576. The map is our own.
    """

    layout: tuple[str, ...] = static(MARKET)
    num_agents: int = static(6)
    beam_length: int = static(1)
    growth: Scalar = 0.0002
    multiplier: Scalar = 3
    capacity: Scalar = 15

    letters = ".TP#"
    actions = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        checks.number("growth", self.growth, 0, 1)
        checks.whole("multiplier", self.multiplier, 1)
        checks.whole("capacity", self.capacity, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, GiftState]:
        tokens = jnp.zeros(self.grid.words, jnp.uint32)
        held = jnp.zeros((self.num_agents, LEVELS), jnp.int32)
        state = GiftState(**self._start(key), tokens=tokens, held=held)
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        world, everyone = self.grid, jnp.ones(self.num_agents, bool)
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts = self._acts(actions)
        positions, directions = world.move(state.positions, state.directions, acts, everyone, everyone, seed)
        here = boards.single(world.cell(positions), world.words)
        found = ((here & state.tokens) != 0).any(1)
        held = state.held.at[:, 0].add(found)
        took = found & (held[:, 0] <= self.capacity)  # one that does not fit stays where it is
        held = jnp.minimum(held, self.capacity)

        players = boards.union(here)
        reaches = world.hits(positions, directions, self.beam_length, 0, players) & (acts == GIVE)[:, None]
        lowest = jnp.argmax(held > 0, 1)[:, None] == jnp.arange(LEVELS)
        gives = lowest & (held > 0) & reaches.any(1)[:, None]  # [n, level]
        sent = (reaches[:, :, None] & gives[:, None]).sum(0)  # [receiver, level of what was sent]
        refined = sent[:, :2] * self.multiplier
        received = jnp.stack([jnp.zeros_like(sent[:, 0]), refined[:, 0], refined[:, 1] + sent[:, 2]], 1)
        held = jnp.minimum(held - gives + received, self.capacity).astype(jnp.int32)

        consumed = jnp.where((acts == CONSUME)[:, None], held, 0)
        rewards = consumed.sum(1).astype(jnp.float32)
        tokens = state.tokens & ~boards.union(jnp.where(took[:, None], here, 0))
        (grown,) = boards.bernoulli(seed, GROWTH_LABELS, world.words, self.growth)
        state = state.replace(
            positions=positions,
            directions=directions,
            fired=jnp.where(acts == GIVE, acts, 0),
            time=state.time + 1,
            tokens=tokens | (grown & self._board("TP") & ~players),
            held=held - consumed,
        )
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        counts = {"tokens": took, "gifts": gives.any(1), "received": received.sum(1), "consumed": rewards}
        infos = ending | {name: count.astype(jnp.float32) for name, count in counts.items()}
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def _things(self, state: GiftState) -> list[jax.Array]:
        return [state.tokens]

    def _held(self, state: GiftState) -> jax.Array:
        return state.held / self.capacity

    def _draw_beams(self, canvas: Any, state: Any, fired: np.ndarray) -> None:
        self.grid.draw_beams(canvas, state, fired == GIVE, self.beam_length, 0, GIFT)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        self.grid.draw_cells(canvas, state.tokens, TOKEN, 0.45)
