"""The list of all games, kept in a file because making every game takes seconds.

`python -m games.catalogue` writes the file again, after a game or gymnax has changed.
"""

from __future__ import annotations

import csv
import io
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

from configs import plugins

FILE = "catalogue.csv"


class Row(NamedTuple):
    """Facts of a game as the list shows them."""

    game: str
    agents: str
    observation: str
    actions: str
    description: str


def rows() -> list[Row]:
    """All games; from the file if it is of the installed gymnax, otherwise by making each of them."""
    first, *lines = (resources.files("games") / FILE).read_text(encoding="utf-8").splitlines()
    if first != _origin():
        return compute()
    found = [Row(*row) for row in csv.reader(lines)]
    if "games.registry" not in sys.modules and not plugins.offers("games"):
        return found
    from games import registry

    known = {row.game: row for row in found}
    ours = [known.get(name) or facts(name) for name in registry.ours()]
    return [*ours, *(row for row in found if row.game not in registry.ours())]


def compute() -> list[Row]:
    """All games, each of which is made for it."""
    from games import registry

    return [facts(name) for name in registry.names()]


def facts(name: str) -> Row:
    """A game as the list shows it."""
    from games import registry

    game = registry.make(name)
    agent = game.agents[0]
    spaces = _words(game.observation_space(agent)), _words(game.action_space(agent))
    return Row(name, str(game.num_agents), *spaces, registry.describe(name))


def _words(space: object) -> str:
    from games.core.spaces import Box, Discrete, MultiDiscrete

    if isinstance(space, Discrete):
        return f"{space.n} discrete"
    if isinstance(space, MultiDiscrete):
        return " x ".join(map(str, space.nvec)) + " discrete"
    assert isinstance(space, Box)
    return " x ".join(map(str, space.shape)) or "a number"


def _origin() -> str:
    return f"# gymnax {metadata.version('gymnax')}"


def text() -> str:
    """Contents of the file."""
    found = io.StringIO()
    csv.writer(found, lineterminator="\n").writerows(compute())
    return f"{_origin()}\n{found.getvalue()}"


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(text(), encoding="utf-8", newline="\n")
