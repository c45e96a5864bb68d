"""The coin game: a social dilemma on a torus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.random_bits import draw_integer, words
from games.core.spaces import Box, Discrete
from games.toolbox.drawing import PLAYERS, Canvas


@struct.dataclass
class CoinState:
    """Cells are numbered row by row, `row * grid_size + column`. Scalars, so that a batch of games is contiguous."""

    players: tuple[jax.Array, ...]  # the cell of each player
    coins: tuple[jax.Array, ...]  # the cell of each player's coin; -1 where there is none
    time: jax.Array  # steps since the reset


@struct.dataclass(eq=False)
class CoinGame(Game):
    """Two players walk on a torus and pick up coins, each of which belongs to one of them.

    A coin is worth `reward` to the player that takes it, and costs its owner `penalty` when the other takes it. Taking
    only one's own coins is cooperation. Both may stand on one cell, and both may take a coin at once: then both are
    paid.

    With one coin at a time (the default) the rules are those of the LOLA-DiCE repair of the first public code: the
    colour alternates with every coin taken, and is drawn at the reset; the new coin falls on a cell that no player
    stands on, all of them alike. But players begin on any two cells, which may be one, and there on two that differ;
    and each sees its own picture, where that code shows both the same, so that the second cannot see which colour is
    its own. (The first code also paid only one of two players that came at once.) With `num_coins=2` a coin of each
    colour lies there at all times, and falls anywhere, as in M-FOS and Shaper.

    Actions: right, left, down, up, and stay with `stay=True`. The observation is an image
    `[grid_size, grid_size, 4]`, whose channels are oneself, the other, one's own coin, the other's coin.

    Infos: `own_coin` and `other_coin`, whether the agent took a coin of that kind in this step.

    Attributes:
      grid_size: of the square torus; 3 in LOLA and M-FOS.
      num_coins: 1 or 2 on the torus at once.
      stay: whether a player may stand still, as in Shaper.
      egocentric: whether each player finds itself in the first channel; if not, both see player 0 first.
      centered: whether the torus is turned so that one stands in the middle of it (Shaper's egocentric view).
      episode_length: steps until the time limit.
      reward: for any coin.
      penalty: for the owner of a coin that the other takes.

    Source: Lerer and Peysakhovich, Maintaining Cooperation in Complex Social Dilemmas (2017), arXiv:1707.01068; the
    3 x 3 form: Foerster et al., LOLA (2018), arXiv:1709.04326; two coins: Lu et al., M-FOS (2022), arXiv:2205.01447.
    """

    grid_size: int = static(3)
    num_coins: int = static(1)
    stay: bool = static(False)
    egocentric: bool = static(True)
    centered: bool = static(False)
    episode_length: Scalar = 16
    reward: Scalar = 1.0
    penalty: Scalar = -2.0

    def __post_init__(self) -> None:
        checks.size("grid_size", self.grid_size, 2, 128)
        checks.choice("num_coins", self.num_coins, (1, 2))
        for name in ("stay", "egocentric", "centered"):
            checks.choice(name, getattr(self, name), (True, False))
        checks.whole("episode_length", self.episode_length, 1)
        checks.number("reward", self.reward)
        checks.number("penalty", self.penalty)

    @property
    def num_cells(self) -> int:
        return self.grid_size**2

    def reset(self, key: jax.Array) -> tuple[Observations, CoinState]:
        word, more = words(key, 2)
        first, word = draw_integer(word, self.num_cells)
        second, _ = draw_integer(word, self.num_cells)
        owner, more = draw_integer(more, 2)
        coins = self._drop(more, (first, second), owner)
        state = CoinState((first, second), coins, jnp.zeros((), jnp.int32))
        return self.get_obs(state), state

    def _drop(self, word: jax.Array, players: Sequence[jax.Array], owner: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Cells for new coins; where there is one at a time, for its owner's alone."""
        if self.num_coins == 2:
            first, word = draw_integer(word, self.num_cells)
            return first, draw_integer(word, self.num_cells)[0]
        low, high = jnp.minimum(*players), jnp.maximum(*players)
        apart = low != high
        cell, _ = draw_integer(word, self.num_cells - 1 - apart)  # counts the cells without a player
        cell = cell + (cell >= low)
        cell = cell + ((cell >= high) & apart)
        return jnp.where(owner == 0, cell, -1), jnp.where(owner == 1, cell, -1)

    def step_env(self, key: jax.Array, state: CoinState, actions: Actions) -> Step[CoinState]:
        players = tuple(
            self._shift(cell, *_move(actions[agent])) for cell, agent in zip(state.players, self.agents, strict=True)
        )
        # takes[i][j]: whether player i takes the coin of player j
        takes = [[player == coin for coin in state.coins] for player in players]
        own, other = [takes[0][0], takes[1][1]], [takes[0][1], takes[1][0]]
        taken = [takes[0][j] | takes[1][j] for j in range(2)]
        rewards = [
            self.reward * (own[i].astype(jnp.float32) + other[i]) + self.penalty * other[1 - i] for i in range(2)
        ]
        dropped = self._drop(words(key, 1)[0], players, taken[0].astype(jnp.int32))  # the colours alternate
        if self.num_coins == 1:
            taken = [taken[0] | taken[1]] * 2
        coins = tuple(jnp.where(*three) for three in zip(taken, dropped, state.coins, strict=True))
        state = CoinState(players, coins, state.time + 1)
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos |= {
            "own_coin": jnp.stack(own).astype(jnp.float32),
            "other_coin": jnp.stack(other).astype(jnp.float32),
        }
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    def _shift(self, cell: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
        """The cell so many rows below and columns to the right (each at least -grid_size), on the torus."""
        n = self.grid_size
        return (cell // n + rows + n) % n * n + (cell % n + columns + n) % n

    def get_obs(self, state: CoinState) -> Observations:
        views = []
        for agent in range(2):
            first = agent if self.egocentric else 0
            cells = [state.players[first], state.players[1 - first], state.coins[first], state.coins[1 - first]]
            if self.centered:
                own, middle = state.players[agent], self.grid_size // 2
                away = middle - own // self.grid_size, middle - own % self.grid_size
                cells = [jnp.where(cell < 0, -1, self._shift(cell, *away)) for cell in cells]
            planes = jnp.arange(self.num_cells)[:, None] == jnp.stack(cells)
            views.append(planes.astype(jnp.float32).reshape(self.grid_size, self.grid_size, 4))
        return self._by_agent(views)

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (self.grid_size, self.grid_size, 4), image=True)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(5 if self.stay else 4)

    def render(self, state: Any) -> np.ndarray:
        n, canvas = self.grid_size, Canvas(self.grid_size, self.grid_size, cell=64)
        for color, coin in zip(PLAYERS[:2], map(int, state.coins), strict=True):
            if coin >= 0:
                canvas.disc(coin // n, coin % n, color, 0.4, outline=True)
        for i, player in enumerate(map(int, state.players)):
            canvas.square(player // n, player % n, PLAYERS[i], 0.8 - 0.3 * i, outline=True)
        return canvas.image()


def _move(action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(rows, columns) of an action: right, left, down, up, stay."""

    def one(which: int) -> jax.Array:
        return jnp.equal(action, which).astype(jnp.int32)

    return one(2) - one(3), one(0) - one(1)
