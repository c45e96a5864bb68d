"""Spaces: draws of integers up to the bounds of their type, and actions of another shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import Box, MultiDiscrete
from games.core.spaces import refuse_impossible

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("low", "high"), [(-np.inf, np.inf), (-(2**31), 2**31 - 1), (0, 2**31 - 1), (-5, np.inf), (-3, 4)]
)
def test_boxes_of_integers_are_drawn_between_their_bounds(low, high):
    drawn = np.asarray(Box(low, high, (4096,), "int32").sample(KEY), np.float64)
    least, most = max(low, -(2**31)), min(high, 2**31 - 1)
    assert (least <= drawn.min(), drawn.max() <= most) == (True, True)
    assert drawn.mean() == pytest.approx((least + most) / 2, abs=5 * (most - least + 1) / 12**0.5 / 64)
    assert drawn.std() == pytest.approx((most - least + 1) / 12**0.5, rel=0.05)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8])
def test_a_box_of_integers_without_bounds_has_those_of_its_type(dtype):
    space = Box(-np.inf, np.inf, (2,), dtype).to_gymnasium()
    assert (space.low[0], space.high[0]) == (np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert space.contains(np.zeros(2, dtype))


def test_an_action_of_another_shape_is_refused():
    space = MultiDiscrete((2, 4))
    refuse_impossible("action", [1, 3], space)
    for action in ([1, 3, 0], 1, [[1, 3]]):
        with pytest.raises(ValueError, match=r"action: got .*; whole numbers from 0 to 1, 3 is needed"):
            refuse_impossible("action", action, space)


def test_actions_of_half_precision_are_allowed():
    for dtype in ("bfloat16", "float16"):
        refuse_impossible("action", jnp.ones(2, dtype), Box(-1, 1, (2,)))
        with pytest.raises(ValueError, match=r"action: got .*nan.*; an array in \[-1, 1\] is needed"):
            refuse_impossible("action", jnp.full(2, jnp.nan, dtype), Box(-1, 1, (2,)))
