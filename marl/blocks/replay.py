"""What is remembered of steps, to be learned from more than once."""

from __future__ import annotations

from typing import NamedTuple

import jax


class Transitions(NamedTuple):
    """What is learned from, `[buffer_size, ...]` or those of a minibatch; observations as the game gives them."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    terminated: jax.Array  # whether nothing came after; a time limit does not terminate
