"""Pictures of games: a small canvas of cells, drawn on the host with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from configs import shown
from games.core import checks
from games.core.rollout import Rollout

Number = Any  # a number of Python or of NumPy
Color = tuple[int, int, int] | str

# Okabe and Ito (2008): distinguishable with any colour vision. In the order of the agents.
PLAYERS: tuple[str, ...] = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#666666")
PAPER, LINE, WALL, INK = "#FFFFFF", "#DDDDDD", "#555555", "#222222"

_SMOOTH = 3  # drawn larger by this factor, and then scaled down


class Canvas:
    """A grid of cells to draw on; coordinates are (row, column) in cells, and may be fractions.

    Args:
      rows: height in cells.
      columns: width in cells.
      cell: width of a cell in pixels.
      background: colour of all cells.
      grid: whether lines between the cells are drawn.
    """

    def __init__(self, rows: int, columns: int, *, cell: int = 32, background: Color = PAPER, grid: bool = True):
        from PIL import Image, ImageDraw  # here, for it is needed only where there is something to look at

        self._size, self._unit = (columns * cell, rows * cell), cell * _SMOOTH
        self._image = Image.new("RGB", (columns * self._unit, rows * self._unit), background)
        self._draw = ImageDraw.Draw(self._image)
        for i in range(1, rows) if grid else ():
            self._draw.line([(0, i * self._unit), (columns * self._unit, i * self._unit)], LINE, _SMOOTH)
        for i in range(1, columns) if grid else ():
            self._draw.line([(i * self._unit, 0), (i * self._unit, rows * self._unit)], LINE, _SMOOTH)

    def _box(self, row: Number, column: Number, size: Number, height: Number | None = None) -> list[float]:
        """Corners of a box of that size in cells, in the middle of a cell."""
        y, x = (row + 0.5) * self._unit, (column + 0.5) * self._unit
        half, tall = size * self._unit / 2, (size if height is None else height) * self._unit / 2
        return [x - half, y - tall, x + half - 1, y + tall - 1]

    def square(
        self,
        row: Number,
        column: Number,
        color: Color,
        size: Number = 1.0,
        *,
        height: Number | None = None,
        outline: bool = False,
    ) -> None:
        """A square, or a rectangle of another height, about the middle of a cell."""
        self._draw.rectangle(self._box(row, column, size, height), color, INK if outline else None, _SMOOTH)

    def disc(self, row: Number, column: Number, color: Color, size: Number = 0.7, *, outline: bool = False) -> None:
        """A disc in the middle of a cell."""
        self._draw.ellipse(self._box(row, column, size), color, INK if outline else None, _SMOOTH)

    def triangle(self, row: Number, column: Number, color: Color, direction: int, size: Number = 0.8) -> None:
        """A player that looks up, right, down or left (0 to 3)."""
        angle = np.pi / 2 * direction + np.array([0.0, 2.5, -2.5])
        y, x = row + 0.5 - size / 2 * np.cos(angle), column + 0.5 + size / 2 * np.sin(angle)
        corners = [(a * self._unit, b * self._unit) for a, b in zip(x, y, strict=True)]
        self._draw.polygon(corners, color, INK, _SMOOTH)

    def line(self, start: tuple[Number, ...], end: tuple[Number, ...], color: Color, width: float = 0.1) -> None:
        """A line between two points (row, column), from the upper left corner of the canvas, with round ends."""
        points = [(column * self._unit, row * self._unit) for row, column in (start, end)]
        self._draw.line(points, color, round(width * self._unit))
        for x, y in points:
            half = width * self._unit / 2
            self._draw.ellipse([x - half, y - half, x + half, y + half], color)

    def text(self, row: Number, column: Number, words: str, color: Color = INK, size: Number = 0.5) -> None:
        """Words about the middle of a cell."""
        from PIL import ImageFont

        place = ((column + 0.5) * self._unit, (row + 0.5) * self._unit)
        self._draw.text(place, words, color, ImageFont.load_default(size * self._unit), anchor="mm")

    def image(self) -> np.ndarray:
        """The picture, RGB `[height, width, 3]` of uint8."""
        from PIL import Image

        return np.asarray(self._image.resize(self._size, Image.Resampling.BOX))


def mark(frame: np.ndarray, row: Number, column: Number, color: Color = "#CC79A7") -> np.ndarray:
    """The picture with a ring about a point, which is given as shares of its height and width."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(frame)
    image = image.resize((image.width * _SMOOTH, image.height * _SMOOTH), Image.Resampling.NEAREST)
    x, y, radius = column * image.width, row * image.height, image.height / 16
    box = [float(x - radius), float(y - radius), float(x + radius), float(y + radius)]
    ImageDraw.Draw(image).ellipse(box, None, color, round(radius / 3))
    return np.asarray(image.resize(frame.shape[1::-1], Image.Resampling.BOX))


