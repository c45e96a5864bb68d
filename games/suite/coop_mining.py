"""Cooperative mining: iron for one, or gold for those that mine it together."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Observations, Scalar, Step, static
from games.suite.gridworld import Gridworld, GridworldState
from games.toolbox import boards, grid

MINE = grid.BEAM
IRON_LABELS, GOLD_LABELS, TIES = 1 << 20, 1 << 21, 1 << 22  # of the random words of a step
CAVE = (
    "#####.OO...O.#####",
    "#O.P.O..O.O..P.O.#",
    "#.O..#.O..#..O.O.#",
    "..O.O...P...O..O..",
    ".O.P..O.O.O..P..O.",
    "..O.O...P...O.O...",
    "#.O..#O...#..O..O#",
    "#O.P..O.O.O..P.O.#",
    "#####...O..O.#####",
)
IRON, GOLD, GLOW = "#8C8C94", "#C9A227", "#FFE36E"


@struct.dataclass
class MiningState(GridworldState):
    """The ores, and the gold that some have begun to mine."""

    iron: jax.Array  # `[words]`
    gold: jax.Array  # `[words]`
    miners: jax.Array  # `[n, words]`, gold that each player has mined within the window
    running: jax.Array  # `[window - 1, words]`, gold whose window ends after 1, 2, ... further steps


@struct.dataclass(eq=False)
class CoopMining(Gridworld):
    """Players mine iron alone, or gold together with others that notice them in time: a stag hunt that goes on.

    An ore of iron pays `iron_reward` to the player that mines it. An ore of gold pays `gold_reward` to each of at least
    `min_miners` and at most `max_miners` different players that mine it within `window` steps, in the step in which
    there are enough of them. If there are too many, or the window ends before, it is as it was and pays nothing. Mined
    ores disappear. A site without ore and without player gets iron with probability `iron_growth`, otherwise gold with
    probability `gold_growth`. There is no ore at the reset.

    All act at once: players move, then mine, then ores appear. A random one gets a cell, or an ore of iron, that
    several want. Mining reaches `beam_length` cells straight ahead, to the first ore; a wall stops it, a player does
    not. One may walk over ores. Seats are alike: exchanging two players in the state and the actions exchanges their
    observations and rewards, except for such draws between them.

    Actions: stay, forward, back, step left, step right, turn left, turn right, mine; in all but the turns one looks the
    same way as before. The observation `[view_size, view_size, 8]` is a window of the grid, turned with its player,
    which stands in the middle of the last row but one and looks up. Its channels: iron; gold; gold that some have begun
    to mine; walls; other players that look the same way, to the right, towards one, to the left.

    Infos: ores of `iron` and of `gold` that a player was paid for, and whether it `mines`.

    Attributes:
      iron_reward: for an ore of iron.
      gold_reward: for an ore of gold, to each of its miners.
      min_miners: of an ore of gold.
      max_miners: of an ore of gold.
      window: steps from the first to the last of these miners, both counted.
      iron_growth: probability of iron on a site in a step.
      gold_growth: probability of gold on a site that gets no iron.
      beam_length: cells that mining reaches ahead.
      layout: one string for each row: `O` where ores appear, `P` where players start, `#` a wall.
      num_agents, view_size, episode_length: as in `games.suite.gridworld.Gridworld`.

    Source: Melting Pot 2.0 (Agapiou et al., 2022), arXiv:2211.13746; the numbers of SocialJax (Guo et al., 2025),
    arXiv:2503.14576. The map is our own.
    """

    layout: tuple[str, ...] = static(CAVE)
    num_agents: int = static(4)
    min_miners: int = static(2)
    max_miners: int = static(4)
    window: int = static(3)
    beam_length: int = static(3)
    iron_reward: Scalar = 1.0
    gold_reward: Scalar = 8.0
    iron_growth: Scalar = 0.0002
    gold_growth: Scalar = 0.00008

    letters = ".O#P"
    actions = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.size("min_miners", self.min_miners, 1)
        checks.size("max_miners", self.max_miners, self.min_miners)
        checks.size("window", self.window, 1, 1000)
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        for name in ("iron_reward", "gold_reward"):
            checks.number(name, getattr(self, name))
        for name in ("iron_growth", "gold_growth"):
            checks.number(name, getattr(self, name), 0, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, MiningState]:
        nothing = jnp.zeros(self.grid.words, jnp.uint32)
        begun = jnp.zeros((self.num_agents, self.grid.words), jnp.uint32)
        running = jnp.zeros((self.window - 1, self.grid.words), jnp.uint32)
        state = MiningState(**self._start(key), iron=nothing, gold=nothing, miners=begun, running=running)
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        world, everyone = self.grid, jnp.ones(self.num_agents, bool)
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts = self._acts(actions)
        positions, directions = world.move(state.positions, state.directions, acts, everyone, everyone, seed)
        mines = acts == MINE
        # Boards of all players are written where they are read once, because XLA computes them again for each reader.
        reaches, ores = world.first(positions, directions, self.beam_length, 0, state.iron | state.gold)
        ore, hits = ores[:, 0], reaches[:, 0] & mines
        is_gold = boards.at(state.gold, ore) > 0
        won = boards.one_each(ore, hits & ~is_gold, seed, TIES)
        struck = world.marked(ore, hits & is_gold)
        miners, touched = state.miners | struck, boards.union(struck)
        enough, too_many = _at_least(miners, self.min_miners), _at_least(miners, self.max_miners + 1)
        done = touched & enough & ~too_many
        paid = won, boards.count(miners & done)
        # The window of an ore begins with its first miner.
        running = list(state.running)
        begun = touched & ~reduce(jnp.bitwise_or, running, jnp.zeros_like(touched))
        ending, running = ([*running, begun][0], [*running, begun][1:])
        ended = ending | (touched & enough)
        running = [board & ~ended for board in running]

        taken = boards.union(boards.single(world.cell(positions), world.words))
        iron, gold = state.iron & ~boards.union(world.marked(ore, won)), state.gold & ~done
        free = self._board("O") & ~iron & ~gold & ~taken
        (new_iron,) = boards.bernoulli(seed, IRON_LABELS, world.words, self.iron_growth)
        (new_gold,) = boards.bernoulli(seed, GOLD_LABELS, world.words, self.gold_growth)
        state = state.replace(
            positions=positions,
            directions=directions,
            fired=jnp.where(mines, acts, 0),
            time=state.time + 1,
            iron=iron | (new_iron & free),
            gold=gold | (new_gold & free & ~new_iron),
            miners=miners & ~ended,
            running=jnp.stack(running) if running else state.running,
        )
        iron_paid, gold_paid = (x.astype(jnp.float32) for x in paid)
        rewards = self.iron_reward * iron_paid + self.gold_reward * gold_paid
        dones, ending_infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = ending_infos | {"iron": iron_paid, "gold": gold_paid, "mines": mines.astype(jnp.float32)}
        return self.get_obs(state), state, self._by_agent(rewards.astype(jnp.float32)), dones, infos

    def _things(self, state: MiningState) -> list[jax.Array]:
        return [state.iron, state.gold, boards.union(state.miners)]

    def _draw_beams(self, canvas: Any, state: Any, fired: np.ndarray) -> None:
        self.grid.draw_beams(canvas, state, fired == MINE, self.beam_length, 0)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        begun = boards.union(state.miners)
        for board, color in ((state.iron, IRON), (state.gold & ~begun, GOLD), (begun, GLOW)):
            self.grid.draw_cells(canvas, board, color, 0.6)


def _at_least(members: jax.Array, number: int) -> jax.Array:
    """The cells `[words]` that are on at least so many of the boards `[n, words]`."""
    if number > len(members):
        return jnp.zeros_like(members[0])
    found = [jnp.zeros_like(members[0])] * number  # on at least 1, 2, ... of those so far
    for board in members:
        found = [found[0] | board, *(found[i] | (found[i - 1] & board) for i in range(1, number))]
    return found[-1]
