"""Commons harvest: apples that grow back only near other apples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Infos, Observations, static
from games.suite.commons import APPLE_LABELS, Commons, CommonsState
from games.toolbox import boards

OPEN = (
    "...A....A...",
    "..AAA..AAA..",
    "...A....A...",
    "P..P.PP.P..P",
    "P..P.PP.P..P",
    "...A....A...",
    "..AAA..AAA..",
    "...A....A...",
)


@struct.dataclass(eq=False)
class Harvest(Commons):
    """Players eat apples, worth 1 each. A patch that is eaten bare never recovers: the tragedy of the commons.

    Apples lie on all sites at the reset. A site without apple and without player grows one with a probability that
    depends on how many apples lie within `regrowth_radius`; of none or one, two, ... it takes the corresponding entry
    of `regrowth`, the last for three or more. The zap beam removes each player that it hits for `zap_steps`, after
    which the player returns to a random free place `P`, in a random direction.

    All act at once: players move, eat and zap, and two may hit each other; then apples grow. A random one gets a
    cell that several want. Seats are alike: to exchange two players in the state and the actions exchanges
    observations and rewards, up to which of them wins such a draw and where they return.

    Actions: stay, forward, back, step left, step right, turn left, turn right, zap; in all but the turns one looks the
    same way as before. The observation `[view_size, view_size, 6]` is a window of the grid, turned with its player,
    which stands in the middle of the last row but one and looks up. Its channels: apples; walls; other players who look
    the same way, to the right, towards one, to the left. It is all zero while one is away.

    Infos: `apples` eaten, `zaps` fired, whether one was `zapped`, and whether one is `away`.

    Attributes:
      regrowth: probabilities `[4]` of regrowth with 0, 1, 2, and 3 or more apples near by.
      regrowth_radius: Euclidean distance up to which an apple is near by.
      layout, num_agents, view_size, beam_length, beam_radius, zap_steps, zap_cost, zap_penalty, episode_length: as in
        `games.suite.commons.Commons`.

    Source: Perolat et al., A Multi-Agent Reinforcement Learning Model of Common-Pool Resource Appropriation (2017),
    arXiv:1707.06600; Hughes et al., Inequity Aversion (2018), arXiv:1803.08884, with `zap_steps=0, zap_cost=1,
    zap_penalty=50` for its fines; the radius and the beam of Melting Pot, arXiv:2107.06857; the regrowth of Vinitsky et
    al., An Open Source Implementation of Sequential Social Dilemma Games (2019). The map is our own.
    """

    layout: tuple[str, ...] = static(OPEN)
    regrowth: Any = (0.0, 0.005, 0.02, 0.05)
    regrowth_radius: int = static(2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if checks.known(self.regrowth) and np.shape(self.regrowth)[-1:] != (4,):
            raise ValueError(f"regrowth: got {self.regrowth!r}; probabilities for 0, 1, 2 and more apples are needed")
        object.__setattr__(self, "regrowth", checks.table("regrowth", self.regrowth, 0, 1))
        checks.size("regrowth_radius", self.regrowth_radius, 1, 16)

    def reset(self, key: jax.Array) -> tuple[Observations, CommonsState]:
        state = CommonsState(**self._start(key) | {"apples": self._board("A")})
        return self.get_obs(state), state

    def _grow(
        self, state: CommonsState, seed: Sequence[jax.Array], acts: jax.Array
    ) -> tuple[CommonsState, jax.Array, Infos]:
        world, p = self.grid, self.regrowth
        near = boards.neighbours(state.apples, world.columns, world.num_cells, self.regrowth_radius)
        none, *some = boards.bernoulli(seed, APPLE_LABELS, world.words, *(p[i] for i in range(4)))
        grown = none & ~near[0]
        for i in range(3):
            grown |= some[i] & near[i] & ~(near[i + 1] if i < 2 else jnp.uint32(0))
        return state, grown, {}
