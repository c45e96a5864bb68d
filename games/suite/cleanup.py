"""Clean-up: apples grow only while the river is kept clean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from games.core import checks
from games.core.game import Infos, Observations, Scalar, static
from games.core.random_bits import draw_integer, uniform
from games.suite.commons import APPLE_LABELS, WASTE, WATER, Commons, CommonsState
from games.toolbox import boards, grid

SMALL = (
    "HHRHHHRHH",
    "HRHHRHHRH",
    "RHHRHHHRH",
    ".........",
    ".P.P.P.P.",
    ".........",
    "P..P.P..P",
    ".........",
    "AAAAAAAAA",
    "AAAAAAAAA",
)
CLEAN = grid.BEAM + 1


@struct.dataclass
class CleanupState(CommonsState):
    """The state of the commons, and the waste in the river."""

    waste: jax.Array  # `[words]`


@struct.dataclass(eq=False)
class Cleanup(Commons):
    """Players eat apples, worth 1 each, in an orchard that only grows while a river far from it is clean.

    With a share w of the river covered with waste, every site without apple and without player grows one with
    probability `growth * clip((depletion - w) / (depletion - restoration), 0, 1)`: none from `depletion` on. In every
    step, with `waste_probability`, one random clean cell of the river is polluted. Cleaning leaves no time to
    eat, and the apples are for all: a public good. At the reset there are no apples, and so much waste that none grow.

    The cleaning beam is as wide as the zap beam, and each lane of it removes the first waste that it gets to. The zap
    beam removes each player that it hits for `zap_steps`, after which the player returns to a random free place `P`, in
    a random direction. One may walk through the river.

    All act at once: players move, eat, zap and clean; then waste falls, and then apples grow. A random one gets a cell
    that several want. Seats are alike: to exchange two players in the state and the actions exchanges observations and
    rewards, up to which of them wins such a draw and where they return.

    Actions: stay, forward, back, step left, step right, turn left, turn right, zap, clean; in all but the turns one
    looks the same way as before. The observation `[view_size, view_size, 8]` is a window of the grid, turned with its
    player, who stands in the middle of the last row but one and looks up. Its channels: apples; the river; waste;
    walls; other players who look the same way, to the right, towards one, to the left. It is all zero while one is
    away.

    Infos: `apples` eaten, cells `cleaned`, `zaps` fired, whether one was `zapped`, whether one is `away`, and `waste`,
    the share of the river that is covered, the same for all.

    Attributes:
      growth: greatest probability of an apple on a site in a step.
      depletion: share of waste from which on nothing grows.
      restoration: share of waste up to which apples grow fastest.
      waste_probability: of one more cell with waste in a step.
      waste_delay: steps at the beginning in which no waste falls.
      layout: one string for each row: `H` is river with waste at the reset, `R` is clean river, `A` where apples grow,
        `P` where players start and return, `#` a wall.
      num_agents, view_size, beam_length, beam_radius, zap_steps, zap_cost, zap_penalty, episode_length: as there.

    Source: Hughes et al., Inequity Aversion Improves Cooperation in Intertemporal Social Dilemmas (2018),
    arXiv:1803.08884; the numbers of Melting Pot's, arXiv:2107.06857, but for `waste_delay`, 50
    there and in `cleanup_large`. The map is our own.
    """

    layout: tuple[str, ...] = static(SMALL)
    zap_steps: Scalar = 50
    growth: Scalar = 0.05
    depletion: Scalar = 0.4
    restoration: Scalar = 0.0
    waste_probability: Scalar = 0.5
    waste_delay: Scalar = 0

    letters = ".A#PHR"
    actions = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid.count("HR"):
            raise ValueError(f"layout: got {self.layout!r}; a river, letters H or R, is needed")
        checks.number("growth", self.growth, 0, 1)
        checks.number("depletion", self.depletion, 0, 1, brackets="(]")
        checks.number("restoration", self.restoration, 0, 1, brackets="[)")
        checks.number("waste_probability", self.waste_probability, 0, 1)
        checks.whole("waste_delay", self.waste_delay, 0)
        if checks.known(self.depletion, self.restoration):
            checks.number("restoration", self.restoration, 0, self.depletion, brackets="[)")

    def reset(self, key: jax.Array) -> tuple[Observations, CleanupState]:
        state = CleanupState(**self._start(key), waste=self._board("H"))
        return self.get_obs(state), state

    def _grow(self, state: Any, seed: Sequence[jax.Array], acts: jax.Array) -> tuple[Any, jax.Array, Infos]:
        world, river = self.grid, self.grid.count("HR")
        reaches, cells = world.first(state.positions, state.directions, self.beam_length, self.beam_radius, state.waste)
        cleaned = reaches & (acts == CLEAN)[:, None]
        waste = state.waste & ~boards.union(world.marked(cells, cleaned), (0, 1))
        chance, which = boards.spread(seed, jnp.array([APPLE_LABELS - 1, APPLE_LABELS - 2]))
        clean = self._board("HR") & ~waste
        num_clean = boards.count(clean)
        falls = (uniform(chance) < self.waste_probability) & (num_clean > 0) & (state.time > self.waste_delay)
        fallen = boards.single(boards.nth(clean, draw_integer(which, num_clean)[0]), world.words)
        waste |= jnp.where(falls, fallen, 0)
        share = boards.count(waste) / river
        health = jnp.clip((self.depletion - share) / (self.depletion - self.restoration), 0, 1)
        (grown,) = boards.bernoulli(seed, APPLE_LABELS, world.words, self.growth * health)
        infos = {
            "cleaned": cleaned.sum(1).astype(jnp.float32),
            "waste": jnp.full(self.num_agents, share, jnp.float32),
        }
        return state.replace(waste=waste), grown, infos

    def _things(self, state: CleanupState) -> list[jax.Array]:
        return [state.apples, self._board("HR"), state.waste]

    def _draw(self, canvas: Any, state: Any) -> None:
        super()._draw(canvas, state)
        self.grid.draw_cells(canvas, self.grid.board("HR"), WATER)

    def _draw_things(self, canvas: Any, state: Any) -> None:
        self.grid.draw_cells(canvas, state.waste, WASTE, 0.8)
        super()._draw_things(canvas, state)
