"""Level-based foraging: food that takes players of enough levels together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.random_bits import draw_integer
from games.core.spaces import Box, Discrete
from games.toolbox import boards, grid
from games.toolbox.drawing import PLAYERS

LOAD = 5
LEVEL_LABELS = 1 << 20  # of the random words that draw levels
FOOD = "#D62728"
SIDES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # up, down, left, right, as the actions from 1 on


@struct.dataclass
class ForagingState:
    """Players and food, each with a level."""

    positions: jax.Array  # `[n, 2]`, row and column
    levels: jax.Array  # `[n]`
    food: jax.Array  # `[num_food, 2]`, row and column
    food_levels: jax.Array  # `[num_food]`, 0 once it is taken
    worth: jax.Array  # `[]`, sum of the food's levels at the reset
    loads: jax.Array  # `[n]`, whether each player loaded in the last step; for pictures
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Foraging(Game):
    """Players of different levels gather food of different levels, the larger of which they only lift together.

    Food is taken when players beside it load whose levels add up to its own or more. They share its level as reward in
    proportion to their own levels. With `normalize` all rewards are shares of the food that there was at the reset, so
    that an episode pays all players together 1 at most. A player that loads beside food and fails pays `penalty`.

    Levels of players are drawn from 1 to `max_player_level`, those of food from `min_food_level` to `max_food_level`,
    but no more than the four highest levels together. Food lies on different random cells that are not on the border,
    and players start on other random cells. A game ends when all food is taken.

    All act at once: players move, then load. No player enters a cell with food, nor one on which another stood before
    the step, and a random one gets a cell that several want. A player beside several loads the food above it, or else
    below, to the left, to the right. Seats are alike: exchanging two players in the state and the actions exchanges
    their observations and rewards, except for such draws between them.

    Actions: stay, up, down, left, right, load. The observation `[2 sight + 1, 2 sight + 1, 4]` is a window of the grid
    about its player. Its channels: the level of food, over `max_food_level`; levels of other players, over
    `max_player_level`; cells beyond the border; the same in all cells, one's own level, over `max_player_level`.

    Infos: `food` levels that a player has got, whether it `loads`, and whether it did so beside food and `failed`.

    Attributes:
      num_agents: the number of players.
      grid_size: width of the square grid.
      sight: cells that a player sees in each direction.
      num_food: pieces of food at the reset.
      max_player_level: of players.
      min_food_level: of food; `min_food_level=max_food_level` asks for several players at each piece.
      max_food_level: of food.
      normalize: whether rewards are shares of all food.
      penalty: for loading without success.
      episode_length: steps until the time limit.

    Source: Christianos, Schäfer and Albrecht, Shared Experience Actor-Critic for Multi-Agent Reinforcement Learning
    (2020), arXiv:2006.07169; Papoudakis et al., Benchmarking Multi-Agent Deep Reinforcement Learning Algorithms in
    Cooperative Tasks (2021), arXiv:2006.07869. In the authors' code no two pieces of food are neighbours; where several
    players want one cell, all of them stay; and without normalisation each player that takes part gets its level times
    that of the food.
    """

    num_agents: int = static(4)
    grid_size: int = static(8)
    sight: int = static(4)
    num_food: int = static(4)
    max_player_level: int = static(2)
    min_food_level: int = static(1)
    max_food_level: int = static(3)
    normalize: bool = static(True)
    penalty: Scalar = 0.0
    episode_length: Scalar = 100

    def __post_init__(self) -> None:
        checks.size("grid_size", self.grid_size, 3, 64)
        checks.size("num_food", self.num_food, 1, min(64, (self.grid_size - 2) ** 2))
        checks.size("num_agents", self.num_agents, 1, self.grid_size**2 - self.num_food)
        checks.size("sight", self.sight, 1, 63)
        checks.size("max_player_level", self.max_player_level, 1, 1000)
        checks.size("max_food_level", self.max_food_level, 1, 1000)
        checks.size("min_food_level", self.min_food_level, 1, self.max_food_level)
        checks.choice("normalize", self.normalize, (True, False))
        checks.number("penalty", self.penalty)
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def grid(self) -> grid.Grid:
        return grid.Grid(("." * self.grid_size,) * self.grid_size)

    def reset(self, key: jax.Array) -> tuple[Observations, ForagingState]:
        n, size, inner = self.num_agents, self.grid_size, self.grid_size - 2
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        places = jnp.stack(boards.distinct(seed, 0, self.num_food, inner**2))
        food = 1 + jnp.stack([places // inner, places % inner], -1)
        lies = boards.union(boards.single(food[:, 0] * size + food[:, 1], self.grid.words))
        start, everyone = jnp.zeros((n, 2), jnp.int32), jnp.ones(n, bool)
        free = jnp.asarray(self.grid.board(".")) & ~lies
        positions, _ = self.grid.drop(start, start[:, 0], everyone, free, seed, self.num_food)
        words = boards.spread(seed, LEVEL_LABELS + jnp.arange(n + self.num_food))
        levels = 1 + draw_integer(words[:n], self.max_player_level)[0]
        # A piece has four sides, on which the four highest levels lift the most.
        most = jnp.minimum(self.max_food_level, jnp.sort(levels)[-4:].sum())
        least = jnp.minimum(self.min_food_level, most)
        food_levels = least + draw_integer(words[n:], most - least + 1)[0]
        zero = jnp.zeros((), jnp.int32)
        state = ForagingState(positions, levels, food, food_levels, food_levels.sum(), jnp.zeros(n, bool), zero)
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        n, everyone = self.num_agents, jnp.ones(self.num_agents, bool)
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        loads, there = acts == LOAD, state.food_levels > 0
        cells = boards.single(self.grid.cell(state.food), self.grid.words)
        lies = boards.union(jnp.where(there[:, None], cells, 0))
        up = jnp.zeros(n, jnp.int32)  # all face up, so that forward, back, step left and right are the four sides
        positions, _ = self.grid.move(state.positions, up, jnp.where(loads, 0, acts), everyone, everyone, seed, lies)

        beside = (positions[:, None, None] + SIDES == state.food[None, :, None]).all(-1) & there[:, None]
        first = jnp.where(beside, jnp.arange(4), 4).min(2)  # [n, num_food], the side on which food lies
        lifts = (first < 4) & (first == first.min(1, keepdims=True)) & loads[:, None]
        strength = (lifts * state.levels[:, None]).sum(0)
        taken = there & (strength >= state.food_levels)
        share = lifts * state.levels[:, None] / jnp.maximum(strength, 1)
        got = (share * jnp.where(taken, state.food_levels, 0)).sum(1)
        failed = (lifts & ~taken).any(1)
        rewards = (got / state.worth if self.normalize else got) - self.penalty * failed
        state = state.replace(
            positions=positions, food_levels=jnp.where(taken, 0, state.food_levels), loads=loads, time=state.time + 1
        )
        done = (state.food_levels == 0).all()
        dones, ending = self._ending(done, state.time >= self.episode_length)
        infos = ending | {
            "food": got.astype(jnp.float32),
            "loads": loads.astype(jnp.float32),
            "failed": failed.astype(jnp.float32),
        }
        return self.get_obs(state), state, self._by_agent(rewards.astype(jnp.float32)), dones, infos

    def get_obs(self, state: ForagingState) -> Observations:
        n, window = self.num_agents, np.arange(-self.sight, self.sight + 1)
        rows = state.positions[:, 0, None, None] + window[:, None]
        columns = state.positions[:, 1, None, None] + window[None]
        food = self._seen(rows, columns, state.food, state.food_levels[None] / self.max_food_level)
        levels = state.levels / self.max_player_level
        others = self._seen(rows, columns, state.positions, levels[None] * ~np.eye(n, dtype=bool))
        beyond = (rows < 0) | (rows >= self.grid_size) | (columns < 0) | (columns >= self.grid_size)
        own = jnp.broadcast_to(levels[:, None, None], food.shape)
        return self._by_agent(jnp.stack([food, others, beyond.astype(jnp.float32), own], -1))

    @staticmethod
    def _seen(rows: jax.Array, columns: jax.Array, places: jax.Array, values: jax.Array) -> jax.Array:
        """Values of things at `places` `[k, 2]`, `[1 or n, k]` to each viewer, in the cells `[n, size, size]`."""
        seen = jnp.zeros(jnp.broadcast_shapes(rows.shape, columns.shape), jnp.float32)
        for i in range(len(places)):
            here = (rows == places[i, 0]) & (columns == places[i, 1])
            seen += jnp.where(here, values[:, i, None, None], 0.0)
        return seen

    def observation_space(self, agent: str) -> Box:
        width = 2 * self.sight + 1
        return Box(0.0, 1.0, (width, width, 4), image=True)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(6)

    def render(self, state: Any) -> np.ndarray:
        canvas = self.grid.canvas()
        for piece in np.flatnonzero(np.asarray(state.food_levels)):
            place = (int(state.food[piece, 0]) + 1, int(state.food[piece, 1]) + 1)
            canvas.disc(*place, FOOD, 0.75)
            canvas.text(*place, str(int(state.food_levels[piece])), "#FFFFFF", 0.5)
        for i, (row, column) in enumerate(np.asarray(state.positions) + 1):
            color = PLAYERS[i % len(PLAYERS)]
            canvas.square(int(row), int(column), color, 0.7, outline=bool(state.loads[i]))
            canvas.text(int(row), int(column), str(int(state.levels[i])), "#FFFFFF", 0.5)
        return canvas.image()
