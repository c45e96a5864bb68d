"""Figures of a training run."""

import numpy as np
from PIL import Image

from meta.runs.plotting import draw_training


def test_a_single_return_is_visible(tmp_path):
    returns = np.full((10, 2), np.nan)
    returns[7] = -14.5
    with Image.open(draw_training(tmp_path / "one.png", "title", "note", returns, 16)) as picture:
        red, _, blue = np.moveaxis(np.asarray(picture.convert("RGB"), int), -1, 0)
    assert (blue > red + 100).any()
