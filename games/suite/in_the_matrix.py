"""Matrix games in a gridworld: players collect resources, which are mixed strategies, and meet to play."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.spaces import Box, Discrete
from games.exact.matrix import (
    ACTION_NAMES,
    MatrixGame,
    action_names,
    battle_of_the_sexes,
    hawk_dove,
    matching_pennies,
    stag_hunt,
)
from games.toolbox import boards, grid
from games.toolbox.drawing import INK, PLAYERS, payoff_table, stacked

# Prisoner's dilemma and chicken as in Melting Pot: a meeting must pay, or else players learn to avoid one another.
PRISONERS_DILEMMA = (((3.0, 3.0), (0.0, 5.0)), ((5.0, 0.0), (1.0, 1.0)))
CHICKEN = (((3.0, 3.0), (2.0, 5.0)), ((5.0, 2.0), (0.0, 0.0)))
ROCK_PAPER_SCISSORS = (
    ((0.0, 0.0), (-1.0, 1.0), (1.0, -1.0)),
    ((1.0, -1.0), (0.0, 0.0), (-1.0, 1.0)),
    ((-1.0, 1.0), (1.0, -1.0), (0.0, 0.0)),
)
_NAMES = (
    (PRISONERS_DILEMMA, ACTION_NAMES["prisoners_dilemma"]),
    (CHICKEN, ACTION_NAMES["chicken"]),
    (ROCK_PAPER_SCISSORS, ("rock", "paper", "scissors")),
)
RESOURCES = ("#009E73", "#D55E00", "#F0E442", "#56B4E9", "#CC79A7", "#E69F00")  # by kind
MOST_KINDS = 26  # a view is bits of one word, of which walls, players and marks take six


@struct.dataclass
class InTheMatrixState:
    """Sets of cells are boards of bits, see `games.toolbox.boards`."""

    positions: jax.Array  # `[n, 2]`, row and column
    directions: jax.Array  # `[n]`, up, right, down, left
    resources: jax.Array  # `[kinds, words]`, where resources of each kind lie
    held: jax.Array  # `[n, kinds, words]`, where those lay that a player holds
    freeze: jax.Array  # `[n]`, steps until the player may act again
    partner: jax.Array  # `[n]`, the player's last partner; without meaning unless it is frozen
    fired: jax.Array  # `[n]`, whether the beam was fired in the last step; for pictures
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class InTheMatrix(Game):
    """Players gather resources of K kinds, one for each action of a matrix game, and play it when they meet.

    A player picks up what lies on the cell it walks onto. Its interaction beam covers a rectangle ahead of it. When the
    beam gets to another player, and both hold something, they interact: each plays the mixed strategy in which
    actions have the shares that their resources have in its inventory, and gets the expected payoff at once,
    x^T R y. Then both are frozen for `freeze_steps`, in which each sees what the other holds. In the end what they
    hold returns to where it lay, and both return to random free cells that bear no resource, in random directions.

    All act at once: a random one gets a cell that several want, and no player has more than one interaction in a step;
    which of several possible ones is random too. In a game that is not symmetric, the player of the lower number is the
    row player. Seats are alike: to exchange two players in the state and the actions of a symmetric game exchanges
    observations and rewards, up to which of them wins such a draw and where they return.

    Actions: stay, forward, back, step left, step right, turn left, turn right, interact; in all but the turns one
    looks the same way as before. The observation `[view_size, view_size, 3 K + 6]` is a window of the grid, turned with
    its player, who stands in the middle of the last row but one and looks up. Its channels: resources of each kind
    (K); walls; other players who look the same way, to the right, towards one, to the left; other players who hold
    something; then the same in all cells, the shares of all resources of each kind that one holds (K), and those that
    one's partner holds, while one is frozen (K).

    Infos: `interactions`, whether the agent interacted in this step; `cooperation`, the share of the first kind in
    its inventory if it did, else 0; `resource_0`, `resource_1`, ..., whether it picked up one of that kind.

    Attributes:
      payoffs: `[K, K, 2]`, to the row player and the column player when they play row i and column j.
      num_agents: any number of players from 2 on.
      grid_size: width of the square grid.
      view_size: width of the square view; odd.
      num_resources: of each kind, put on random cells at the reset.
      beam_length: cells that the beam reaches ahead.
      beam_radius: cells that it covers on either side of the middle.
      freeze_steps: from an interaction until both return.
      episode_length: steps until the time limit.

    Source: Vezhnevets et al., Options as Responses (2020), arXiv:1906.01470; Leibo et al., Melting Pot (2021),
    arXiv:2107.06857, for payoffs, view and beam; the small grid: Khan et al., Scaling Opponent Shaping to High
    Dimensional Games (2024), arXiv:2312.12568, and STORM in JaxMARL, arXiv:2311.10090.
    """

    payoffs: Any = PRISONERS_DILEMMA
    num_agents: int = static(2)
    grid_size: int = static(8)
    view_size: int = static(5)
    num_resources: int = static(6)
    beam_length: int = static(3)
    beam_radius: int = static(1)
    freeze_steps: Scalar = 5
    episode_length: Scalar = 152

    costly_reset = True  # resources and players are put onto the grid one after another

    def __post_init__(self) -> None:
        object.__setattr__(self, "payoffs", checks.table("payoffs", self.payoffs))
        shape = np.shape(self.payoffs)[-3:]  # without the axes of games that are stacked for vmap
        wrong = len(shape) != 3 or shape[0] != shape[1] or not 2 <= shape[0] <= MOST_KINDS or shape[2] != 2
        if wrong and (shape or checks.known(self.payoffs)):  # what JAX puts there to describe a tree has no shape
            raise ValueError(f"payoffs: got shape {shape}; a table [K, K, 2] for K of 2 to {MOST_KINDS} is needed")
        checks.size("num_agents", self.num_agents, 2)
        checks.size("grid_size", self.grid_size, 2, 64)
        grid.check_view(self.view_size)
        checks.size("num_resources", self.num_resources, 1)
        checks.size("beam_length", self.beam_length, 1, grid.LARGEST_VIEW)
        checks.size("beam_radius", self.beam_radius, 0, grid.LARGEST_VIEW)
        checks.whole("freeze_steps", self.freeze_steps, 1)
        checks.whole("episode_length", self.episode_length, 1)
        needed = shape[0] * self.num_resources + 2 * self.num_agents if shape else 0
        if needed > self.grid_size**2:
            raise ValueError(f"grid_size: got {self.grid_size}; {needed} cells are needed for resources and players")

    @property
    def num_kinds(self) -> int:
        return int(np.shape(self.payoffs)[-2])

    @property
    def grid(self) -> grid.Grid:
        return grid.Grid(("." * self.grid_size,) * self.grid_size)

    def reset(self, key: jax.Array) -> tuple[Observations, InTheMatrixState]:
        n, kinds, length = self.num_agents, self.num_kinds, self.grid.words
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        number = kinds * self.num_resources + n
        cells = jnp.stack(boards.distinct(seed, 0, number, self.grid.num_cells))
        lie = boards.single(cells[n:].reshape(kinds, self.num_resources), length)
        zeros = jnp.zeros(n, jnp.int32)
        state = InTheMatrixState(
            positions=self.grid.position(cells[:n]),
            directions=(boards.spread(seed, number + jnp.arange(n)) >> 30).astype(jnp.int32),
            resources=boards.union(lie, 1),
            held=jnp.zeros((n, kinds, length), jnp.uint32),
            freeze=zeros,
            partner=zeros,
            fired=jnp.zeros(n, bool),
            time=jnp.zeros((), jnp.int32),
        )
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: InTheMatrixState, actions: Actions) -> Step[InTheMatrixState]:
        n, length = self.num_agents, self.grid.words
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts = jnp.stack([jnp.asarray(actions[agent], jnp.int32) for agent in self.agents])
        active, everyone = state.freeze == 0, jnp.ones(n, bool)
        positions, directions = self.grid.move(state.positions, state.directions, acts, everyone, active, seed)
        here = boards.single(self.grid.cell(positions), length)
        feet = jnp.where(active[:, None], here, 0)
        taken = state.resources[None] & feet[:, None]
        resources, held = state.resources & ~boards.union(feet), state.held | taken

        fired = active & (acts == grid.BEAM)
        inventories = boards.count(held).astype(jnp.float32)  # [n, kinds]
        size = inventories.sum(1)
        hits = self.grid.hits(positions, directions, self.beam_length, self.beam_radius) & fired[:, None]
        meets = self._match((hits | hits.T) & self._pairs(active & (size > 0)), seed, n)
        met, partner = meets.any(1), (meets * jnp.arange(n)).sum(1, dtype=jnp.int32)
        shares = inventories / jnp.maximum(size, 1)[:, None]
        rewards = jnp.where(met, self._payoff(shares, (meets[:, :, None] * shares[None]).sum(1), partner), 0.0)

        freeze = jnp.where(met, self.freeze_steps, jnp.maximum(state.freeze - 1, 0)).astype(jnp.int32)
        back = ~active & (freeze == 0)
        homes = boards.union(resources) | boards.union(held, (0, 1))
        free = jnp.asarray(self.grid.board(".")) & ~homes & ~boards.union(here)
        positions, directions = self.grid.drop(positions, directions, back, free, seed, n + n * n)
        returned = jnp.where(back[:, None, None], held, 0)
        state = InTheMatrixState(
            positions=positions,
            directions=directions,
            resources=resources | boards.union(returned),
            held=held & ~returned,
            freeze=freeze,
            partner=jnp.where(met, partner, state.partner),
            fired=fired,
            time=state.time + 1,
        )
        dones, infos = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        infos |= {"interactions": met.astype(jnp.float32), "cooperation": jnp.where(met, shares[:, 0], 0.0)}
        collected = boards.count(taken).astype(jnp.float32)
        infos |= {f"resource_{kind}": collected[:, kind] for kind in range(self.num_kinds)}
        return self.get_obs(state), state, self._by_agent(rewards), dones, infos

    @staticmethod
    def _pairs(ready: jax.Array) -> jax.Array:
        """Pairs `[n, n]` of two different players that are both ready."""
        return ready[:, None] & ready[None] & ~np.eye(len(ready), dtype=bool)

    @staticmethod
    def _match(possible: jax.Array, seed: Sequence[jax.Array], n: int) -> jax.Array:
        """Pairs that win a lottery among the possible ones `[n, n]`: the best of both players that are still free."""
        if n == 2:
            return possible
        i, j = np.indices((n, n))
        lot = boards.spread(seed, jnp.asarray(n + np.minimum(i, j) * n + np.maximum(i, j)))
        matched = jnp.zeros_like(possible)
        for _ in range(n // 2):  # a loser to a pair that loses itself may still meet another
            best = jnp.where(possible, lot, 0).max(1)
            matched |= possible & (lot == best[:, None]) & (lot == best[None])
            busy = matched.any(1)
            possible &= ~(busy[:, None] | busy[None])
        return matched

    def _payoff(self, own: jax.Array, other: jax.Array, partner: jax.Array) -> jax.Array:
        """Expected payoffs `[n]` of mixed strategies `[n, kinds]`."""
        row = partner > jnp.arange(self.num_agents)
        payoffs = jnp.asarray(self.payoffs, jnp.float32)
        kinds = [(i, j) for i in range(self.num_kinds) for j in range(self.num_kinds)]
        return sum(
            (own[:, i] * other[:, j] * jnp.where(row, payoffs[i, j, 0], payoffs[j, i, 1]) for i, j in kinds),
            start=jnp.zeros(self.num_agents),
        )

    def get_obs(self, state: InTheMatrixState) -> Observations:
        n, kinds = self.num_agents, self.num_kinds
        held = boards.count(state.held).astype(jnp.float32)
        seen = self.grid.view(
            state.positions, state.directions, self.view_size, list(state.resources), jnp.ones(n, bool), held.sum(1) > 0
        )
        shares = held / self.num_resources
        partner = (state.partner[:, None] == jnp.arange(n)) & (state.freeze > 0)[:, None]
        shown = (partner[:, :, None] * shares[None]).sum(1)
        everywhere = jnp.concatenate([jnp.zeros((n, kinds + 6)), shares, shown], 1)
        return self._by_agent(grid.planes(seen, self.view_size, 3 * kinds + 6) + everywhere[:, None, None])

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (self.view_size, self.view_size, 3 * self.num_kinds + 6), image=True)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(8)

    def render(self, state: Any) -> np.ndarray:
        n, kinds, size = self.num_agents, self.num_kinds, self.grid_size
        canvas = self.grid.canvas(n)
        self.grid.draw_beams(canvas, state, state.fired, self.beam_length, self.beam_radius)
        for player in np.flatnonzero(np.asarray(state.freeze)):
            own, other = (tuple(np.asarray(state.positions)[j] + 1.5) for j in (player, int(state.partner[player])))
            canvas.line(own, other, INK, 0.06)
        for color, lie in zip(itertools.cycle(RESOURCES), state.resources):
            self.grid.draw_cells(canvas, lie, color, 0.45)
        self.grid.draw_players(canvas, state, np.ones(n, bool))
        held = np.asarray(boards.count(state.held))
        for i in range(n):
            canvas.triangle(size + 2 + i, 0, PLAYERS[i % len(PLAYERS)], 0, 0.6)
            colors = np.repeat(np.arange(kinds), held[i])
            width = min(0.5, (size + 0.5) / max(len(colors), 1))
            for place, kind in enumerate(colors):
                canvas.disc(size + 2 + i, 1 + place * width, RESOURCES[kind % len(RESOURCES)], 0.9 * width)
        named = [names for payoffs, names in _NAMES if np.array_equal(payoffs, self.payoffs)]
        names = named[0] if named else action_names(self.payoffs) or tuple(map(str, range(kinds)))
        return stacked(canvas.image(), payoff_table(names, names, np.asarray(self.payoffs), marks=RESOURCES))


def in_the_matrix(game: MatrixGame, **params: Any) -> InTheMatrix:
    """A two-action game of `games.exact.matrix`, in the matrix."""
    return InTheMatrix(**{"payoffs": np.stack([np.asarray(game.row), np.asarray(game.column)], -1), **params})


def ipd_in_the_matrix(**params: Any) -> InTheMatrix:
    """The prisoner's dilemma: cooperate or defect."""
    return InTheMatrix(**{"payoffs": PRISONERS_DILEMMA, **params})


def chicken_in_the_matrix(**params: Any) -> InTheMatrix:
    """Chicken: swerve or go straight."""
    return InTheMatrix(**{"payoffs": CHICKEN, **params})


def stag_hunt_in_the_matrix(**params: Any) -> InTheMatrix:
    """The stag hunt: stag or hare."""
    return in_the_matrix(stag_hunt, **params)


def hawk_dove_in_the_matrix(**params: Any) -> InTheMatrix:
    """Hawk and dove: dove or hawk."""
    return in_the_matrix(hawk_dove, **params)


def battle_of_the_sexes_in_the_matrix(**params: Any) -> InTheMatrix:
    """The battle of the sexes, Melting Pot's Bach or Stravinsky: the row player prefers the first kind."""
    return in_the_matrix(battle_of_the_sexes, **params)


def imp_in_the_matrix(**params: Any) -> InTheMatrix:
    """Matching pennies: the row player wants to match."""
    return in_the_matrix(matching_pennies, **params)


def rock_paper_scissors_in_the_matrix(**params: Any) -> InTheMatrix:
    """Running with scissors: rock, paper, scissors, zero-sum with a payoff of 1 for the winner."""
    return InTheMatrix(**{"payoffs": ROCK_PAPER_SCISSORS, **params})
