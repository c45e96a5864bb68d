"""Trained files of learners for exact games, from the library or from the user."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from games import InfinitelyRepeated, MatrixGame
from marl.trained import folder
from meta.runs.array_files import Arrays, digest, load_arrays


def game_metadata(game: InfinitelyRepeated) -> dict[str, Any]:
    """The properties of a game on which a trained file depends."""
    payoffs = game.payoffs
    return {
        "row_payoffs": [float(x) for x in payoffs.row_payoffs],
        "column_payoffs": [float(x) for x in payoffs.column_payoffs],
        "discount": float(game.discount),
    }


def read_by(spec: str, game: InfinitelyRepeated) -> list[str]:
    """Digests of what learners of a spec read: from the files that it names, and those that come for this game."""
    named = [Path(file) for file in re.findall(r"""file\s*=\s*['"](.+?)['"]""", spec)]
    shipped = [folder() / f"{name}-{game.payoffs.name}.safetensors" for name in re.findall(r"\w+", spec)]
    return [digest(load_arrays(file)[0]) for file in [*named, *filter(Path.is_file, shipped)]]


def load_trained(method: str, game: InfinitelyRepeated, file: str = "") -> tuple[Arrays, dict[str, Any]]:
    """The result of `python -m marl.METHOD` for a game: from the file, or from the one that comes with the library.

    Args:
      method: the name of the command.
      game: whose payoffs and discount have to be those of the training.
      file: the path; empty for the one that comes with the library.

    Raises:
      ValueError: if there is no such file, if it is damaged, or if it belongs to another method or game; one line.
    """
    path = Path(file) if file else folder() / f"{method}-{game.payoffs.name}.safetensors"
    train_one = f"python -m marl.{method} trains one, to be named by file='...'"
    if not file and not os.path.isfile(path):
        raise ValueError(f"file: none comes with the library for {game.payoffs.name}; {train_one}")
    arrays, metadata = load_arrays(path)
    if metadata.get("method") != method:
        raise ValueError(f"file: got {file!r}; one that python -m marl.{method} wrote is needed")
    if metadata.get("game") != game_metadata(game):
        what = f"got {file!r}, of a game" if file else f"none comes with the library for {game.payoffs.name}"
        turned = MatrixGame.of(game.payoffs.name, *game.payoffs.seen_by(1))
        if metadata.get("game") == game_metadata(InfinitelyRepeated(turned, game.discount)):
            raise ValueError(f"file: {what} as its column sees it, where rows and columns have changed places")
        raise ValueError(f"file: {what} with other payoffs or another discount; {train_one}")
    return arrays, metadata