def save_gif(frames: list[np.ndarray], path: str | Path | IO[bytes], *, frames_per_second: float = 4.0) -> None:
    """Writes frames, RGB of equal size, as a GIF that repeats for ever, to a path or an open file."""
    from PIL import Image

    images = [Image.fromarray(np.asarray(frame, np.uint8)) for frame in frames]
    options: dict[str, Any] = {"save_all": True, "append_images": images[1:], "loop": 0, "format": "GIF"}
    images[0].save(path, duration=round(1000 / frames_per_second), **options)


def save_png(frame: np.ndarray, path: str | Path) -> None:
    """Writes a picture as PNG."""
    from PIL import Image

    Image.fromarray(np.asarray(frame, np.uint8)).save(path, format="PNG")


def draw_arm(
    canvas: Canvas, base: tuple[float, float], angles: Sequence[float] | np.ndarray, lengths: float | Sequence[float]
) -> None:
    """Links from a point (row, column) on, each at an angle against the horizontal, counterclockwise; cells."""
    row, column = base
    for angle, length in zip(angles, np.broadcast_to(lengths, len(angles)), strict=True):
        end = (row - length * np.sin(angle), column + length * np.cos(angle))
        canvas.line((row, column), end, PLAYERS[1], 0.22)
        canvas.disc(row - 0.5, column - 0.5, WALL, 0.3)
        row, column = end
    canvas.disc(row - 0.5, column - 0.5, INK, 0.3)


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


_HEAD, _NUMBER = 4.5, 1.9  # widths in cells


def payoff_table(
    rows: Sequence[str],
    columns: Sequence[str],
    payoffs: Any,
    *,
    corner: str = "",
    marks: Sequence[Color] = (),
    played: tuple[int, int] | None = None,
) -> np.ndarray:
    """A table of the payoffs of joint actions, each player's in its colour; RGB of uint8.

    Args:
      rows: the actions of the first player.
      columns: what the others do.
      payoffs: `[rows, columns, players]`, of those players whose payoffs are shown.
      corner: what the columns are.
      marks: colours that stand for the actions elsewhere in the picture.
      played: (row, column) of what was played last, which is marked.
    """
    number = np.shape(payoffs)[-1]
    wide = max(2.5, _NUMBER * number)
    canvas = Canvas(len(rows) + 1, round(_HEAD + wide * len(columns)), cell=24, grid=False)
    canvas.text(0, _HEAD / 2 - 0.5, corner, INK, 0.5)
    for i, row in enumerate(rows, 1):
        canvas.text(i, _HEAD / 2 - 0.5, row, PLAYERS[0], 0.55)
        for color in marks[i - 1 : i]:
            canvas.disc(i, -0.1, color, 0.45)
    for j, column in enumerate(columns):
        middle = _HEAD + wide * (j + 0.5) - 0.5
        canvas.text(0, middle + (0.4 if marks else 0), column, PLAYERS[1] if number == 2 else INK, 0.55)
        for color in marks[j : j + 1]:
            canvas.disc(0, middle + 0.4 - wide / 2, color, 0.45)
        for i in range(len(rows)):
            canvas.square(i + 1, middle, "#FFE9A8" if played == (i, j) else "#F2F2F2", wide - 0.15, height=0.85)
            for player, payoff in enumerate(payoffs[i][j]):
                place = middle + (player - (number - 1) / 2) * wide / number
                canvas.text(i + 1, place, f"{payoff + 0:.3g}", PLAYERS[player % len(PLAYERS)], 0.55)
    return canvas.image()


def stacked(above: np.ndarray, below: np.ndarray, gap: int = 8) -> np.ndarray:
    """Two pictures, RGB, one above the other on white."""
    width = max(above.shape[1], below.shape[1])
    image = np.full((above.shape[0] + gap + below.shape[0], width, 3), 255, np.uint8)
    image[: above.shape[0], : above.shape[1]] = above
    image[above.shape[0] + gap :, : below.shape[1]] = below
    return image


def animate(played: Rollout, path: str | Path | IO[bytes], *, frames_per_second: float = 4.0) -> None:
    """Writes a rollout as a GIF that repeats for ever.

    Args:
      played: one game, `[steps]`.
      path: a path, or an open file.
      frames_per_second: 0.01 or more.

    Raises:
      NotImplementedError: if the game has no pictures.
      ValueError: if it is a batch of rollouts, or the speed is below 0.01.
      OSError: if the file cannot be written.
    """
    checks.number("frames_per_second", frames_per_second, 0.01)  # a GIF counts hundredths of a second in 16 bits
    save_gif(pictures(played), path, frames_per_second=frames_per_second)


def pictures(played: Rollout) -> list[np.ndarray]:
    """The frames of a rollout, RGB, T + 1 of them."""
    if not isinstance(played, Rollout):
        raise TypeError(f"rollout: got {shown(played)}; a Rollout is needed, as games.rollout returns it")
    if played.dones["__all__"].ndim != 1:
        raise ValueError(f"rollout: got a batch of shape {played.dones['__all__'].shape}; one game, [steps], is needed")
    states = jax.tree.map(lambda x, xs: np.concatenate([np.asarray(x)[None], xs]), played.first, played.states)
    return played.game.frames(states)
