"""Coins on a wide grid: any coin pays, and that of another's colour costs its owner."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from games.core import checks
from games.core.game import Actions, Observations, Scalar, Step, static
from games.suite.gridworld import Gridworld, GridworldState
from games.toolbox import boards
from games.toolbox.drawing import PLAYERS

GROWTH_LABELS, COLOR_LABELS = 1 << 20, 1 << 21  # of the random words of a step
HALL = (
    "CCCPCCCCCPCCC",
    "CCCCCCPCCCCCC",
    "PCCCCCCCCCCCP",
    "CCCCPCCCPCCCC",
    "CCCCCCCCCCCCC",
    "PCCCCCPCCCCCP",
    "CCCCCCCCCCCCC",
    "CCCCPCCCPCCCC",
    "PCCCCCCCCCCCP",
    "CCCCCCPCCCCCC",
    "CCCPCCCCCPCCC",
)


@struct.dataclass
class CoinsState(GridworldState):
    """The coins of each colour."""

    coins: jax.Array  # `[n, words]`, those of each player's colour


@struct.dataclass(eq=False)
class Coins(Gridworld):
    """Players pick up coins of their own and of other colours, as in the coin game, on a grid with walks between them.

    A coin pays `reward` to the player that walks onto it. If it is of another player's colour, that one pays `penalty`.
    A cell without coin and without player gets one with probability `growth` in a step, of each colour with the same
    probability. There is no coin at the reset. Taking all coins pays at once, and two that do so get less than two that
    leave the other's coins: what is left for the owner lies there until it comes.

    All act at once: players move and take coins, then coins appear. A random one gets a cell that several want. Seats
    are alike: exchanging two players and their colours in the state and the actions exchanges their observations and
    rewards, except for such draws between them.

    Actions: stay, forward, back, step left, step right, turn left, turn right; in all but the turns one looks the same
    way as before. The observation `[view_size, view_size, 7]` is a window of the grid, turned with its player, which
    stands in the middle of the last row but one and looks up. Its channels: coins of one's own colour; coins of others'
    colours; walls; other players that look the same way, to the right, towards one, to the left.

    Infos: `coins` that a player took, and how many of them were its `own_coins`.

    Attributes:
      reward: for a coin.
      penalty: for a coin that another player took.
      growth: probability of a coin on a cell in a step.
      layout: one string for each row: `C` where coins appear, `P` where they appear and players start, `#` a wall.
      num_agents, view_size, episode_length: as in `games.suite.gridworld.Gridworld`.

    Source: Melting Pot 2.0 (Agapiou et al., 2022), arXiv:2211.13746, after Lerer and Peysakhovich, Maintaining
    cooperation in complex social dilemmas using deep reinforcement learning (2017), arXiv:1707.01068; the numbers of
    SocialJax (Guo et al., 2025), arXiv:2503.14576. The map is our own.
    """

    layout: tuple[str, ...] = static(HALL)
    reward: Scalar = 1.0
    penalty: Scalar = 2.0
    growth: Scalar = 0.0005

    letters = ".CP#"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("reward", self.reward)
        checks.number("penalty", self.penalty)
        checks.number("growth", self.growth, 0, 1)

    def reset(self, key: jax.Array) -> tuple[Observations, CoinsState]:
        coins = jnp.zeros((self.num_agents, self.grid.words), jnp.uint32)
        state = CoinsState(**self._start(key), coins=coins)
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        n, world, everyone = self.num_agents, self.grid, jnp.ones(self.num_agents, bool)
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts = self._acts(actions)
        positions, directions = world.move(state.positions, state.directions, acts, everyone, everyone, seed)
        here = boards.single(world.cell(positions), world.words)
        took = ((here[:, None] & state.coins[None]) != 0).any(-1)  # [taker, colour]
        taken, own = took.any(1), jnp.diagonal(took)
        lost = (took & ~jnp.eye(n, dtype=bool)).sum(0)
        rewards = self.reward * taken.astype(jnp.float32) - self.penalty * lost.astype(jnp.float32)

        lie = boards.union(state.coins)
        (grown,) = boards.bernoulli(seed, GROWTH_LABELS, world.words, self.growth)
        grown &= self._board("CP") & ~lie & ~boards.union(here)
        state = state.replace(
            positions=positions,
            directions=directions,
            time=state.time + 1,
            coins=(state.coins & ~boards.union(here)) | self._colored(grown, seed),
        )
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos = ending | {"coins": taken.astype(jnp.float32), "own_coins": own.astype(jnp.float32)}
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def _colored(self, grown: jax.Array, seed: Any) -> jax.Array:
        """Boards `[n, words]` of new coins, each of which gets a random colour."""
        colors, left = [], grown
        for color in range(self.num_agents - 1):
            label = COLOR_LABELS + 20 * self.grid.words * color
            (gets,) = boards.bernoulli(seed, label, self.grid.words, 1 / (self.num_agents - color))
            colors.append(left & gets)
            left &= ~gets
        return jnp.stack([*colors, left])

    def _things(self, state: CoinsState) -> list[jax.Array]:
        others = [boards.union(jnp.delete(state.coins, i, 0)) for i in range(self.num_agents)]
        return [state.coins.T[..., None], jnp.stack(others).T[..., None]]

    def _draw_things(self, canvas: Any, state: Any) -> None:
        for i, board in enumerate(state.coins):
            self.grid.draw_cells(canvas, board, PLAYERS[i % len(PLAYERS)], 0.45)
