"""Numbers as words of a sentence."""

from __future__ import annotations


def many(number: int, noun: str) -> str:
    """How many there are: `1 agent`, `2 agents`, `4,096 fresh trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount(number: float) -> str:
    """A count or a speed in a few characters: `3.2`, `450`, `12,345`, `0.45 M`, `1,200 M`."""
    if number < 1e5:
        return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    millions = number / 1e6
    return f"{millions:,.{2 if millions < 10 else 1 if millions < 100 else 0}f} M"
