"""Counts, speeds and durations as words, and one line of them on the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def many(number: int, noun: str) -> str:
    """A number with a noun: `1 agent`, `2 agents`, `4,096 fresh trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount(number: float) -> str:
    """A count or a speed in a few characters: `3.2`, `450`, `12,345`, `0.45 M`, `1,200 M`."""
    if number < 1e5:
        return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    millions = number / 1e6
    return f"{millions:,.{2 if millions < 10 else 1 if millions < 100 else 0}f} M"


def duration(seconds: float) -> str:
    """Seconds, one at least, minutes, hours or days, as words."""
    for unit, length, most in (("s", 1, 90), ("min", 60, 240), ("h", 3600, 72)):
        if seconds < most * length:
            return f"{max(seconds / length, 1):.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"


def say(console: Console, words: str) -> None:
    """One line of plain text."""
    console.print(words, highlight=False, markup=False, soft_wrap=True)
