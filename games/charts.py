"""Bar charts: pictures of games that are numbers rather than places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from games.drawing import INK, LINE, Canvas, Color

_LABEL, _BAR, _VALUE = 3.0, 5.0, 3.0  # widths in cells


def bars(title: str, entries: Sequence[tuple[str, float, str, Color]]) -> np.ndarray:
    """A title and below it one bar for each (label, length in [0, 1], words beside it, colour); RGB of uint8."""
    canvas = Canvas(len(entries) + 1, round(_LABEL + _BAR + _VALUE), grid=False)
    canvas.text(0, (_LABEL + _BAR + _VALUE) / 2 - 0.5, title, INK, 0.5)
    for row, (label, length, words, color) in enumerate(entries, 1):
        canvas.text(row, _LABEL / 2 - 0.5, label, INK, 0.4)
        for width, paint in ((_BAR, LINE), (_BAR * float(np.clip(length, 0.01, 1.0)), color)):
            canvas.square(row, _LABEL + width / 2 - 0.5, paint, width, height=0.6)
        canvas.text(row, _LABEL + _BAR + _VALUE / 2 - 0.5, words, INK, 0.4)
    return canvas.image()
