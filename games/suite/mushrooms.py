"""Mushrooms whose benefit goes to the eater, to all, to the others, or to none."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Observations, Scalar, Step, static
from games.core.random_bits import draw_integer, uniform
from games.suite.gridworld import Zapping, ZappingState
from games.toolbox import boards, grid

KINDS = ("red", "green", "blue", "orange")
COLORS = ("#D62728", "#2CA02C", "#1F77B4", "#FF9F1C")
SOIL = "#EEE6D8"
SPORE_LABELS = 1 << 20  # of the random words that decide whether and where spores grow
GARDEN = (
    "MMMMM.P.MMMMMMM.P.MMMMM",
    "MRMMM...MMGMMMM...MMBMM",
    "MMMGMP.PMMMMMMMP.PMMMMM",
    "MMMMM...MMMMRMM...MMMRM",
    ".P...P.......P...P...P.",
    "MMMMM.P.MMMMMMM.P.MMMMM",
    "MBMMM...MMMOMMM...MMMGM",
    "MMMRMP.PMMMMMMMP.PMRMMM",
    ".P...P...P.......P...P.",
    "MMMMM...MMMMMMM...MMMMM",
    "MMGMM.P.MBMMMRM.P.MMMMM",
    "MMMMM...MMMMMMM...MMBMM",
)


@struct.dataclass
class MushroomsState(ZappingState):
    """The mushrooms, and the players that digest one."""

    mushrooms: jax.Array  # `[4, words]`, red, green, blue, orange
    digests: jax.Array  # `[n]`, steps until the player may act again


@struct.dataclass(eq=False)
class Mushrooms(Zapping):
    """Players eat mushrooms of four kinds, which pay different players and decide what grows next.

    A red one pays its eater `red_reward`. A green one pays `green_reward`, shared equally by all players. A blue one
    pays `blue_reward`, shared equally by all but its eater. An orange one costs every player `orange_cost`. The eater
    of a mushroom digests for so many steps as `digestion` says of its kind, in which it stays where it is.

    A mushroom that is eaten releases spores: `spores[k]` of each kind k. Of these each grows with probability
    `growth[eaten][k]`, on a random site without mushroom and without player; of two on one site one grows, and no more
    than `limits[k]` of a kind stand at a time. So red ones pay and
    grow for their eaters alone, and green and blue ones die out where all eat the red ones.

    All act at once: players move, eat and zap, and then mushrooms grow. A random one gets a cell that several want. The
    zap beam removes each player that it hits for `zap_steps`, after which the player returns to a random free place
    `P`, in a random direction. Seats are alike: exchanging two players in the state and the actions exchanges their
    observations and rewards, except for such draws between them.

    Actions: stay, forward, back, step left, step right, turn left, turn right, zap; in all but the turns one looks the
    same way as before. The observation `[view_size, view_size, 10]` is a window of the grid, turned with its
    player, which stands in the middle of the last row but one and looks up. Its channels: red, green, blue and orange
    mushrooms; walls; other players that look the same way, to the right, towards one, to the left; other players that
    digest. It is all zero while one is away.

    Infos: mushrooms of each kind that a player has eaten (`red`, `green`, `blue`, `orange`), whether it is `digesting`,
    `zaps` fired, whether it was `zapped`, and whether it is `away`.

    Attributes:
      red_reward: to the eater.
      green_reward: shared by all.
      blue_reward: shared by all others.
      orange_cost: to each player.
      growth: probabilities `[4, 4]`, of a spore of the second kind when one of the first is eaten.
      spores: `(4,)`, spores of each kind that a mushroom releases.
      limits: `(4,)`, most mushrooms of each kind.
      digestion: steps `[4]`, by kind.
      layout: one string for each row: `R`, `G`, `B`, `O` where a mushroom of a kind stands at the reset, `M` another
        site where they grow, `P` where players start and return, `#` a wall.
      num_agents, view_size, episode_length: as in `games.suite.gridworld.Gridworld`.
      beam_length, beam_radius, zap_steps, zap_cost, zap_penalty: as in `games.suite.gridworld.Zapping`.

    Source: externality mushrooms of Melting Pot 2.0 (Agapiou et al., 2022), arXiv:2211.13746; the numbers of SocialJax
    (Guo et al., 2025), arXiv:2503.14576. The map is our own.
    """

    layout: tuple[str, ...] = static(GARDEN)
    num_agents: int = static(6)
    spores: tuple[int, ...] = static((2, 2, 2, 1))
    limits: tuple[int, ...] = static((10, 10, 10, 1))
    red_reward: Scalar = 1.0
    green_reward: Scalar = 2.0
    blue_reward: Scalar = 3.0
    orange_cost: Scalar = 0.2
    growth: Any = ((0.25, 0.0, 0.0, 0.0), (0.25, 0.4, 0.0, 0.0), (0.25, 0.4, 0.6, 0.0), (0.25, 0.0, 0.0, 1.0))
    digestion: Any = (10, 15, 20, 0)

    letters = ".RGBOMP#"

    def __post_init__(self) -> None:
        for name in ("spores", "limits"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        super().__post_init__()
        checks.size("num_agents", self.num_agents, 2)
        for name, largest in (("spores", 8), ("limits", 100)):
            value = getattr(self, name)
            whole = isinstance(value, tuple) and all(type(x) is int and 0 <= x <= largest for x in value)
            if not whole or len(value) != len(KINDS):
                raise ValueError(f"{name}: got {value!r}; four integers from 0 to {largest} are needed")
        for name in ("red_reward", "green_reward", "blue_reward", "orange_cost"):
            checks.number(name, getattr(self, name))
        for name, shape, most in (("growth", (4, 4), 1.0), ("digestion", (4,), 1000.0)):
            value = checks.table(name, getattr(self, name), 0, most)
            if checks.known(value) and np.shape(value)[-len(shape) :] != shape:
                raise ValueError(f"{name}: got shape {np.shape(value)}; {shape} is needed")
            object.__setattr__(self, name, value)

    def reset(self, key: jax.Array) -> tuple[Observations, MushroomsState]:
        mushrooms = jnp.stack([self._board(letter) for letter in "RGBO"])
        digests = jnp.zeros(self.num_agents, jnp.int32)
        state = MushroomsState(**self._start(key), mushrooms=mushrooms, digests=digests)
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: Any, actions: Actions) -> Step[Any]:
        seed = list(jax.random.bits(key, (2,), jnp.uint32))
        acts, present, positions, directions = self._move(state, actions, seed, state.digests == 0)
        here = jnp.where(present[:, None], boards.single(self.grid.cell(positions), self.grid.words), 0)
        ate = ((here[:, None] & state.mushrooms[None]) != 0).any(-1)  # [n, 4]
        away, fines, zap_infos = self._zap(state, positions, directions, acts, present)
        rewards = self._payoffs(ate) - fines

        steps = (ate * jnp.asarray(self.digestion)).sum(1)
        digests = jnp.where(ate.any(1), steps, jnp.maximum(state.digests - 1, 0)).astype(jnp.int32)
        taken = boards.union(here)
        mushrooms = state.mushrooms & ~taken
        state = state.replace(
            positions=positions,
            directions=directions,
            away=away,
            digests=jnp.where(away > 0, 0, digests),
            fired=jnp.where(acts >= grid.BEAM, acts, 0),
            time=state.time + 1,
            mushrooms=mushrooms | self._grown(ate, mushrooms, taken, seed),
        )
        state = self._return(state, present, taken, seed)
        dones, ending = self._ending(jnp.zeros((), bool), state.time >= self.episode_length)
        counts = {kind: ate[:, i].astype(jnp.float32) for i, kind in enumerate(KINDS)}
        infos = ending | counts | {"digesting": (state.digests > 0).astype(jnp.float32)} | zap_infos
        return self.get_obs(state), state, self._by_agent(rewards.astype(jnp.float32)), dones, infos

    def _payoffs(self, ate: jax.Array) -> jax.Array:
        """The payoffs `[n]` of the mushrooms `[n, 4]` that were eaten."""
        red, green, blue, orange = ate.astype(jnp.float32).T
        by_others = (blue.sum() - blue) / (self.num_agents - 1)
        shared = self.green_reward * green.sum() / self.num_agents - self.orange_cost * orange.sum()
        return self.red_reward * red + self.blue_reward * by_others + shared

    def _grown(self, ate: jax.Array, standing: jax.Array, taken: jax.Array, seed: Any) -> jax.Array:
        """Boards `[4, words]` of the mushrooms that grow from the spores of those that were eaten."""
        n, world = self.num_agents, self.grid
        occupied = boards.union(standing) | taken
        sites = self._board("RGBOM") & ~occupied
        room = jnp.asarray(self.limits) - boards.count(standing)
        label, grown = SPORE_LABELS, []
        for kind, spores in enumerate(self.spores):
            labels = label + jnp.arange(2 * n * spores).reshape(2, n, spores)
            label += 2 * n * spores
            chance = (ate * jnp.asarray(self.growth)[:, kind]).sum(1)
            grows = (uniform(boards.spread(seed, labels[0])) < chance[:, None]).ravel()
            grows &= (jnp.cumsum(grows) <= room[kind]) & (boards.count(sites) > 0)
            where = draw_integer(boards.spread(seed, labels[1]).ravel(), boards.count(sites))[0]
            falls = jnp.where(grows[:, None], boards.single(boards.nth(sites, where), world.words), 0)
            grown.append(boards.union(falls))
            sites &= ~grown[-1]
        return jnp.stack(grown)

    def _things(self, state: MushroomsState) -> list[jax.Array]:
        return list(state.mushrooms)

    def _marked(self, state: MushroomsState) -> jax.Array:
        return state.digests > 0

    def _draw(self, canvas: Any, state: Any) -> None:
        self.grid.draw_cells(canvas, self.grid.board("RGBOM"), SOIL)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        for color, board in zip(COLORS, state.mushrooms, strict=True):
            self.grid.draw_cells(canvas, board, color, 0.55)
